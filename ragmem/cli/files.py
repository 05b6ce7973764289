"""`ragmem index` and `ragmem files`: index a project's files, and show what is known about them."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragmem import listings
from ragmem.cli import command as cli, output as out
from ragmem.config import how_to_set
from ragmem.errors import SessionNotFound, StoreError, UsageError
from ragmem.ids import short_id
from ragmem.memory.files import CodePast, past_of_file
from ragmem.memory.projects import locate, real_folder, registrations
from ragmem.memory.turns import stored_path
from ragmem.records import ChangedTogether, SessionQuery, utc_now
from ragmem.statistics import INDEXED, indexed_text
from ragmem.text import ago, clean, counted, hanging, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index import IndexStatus, Refreshed
    from ragmem.index.index import CodeIndex
    from ragmem.records import CodeStore, FileAccess, Project, Session

indexing = cli.commands()

_RETRY_S = 0.5
STATUS = (
    "path files scopes languages left_out without_vectors refreshed_at size_bytes watched "
    "being_made"
)
_BEING_MADE = "being indexed"
_MAX_NAMED = 3
"""Maximum number of files named in a line about changes."""


@cli.command(indexing, cli.app_here)
async def index(
    opened: "App",
    watch: Annotated[
        bool, cli.option("--watch", "Keep the index up to date until Ctrl-C.")
    ] = False,
    rebuild: Annotated[bool, cli.option("--rebuild", "Rebuild the index from all files.")] = False,
    vectors: Annotated[
        bool, cli.option("--vectors", "Also compute embeddings now, for search by meaning.")
    ] = False,
    status: Annotated[
        bool, cli.option("--status", "Only show what is indexed; don't update it.")
    ] = False,
    output: cli.Format = "table",
) -> None:
    """Update the code index of this project.

    Only changed files are read, and nothing leaves this machine. A chat updates the index by
    itself.
    """
    if status and (watch or rebuild or vectors):
        raise UsageError("--status can't be combined with other options.")
    if watch and output == "json":
        raise UsageError("--watch can't be used with --format json.")
    code = await code_of(opened)
    if status:
        code.refuse()
        _print_status(opened, await code.status(), output)
    else:
        await _update_index(opened, code, rebuild=rebuild, vectors=vectors, output=output)
        if watch:
            await _watch(opened, code)


async def code_of(opened: "App") -> "CodeIndex":
    """Return the code index of this folder's project, or raise UsageError if it is turned off."""
    code = await opened.code()
    if code is None:
        raise UsageError("The code index is turned off.", hint=how_to_set("code.enabled", "true"))
    return code


async def project_here(opened: "App") -> "Project":
    """Return this folder's project, from the file system alone if the store is unavailable."""
    try:
        return (await opened.memory.project_of(opened.cwd)).project
    except StoreError:
        return locate(opened.cwd, (), now=utc_now()).project


async def refresh_index(
    code: "CodeIndex", *, rebuild: bool = False, only_reads: bool = False
) -> "Refreshed":
    """Update the index, showing progress; if another process is updating it, wait for that.

    If it can't be written and the caller `only_reads`, the index is used as it is, with a note.
    """
    is_announced = False
    try:
        with out.resumable("What was indexed so far is"), out.steps("indexing") as show:
            while (found := await code.refresh(show=show, rebuild=rebuild)).elsewhere:
                if not is_announced:
                    out.say(
                        "Another ragmem process is indexing this project; waiting for it to "
                        "finish.\n"
                    )
                    is_announced = True
                await asyncio.sleep(_RETRY_S)
    except StoreError as error:
        if not only_reads or not await code.exists():
            raise
        out.say(
            "note: The index could not be updated; files added since are not searched. "
            f"{visible(str(error))}\n"
        )
        return await code.as_it_is()
    return found


