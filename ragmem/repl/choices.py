"""What a chat lets a person pick: a session to go on with, a turn to go back to, a model."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

from ragmem.errors import RagmemError
from ragmem.ids import short_id
from ragmem.llm.base import Effort
from ragmem.memory.files import extract_accessed_files, rewind_to, taken_back
from ragmem.records import MemoryRecord, Session, SessionQuery, Turn
from ragmem.repl.output import SAMPLE
from ragmem.repl.recalled import without_verdict
from ragmem.repl.session import ChatSession, sessions_here
from ragmem.repl.terminal import Line, PickList, PickQuestion, PickRow
from ragmem.text import ago, counted
from ragmem.themes import ThemeName

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.context import SessionRecap

_MOST_SESSIONS = 10_000
_NAMED_FILES = 3


def when(at: datetime, now: datetime) -> str:
    """Return how long ago, as short as a column wants it: `20 min`."""
    return ago(at, now).removesuffix(" ago").replace(" minutes", " min").replace(" minute", " min")


# --- sessions -----------------------------------------------------------------


def session_question(app: "App", *, current: str = "") -> PickQuestion:
    """Ask for a session of this folder, or of all of them; the answer is its id."""
    known: dict[str, Session] = {}

    async def listed(found: Sequence[Session], *, folders: bool) -> list[PickRow]:
        known.update((each.session_id, each) for each in found)
        return await asyncio.to_thread(session_rows, found, current=current, folders=folders)

    async def here() -> list[PickRow]:
        return await listed(await app.sessions_here(_MOST_SESSIONS), folders=False)

    async def everywhere() -> list[PickRow]:
        query = SessionQuery(mine=True, limit=_MOST_SESSIONS)
        return await listed(await app.memory.sessions(query), folders=True)

    async def preview(session_id: str) -> list[str]:
        return recap_lines(await app.memory.recap(known[session_id]))

    return PickQuestion(
        title="Resume",
        lists=(PickList("this folder", here), PickList("all folders", everywhere)),
        nothing="There are no sessions here yet.",
        preview=preview,
    )


def session_rows(
    found: Sequence[Session], *, current: str = "", folders: bool = False
) -> list[PickRow]:
    """Return a row for each session that something was said in; `folders` are named on request."""
    now = datetime.now(UTC)
    names = Counter(each.called for each in found)
    return [
        PickRow(
            key=each.session_id,
            text=_told_apart(each) if names[each.called] > 1 else each.called,
            facts=(
                counted(each.turn_count, "turn"),
                when(each.last_activity_at, now),
                *(["archived"] if each.status == "archived" else []),
                *([_folder(each)] if folders else []),
                " ".join(f"#{tag}" for tag in each.tags),
            ),
            also=_also(each, folders=folders),
            is_current=each.session_id == current,
        )
        for each in found
        if each.turn_count or each.session_id == current
    ]


def _told_apart(session: Session) -> str:
    """Return a name that others have too, with what was last said in this one."""
    said = session.last_asked
    return session.called if said in ("", session.called) else f"{session.called} · {said}"


def _also(session: Session, *, folders: bool) -> str:
    """Return what a row is found by beside what is seen of it."""
    where = session.cwd if folders else ""
    return f"{short_id(session.session_id)} {where} {session.last_asked}"


def _folder(session: Session) -> str:
    return session.cwd.rsplit("/", 1)[-1] or session.cwd


def recap_lines(recap: "SessionRecap") -> list[str]:
    """Return what was last asked and how the answer began, and what came of the session."""
    last = recap.outcome or recap.about or recap.session.last_asked
    came = [f"{counted(len(recap.changed), 'file')} changed"] if recap.changed else []
    came += [f"did not work: {without_verdict(each)}" for each in recap.failed[:1]]
    came += [f"open: {each}" for each in recap.open[:1]]
    return [f"last: {last}", " · ".join(came)]


# --- memories -----------------------------------------------------------------


def memory_question(memories: Sequence[MemoryRecord]) -> PickQuestion:
    """Ask for one of these memories; the answer is its id."""
    now = datetime.now(UTC)

    async def rows() -> list[PickRow]:
        return [
            PickRow(
                key=each.memory_id,
                text=each.content,
                facts=(each.kind, when(each.updated_at, now)),
            )
            for each in memories
        ]

    return PickQuestion(title="Forget", lists=(PickList("memories", rows),))


# --- turns --------------------------------------------------------------------


def turn_question(turns: Sequence[Turn]) -> PickQuestion:
    """Ask for the prompt to go back to before; the answer is the number of its turn."""
    now, gone = datetime.now(UTC), taken_back(turns)

    async def rows() -> list[PickRow]:
        said = (turn for turn in reversed(turns) if not turn.is_undo)
        return [_turn_row(turn, now, gone.get(turn.turn_id, ())) for turn in said]

    async def preview(number: str) -> list[str]:
        return await asyncio.to_thread(lines_from, turns, int(number))

    return PickQuestion(title="Back to before", lists=(PickList("turns", rows),), preview=preview)


def _turn_row(turn: Turn, now: datetime, gone: Collection[str]) -> PickRow:
    calls = (call for call in turn.tool_calls if not call.is_undo)
    accesses = (each for call in calls for each in extract_accessed_files(call))
    changed = {each.path for each in accesses if each.access_type == "write"}.difference(gone)
    return PickRow(
        key=str(turn.turn_index),
        text=turn.asked,
        facts=(
            f"turn {turn.turn_index}",
            when(turn.timestamp, now),
            counted(len(changed), "file") if changed else "taken back" if gone else "",
        ),
    )


def lines_from(turns: Sequence[Turn], number: int) -> list[str]:
    """Return what began with a turn: how many turns, and which files they changed."""
    count = sum(turn.turn_index >= number for turn in turns)
    back = rewind_to(turns, number - 1)
    names = ", ".join(each.path for each in back.changes[:_NAMED_FILES])
    more = len(back.changes) - _NAMED_FILES
    files = f"{counted(len(back.changes), 'file')} changed since: {names}"
    told = [f"{counted(count, 'turn')} from there on"]
    if back.command_count:
        told.append(f"{counted(back.command_count, 'command')} run since")
    return [
        " · ".join(told),
        files + (f" and {more} more" if more > 0 else "") if back.changes else "no files changed",
    ]


# --- models -------------------------------------------------------------------


def model_question(app: "App", *, current: str) -> PickQuestion:
    """Ask for one of the models that can be used now; the answer is its name."""

    async def rows() -> list[PickRow]:
        found = await asyncio.to_thread(models_of, app)
        named = [(name, why) for name, why in found if name != current]
        mine = next((why for name, why in found if name == current), "answers now")
        return [
            PickRow(key=name, text=name, facts=(why,), is_current=name == current)
            for name, why in [(current, mine), *named]
        ]

    return PickQuestion(title="Model", lists=(PickList("models", rows),))


def models_of(app: "App") -> list[tuple[str, str]]:
    """Return the models that can be used now, and why each; may ask a local server. Blocks."""
    from ragmem.config import environment
    from ragmem.llm.models import list_models

    return [(each.name, each.why) for each in list_models(environment(), app.config)]


# --- themes -------------------------------------------------------------------

THEMES: dict[ThemeName, str] = {
    "auto": "as the background is",
    "light": "for a light background",
    "dark": "for a dark one",
    "plain": "bold and dim alone",
}
"""What each theme is, as it is offered."""


def theme_question(current: ThemeName, on_marked: Callable[[ThemeName], object]) -> PickQuestion:
    """Ask for a theme; the answer is its name. `on_marked` is told which one is looked at."""

    async def rows() -> list[PickRow]:
        return [
            PickRow(key=name, text=name, facts=(told,), is_current=name == current)
            for name, told in THEMES.items()
        ]

    async def preview(name: str) -> list[Line]:
        sample = [("" if name == "plain" else style, f"{word}  ") for word, style in SAMPLE]
        half = len(sample) // 2
        return [tuple(sample[:half]), tuple(sample[half:])]

    def marked(key: str) -> None:
        on_marked(next(name for name in THEMES if name == key))

    return PickQuestion(
        title="Theme", lists=(PickList("themes", rows),), preview=preview, on_marked=marked
    )


# --- what can follow a slash command -----------------------------------------

Value = tuple[str, str]
"""What is typed, and what it is."""
_EFFORTS = {
    "none": "answers at once",
    "low": "thinks a little",
    "medium": "thinks for a while",
    "high": "thinks for long",
}


class Values:
    """Keeps what can follow the commands, read in the background when it is first asked for."""

    def __init__(self, chat: ChatSession, on_read: Callable[[], None]) -> None:
        self._chat = chat
        self._on_read = on_read
        self._loop = asyncio.get_running_loop()
        self._kept: dict[str, Sequence[Value]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._ways: dict[str, Callable[[], Awaitable[Sequence[Value]]]] = {
            "resume": self._sessions,
            "model": self._models,
        }

    def of(self, command: str) -> Sequence[Value] | None:
        """Return what is known now; None for a command that takes anything. In any thread."""
        if command == "effort":
            return [(level, _EFFORTS[level]) for level in get_args(Effort)]
        if command == "theme":
            return list(THEMES.items())
        if command not in self._ways:
            return None
        if command not in self._kept:
            self._loop.call_soon_threadsafe(self._begin, command)
        return self._kept.get(command, ())

    def forget(self) -> None:
        """Read anew what is asked for next."""
        self._kept.clear()

    def _begin(self, command: str) -> None:
        if command not in self._reading and command not in self._kept:
            self._reading[command] = asyncio.create_task(self._read(command))

    async def _read(self, command: str) -> None:
        found: Sequence[Value] = ()
        try:
            with suppress(RagmemError):
                found = await self._ways[command]()
        finally:
            del self._reading[command]
        self._kept[command] = found
        self._on_read()

    async def _sessions(self) -> list[Value]:
        now = datetime.now(UTC)
        return [
            (
                short_id(each.session_id),
                f"{each.called} · {counted(each.turn_count, 'turn')}"
                f" · {when(each.last_activity_at, now)}",
            )
            for each in await sessions_here(self._chat.app)
        ]

    async def _models(self) -> list[Value]:
        return await asyncio.to_thread(models_of, self._chat.app)
