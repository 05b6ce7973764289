"""`ragmem files`: which files a session touched or changed, and what is known of them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ragmem.cli.command import command, last_session, open_app, resumed
from ragmem.cli.documents import (
    Document,
    code_session_documents,
    document,
    memory_document,
)
from ragmem.cli.index import brought_up_to_date, project_here
from ragmem.cli.options import (
    Format,
    Resume,
    age_or_date,
    argument,
    commands,
    option,
)
from ragmem.cli.output import columns, print_all, say, to_json, typed, write, write_json
from ragmem.errors import SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.listings import SHOWN, files_table, in_sessions, past_lines, table
from ragmem.memory.code_past import CodePast, past_of_file
from ragmem.memory.files import stored_path
from ragmem.memory.projects import real_folder
from ragmem.records import ChangedTogether, SessionQuery
from ragmem.text import ago, clean, counted, hanging, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index.index import CodeIndex
    from ragmem.records import CodeStore, FileAccess, Project, Session

app = commands()

RELATED = "path changed_with imports imported_by sessions memories"
TOGETHER = "path turn_count session_count last_at"
_SESSIONS = 1_000
_ALL_TURNS = 10**12
"""Characters: more than a session holds."""
_NARROWEST = 20
_FILES = 20
"""Of a session so many are told of, the latest."""


@command(app, open_app)
async def files(
    opened: "App",
    path: Annotated[str | None, argument("PATH", "Tell of this file, whoever touched it.")] = None,
    related: Annotated[
        bool,
        option("--related", "Of each file: what changes with it, imports, sessions, decisions."),
    ] = False,
    since: Annotated[
        str | None,
        option(
            "--since",
            "What the agent has changed in this project since: 7d, 12h, 2w, a date, or the "
            "end of a session (its id or name).",
            "WHEN",
        ),
    ] = None,
    resume: Resume = None,
    output: Format = "table",
) -> None:
    """List the files that a session has touched.

    Without -r: the newest session of this folder. With PATH: what changes together with
    that file, what it imports and what imports it, which sessions touched it, and what
    was decided there; --related tells that of each file of the session.
    """
    if since is not None and (path is not None or related or resume is not None):
        raise UsageError("--since is about all files: it goes with neither PATH, --related nor -r.")
    if path is not None and resume is not None:
        raise UsageError("PATH is looked for in all sessions: it does not go with -r.")
    if since is not None:
        await _print_changed(opened, typed(since), output)
        return
    if path is not None:
        await _print_file(opened, typed(path), output)
        return
    session = await (last_session(opened) if resume is None else resumed(opened, resume))
    accesses = await opened.memory.recently_accessed_files(session.session_id)
    if related and accesses:
        await _print_related(opened, session, accesses, output)
        return
    print_all(
        output,
        accesses,
        lambda each: document(
            "path access_type tool_name turn_index timestamp", each, timestamp=each.accessed_at
        ),
        lambda width: files_table(accesses, datetime.now(UTC), width=width),
        "No files yet.\n",
    )


# --- what was changed ---------------------------------------------------------


async def _print_changed(opened: "App", since: str, output: Literal["table", "json"]) -> None:
    """Print the files that tools have written since then."""
    start = await since_when(opened, since)
    project = await project_here(opened)
    store = await opened.store()
    query = SessionQuery(project_ids=(project.root_id,), limit=_SESSIONS)
    changes: dict[str, list[tuple[datetime, str, int]]] = {}
    for session in await store.sessions(query):
        if session.last_activity_at < start:
            continue
        shared = session.forked_at_index or 0  # what a fork shares is its parent's
        for each in await store.file_accesses(session.session_id, max_turn_chars=_ALL_TURNS):
            own = each.access_type == "write" and each.turn_index > shared
            if own and each.accessed_at >= start:
                change = (each.accessed_at, session.session_id, each.turn_index)
                changes.setdefault(each.path, []).append(change)
    found: list[Document] = [
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
    print_all(
        output,
        found,
        lambda each: each,
        lambda width: _changed_table(found, width),
        "The agent has changed no file here since then.\n",
    )


async def since_when(opened: "App", since: str) -> datetime:
    """A date and an age count from now; a session from where it stands."""
    if at := age_or_date(since):
        return at
    try:
        return (await opened.resume_session(since)).last_activity_at
    except SessionNotFound:
        raise UsageError(
            f"--since: {one_line(since, 40)!r} is no age, no date and no session.",
            hint="Such as 7d, 12h, 2w, 2026-11-01, or the id or name of a session.",
        ) from None


def _changed_table(found: list[Document], width: int) -> str:
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
    return table(("CHANGED", "TURNS", "SESSION", "PATH"), rows, width=width)


# --- what it has to do with ---------------------------------------------------


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the project, and what it has to do with."""

    path: str
    changed_with: tuple[ChangedTogether, ...] = ()
    imports: tuple[str, ...] = ()
    imported_by: tuple[str, ...] = ()
    past: CodePast = CodePast()

    @property
    def is_known(self) -> bool:
        """Whether there is anything to tell."""
        return bool(
            self.changed_with or self.imports or self.imported_by or self.past.session_count
        )


