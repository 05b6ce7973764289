"""`/memory`, `/why`, `/pin`, `/forget` and `#text`: what is remembered, from within a chat."""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from ragmem.errors import MemoryNotFound
from ragmem.ids import short_id
from ragmem.memory.chains import Line, chain_of, summed_up, told
from ragmem.memory.facts.facts import Facts
from ragmem.memory.facts.values import Draft, FactHit, Remembered
from ragmem.memory.notes import facts_of, forget, forgotten_text, here, said_so, tell
from ragmem.records import MemoryRecord
from ragmem.repl.page import Page
from ragmem.repl.render import failure, wrap
from ragmem.repl.talk import Talk
from ragmem.repl.terminal import Question
from ragmem.text import counted, one_line

Stays = Literal[""]
"""None of these leaves the session."""

MEMORY_COMMANDS = {
    "memory": "what is remembered here: /memory [text]",
    "why": "where a memory comes from: /why id",
    "pin": "keep in every request: /pin text, or the id of a memory",
    "forget": "forget a memory for ever: /forget id",
}
NOTE_KEY = ("#text", "remembers a fact; with always or never, a rule")
_NOTE = re.compile(r"#(?![#!\d])[^\n]*")
_ID = re.compile(r"[0-9a-f-]{4,36}")
_LISTED, _FOUND = 20, 8
_MOST_ROWS = 3
"""Of what a memory says: `/why` and `ragmem memory show` have it whole."""


def is_note(text: str) -> bool:
    """Whether a prompt is a `#text` to be remembered.

    A page that begins with a heading is none, nor are `#!`, `##`, and `#12`, which is an issue's
    number; and a blank before it sends it to the agent.
    """
    return _NOTE.fullmatch(text.rstrip()) is not None


async def remember(line: str, talk: Talk, page: Page) -> Stays:
    """`#text`."""
    text = line.strip()[1:].strip()
    if not text:
        page.show(failure("Remember what?", "# followed by a sentence.", page.width))
        return ""
    await _tell(said_so(text), talk, page)
    return ""


async def _tell(draft: Draft, talk: Talk, page: Page) -> None:
    app = talk.app
    place = await here(await app.store(), app.cwd)
    project_id = talk.session.project_id
    remembered = await tell(app.memory, place, draft, "chat", project_id=project_id)
    page.show(remembered_text(remembered, page.width), "notice")


async def _memory(text: str, talk: Talk, page: Page) -> Stays:
    facts = facts_of(talk.app.memory)
    project_id = talk.session.project_id
    if text:
        found = await facts.search(text, project_id=project_id, limit=_FOUND, floor=False)
        none = Text("Nothing of what is remembered is like that.", style="dim")
        page.show(found_list(found, page.width) if found else none)
        return ""
    recent = await facts.recent(project_id=project_id, limit=_LISTED)
    if not recent:
        said = "Nothing is remembered in this project, or of you. # before a sentence remembers it."
        page.show(Text(said, style="dim"))
        return ""
    page.show(memory_list(recent, page.width))
    if len(recent) == _LISTED:
        said = f"The newest {_LISTED}; `ragmem memory list` shows them all, /memory text searches."
        page.show(Text(said, style="dim"))
    return ""


async def _why(reference: str, talk: Talk, page: Page) -> Stays:
    if not reference:
        page.show(failure("Why what?", "/why followed by an id, as /memory shows it.", page.width))
        return ""
    facts = facts_of(talk.app.memory)
    chain = await chain_of(await _found(facts, reference), facts, await talk.app.store())
    page.show(chain_text(told(chain, datetime.now(UTC)), page.width))
    return ""


async def _found(facts: Facts, reference: str) -> MemoryRecord:
    try:
        return await facts.find(reference)
    except MemoryNotFound as error:
        raise MemoryNotFound(str(error), hint="/memory shows what is remembered.") from None


