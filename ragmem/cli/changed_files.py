"""`ragmem files --since`: what the agent has changed in this project since then."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.documents import Document, to_json
from ragmem.cli.index import project_here
from ragmem.cli.streams import say, write, write_json
from ragmem.cli.table import table
from ragmem.errors import SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.store.base import SessionQuery
from ragmem.text import ago, one_line

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.records import FileAccess, Session

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_AGE = re.compile(r"(\d{1,5})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_SESSIONS = 1_000
_ALL_TURNS = 10**12
"""Characters: more than a session holds."""


class ChangedFileDocument(Document, frozen=True, kw_only=True):
    """A file that was changed, the latest first."""

    path: str
    turn_count: int
    session_ids: tuple[str, ...]
    """The newest first."""
    timestamp: datetime
    """Of the last change."""


class _Change(msgspec.Struct, frozen=True):
    session_id: str
    turn_index: int
    at: datetime


async def print_changed(opened: "App", since: str, output: Literal["table", "json"]) -> None:
    """Print the files that tools have written since then."""
    start = await _start(opened, since)
    project = await project_here(opened)
    store = await opened.store()
    query = SessionQuery(project_ids=(project.root_id,), limit=_SESSIONS)
    changes: dict[str, list[_Change]] = {}
    for session in await store.sessions(query):
        if session.last_activity_at < start:
            continue
        accesses = await store.file_accesses(session.session_id, max_turn_chars=_ALL_TURNS)
        for access in _own_writes(session, accesses, start):
            change = _Change(session.session_id, access.turn_index, access.accessed_at)
            changes.setdefault(access.path, []).append(change)
    found = sorted((_document(path, own) for path, own in changes.items()), key=_newest_first)
    if output == "json":
        write_json(to_json(found))
    elif found:
        write(_table(found))
    else:
        say("The agent has changed no file here since then.\n")


async def _start(opened: "App", since: str) -> datetime:
    """A date and an age count from now; a session from where it stands."""
    if age := _AGE.fullmatch(since.strip()):
        return datetime.now(UTC) - timedelta(hours=int(age[1]) * _HOURS[age[2]])
    if _DATE.match(since.strip()):
        try:
            return datetime.fromisoformat(since.strip()).astimezone()
        except ValueError:
            raise UsageError(f"--since: {one_line(since, 40)!r} is no date.") from None
    try:
        return (await opened.resume_session(since)).last_activity_at
    except SessionNotFound:
        raise UsageError(
            f"--since: {one_line(since, 40)!r} is no age, no date and no session.",
            hint="Such as 7d, 12h, 2w, 2026-11-01, or the id or name of a session.",
        ) from None


def _own_writes(
    session: "Session", accesses: "Iterable[FileAccess]", start: datetime
) -> "list[FileAccess]":
    """What a fork shares is its parent's."""
    shared = session.forked_at_index or 0
    return [
        access
        for access in accesses
        if access.access_type == "write"
        and access.accessed_at >= start
        and access.turn_index > shared
    ]


def _document(path: str, changes: list[_Change]) -> ChangedFileDocument:
    newest = sorted(changes, key=lambda change: change.at, reverse=True)
    return ChangedFileDocument(
        path=path,
        turn_count=len({(change.session_id, change.turn_index) for change in changes}),
        session_ids=tuple(dict.fromkeys(change.session_id for change in newest)),
        timestamp=newest[0].at,
    )


def _newest_first(document: ChangedFileDocument) -> tuple[float, str]:
    return -document.timestamp.timestamp(), document.path


def _table(found: list[ChangedFileDocument]) -> str:
    now = datetime.now(UTC)
    rows = [
        (ago(each.timestamp, now), str(each.turn_count), short_id(each.session_ids[0]), each.path)
        for each in found
    ]
    width = get_terminal_size((120, 24)).columns
    return table(("CHANGED", "TURNS", "SESSION", "PATH"), rows, width=width)
