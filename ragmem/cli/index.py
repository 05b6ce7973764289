"""`ragmem index`: the project's files, cut into what they define, ready to be searched."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem.cli.command import command, open_app, say_notices
from ragmem.cli.documents import Document, document
from ragmem.cli.options import Format, commands, option
from ragmem.cli.output import print_one, say, steps, write
from ragmem.config import how_to_set
from ragmem.errors import StoreError, UsageError
from ragmem.records import utc_now
from ragmem.text import ago, counted, hanging, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index.index import CodeIndex
    from ragmem.index.values import IndexStatus, Refreshed
    from ragmem.records import Project

app = commands()

_LOOK_AGAIN_S = 0.5
INDEXED = "files scopes without_vectors size_bytes"
STATUS = "path files scopes languages left_out without_vectors refreshed_at size_bytes watched"
_NAMED = 3
"""Files of a change that are named on its line."""


@command(app, open_app)
async def index(
    opened: "App",
    watch: Annotated[bool, option("--watch", "And keep it current until Ctrl-C.")] = False,
    rebuild: Annotated[bool, option("--rebuild", "Make it anew from all files.")] = False,
    vectors: Annotated[
        bool, option("--vectors", "Wait for the search by meaning too, not only for that by words.")
    ] = False,
    status: Annotated[
        bool, option("--status", "Only show what is indexed; nothing is looked at.")
    ] = False,
    output: Format = "table",
) -> None:
    """Bring the index of this project's code up to date.

    Only what has changed is read. Nothing is sent anywhere, and a chat does it by
    itself.
    """
    if status and (watch or rebuild or vectors):
        raise UsageError("--status only looks: it goes with none of the others.")
    if watch and output == "json":
        raise UsageError("--watch prints lines until Ctrl-C: it does not go with --format json.")
    code = await code_of(opened)
    if status:
        code.refuse()
        _print_status(opened, await code.status(), output)
    else:
        await _index(opened, code, rebuild=rebuild, vectors=vectors, output=output)
        if watch:
            await _watch(opened, code)
    say_notices(opened)


async def code_of(opened: "App") -> "CodeIndex":
    """The index of this folder's project; UsageError where none is kept."""
    code = await opened.code()
    if code is None:
        raise UsageError("The code index is switched off.", hint=how_to_set("code.enabled", "true"))
    return code


async def project_here(opened: "App") -> "Project":
    """This folder's project; while the memory is away, the file system's word counts."""
    from ragmem.memory.projects import locate

    try:
        return (await opened.memory.project_of(opened.cwd)).project
    except StoreError:
        return locate(opened.cwd, (), now=utc_now()).project


async def brought_up_to_date(
    code: "CodeIndex", *, rebuild: bool = False, only_reads: bool = False
) -> "Refreshed":
    """As the disk is now, showing how far it is; waits for another process that is at it.

    Who `only_reads` goes on with what was indexed before where nothing can be written.
    """

    told = False
    try:
        with steps("indexing") as show:
            while (found := await code.refresh(show=show, rebuild=rebuild)).elsewhere:
                if not told:
                    say("Another process of ragmem is indexing this project: waiting for it.\n")
                    told = True
                await asyncio.sleep(_LOOK_AGAIN_S)
    except asyncio.CancelledError:
        say("Stopped. What was indexed stays; run it again to go on.\n")
        raise
    except StoreError as error:
        if not only_reads or not await code.exists():
            raise
        say(f"note: Files that are new since the last look are not found. {visible(str(error))}\n")
        return await code.as_it_is()
    return found


async def _index(
    opened: "App", code: "CodeIndex", *, rebuild: bool, vectors: bool, output: str
) -> None:
    before = await code.status()
    is_first = not before.refreshed_at
    if vectors:
        _check_vectors(opened)
    found = await brought_up_to_date(code, rebuild=rebuild)
    await _make_known(opened)
    await code.mirror()
    if vectors:
        await _embed(code)
    status = await code.status()
    follow = "" if vectors else _follow(opened, status)

    def text(width: int) -> str:
        if not (found.files or found.removed):
            return nothing_text(found, status.path, width=width)
        went_on = is_first and before.files > 0 and not rebuild
        whole = is_first or rebuild
        return refreshed_text(found, follow=follow, whole=whole, width=width, went_on=went_on)

    print_one(output, lambda: status_document(status, found), text, pipe=100)
    await opened.leave_background()


async def _make_known(opened: "App") -> None:
    """A project without a session is one too: the process in the background is to find it."""
    from ragmem.memory.projects import registrations

    if not opened.memory.records:
        return
    with suppress(StoreError):
        located = await opened.memory.project_of(opened.cwd)
        if located.is_new:
            await opened.memory.record(registrations(located.project))


def _check_vectors(opened: "App") -> None:
    if opened.embedder is None:
        raise UsageError(
            "Nothing is embedded here.",
            hint="Set memory.enabled and memory.embeddings.enabled to true.",
        )
    if not opened.config.code.vectors:
        raise UsageError("Code is not embedded here.", hint=how_to_set("code.vectors", "true"))


async def _embed(code: "CodeIndex") -> None:

    try:
        with steps("embedding") as show:
            await code.embed(None, show)
    except asyncio.CancelledError:
        say("Stopped. What was embedded stays; run it again to go on.\n")
        raise


def _follow(opened: "App", status: "IndexStatus") -> str:
    """What is to be said of vectors that are still to be made."""
    count = status.without_vectors
    if not count or not _makes_vectors(opened):
        return ""
    if opened.memory.records and opened.config.memory.worker != "off":
        where = " in the background" if opened.config.memory.worker == "detached" else ""
        return f"Vectors of {count:,} follow{where}."
    return f"{count:,} have no vectors: `ragmem index --vectors` makes them."


