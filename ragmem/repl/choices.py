"""Questions answered with the picker: a session, a turn, a memory, a model, a theme."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ragmem.config import Effort, environment
from ragmem.errors import RagmemError
from ragmem.ids import short_id
from ragmem.llm.models import list_models
from ragmem.llm.providers import is_known
from ragmem.memory.files import rewind_to
from ragmem.memory.turns import extract_accessed_files, taken_back
from ragmem.records import MemoryRecord, Session, SessionQuery, Turn
from ragmem.repl import completion
from ragmem.repl.output import SAMPLE
from ragmem.repl.recalled import without_verdict
from ragmem.repl.terminal import Line, PickList, PickQuestion, PickRow
from ragmem.text import ago, counted
from ragmem.themes import ThemeName

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.last_time import SessionRecap

_MAX_SESSIONS, _MAX_OFFERED = 10_000, 20
_MAX_NAMED_FILES = 3


def when(at: datetime, now: datetime) -> str:
    """Return how long ago a time was, short enough for a column: `20 min`."""
    return ago(at, now).removesuffix(" ago").replace(" minutes", " min").replace(" minute", " min")


# --- sessions -----------------------------------------------------------------


def session_question(app: "App", *, current: str = "") -> PickQuestion:
    """Return the question for a session of this folder or of all; the answer is its id."""
    known: dict[str, Session] = {}

    async def listed(found: Sequence[Session], *, folders: bool) -> list[PickRow]:
        known.update((each.session_id, each) for each in found)
        return await asyncio.to_thread(session_rows, found, current=current, folders=folders)

    async def here() -> list[PickRow]:
        return await listed(await app.sessions_here(_MAX_SESSIONS), folders=False)

    async def everywhere() -> list[PickRow]:
        query = SessionQuery(mine=True, limit=_MAX_SESSIONS)
        return await listed(await app.memory.sessions(query), folders=True)

    async def preview(session_id: str) -> list[str]:
        return recap_lines(await app.memory.recap(known[session_id]))

    return PickQuestion(
        title="Resume",
        lists=(PickList("this folder", here), PickList("all folders", everywhere)),
        nothing="No sessions yet.",
        preview=preview,
    )


def session_rows(
    found: Sequence[Session], *, current: str = "", folders: bool = False
) -> list[PickRow]:
    """Return a row for each session that has turns, or is the current one.

    With `folders`, rows name the session's folder. Sessions of the same name also show their last
    prompt.
    """
    now = datetime.now(UTC)
    names = Counter(each.called for each in found)
    rows = []
    for each in found:
        if not each.turn_count and each.session_id != current:
            continue
        asked = each.last_asked
        is_ambiguous = names[each.called] > 1 and asked not in ("", each.called)
        facts = [counted(each.turn_count, "turn"), when(each.last_activity_at, now)]
        facts += ["archived"] if each.status == "archived" else []
        facts += [each.cwd.rsplit("/", 1)[-1] or each.cwd] if folders else []
        rows.append(
            PickRow(
                key=each.session_id,
                text=f"{each.called} · {asked}" if is_ambiguous else each.called,
                facts=(*facts, " ".join(f"#{tag}" for tag in each.tags)),
                also=f"{short_id(each.session_id)} {each.cwd if folders else ''} {asked}",
                is_current=each.session_id == current,
            )
        )
    return rows


def recap_lines(recap: "SessionRecap") -> list[str]:
    """Return two rows: the last prompt and its answer; the changes, a failure and an open task."""
    last = recap.outcome or recap.about or recap.session.last_asked
    results = [f"{counted(len(recap.changed), 'file')} changed"] if recap.changed else []
    results += [f"failed: {without_verdict(each)}" for each in recap.failed[:1]]
    results += [f"open: {each}" for each in recap.open[:1]]
    return [f"last: {last}", " · ".join(results)]


def memory_question(memories: Sequence[MemoryRecord]) -> PickQuestion:
    """Return the question which of these memories to forget; the answer is its id."""
    now = datetime.now(UTC)
    rows = [
        PickRow(key=m.memory_id, text=m.content, facts=(m.kind, when(m.updated_at, now)))
        for m in memories
    ]
    return PickQuestion(title="Forget", rows=rows)


# --- turns --------------------------------------------------------------------


def turn_question(
    turns: Sequence[Turn], read_all: Callable[[], Awaitable[Sequence[Turn]]] | None = None
) -> PickQuestion:
    """Return the question which prompt to rewind to; the answer is the number of its turn.

    `read_all` is given if there are more turns than these; it is called when the user lists all.
    """
    known = turns

    async def preview(number: str) -> list[str]:
        return await asyncio.to_thread(_rewind_preview, known, int(number))

    async def every() -> list[PickRow]:
        nonlocal known
        known = await read_all() if read_all else turns
        return _turn_rows(known)

    rows = _turn_rows(turns)
    return PickQuestion(
        title="Rewind to before",
        rows=rows,
        lists=latest_of(rows, read_all and every),
        preview=preview,
    )


def latest_of(
    rows: Sequence[PickRow], every: Callable[[], Awaitable[Sequence[PickRow]]] | None
) -> tuple[PickList, ...]:
    """Return a list of the latest rows and one of all; none if there are no others (no `every`)."""

    async def latest() -> Sequence[PickRow]:
        return rows

    return (PickList("the latest", latest), PickList("all", every)) if every else ()


def _turn_rows(turns: Sequence[Turn]) -> list[PickRow]:
    now, undone = datetime.now(UTC), taken_back(turns)
    return [_turn_row(t, now, undone.get(t.turn_id, ())) for t in reversed(turns) if not t.is_undo]


def _turn_row(turn: Turn, now: datetime, undone: Collection[str]) -> PickRow:
    calls = (call for call in turn.tool_calls if not call.is_undo)
    accesses = (each for call in calls for each in extract_accessed_files(call))
    changed = {each.path for each in accesses if each.access_type == "write"}.difference(undone)
    files = counted(len(changed), "file") if changed else "undone" if undone else ""
    return PickRow(
        key=str(turn.turn_index),
        text=turn.asked,
        facts=(f"turn {turn.turn_index}", when(turn.timestamp, now), files),
    )


def _rewind_preview(turns: Sequence[Turn], number: int) -> list[str]:
    """Return the preview of a turn: the number of turns from it on, and the files they changed."""
    count = sum(turn.turn_index >= number and not turn.is_undo for turn in turns)
    back = rewind_to(turns, number - 1)
    summary = f"{counted(count, 'turn')} from there on"
    if back.command_count:
        summary += f" · {counted(back.command_count, 'command')} run since"
    if not back.changes:
        return [summary, "no files changed"]
    names = ", ".join(each.path for each in back.changes[:_MAX_NAMED_FILES])
    more = len(back.changes) - _MAX_NAMED_FILES
    files = f"{counted(len(back.changes), 'file')} changed since: {names}"
    return [summary, files + (f" and {more} more" if more > 0 else "")]


# --- models and themes ---------------------------------------------------------


def model_question(app: "App", *, current: str) -> PickQuestion:
    """Return the question for one of the models available now; the answer is its name."""

    async def rows() -> list[PickRow]:
        found = {current: "answers now"} | dict(await asyncio.to_thread(_models, app))
        return [
            PickRow(key=name, text=name, facts=(why,), is_current=name == current)
            for name, why in found.items()
        ]

    return PickQuestion(title="Model", lists=(PickList("models", rows),))


async def is_at_hand(app: "App", model: str) -> bool:
    """Return whether ragmem knows a model, or it is available now."""
    return is_known(model) or model in dict(await asyncio.to_thread(_models, app))


def _models(app: "App") -> list[tuple[str, str]]:
    """Return the models available now, and why each is; may query a local server. Blocks."""
    return [(each.name, each.why) for each in list_models(environment(), app.config)]


THEMES: dict[ThemeName, str] = {
    "auto": "matches the background",
    "light": "for a light background",
    "dark": "for a dark background",
    "plain": "no colours, only bold and dim",
}
"""Description of each theme."""


def theme_question(current: ThemeName, on_marked: Callable[[ThemeName], object]) -> PickQuestion:
    """Return the question for a theme; the answer is its name.

    `on_marked` is called with each theme that the user moves to.
    """

    async def preview(name: str) -> list[Line]:
        sample = [("" if name == "plain" else style, f"{word}  ") for word, style in SAMPLE]
        half = len(sample) // 2
        return [tuple(sample[:half]), tuple(sample[half:])]

    return PickQuestion(
        title="Theme",
        rows=[
            PickRow(key=name, text=name, facts=(about,), is_current=name == current)
            for name, about in THEMES.items()
        ],
        preview=preview,
        on_marked=lambda key: on_marked(next(name for name in THEMES if name == key)),
    )


# --- values for completion ---------------------------------------------------

Value = tuple[str, str]
"""A text to complete, and its description."""
_EFFORTS: dict[Effort, str] = {
    "none": "answers at once",
    "low": "thinks a little",
    "medium": "thinks for a while",
    "high": "thinks for long",
}
_FIXED: dict[str, Sequence[Value]] = {
    "effort": list(_EFFORTS.items()),
    "theme": list(THEMES.items()),
}


class Values:
    """The values that complete commands and `@`, read in the background when first requested."""

    def __init__(self, app: "App", on_read: Callable[[], None]) -> None:
        self._app = app
        self._on_read = on_read
        self._loop = asyncio.get_running_loop()
        self._values: dict[str, Sequence[Value]] = {}
        self._requested = set[str]()
        """Commands whose values have been requested, and need not be read again."""
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._stop = threading.Event()
        self._readers = {"resume": self._sessions, "model": self._models, "@": self._files}

    def of(self, command: str) -> Sequence[Value] | None:
        """Return the values read so far; None for a command without completion. Thread-safe."""
        if command in _FIXED:
            return _FIXED[command]
        if command not in self._readers:
            return None
        if command not in self._requested:
            self._requested.add(command)
            self._loop.call_soon_threadsafe(self._begin, command)
        return self._values.get(command, ())

    def forget(self) -> None:
        """Read values again at the next request; until then, the known ones are returned."""
        self._requested.clear()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()

    def _begin(self, command: str) -> None:
        self._reading[command] = asyncio.create_task(self._read(command))

    async def _read(self, command: str) -> None:
        with suppress(RagmemError):
            self._values[command] = await self._readers[command]()
        self._on_read()

    async def _files(self) -> list[Value]:
        paths = await asyncio.to_thread(completion.project_files, self._app.cwd, self._stop)
        return [(path, "") for path in paths]

    async def _sessions(self) -> list[Value]:
        now, found = datetime.now(UTC), await self._app.sessions_here(_MAX_OFFERED)
        descriptions = (
            f"{each.called} · {counted(each.turn_count, 'turn')} · "
            f"{when(each.last_activity_at, now)}"
            for each in found
        )
        return list(zip((short_id(each.session_id) for each in found), descriptions, strict=True))

    async def _models(self) -> list[Value]:
        return await asyncio.to_thread(_models, self._app)