async def _print_file(opened: "App", path: str, output: Literal["table", "json"]) -> None:
    """Print what is known of one file."""
    if not path.strip():
        raise UsageError("Which file?")
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise UsageError(f"{visible(clean(path))} is no name in UTF-8: such files are not indexed.")
    project = await project_here(opened)
    top = real_folder(project.path, opened.cwd)
    wanted = stored_path(path, cwd=opened.cwd, project=top)
    [found] = await _related(opened, project, [wanted])
    if output == "json" or found.is_known or found.past.memories:
        _print_documents(output, [found])
    else:
        say(_nothing_of(top / wanted, visible(wanted)))


def _nothing_of(file: Path, shown: str) -> str:
    if file.is_dir():
        return f"{shown} is a folder: name a file.\n"
    if file.is_file():
        return f"No session has touched {shown}, and no file that is indexed imports it.\n"
    return f"There is no file {shown}; paths are those from this folder.\n"


async def _print_related(
    opened: "App",
    session: "Session",
    accesses: "Sequence[FileAccess]",
    output: Literal["table", "json"],
) -> None:
    """Print what is known of each file of a session; its own part in it stands for itself."""
    project = await project_here(opened)
    paths = [access.path for access in accesses if access.access_type != "list"]
    found = await _related(opened, project, paths[:_FILES], of=session)
    _print_documents(output, found, brief=True)


def _print_documents(output: str, found: Sequence[Related], *, brief: bool = False) -> None:
    if output == "json":
        write_json(to_json([related_document(each) for each in found]))
    else:
        write(related_text(found, datetime.now(UTC), width=columns(100), brief=brief))


async def _related(
    opened: "App", project: "Project", paths: Sequence[str], *, of: "Session | None" = None
) -> list[Related]:
    code = await _code(opened)
    store = await opened.store() if opened.config.memory.enabled else None
    project_id = of.project_id if of else project.root_id
    return [await related_to(store, code, project_id, path) for path in paths]


async def _code(opened: "App") -> "CodeIndex | None":
    """The index as the disk is now; None where none is kept: then no imports are known."""
    code = await opened.code()
    if code is None:
        return None
    try:
        await brought_up_to_date(code, only_reads=True)
    except UsageError:  # a home folder, say: nothing of it is indexed
        return None
    return code


async def related_to(
    store: "CodeStore | None", code: "CodeIndex | None", project_id: str, path: str
) -> Related:
    """What a file has to do with; without a store nothing is remembered: only what files say."""
    imports, imported_by = await code.neighbours(path) if code else ([], [])
    if store is None:
        return Related(path=path, imports=tuple(imports), imported_by=tuple(imported_by))
    return Related(
        path=path,
        changed_with=tuple(await store.changed_with((project_id,), path)),
        imports=tuple(imports),
        imported_by=tuple(imported_by),
        past=await past_of_file(store, project_id, path),
    )


def related_text(
    found: Sequence[Related], now: datetime, *, width: int, brief: bool = False
) -> str:
    """A paragraph a file; `brief`: of its sessions only how many there are."""
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for each in found:
        lines += hanging("", visible(each.path), width)
        rows = [
            ("changes with", [_together(other, now) for other in each.changed_with]),
            ("imports", list(each.imports)),
            ("imported by", list(each.imported_by)),
        ]
        for name, named in rows:
            lines += hanging(f"  {name:<13} ", _named(named), width) if named else []
        if brief:
            told = in_sessions(each.past, now)
            lines += hanging("  ", f"touched {told}", width) if told else []
            decided = counted(len(each.past.memories), "decision")
            if each.past.memories:
                lines += hanging("  ", f"{decided} there; `ragmem files PATH` tells", width)
        else:
            lines += past_lines(each.past, now, indent=2, width=width)
        lines.append("")
    return "\n".join(lines)


def _together(other: ChangedTogether, now: datetime) -> str:
    return f"{other.path} ({counted(other.turn_count, 'turn')}, {ago(other.last_at, now)})"


def _named(paths: Sequence[str]) -> str:
    more = len(paths) - SHOWN
    shown = ", ".join(one_line(path, 200) for path in paths[:SHOWN])
    return shown + (f" and {more:,} more" if more > 0 else "")


def related_document(found: Related) -> Document:
    """As JSON: most turns first, then files of the project, and what was decided there."""
    return document(
        RELATED,
        found,
        changed_with=[document(TOGETHER, each) for each in found.changed_with],
        sessions=code_session_documents(found.past),
        memories=[memory_document(each) for each in found.past.memories],
    )