async def _update_index(
    opened: "App", code: "CodeIndex", *, rebuild: bool, vectors: bool, output: str
) -> None:
    before = await code.status()
    if vectors:
        _check_vectors(opened)
    found = await refresh_index(code, rebuild=rebuild)
    await _register_project(opened)
    await code.mirror()
    if vectors:
        with out.resumable("Embeddings computed so far are"), out.steps("embedding") as show:
            await code.embed(None, show)
    status = await code.status()
    follow = "" if vectors else _missing_vectors(opened, status)

    def text(width: int) -> str:
        if not (found.files or found.removed):
            said = f"No files to index in {one_line(status.path, 400)}."
            return _with_left_out(said, found.left_out, width)
        whole = rebuild or not before.refreshed_at
        return refreshed_text(found, follow=follow, whole=whole, width=width)

    out.print_one(output, lambda: status_document(status, found), text, pipe=100)
    await opened.leave_background()


async def _register_project(opened: "App") -> None:
    """Register a project that has no session yet, so that the background process finds it."""
    if not opened.memory.records:
        return
    with suppress(StoreError):
        located = await opened.memory.project_of(opened.cwd)
        if located.is_new:
            await opened.memory.record(registrations(located.project))


def _check_vectors(opened: "App") -> None:
    if opened.embedder is None:
        raise UsageError(
            "Embeddings are turned off.",
            hint="Set memory.enabled and memory.embeddings.enabled to true.",
        )
    if not opened.config.code.vectors:
        raise UsageError(
            "Embeddings of code are turned off.", hint=how_to_set("code.vectors", "true")
        )


def _missing_vectors(opened: "App", status: "IndexStatus") -> str:
    """Return a note on the embeddings that are still missing; empty if there are none."""
    count = status.without_vectors
    if not count or not _makes_vectors(opened):
        return ""
    if opened.memory.records and opened.config.memory.worker != "off":
        where = " in the background" if opened.config.memory.worker == "detached" else ""
        return f"{count:,} embeddings are computed{where}."
    return f"{count:,} without embeddings: run `ragmem index --vectors`."


def _makes_vectors(opened: "App") -> bool:
    return opened.embedder is not None and opened.config.code.vectors


async def _watch(opened: "App", code: "CodeIndex") -> None:
    out.say("Watching for changes; press Ctrl-C to stop.\n")
    async for found in code.watch():
        if found.changed or found.removed:
            out.write(f"{datetime.now().astimezone():%H:%M:%S}  {changes_text(found)}\n")
            await opened.leave_background()
    out.say("The project folder no longer exists.\n")


def changes_text(found: "Refreshed") -> str:
    """Return the changed and removed files, and the time it took to index them, in a line."""
    parts = []
    for verb, paths in (("changed", found.changed), ("removed", found.removed)):
        if paths:
            named = ", ".join(one_line(path, 120) for path in paths[:_MAX_NAMED])
            more = len(paths) - _MAX_NAMED
            parts.append(f"{verb} {named}" + (f" and {more:,} more" if more > 0 else ""))
    return f"{'; '.join(parts)} ({found.seconds:.1f} s)"


def vectors_note(opened: "App", status: "IndexStatus") -> str:
    """Return a note that code lacks embeddings; empty if none does or they are turned off."""
    count = status.without_vectors
    if not count or not _makes_vectors(opened):
        return ""
    made = opened.memory.records and opened.config.memory.worker != "off"
    rest = "they are being computed" if made else "`ragmem index --vectors` computes them"
    have = "piece of code has" if count == 1 else "pieces of code have"
    return f"{count:,} {have} no embedding yet and can only be found by words: {rest}."


def refreshed_text(found: "Refreshed", *, follow: str, whole: bool, width: int) -> str:
    """Format the result of a refresh; `whole`: of all files, with those that were left out."""
    parts = [f"{counted(found.files, 'file')}, {counted(found.scopes, 'scope')}"]
    if not whole:
        changes = [
            f"{len(paths):,} {verb}"
            for verb, paths in (("changed", found.changed), ("removed", found.removed))
            if paths
        ]
        parts.append(", ".join(changes) or "nothing changed")
    said = f"{'; '.join(parts)}; {found.seconds:.1f} s. {follow}".strip()
    left_out = found.left_out if whole else {}
    return _with_left_out(said, left_out, width)


def _with_left_out(said: str, left_out: Mapping[str, int], width: int) -> str:
    lines = hanging("", said, width)
    lines += hanging("", f"Left out: {left_out_text(left_out)}.", width) if left_out else []
    return "\n".join(lines) + "\n"


