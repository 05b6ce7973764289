"""`ragmem files PATH` and `--related`: what a file has to do with others, and its past."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.code_documents import (
    CodeSessionDocument,
    decided_documents,
    session_documents,
)
from ragmem.cli.documents import Document, to_json
from ragmem.cli.index import brought_up_to_date, project_here
from ragmem.cli.memory_values import MemoryDocument
from ragmem.cli.streams import say, write, write_json
from ragmem.errors import UsageError
from ragmem.memory.code_past import CodePast, past_of_file
from ragmem.memory.files import stored_path
from ragmem.memory.projects import real_folder
from ragmem.repl.code_listings import SHOWN, in_sessions, past_lines
from ragmem.store.code import ChangedTogether
from ragmem.text import ago, clean, counted, hanging, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index.index import CodeIndex
    from ragmem.records import FileAccess, Project, Session
    from ragmem.store.base import Store

_NARROWEST = 20
_FILES = 20
"""Of a session so many are told of, the latest."""


class ChangedTogetherDocument(Document, frozen=True, kw_only=True):
    """A file that was changed in the same turns."""

    path: str
    turn_count: int
    session_count: int
    last_at: datetime


class RelatedDocument(Document, frozen=True, kw_only=True):
    """A file of the project, and what it has to do with."""

    path: str
    changed_with: tuple[ChangedTogetherDocument, ...]
    """Most turns first."""
    imports: tuple[str, ...]
    """Files of the project."""
    imported_by: tuple[str, ...]
    sessions: tuple[CodeSessionDocument, ...]
    memories: tuple[MemoryDocument, ...]
    """What was decided there."""


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


async def print_file(opened: "App", path: str, output: Literal["table", "json"]) -> None:
    """Print what is known of one file."""
    if not path.strip():
        raise UsageError("Which file?")
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise UsageError(f"{visible(clean(path))} is no name in UTF-8: such files are not indexed.")
    project = await project_here(opened)
    top = real_folder(project.path, opened.cwd)
    wanted = stored_path(path, cwd=opened.cwd, project=top)
    [found] = await _related(opened, project, [wanted])
    if output == "json":
        write_json(to_json([related_document(found)]))
    elif found.is_known or found.past.memories:
        write(related_text([found], datetime.now(UTC), width=_columns()))
    else:
        say(_nothing_of(top / wanted, visible(wanted)))


def _nothing_of(file: Path, shown: str) -> str:
    if file.is_dir():
        return f"{shown} is a folder: name a file.\n"
    if file.is_file():
        return f"No session has touched {shown}, and no file that is indexed imports it.\n"
    return f"There is no file {shown}; paths are those from this folder.\n"


async def print_related(
    opened: "App",
    session: "Session",
    accesses: "Sequence[FileAccess]",
    output: Literal["table", "json"],
) -> None:
    """Print what is known of each file of a session; its own part in it stands for itself."""
    project = await project_here(opened)
    paths = [access.path for access in accesses if access.access_type != "list"]
    found = await _related(opened, project, paths[:_FILES], of=session)
    if output == "json":
        write_json(to_json([related_document(each) for each in found]))
    else:
        write(related_text(found, datetime.now(UTC), width=_columns(), brief=True))


async def _related(
    opened: "App", project: "Project", paths: Sequence[str], *, of: "Session | None" = None
) -> list[Related]:
    code = await _code(opened)
    store = await opened.store() if opened.config.memory.enabled else None
    project_id = of.project_id if of else project.root_id
    return [await _one(store, code, project_id, path) for path in paths]


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


async def _one(
    store: "Store | None", code: "CodeIndex | None", project_id: str, path: str
) -> Related:
    """Without a store nothing is remembered: only what the files say."""
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


# --- shown --------------------------------------------------------------------


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


def related_document(found: Related) -> RelatedDocument:
    """As JSON."""
    return RelatedDocument(
        path=found.path,
        changed_with=tuple(
            ChangedTogetherDocument(
                path=other.path,
                turn_count=other.turn_count,
                session_count=other.session_count,
                last_at=other.last_at,
            )
            for other in found.changed_with
        ),
        imports=found.imports,
        imported_by=found.imported_by,
        sessions=session_documents(found.past),
        memories=decided_documents(found.past),
    )


def _columns() -> int:
    return get_terminal_size((100, 24)).columns
