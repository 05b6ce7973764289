"""Listings of sessions, files, memories, search results and code: as text, and as JSON documents.

Text is for the command line and the chat, and safe for terminals. A row that begins with a space
belongs to the row above. Documents are what `--format json` and `--output-format json` print, with
stable snake_case keys: each kind is a line of names, and `document` makes one from records that
have fields with these names. Times are datetimes, missing values null.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragmem.events import TurnFinished
from ragmem.ids import short_id
from ragmem.memory.recall import NOBODY
from ragmem.messages import Json
from ragmem.records import FileAccess, MemoryRecord, Session, Turn, Work
from ragmem.text import (
    ago,
    clip_to_width,
    counted,
    display_width,
    flowing,
    hanging,
    line_range,
    one_line,
    without_markdown,
)

if TYPE_CHECKING:
    from ragmem.index import CodeHit
    from ragmem.index.links import FoundCode
    from ragmem.memory.facts import FactHit
    from ragmem.memory.files import CodePast, CodeSession
    from ragmem.memory.memories import Line
    from ragmem.memory.recall import Hit

_NARROWEST = 20

# --- tables ---------------------------------------------------------------------

_GAP = "  "
_NARROW = 100
"""On wider terminals, and in pipes, each row takes one line, whatever it contains."""
_SMALL = 60
_MIN_LAST = 16
"""Columns that the last cell needs to be of any use."""
_MAX_LAST_ROWS = 3
"""Most rows for a paragraph's last cell."""
_NUMBER = re.compile(r"[\d.,%+-]+")
"""A cell that means nothing without its column's name."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return aligned columns, one line per row; with a `width` the last column is clipped to fit.

    If a narrow terminal leaves the last column no room, each row becomes a paragraph, in which only
    an overlong last cell is clipped. Cells are reduced to one line and made safe. Widths are in
    terminal columns: wide characters count two, combining ones none.
    """
    cells = [list(header), *([one_line(cell, 400) for cell in row] for row in rows)]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(header))]
    start = sum(widths[:-1]) + len(_GAP) * (len(header) - 1)
    if width is not None and _is_too_narrow(cells, start, width):
        return "".join(_paragraph(header, row, max(_MIN_LAST, width)) for row in cells[1:])
    lines = []
    for row in cells:
        line = _GAP.join(
            cell + " " * (widths[i] - display_width(cell)) for i, cell in enumerate(row[:-1])
        )
        last = row[-1] if width is None else clip_to_width(row[-1], max(8, width - start))
        lines.append((line + (_GAP if line else "") + last).rstrip())
    return "\n".join(lines) + "\n"


def _is_too_narrow(cells: Sequence[Sequence[str]], start: int, width: int) -> bool:
    """Return whether the last column has no room, or, on a small terminal, would clip a path."""
    last = [(display_width(row[-1]), " " in row[-1]) for row in cells]
    return (width < _NARROW and width - start < min(max(last)[0], _MIN_LAST)) or (
        width < _SMALL and any(wide > width - start and not words for wide, words in last[1:])
    )


def _paragraph(header: Sequence[str], row: Sequence[str], width: int) -> str:
    """Return a row as a paragraph; numbers are prefixed with their column's name."""
    *named, last = [
        f"{name.lower() if name.isalpha() else name} {cell}" if _NUMBER.fullmatch(cell) else cell
        for name, cell in zip(header, row, strict=True)
    ]
    lines: list[str] = []
    for cell in filter(None, (" ".join(each.split()) for each in named)):
        if lines and display_width(longer := f"{lines[-1]}{_GAP}{cell}") <= width:
            lines[-1] = longer
        else:
            lines += folded(_GAP if lines else "", cell, width)
    return "\n".join([*lines, *_last_cell(last, width)]) + "\n"


def _last_cell(text: str, width: int) -> list[str]:
    """Return the first few rows of a text, but a path, which may be typed again, in full."""
    rows = folded(_GAP, text, width) if text else []
    if len(rows) <= _MAX_LAST_ROWS or " " not in text:
        return rows
    return [*rows[: _MAX_LAST_ROWS - 1], clip_to_width(f"{rows[_MAX_LAST_ROWS - 1]} …", width)]