def left_out_text(left_out: Mapping[str, int]) -> str:
    """Format the numbers of files left out, such as `512 binary, 4 secret`."""
    ordered = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {one_line(reason, 60)}" for reason, count in ordered)


def summed_up(status: "IndexStatus", now: datetime) -> str:
    """Return in a line how much is indexed and when; empty if nothing is."""
    if not status.refreshed_at:
        return ""
    indexed = indexed_text(**listings.document(INDEXED, status))
    return f"{indexed}, updated {ago(datetime.fromisoformat(status.refreshed_at), now)}"


def _print_status(opened: "App", status: "IndexStatus", output: Literal["table", "json"]) -> None:
    if output != "json" and not status.refreshed_at and not status.files:
        begun = f"{_BEING_MADE}." if status.being_made else "not indexed yet; run `ragmem index`."
        out.say(f"This project is {begun}\n")
        return
    vectors = f"{status.without_vectors:,} missing" if status.without_vectors else "complete"
    vectors = vectors if _makes_vectors(opened) else "turned off in the settings"
    out.print_one(
        output,
        lambda: status_document(status),
        lambda width: status_text(status, datetime.now(UTC), vectors=vectors, width=width),
        pipe=100,
    )


def status_text(status: "IndexStatus", now: datetime, *, vectors: str, width: int) -> str:
    """Format the status of the index, one line per property."""
    languages = ", ".join(
        f"{count:,} {one_line(name, 40)}" for name, count in status.languages.items()
    )
    looked_at = _BEING_MADE if status.being_made else "incomplete; `ragmem index` continues"
    if status.refreshed_at:
        looked_at = ago(datetime.fromisoformat(status.refreshed_at), now)
    rows = [
        ("project", visible(status.path)),
        ("files", f"{status.files:,}" + (f": {languages}" if languages else "")),
        ("scopes", f"{status.scopes:,}"),
        ("embeddings", vectors),
        ("left out", left_out_text(status.left_out) or "nothing"),
        ("updated", looked_at),
        ("watched", "yes, as files change" if status.watched else "no"),
        ("size", f"{status.size_bytes / 1e6:,.1f} MB"),
    ]
    lines = [line for name, said in rows for line in hanging(f"{name:<10} ", said, width)]
    return "\n".join(lines) + "\n"


def status_document(status: "IndexStatus", found: "Refreshed | None" = None) -> listings.Document:
    """Return the status of the index as a document, with the result of a refresh if given."""
    looked = {"seconds": round(found.seconds, 3)} if found else {}
    return listings.document(
        f"{STATUS} changed removed seconds" if found else STATUS,
        status,
        found,
        refreshed_at=datetime.fromisoformat(at) if (at := status.refreshed_at) else None,
        **looked,
    )


app = cli.commands()

RELATED = "path changed_with imports imported_by sessions memories"
TOGETHER = "path turn_count session_count last_at"
_MAX_SESSIONS = 1_000
_UNLIMITED_CHARS = 10**12
"""A number of characters larger than any session, to select all turns."""
_MAX_FILES = 20
"""Maximum number of a session's files with --related, the latest."""


@cli.command(app, cli.app_here)
async def files(
    opened: "App",
    path: Annotated[
        str | None,
        cli.argument("PATH", "Show sessions, related files and decisions for this file."),
    ] = None,
    related: Annotated[
        bool,
        cli.option(
            "--related", "For each file, also show related files, imports, sessions and decisions."
        ),
    ] = False,
    since: Annotated[
        str | None,
        cli.option(
            "--since",
            "Files of this project that the agent changed since: an age (7d, 12h, 2w), a date, "
            "or the end of a session (its id or name).",
            "WHEN",
        ),
    ] = None,
    resume: cli.OfSession = None,
    output: cli.Format = "table",
) -> None:
    """List the files that a session touched.

    Without -r, the newest session of this folder. With PATH: files that usually change with
    it, its imports and importers, the sessions that touched it, and the decisions made in
    them. --related shows the same for each file of the session, for the latest 20.
    """
    if since is not None and (path is not None or related or resume is not None):
        raise UsageError("--since can't be combined with PATH, --related or -r.")
    if path is not None and resume is not None:
        raise UsageError("PATH covers all sessions; it can't be combined with -r.")
    if since is not None:
        await _print_changed(opened, out.typed(since), output)
        return
    if path is not None:
        await _print_file(opened, out.typed(path), output)
        return
    session = await (cli.last_session(opened) if resume is None else cli.resumed(opened, resume))
    accesses = await opened.memory.accessed_files(session.session_id)
    if related and accesses:
        await _print_related(opened, session, accesses, output)
        return
    out.print_all(
        output,
        accesses,
        lambda each: listings.document(
            "path access_type tool_name turn_index timestamp", each, timestamp=each.accessed_at
        ),
        lambda width: listings.files_table(accesses, datetime.now(UTC), width=width),
        f"Session {short_id(session.session_id)} touched no files. Use -r for another session.\n",
    )