def _makes_vectors(opened: "App") -> bool:
    return opened.embedder is not None and opened.config.code.vectors


async def _watch(opened: "App", code: "CodeIndex") -> None:
    say("Watching for changes; Ctrl-C ends it.\n")
    async for found in code.watch():
        if found.changed or found.removed:
            write(f"{datetime.now().astimezone():%H:%M:%S}  {changes_text(found)}\n")
            await opened.leave_background()
    say("The project's folder is not there any more.\n")


def changes_text(found: "Refreshed") -> str:
    """Which files are other than they were, in a line."""
    parts = []
    for verb, paths in (("changed", found.changed), ("removed", found.removed)):
        if paths:
            named = ", ".join(one_line(path, 120) for path in paths[:_NAMED])
            more = len(paths) - _NAMED
            parts.append(f"{verb} {named}" + (f" and {more:,} more" if more > 0 else ""))
    return f"{'; '.join(parts)} ({found.seconds:.1f} s)"


def vectors_note(opened: "App", status: "IndexStatus") -> str:
    """That a search can't go by the meaning of all yet; empty where it can, or is not to."""
    count = status.without_vectors
    if not count or not _makes_vectors(opened):
        return ""
    made = opened.memory.records and opened.config.memory.worker != "off"
    rest = "they are being made" if made else "`ragmem index --vectors` makes them"
    have = "piece of the code has" if count == 1 else "pieces of the code have"
    return f"{count:,} {have} no vectors yet and can be found by words alone: {rest}."


def nothing_text(found: "Refreshed", path: str, *, width: int) -> str:
    """Where there is nothing to be indexed."""
    said = f"There is no file to be indexed in {one_line(path, 400)}."
    lines = hanging("", said, width)
    if found.left_out:
        lines += hanging("", f"Left out: {left_out_text(found.left_out)}.", width)
    return "\n".join(lines) + "\n"


def refreshed_text(
    found: "Refreshed", *, follow: str, whole: bool, width: int, went_on: bool = False
) -> str:
    """What a look at the disk came to; `whole`: with what was left out.

    `went_on`: the first look had been stopped before its end.
    """
    parts = [f"{counted(found.files, 'file')}, {counted(found.scopes, 'scope')}"]
    if went_on:
        parts.append(f"went on with the first index, of which {len(found.changed):,} were left")
    elif not whole:
        changes = [
            f"{len(paths):,} {verb}"
            for verb, paths in (("changed", found.changed), ("removed", found.removed))
            if paths
        ]
        parts.append(", ".join(changes) or "nothing changed")
    said = f"{'; '.join(parts)}; {found.seconds:.1f} s. {follow}".strip()
    lines = hanging("", said, width)
    if whole and found.left_out:
        lines += hanging("", f"Left out: {left_out_text(found.left_out)}.", width)
    return "\n".join(lines) + "\n"


def left_out_text(left_out: Mapping[str, int]) -> str:
    """`512 binary, 4 secret`."""
    ordered = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {one_line(reason, 60)}" for reason, count in ordered)


def summed_up(status: "IndexStatus", now: datetime) -> str:
    """How much is indexed, in a line; empty where nothing is."""
    if not status.refreshed_at:
        return ""
    indexed = code_text(**document(INDEXED, status))
    return f"{indexed}, looked at {ago(datetime.fromisoformat(status.refreshed_at), now)}"


def code_text(*, files: int, scopes: int, without_vectors: int, size_bytes: int) -> str:
    """How much code is indexed, in few words."""
    missing = f", {without_vectors:,} without vectors" if without_vectors else ""
    counts = f"{counted(files, 'file')}, {counted(scopes, 'scope')}{missing}"
    return f"{counts}, {size_bytes / 1e6:,.1f} MB"


def _print_status(opened: "App", status: "IndexStatus", output: Literal["table", "json"]) -> None:
    if output != "json" and not status.refreshed_at and not status.files:
        say("Nothing of this project is indexed yet. `ragmem index` does it.\n")
        return
    vectors = f"{status.without_vectors:,} to go" if status.without_vectors else "all made"
    vectors = vectors if _makes_vectors(opened) else "none are made, as the settings say"
    print_one(
        output,
        lambda: status_document(status),
        lambda width: status_text(status, datetime.now(UTC), vectors=vectors, width=width),
        pipe=100,
    )


def status_text(status: "IndexStatus", now: datetime, *, vectors: str, width: int) -> str:
    """For people, a line for each thing."""
    languages = ", ".join(
        f"{count:,} {one_line(name, 40)}" for name, count in status.languages.items()
    )
    looked_at = "not yet to the end; `ragmem index` goes on"
    if status.refreshed_at:
        looked_at = ago(datetime.fromisoformat(status.refreshed_at), now)
    rows = [
        ("project", visible(status.path)),
        ("files", f"{status.files:,}" + (f": {languages}" if languages else "")),
        ("scopes", f"{status.scopes:,}"),
        ("vectors", vectors),
        ("left out", left_out_text(status.left_out) or "nothing"),
        ("looked at", looked_at),
        ("watched", "yes, as files change" if status.watched else "no"),
        ("size", f"{status.size_bytes / 1e6:,.1f} MB"),
    ]
    lines = [line for name, said in rows for line in hanging(f"{name:<10} ", said, width)]
    return "\n".join(lines) + "\n"


def status_document(status: "IndexStatus", found: "Refreshed | None" = None) -> Document:
    """What is indexed; with what a look at the disk came to, where there was one."""
    return document(
        f"{STATUS} changed removed seconds" if found else STATUS,
        status,
        found,
        refreshed_at=datetime.fromisoformat(at) if (at := status.refreshed_at) else None,
        seconds=found and round(found.seconds, 3),
    )