def folded(head: str, text: str, width: int) -> list[str]:
    """Return `hanging`, with words that are too long broken, so that nothing is lost."""
    width = max(display_width(head) + 8, width)
    margin = " " * display_width(head)
    rows: list[str] = []
    for row in hanging(head, text, width):
        while display_width(row) > width:
            fits = next(n for n in range(len(row), 0, -1) if display_width(row[:n]) <= width)
            rows.append(row[:fits])
            row = margin + row[fits:]
        rows.append(row)
    return rows


# --- sessions, files and search results --------------------------------------


def session_name(session: Session) -> str:
    """Return a session's title, or the newest prompt of one that was never named."""
    return one_line(session.called, 120)


def session_marks(session: Session) -> str:
    """Return a session's tags, and whether it is archived."""
    tags = "".join(f" #{tag}" for tag in session.tags)
    return tags + (" (archived)" if session.status == "archived" else "")


def sessions_table(
    sessions: Sequence[Session],
    now: datetime,
    *,
    width: int,
    folders: bool = False,
    whole_ids: bool = False,
    current: str | None = None,
) -> str:
    """List sessions, one line each; across `folders` with the folder of each.

    They are numbered if one is to be chosen: `current` is the id of the open one, or empty.
    """
    columns = {
        "": [
            f"{number} {'●' * (each.session_id == current)}"
            for number, each in enumerate(sessions, 1)
        ],
        "ID": [each.session_id if whole_ids else short_id(each.session_id) for each in sessions],
        "LAST ACTIVITY": [ago(each.last_activity_at, now) for each in sessions],
        "TURNS": [str(each.turn_count) for each in sessions],
        "FOLDER": [each.cwd for each in sessions],
        "TITLE": [session_name(each) + session_marks(each) for each in sessions],
    }
    left_out = {"" if current is None else None, None if folders else "FOLDER"}
    shown = [name for name in columns if name not in left_out]
    rows = zip(*(columns[name] for name in shown), strict=True)
    return table(shown, list(rows), width=width)


def files_table(found: Sequence[FileAccess], now: datetime, *, width: int) -> str:
    """List files, one line each: how each was accessed, and when."""
    rows = [
        (each.access_type, str(each.turn_index), ago(each.accessed_at, now), each.path)
        for each in found
    ]
    return table(("ACCESS", "TURN", "WHEN", "PATH"), rows, width=width)


FURTHER = "Less relevant:"
"""Separates close matches from the rest."""
Part = tuple[str, str]
"""A text that is safe for terminals, and its style: `bold red`, or empty."""
_EXCERPT_CHARS = 500
_EXCERPT_SOURCE_CHARS = 20_000
"""Limit on the characters of a turn."""
_STEM, _ENDING = 4, 4
"""Forms of a word share at least so many letters, and differ in at most so many at the end."""
_WORD = re.compile(r"\w+")
_HIGHLIGHT = "bold yellow"


def unpainted(*parts: Part) -> str:
    """Return the texts without their styles."""
    return "".join(text for text, _ in parts)


class Light:
    """Finds a query's words in a text, also with other endings."""

    def __init__(self, query: str) -> None:
        from ragmem.terms import guess_language, is_stop_word

        words = {word.casefold() for word in _WORD.findall(query)}
        telling = {word for word in words if not is_stop_word(word, guess_language(query))}
        self._words = sorted(telling or words, key=len, reverse=True)
        # In scripts without spaces a word can be part of a longer run of letters.
        inside = "|".join(re.escape(word) for word in self._words if not word.isascii())
        wanted = rf"{inside}|(?:(?!{inside})\w)+" if inside else _WORD.pattern
        self._pattern = re.compile(wanted, re.IGNORECASE)

    def parts(self, row: str, style: str = "") -> list[Part]:
        """Split a row into parts, with the query's words highlighted."""
        parts: list[Part] = []
        end = 0
        for found in self._pattern.finditer(row):
            if self._matches(found[0].casefold()):
                parts += [(row[end : found.start()], style), (found[0], _HIGHLIGHT)]
                end = found.end()
        return [*parts, (row[end:], style)]

    def first(self, text: str) -> int:
        """Return the position of the first of the words; 0 if there is none."""
        found = self._pattern.finditer(text)
        return next((each.start() for each in found if self._matches(each[0].casefold())), 0)

    def _matches(self, word: str) -> bool:
        return any(word == each or _is_form(word, each) for each in self._words)


def _is_form(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short) and len(long) - len(short) <= _ENDING


