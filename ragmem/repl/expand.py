"""What was shown in short, opened whole: results, thoughts, long prompts, what memory put in."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ragmem.errors import SessionNotFound, UsageError
from ragmem.memory.window import result_text
from ragmem.records import ToolCall, Turn
from ragmem.repl.choices import when
from ragmem.repl.output import ChatOutput, listing
from ragmem.repl.recalled import items_text
from ragmem.repl.resumed import subject_of
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import ChatQuestion, PickList, PickQuestion, PickRow
from ragmem.text import counted, one_line
from ragmem.tools.terminal import plain

_LONG_LINES, _LONG_CHARS = 6, 1_000
"""From so much on a prompt is shown folded when its session is resumed, or was a paste."""
_PROMPT = "Prompt: "
_PREVIEW_CHARS = 4_000
_LISTED = 20
_MOST_BYTES = 4_000_000


class Shortened(msgspec.Struct, frozen=True):
    """Something that was shown in short."""

    title: str
    what: str
    """How much of it there is, or what kind of thing it is."""
    turn_index: int
    at: datetime
    text: str
    file: Path | None = None
    """Where all of it is, when `text` is cut."""


async def expand(said: str, chat: ChatSession) -> None:
    """Open what the person names by its number in the list, or picks from it.

    The list holds this session's, the newest first. UsageError when there is no such number, or
    nothing at all.
    """
    found = await _shortened(chat)
    if not found:
        raise UsageError("Nothing of this session was shown in short yet.")
    number = said or await _chosen(found, chat.output)
    if not number:
        return
    if not (number.isdecimal() and 0 < int(number) <= len(found)):
        raise UsageError(f"There is no {number} in the list.", hint="/expand shows it.")
    chosen = found[int(number) - 1]
    await chat.output.page(await asyncio.to_thread(_whole, chosen))


async def _shortened(chat: ChatSession) -> list[Shortened]:
    if not chat.app.memory.records:
        raise UsageError("Nothing is kept of this session, so nothing can be opened later.")
    now = datetime.now(UTC)
    try:
        turns = (await chat.app.memory.load_session(chat.session.session_id)).turns
    except SessionNotFound:  # nothing was asked yet
        turns = ()
    found = [each for turn in reversed(turns) for each in shortened_of(turn)]
    if chat.recalled:
        last = turns[-1].turn_index if turns else 0
        what, text = counted(len(chat.recalled), "item"), items_text(chat.recalled, now)
        memory = Shortened("What memory put into the last request", what, last, now, text)
        # Its row is below that of the prompt, and above those of the results.
        later = (each.turn_index == last and not each.title.startswith(_PROMPT) for each in found)
        found.insert(sum(later), memory)
    return found


def shortened_of(turn: Turn) -> list[Shortened]:
    """Return what of a turn was shown in short, the newest first."""
    found = []
    for call in (each for each in reversed(turn.tool_calls) if each.result):
        text, file = result_text(call), _output_file(call)
        lines = counted(text.rstrip("\n").count("\n") + 1, "line")
        size = "kept in a file" if file else lines
        found.append(
            Shortened(subject_of(call), size, turn.turn_index, call.started_at, text, file)
        )
    if turn.reasoning and turn.reasoning.strip():
        size = f"{len(turn.reasoning):,} characters"
        found.append(Shortened("Thoughts", size, turn.turn_index, turn.timestamp, turn.reasoning))
    prompt = turn.user_message
    if prompt.count("\n") >= _LONG_LINES or len(prompt) > _LONG_CHARS:
        size, title = counted(prompt.count("\n") + 1, "line"), one_line(prompt, 200)
        found.append(Shortened(f"{_PROMPT}{title}", size, turn.turn_index, turn.timestamp, prompt))
    return found


def _output_file(call: ToolCall) -> Path | None:
    """Return where all that a command printed is, where that is more than the model was shown."""
    try:
        result = json.loads(call.result or "{}")
    except ValueError:
        return None
    name = result.get("output_file") if isinstance(result, dict) else None
    return Path(name) if isinstance(name, str) else None


async def _chosen(found: Sequence[Shortened], output: ChatOutput) -> str:
    if output.picks:
        return await output.pick(_question(found)) or ""
    rows = [f"{at:>4}  {_title(each)}  {each.what}" for at, each in enumerate(found, 1)]
    output.show(listing("\n".join(rows[:_LISTED])))
    said = await output.ask(ChatQuestion("Which one? A number; nothing for none:"))
    return (said or "").strip()


def _question(found: Sequence[Shortened]) -> PickQuestion:
    now = datetime.now(UTC)

    async def rows() -> list[PickRow]:
        return [
            PickRow(
                key=str(at),
                text=_title(each),
                facts=(each.what, f"turn {each.turn_index}", when(each.at, now)),
            )
            for at, each in enumerate(found, 1)
        ]

    async def end(key: str) -> list[str]:
        text = found[int(key) - 1].text[-_PREVIEW_CHARS:]
        return [line for line in text.split("\n") if line.strip()][-2:]

    return PickQuestion(title="Open", lists=(PickList("", rows),), preview=end)


def _title(each: Shortened) -> str:
    return one_line(each.title, 400)


def _whole(chosen: Shortened) -> str:
    """Return its text; of a command all that its file still has."""
    text = chosen.text
    if chosen.file:
        try:
            with chosen.file.open("rb") as file:
                text = plain(file.read(_MOST_BYTES).decode("utf-8", "replace"))
                if file.read(1):
                    text += f"\n\nThere is more of it in {chosen.file}."
        except OSError:
            text += f"\n\n{chosen.file} is not there any more; this is what is kept of it."
    return f"{_title(chosen)}\nturn {chosen.turn_index} · {chosen.what}\n\n{text.rstrip()}\n"