async def _pin(said: str, talk: Talk, page: Page) -> Stays:
    if not said:
        page.show(failure("Pin what?", "/pin followed by an id, or by a text.", page.width))
        return ""
    if not _ID.fullmatch(said):
        await _tell(said_so(said, pinned=True), talk, page)
        return ""
    facts = facts_of(talk.app.memory)
    memory = await facts.edit(await _found(facts, said), pinned=True)
    line = _dim(f"pinned {short_id(memory.memory_id)}: {memory.content}", page.width)
    page.show(line, "notice")
    return ""


async def _forget(reference: str, talk: Talk, page: Page) -> Stays:
    if not reference:
        said = "/forget followed by an id, as /memory shows it."
        page.show(failure("Forget what?", said, page.width))
        return ""
    facts = facts_of(talk.app.memory)
    memory = await _found(facts, reference)
    earlier = len(await facts.history(memory))
    page.show(memory_list([memory], page.width))
    with_them = f" With {counted(earlier, 'earlier version')}." if earlier else ""
    question = Question(f"Forget it for ever?{with_them}", (("y", "yes"), ("n", "no")))
    if await page.ask(question) != "y":
        page.show(Text("Nothing was forgotten.", style="dim"))
        return ""
    app = talk.app
    count = await forget(facts, memory, log_dir=app.paths.log_dir, store=app.config.store.kind)
    page.show(Text(forgotten_text(memory, count), style="dim"))
    return ""


MEMORY_HANDLERS: dict[str, Callable[[str, Talk, Page], Awaitable[Stays]]] = {
    "memory": _memory,
    "why": _why,
    "pin": _pin,
    "forget": _forget,
}


# --- how their answers look ---------------------------------------------------


def memory_list(found: Sequence[MemoryRecord], width: int) -> RenderableType:
    """What each is, and below it what it says, in a few lines."""
    now = datetime.now(UTC)
    return Group(
        *(part for memory in found for part in _entry(memory, summed_up(memory, now), width))
    )


def found_list(found: Sequence[FactHit], width: int) -> RenderableType:
    """The same, with why each was found."""
    now = datetime.now(UTC)
    parts: list[Text] = []
    for hit in found:
        alike = [] if hit.similarity is None else [f"{hit.similarity * 100:.0f}% alike"]
        why = [f"found by {one_line(hit.why, 80)}"] if hit.why else []
        parts += _entry(hit.memory, " · ".join([summed_up(hit.memory, now), *alike, *why]), width)
    return Group(*parts)


def _entry(memory: MemoryRecord, head: str, width: int) -> list[Text]:
    """The head where lines break between words, and what it says, each line behind a margin."""
    rows = wrap(one_line(memory.content, 4_000), max(20, width - 2))
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], f"{rows[_MOST_ROWS - 1][: max(19, width - 3)]}…"]
    return [
        *(Text(row, style="cyan") for row in wrap(head, max(20, width))),
        *(Text(f"  {row}", style="dim", no_wrap=True, overflow="ellipsis") for row in rows),
    ]


def chain_text(lines: Sequence[Line], width: int) -> RenderableType:
    """The rows of a chain, each behind its line's margin."""
    rows = [
        Text(" " * indent + row, style="" if indent else "bold")
        for indent, text in lines
        for row in wrap(text, max(20, width - indent))
    ]
    return Text("\n").join(rows)


def remembered_text(remembered: Remembered, width: int) -> RenderableType:
    """What became of it, in one dim line."""
    memory = remembered.memory
    if memory is None:
        return _dim(remembered.note, width)
    pinned = ", pinned" if memory.pinned else ""
    head = f"remembered {memory.kind}{pinned} {short_id(memory.memory_id)}"
    if remembered.action == "known":
        head = f"known already {short_id(memory.memory_id)}"
    elif remembered.action == "updated":
        head += " anew"
    note = f" ({remembered.note})" if remembered.note else ""
    return _dim(f"{head}: {memory.content}{note}", width)


def _dim(text: str, width: int) -> Text:
    return Text(one_line(f"· {text}", max(20, width)), style="dim")