def excerpt(text: str, light: Light, width: int) -> str:
    """Return one row of the text, from around the first match."""
    content = " ".join(without_markdown(text[:_EXCERPT_SOURCE_CHARS]).split())
    at = light.first(content)
    if display_width(one_line(content[:at], at + 1)) > width // 2:
        start = content.rfind(" ", 0, max(0, at - width // 3)) + 1
        content = f"… {content[start:]}" if start else content
    return clip_to_width(one_line(content, _EXCERPT_CHARS), width)


def hits_text(
    hits: "Sequence[Hit | FactHit]",
    now: datetime,
    *,
    width: int,
    close: int = 0,
    paint: Callable[..., str] = unpainted,
    query: str = "",
) -> str:
    """List results: where each is from, why it was found, what it says; the first `close` are
    close.

    `paint` applies styles to parts; the words of the `query` are highlighted.
    """
    from ragmem.memory.memories import memory_facts, memory_rows
    from ragmem.memory.recall import Hit

    width, light = max(_NARROWEST, width), Light(query)
    rows: list[str] = []
    for place, hit in enumerate(hits):
        rows += [paint((FURTHER, "bold")), ""] if 0 < place == close else []
        if isinstance(hit, Hit):
            rows += facts_rows(hit.facts(now), width, paint)
            rows += said_rows(hit, "  ", width, paint, light)
        else:
            rows += facts_rows(memory_facts(hit, now), width, paint)
            rows += [paint(*light.parts(row)) for row in memory_rows(hit, width)]
        rows.append("")
    return "\n".join(rows)


def facts_rows(facts: Sequence[str], width: int, paint: Callable[..., str]) -> list[str]:
    """Return rows with a result's properties: what it is, then the rest dimmed."""
    first, *rest = flowing(facts, width)
    what, dot, others = first.partition(" · ")
    return [paint((what, "cyan"), (dot + others, "dim")), *(paint((row, "dim")) for row in rest)]


def said_rows(
    hit: "Hit", margin: str, width: int, paint: Callable[..., str], light: Light
) -> list[str]:
    """Return a row each for the question, the answer or summary, and what changed since."""
    texts = [("", hit.summary.text)] if hit.summary else []
    if hit.turn:
        texts = [("> ", hit.turn.prompt), ("", hit.turn.said)]
    texts.append(("", hit.since))
    rows = []
    for mark, text in texts:
        if text.strip():
            row = excerpt(text, light, width - len(margin + mark))
            rows.append(margin + paint((mark, "dim"), *light.parts(row)))
    return rows


def page(lines: "Sequence[Line]", width: int) -> str:
    """Return lines wrapped at words, each row behind its line's margin."""
    rows = [row for indent, text in lines for row in folded(" " * indent, text, width)]
    return "\n".join(rows) + "\n"


# --- code -----------------------------------------------------------------------

SHOWN = 5
"""How much of a list a text shows; JSON has everything requested."""
_LEAST_OF_CODE = 30
_QUOTED_CHARS = 500
_CONTENT_CHARS = 300
_TITLE_CHARS = 120


def code_text(
    found: "Sequence[FoundCode]",
    now: datetime,
    *,
    cwd: Path,
    project: str,
    width: int,
    close: int = 0,
) -> str:
    """List code: where each result is, how it begins, why it was found, what was done with it.

    `project` is the folder that paths are relative to; the first `close` are close.
    """
    from ragmem.memory.projects import real_folder
    from ragmem.memory.turns import shown_path

    width = max(_LEAST_OF_CODE, width)
    top = real_folder(project, cwd)
    lines: list[str] = []
    for number, each in enumerate(found):
        lines += [FURTHER, ""] if 0 < number == close else []
        place = shown_path(each.hit.path, cwd=cwd, project=top)
        lines += flowing(_facts(each, place, now), width)
        lines += [f"  {clip_to_width(row, width - 2)}" for row in _beginning(each.hit)]
        if each.named:
            lines += past_lines(each.past, now, width=width)
        lines.append("")
    return "\n".join(lines)


def _facts(found: "FoundCode", place: str, now: datetime) -> list[str]:
    hit = found.hit
    lines = line_range(hit.start_line, hit.end_line)
    where = one_line(f"{place}:{lines}" if found.defined else f"was in {place}", 400)
    why = one_line(hit.reasons, 200)
    past = "" if found.named else in_sessions(found.past, now)
    name = one_line(hit.qualified_name, 200)
    return [each for each in (name, hit.kind, where, why, past) if each]


def _beginning(hit: "CodeHit") -> list[str]:
    """Return the beginning of a piece of code: its signature, and its docstring's first line."""
    first = hit.signature or next((row for row in hit.text.splitlines() if row.strip()), "")
    about = next((row for row in hit.docstring.splitlines() if row.strip()), "")
    rows = [one_line(row, _QUOTED_CHARS) for row in (first, about)]
    return [row for i, row in enumerate(rows) if row and not (i and row in rows[0])]


def in_sessions(past: "CodePast", now: datetime) -> str:
    """Return `in 3 sessions, last 2 days ago`; empty if there are none."""
    if not past.session_count or past.last_at is None:
        return ""
    last = ago(past.last_at, now)
    where = counted(past.session_count, "session")
    return f"in {where}, {'last ' if past.session_count > 1 else ''}{last}"


def past_lines(past: "CodePast", now: datetime, *, width: int) -> list[str]:
    """Return the sessions and what was decided in them, under headings of their own."""
    rows = [
        (
            "sessions",
            [(each.session.session_id, _done(each, now)) for each in past.sessions[:SHOWN]],
            past.session_count,
        ),
        (
            "decided there",
            [(m.memory_id, _decided(m, now, past.people)) for m in past.memories[:SHOWN]],
            len(past.memories),
        ),
    ]
    lines = []
    for heading, entries, count in rows:
        lines += [f"  {heading}"] if entries else []
        for record_id, text in entries:
            lines += hanging(f"    {short_id(record_id)}  ", text, width)
        more = count - len(entries)
        lines += [f"    and {more:,} more"] if entries and more > 0 else []
    return lines


def _done(session: "CodeSession", now: datetime) -> str:
    name = one_line(session.session.called, _TITLE_CHARS)
    return " · ".join([name, ", ".join(_actions(session)), ago(session.last_at, now)])


def _actions(session: "CodeSession") -> list[str]:
    """Describe what was done: editing code implies that its file changed."""
    whole = [how for how in session.hows if how != "changed" or "edited" not in session.hows]
    return ["changed its file" if how == "changed" else how for how in whole]


def _decided(memory: MemoryRecord, now: datetime, people: dict[str, str]) -> str:
    from ragmem.memory.memories import said_by

    head = f"{memory.kind} · {said_by(memory, people)} · {ago(memory.created_at, now)}"
    return f"{one_line(memory.content, _CONTENT_CHARS)} ({head})"


_PENDING_WORDS = {"vectors": "without embeddings", "level1": "without a summary"}
"""Pending work that is certain to be done; of roll-ups and sessions only some are."""


def waiting_text(pending: Mapping[Work, int]) -> str:
    """Describe pending work; empty if there is none."""
    return ", ".join(
        f"{count:,}{'+' * (count >= 1000)} {_PENDING_WORDS[work]}"
        for work, count in pending.items()
        if count and work in _PENDING_WORDS
    )


Document = dict[str, Any]

SESSION = (
    "session_id cwd project_id title status tags started_at last_activity_at turn_count"
    " last_message"
)
_TURN = (
    "uuid turn_index user_message assistant_message status timestamp tool_calls"  # and reasoning
)
_CALL = "tool_name arguments result success duration_ms preamble"
"""`result` and `success` are null if a call never ended, so that its effects are unknown."""
_RESULT = (
    "type subtype is_error session_id turn_id num_turns duration_ms duration_api_ms result error"
    " model usage total_cost_usd permission_denials structured_output is_cut context"
)
HIT = (
    "type id session_id turn_index level text path name start_line end_line score similarity"
    " timestamp why since"
)
"""`type` is `turn`, `summary`, `memory` or `scope`; level 0 is a turn, 1 and up are summaries.
`score` is comparable among hits of one type in one search. `since`: what replaced part of it."""
CODE_SESSION = "session_id title how turn_count last_at"
"""`how`: `edited`, `changed` (the file), `read`, `found`, `named`, `listed`, strongest first;
`turn_count`: turns related to the code."""
_MEMORY = "id kind content subjects trust scope pinned created_at expires_at superseded_by said_by"
"""`said_by`: the name of another user, if they have made it known."""


def document(names: str, *records: object, **others: object) -> Document:
    """Return the values of these names in order: from `others`, else from the first record with
    one.

    Raises TypeError for others that are not named, since nobody would notice their absence.
    """
    if unknown := others.keys() - names.split():
        raise TypeError(f"A document of {names} has no place for {', '.join(sorted(unknown))}.")

    def value(name: str) -> object:
        return next((getattr(each, name) for each in records if hasattr(each, name)), None)

    return {name: others[name] if name in others else value(name) for name in names.split()}


def result_document(finished: TurnFinished) -> Document:
    """Return how a turn ended; an interrupted one is an error during execution."""
    usage = finished.usage
    error = finished.error or ("interrupted" if finished.subtype == "interrupted" else "")
    return document(
        _RESULT,
        finished,
        type="result",
        subtype="error_during_execution" if finished.subtype == "interrupted" else finished.subtype,
        num_turns=usage.model_calls,
        duration_api_ms=usage.api_ms,
        error=f"{error} {finished.hint}".strip() or None,
        usage=document("input_tokens output_tokens cached_tokens", usage),
        total_cost_usd=usage.cost_usd,
        permission_denials=[
            document("tool_name tool_use_id tool_input", each, tool_input=parsed(each.arguments))
            for each in finished.permission_denials
        ],
    )


def conversation_document(
    session: Session, turns: Sequence[Turn], *, reasoning: bool = False
) -> Document:
    """Return a session with its turns, and with their reasoning if requested."""
    names = f"{_TURN} reasoning" if reasoning else _TURN
    return document(
        f"{SESSION} turns",
        session,
        turns=[
            document(
                names,
                turn,
                uuid=turn.turn_id,
                timestamp=turn.started_at,
                tool_calls=[
                    document(
                        _CALL,
                        call,
                        arguments=parsed(call.arguments),
                        result=parsed(call.result) if call.result else None,
                        success=call.success if call.result else None,
                    )
                    for call in turn.tool_calls
                ],
            )
            for turn in turns
        ],
    )


def hit_document(hit: "Hit | FactHit") -> Document:
    """Return a turn, summary or memory that was found; a memory with its first source."""
    from ragmem.memory.recall import Hit

    if isinstance(hit, Hit):
        content = hit.summary.text if hit.summary else ""
        if hit.turn:
            content = f"User: {hit.turn.prompt}\nAssistant: {hit.turn.said}"
        own: Document = {"id": hit.record_id, "text": content, "timestamp": hit.at}
        own |= {"why": ", ".join(hit.why), "since": hit.since or None}
        return document(HIT, hit, hit.turn, **own)
    memory = hit.memory
    evidence = memory.evidence[0] if memory.evidence else None
    return document(
        HIT,
        hit,
        type="memory",
        id=memory.memory_id,
        session_id=(evidence and evidence.session_id) or None,
        turn_index=(evidence and evidence.turn_index) or None,
        text=memory.content,
        why=", ".join(hit.why),
        since=hit.since or None,
        path=next((each.path for each in memory.evidence if each.path), None),
        timestamp=memory.created_at,
    )


def code_session_documents(past: "CodePast") -> list[Document]:
    """Return the sessions related to some code, newest first."""
    return [document(CODE_SESSION, each, each.session, how=each.hows) for each in past.sessions]


def memory_document(
    memory: MemoryRecord, people: Mapping[str, str] = NOBODY, more: str = ""
) -> Document:
    """Return a memory; `people` maps ids to other users' names; `more`: `evidence`, `occurred_at`.

    The latter is when it happened or is due, or when it was said if that is unknown.
    """
    places = ("session_id", "turn_index", "tool_name", "path")
    others: Document = {
        "occurred_at": memory.at or memory.created_at,
        "evidence": [
            {name: getattr(each, name) or None for name in places} for each in memory.evidence
        ],
    }
    return document(
        f"{_MEMORY} {more}",
        memory,
        id=memory.memory_id,
        said_by=people.get(memory.owner),
        **{name: others[name] for name in more.split()},
    )


def text_block(text: str) -> dict[str, Json]:
    """Return a content block of text."""
    return {"type": "text", "text": text}


def tool_use_block(tool_use_id: str, name: str, arguments: str) -> dict[str, Json]:
    """Return a content block in which the model calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": parsed(arguments)}


def tool_result_block(tool_use_id: str, text: str, *, is_error: bool) -> dict[str, Json]:
    """Return a content block with a tool's result."""
    return {
        "type": "tool_result",
        "tool_use_id": tool_use_id,
        "content": text,
        "is_error": is_error,
    }


def parsed(text: str) -> Json:
    """Parse JSON; a text that is not JSON is returned as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