# --- changed files ------------------------------------------------------------


async def _print_changed(opened: "App", since: str, output: Literal["table", "json"]) -> None:
    """Print the project's files that tools have written since a time or a session's end."""
    start = await since_when(opened, since)
    project = await project_here(opened)
    store = await opened.store()
    query = SessionQuery(project_ids=(project.root_id,), limit=_MAX_SESSIONS)
    changes: dict[str, list[tuple[datetime, str, int]]] = {}
    for session in await store.sessions(query):
        if session.last_activity_at < start:
            continue
        shared = session.forked_at_index or 0  # a fork's shared turns count for its parent
        for each in await store.file_accesses(session.session_id, max_turn_chars=_UNLIMITED_CHARS):
            own = each.access_type == "write" and each.turn_index > shared
            if own and each.accessed_at >= start:
                change = (each.accessed_at, session.session_id, each.turn_index)
                changes.setdefault(each.path, []).append(change)
    found: list[listings.Document] = [
        {
            "path": path,
            "turn_count": len({(session_id, turn) for _, session_id, turn in newest}),
            "session_ids": list(dict.fromkeys(session_id for _, session_id, _ in newest)),
            "timestamp": newest[0][0],
        }
        for path, own in changes.items()
        for newest in [sorted(own, reverse=True)]
    ]
    found.sort(key=lambda each: (-each["timestamp"].timestamp(), each["path"]))
    out.print_all(
        output,
        found,
        lambda each: each,
        lambda width: _changed_table(found, width),
        "The agent has changed no files here since then.\n",
    )


async def since_when(opened: "App", since: str) -> datetime:
    """Return the time of an age, a date, or a session's last activity; UsageError for others."""
    if at := cli.age_or_date(since):
        return at
    try:
        return (await opened.resume_session(since)).last_activity_at
    except SessionNotFound:
        raise UsageError(
            f"--since: {one_line(since, 40)!r} is not an age, a date or a session.",
            hint="Use, for example, 7d, 12h, 2w, 2026-11-01, or the id or name of a session.",
        ) from None


def _changed_table(found: list[listings.Document], width: int) -> str:
    now = datetime.now(UTC)
    rows = [
        (
            ago(each["timestamp"], now),
            str(each["turn_count"]),
            short_id(each["session_ids"][0]),
            each["path"],
        )
        for each in found
    ]
    return listings.table(("CHANGED", "TURNS", "SESSION", "PATH"), rows, width=width)


