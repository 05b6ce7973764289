"""Which session a command is about."""

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ragmem.cli.streams import is_interactive, say
from ragmem.cli.table import table
from ragmem.errors import AmbiguousSession, SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.memory.projects import folder_name
from ragmem.records import Session
from ragmem.store.base import SessionQuery
from ragmem.text import ago, one_line

if TYPE_CHECKING:
    from ragmem.app import App

_CHOICES = 20
_COLUMNS = ("ID", "LAST ACTIVITY", "TURNS", "TITLE")


async def choose_session(
    app: "App", *, continue_last: bool, resume: str | None, fork: bool = False
) -> Session:
    """The session that -c, -r and --fork-session ask for, else a new one."""
    if resume is not None:
        session = await resumed(app, resume)
    elif continue_last:
        session = await last_session(app)
    else:
        return await app.start_session()
    return await app.fork_session(session) if fork else session


async def last_session(app: "App") -> Session:
    """The newest session of this folder; SessionNotFound when there is none."""
    session = await app.continue_session()
    if session is None:
        raise SessionNotFound(
            f"There is no session of {app.cwd} yet.",
            hint="`ragmem sessions list --all` shows those of other folders.",
        )
    return session


async def resumed(app: "App", reference: str) -> Session:
    """The session of -r; without a value a person chooses, and a pipe gets the candidates."""
    if not reference:
        return await app.resume_session(await _pick(app))
    try:
        return await app.resume_session(reference)
    except AmbiguousSession as error:
        listed = await _candidates(app, error.candidates)
        raise AmbiguousSession(
            f"{error}\n{listed}", candidates=error.candidates, hint=error.hint
        ) from None


def session_rows(sessions: Sequence[Session], now: datetime) -> list[tuple[str, ...]]:
    """One row a session: id, age, turns, and what it is called or was last asked."""
    return [
        (
            short_id(session.session_id),
            ago(session.last_activity_at, now),
            str(session.turn_count),
            session_name(session),
        )
        for session in sessions
    ]


def session_name(session: Session) -> str:
    """Its title, or the newest prompt of one that was never named."""
    return one_line(session.called, 120)


def _settle(typed: asyncio.Future[None]) -> None:
    if not typed.done():
        typed.set_result(None)


async def _candidates(app: "App", ids: Sequence[str]) -> str:
    sessions = [await app.memory.find_session(session_id) for session_id in ids[:_CHOICES]]
    rows = [
        (session.session_id, *row[1:])
        for session, row in zip(sessions, session_rows(sessions, datetime.now(UTC)), strict=True)
    ]
    return table(_COLUMNS, rows, width=100).rstrip("\n")


async def _pick(app: "App") -> str:
    sessions = await app.memory.sessions(
        SessionQuery(cwd=folder_name(app.cwd), mine=True, limit=_CHOICES)
    )
    if not sessions:
        raise SessionNotFound(
            f"There is no session of {app.cwd} to resume.",
            hint="`ragmem sessions list --all` shows those of other folders.",
        )
    rows = session_rows(sessions, datetime.now(UTC))
    if not is_interactive():
        listed = table(_COLUMNS, rows, width=100).rstrip("\n")
        raise UsageError(f"-r needs a session here: which one?\n{listed}", hint="Use -r ID.")
    numbered = [(str(number), *row) for number, row in enumerate(rows, 1)]
    say(table(("", *_COLUMNS), numbered, width=100))
    answer = await ask_line(f"Which one? [1-{len(rows)}] ")
    if not answer.isdecimal() or not 1 <= int(answer) <= len(rows):
        raise UsageError("No session was chosen.")
    return sessions[int(answer) - 1].session_id


async def ask_line(question: str) -> str:
    """A line typed at the terminal, while the loop goes on; empty at its end (Ctrl-D)."""
    say(question)
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[None] = loop.create_future()
    fd = sys.stdin.fileno()
    loop.add_reader(fd, _settle, typed)
    try:
        await typed
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096).decode(errors="replace").strip()