# --- related files ------------------------------------------------------------


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the project, with related files, sessions and memories."""

    path: str
    changed_with: tuple[ChangedTogether, ...] = ()
    imports: tuple[str, ...] = ()
    imported_by: tuple[str, ...] = ()
    past: CodePast = CodePast()

    @property
    def is_known(self) -> bool:
        """Whether any related file or session is known."""
        return bool(
            self.changed_with or self.imports or self.imported_by or self.past.session_count
        )


async def _print_file(opened: "App", path: str, output: Literal["table", "json"]) -> None:
    if not path.strip():
        raise UsageError("PATH is empty.")
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise UsageError(f"{visible(clean(path))} is not valid UTF-8; such files are not indexed.")
    project = await project_here(opened)
    top = real_folder(project.path, opened.cwd)
    wanted = stored_path(path, cwd=opened.cwd, project=top)
    [found] = await _related(opened, project.root_id, [wanted])
    if output == "json" or found.is_known or found.past.memories:
        _print_documents(output, [found])
    else:
        out.say(_unknown_file(top / wanted, visible(wanted)))


def _unknown_file(file: Path, shown: str) -> str:
    if not os.path.lexists(file):
        return f"No file {shown}. Paths are relative to this folder.\n"
    return f"No session has touched {shown}, and no indexed file imports it.\n"


async def _print_related(
    opened: "App",
    session: "Session",
    accesses: "Sequence[FileAccess]",
    output: Literal["table", "json"],
) -> None:
    """Print briefly what is known about each of a session's latest files."""
    paths = [access.path for access in accesses if access.access_type != "list"]
    found = await _related(opened, session.project_id, paths[:_MAX_FILES])
    _print_documents(output, found, brief=True)
    if len(paths) > _MAX_FILES:
        told = f"The latest {_MAX_FILES} of {len(paths)} files."
        hint = "`ragmem files PATH` shows any other; without --related, all are listed."
        out.say(f"{told} {hint}\n")


def _print_documents(output: str, found: Sequence[Related], *, brief: bool = False) -> None:
    if output == "json":
        out.write_json(out.to_json([related_document(each) for each in found]))
    else:
        out.write(related_text(found, datetime.now(UTC), width=out.columns(100), brief=brief))


async def _related(opened: "App", project_id: str, paths: Sequence[str]) -> list[Related]:
    code = await opened.code()  # without it, no imports are known
    try:
        if code:
            await refresh_index(code, only_reads=True)
    except UsageError:  # for example a home folder, which is not indexed
        code = None
    store = await opened.store() if opened.config.memory.enabled else None
    return [await related_to(store, code, project_id, path) for path in paths]


async def related_to(
    store: "CodeStore | None", code: "CodeIndex | None", project_id: str, path: str
) -> Related:
    """Collect what is related to a file; without a store, only its imports and importers."""
    imports, imported_by = await code.neighbours(path) if code else ([], [])
    found = Related(path=path, imports=tuple(imports), imported_by=tuple(imported_by))
    if store is None:
        return found
    together = tuple(await store.changed_with((project_id,), path))
    past = await past_of_file(store, project_id, path)
    return msgspec.structs.replace(found, changed_with=together, past=past)


def related_text(
    found: Sequence[Related], now: datetime, *, width: int, brief: bool = False
) -> str:
    """Format each file as a paragraph; `brief`: only count its sessions and decisions."""
    width = max(out.MIN_COLUMNS, width)
    lines: list[str] = []
    for each in found:
        lines += hanging("", visible(each.path), width)
        together = [
            f"{other.path} ({counted(other.turn_count, 'turn')}, {ago(other.last_at, now)})"
            for other in each.changed_with
        ]
        rows = {"changes with": together, "imports": each.imports, "imported by": each.imported_by}
        for name, named in rows.items():
            lines += hanging(f"  {name:<13} ", _names(named), width) if named else []
        if brief:
            told = listings.in_sessions(each.past, now)
            lines += hanging("  ", f"touched {told}", width) if told else []
            decided = counted(len(each.past.memories), "decision")
            if each.past.memories:
                lines += hanging("  ", f"{decided} in them; see `ragmem files PATH`", width)
        else:
            lines += listings.past_lines(each.past, now, width=width)
        lines.append("")
    return "\n".join(lines)


def _names(paths: Sequence[str]) -> str:
    more = len(paths) - listings.SHOWN
    shown = ", ".join(one_line(path, 200) for path in paths[: listings.SHOWN])
    return shown + (f" and {more:,} more" if more > 0 else "")


def related_document(found: Related) -> listings.Document:
    """Return a file's relations as a document; files changed together in most turns come first."""
    return listings.document(
        RELATED,
        found,
        changed_with=[listings.document(TOGETHER, each) for each in found.changed_with],
        sessions=listings.code_session_documents(found.past),
        memories=[listings.memory_document(each) for each in found.past.memories],
    )
