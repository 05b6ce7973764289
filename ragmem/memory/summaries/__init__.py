"""Summaries: when one is due, what it covers, and its text without a model.

A model's answer is treated as data: parsed strictly, limited in size, and cleaned.
"""

import hashlib
import json
import posixpath
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import zip_longest
from typing import TypeVar, get_origin

import msgspec

from ragmem.memory.facts.words import clip_sentences, opening, prose_sentences
from ragmem.memory.turns import argument, extract_accessed_files, result_text
from ragmem.messages import Json
from ragmem.own_tools import EDITING_TOOLS, OWN_TOOLS, RUN_COMMAND
from ragmem.records import Pending, Session, Summary, ToolCall, Turn
from ragmem.redact import redact
from ragmem.store import Store
from ragmem.text import Regex, clean, clip_middle, fair_share, in_words, one_line, set_in

IDLE = timedelta(minutes=10)
_LEAST_COVERED = 2
"""A roll-up never covers fewer summaries."""
_ENOUGH = 4
"""Number of summaries of level 2 and up that are rolled up whatever their length."""


def next_roll_up(
    waiting: Sequence[Summary], raw_chars: Mapping[str, int], *, rollup_chars: int
) -> list[Summary]:
    """Choose the summaries that the next roll-up covers, at the lowest level due; empty for none.

    `waiting` are the summaries that no higher one covers, in the order of the conversation;
    `raw_chars` are the characters of turns by id. The oldest are taken, only as many as make a
    roll-up due, so that work done late results in the same summaries as work done along the way.
    Once that roll-up is stored, another may be due.
    """
    for level in sorted({summary.level for summary in waiting}):
        taken: list[Summary] = []
        chars = 0
        for summary in (each for each in waiting if each.level == level):
            taken.append(summary)
            raw = sum(raw_chars.get(turn_id, 0) for turn_id in summary.covers)
            chars += raw if level == 1 else summary.char_count
            enough = chars > rollup_chars or (level > 1 and len(taken) >= _ENOUGH)
            if enough and len(taken) >= _LEAST_COVERED:
                return taken
    return []


def thread_summary_due(session: Session, *, every: int) -> bool:
    """Whether a multiple of `every` messages was crossed since the session's summary."""
    return session.message_count // every > session.summarized_count // every


def idle_at(session: Session) -> datetime | None:
    """Return when a session will have been idle for a while; None if its summary covers it all."""
    behind = session.message_count > session.summarized_count
    return session.last_activity_at + IDLE if behind else None


def is_idle(session: Session, now: datetime) -> bool:
    """Whether a session with messages that its summary does not cover has been idle for a while."""
    due = idle_at(session)
    return due is not None and now >= due


def summary_id(session_id: str, level: int, covers: Sequence[str]) -> str:
    """Return the id of a summary, the same in each process, so that work done twice is stored once.

    It has the form of a UUIDv7: the time is that of the last id covered, the rest is a digest.
    """
    digest = hashlib.sha256("\n".join([session_id, str(level), *covers]).encode()).digest()
    value = int.from_bytes(digest[:16], "big")
    try:
        time_bits = uuid.UUID(covers[-1]).int >> 80
    except (ValueError, IndexError):
        time_bits = value >> 80
    value = time_bits << 80 | value & ((1 << 80) - 1)
    value = value & ~(0xF << 76 | 0b11 << 62) | 0x7 << 76 | 0b10 << 62
    return str(uuid.UUID(int=value))


# --- reading from the store -------------------------------------------------------------------


async def level1_of(store: Store, items: Iterable[Pending]) -> dict[str, Summary]:
    """Return the existing summaries of the turns of pending work, by turn id."""
    ids = [summary_id(item.session_id, 1, (item.record_id,)) for item in items]
    return {s.covers[0]: s for s in await store.get(Summary, ids) if s.covers}


async def due_roll_up(store: Store, session_id: str, *, rollup_chars: int) -> list[Summary]:
    """Return the summaries that the next roll-up covers; empty if none is due.

    None is due while a turn waits for its own summary, so that roll-ups have no gaps.
    """
    if await store.raw_history_chars(session_id):
        return []
    found = await store.summaries(session_id, not_rolled_up=True)
    waiting, raw_chars = await _in_order(store, found)
    return next_roll_up(waiting, raw_chars, rollup_chars=rollup_chars)


async def to_roll_up(store: Store, session_id: str, level: int) -> list[Summary]:
    """Return the summaries of a level that no higher one covers, in the conversation's order."""
    waiting = await store.summaries(session_id, level=level, not_rolled_up=True)
    return (await _in_order(store, waiting))[0]


async def _in_order(store: Store, found: Sequence[Summary]) -> tuple[list[Summary], dict[str, int]]:
    """Sort summaries by the last turn that each covers; also return characters by turn id."""
    last: dict[str, str] = {}
    above = {s.summary_id: s for s in found if s.covers}
    while above:
        last |= {name: s.covers[-1] for name, s in above.items() if s.level <= 1}
        higher = {name: s.covers[-1] for name, s in above.items() if s.level > 1}
        below = {s.summary_id: s for s in await store.get(Summary, list(higher.values()))}
        above = {n: below[i] for n, i in higher.items() if i in below and below[i].covers}
    ids = {*last.values(), *(turn_id for s in found if s.level == 1 for turn_id in s.covers)}
    turns = {turn.turn_id: turn for turn in await store.get(Turn, sorted(ids))}
    places = {n: turns[turn_id].turn_index for n, turn_id in last.items() if turn_id in turns}
    ordered = sorted(found, key=lambda s: (places.get(s.summary_id, 0), s.created_at))
    return ordered, {turn_id: turn.char_count for turn_id, turn in turns.items()}


async def renewable(store: Store, session_id: str) -> list[tuple[Summary, list[Summary]]]:
    """Return extractive summaries of level 2 and up over a model's, with those, lowest first."""
    found = await store.summaries(session_id)
    by_id = {summary.summary_id: summary for summary in found}
    out = []
    for summary in sorted(found, key=lambda s: s.level):
        below = [by_id[covered] for covered in summary.covers if covered in by_id]
        whole = summary.level > 1 and len(below) == len(summary.covers)
        if summary.extractive and whole and not any(s.extractive for s in below):
            out.append((summary, below))
    return out


async def covering_only(
    store: Store, ids: Iterable[str], below: Collection[str], *, turn_count: int
) -> set[str]:
    """Return which of these summaries, of level 2 and up, cover nothing but those in `below`.

    `below` are the ids of the level-1 summaries of `turn_count` turns.
    """
    known, asked = dict[str, Summary](), set(ids)
    while asked:
        found = [s for s in await store.get(Summary, sorted(asked)) if s.turn_count <= turn_count]
        known |= {summary.summary_id: summary for summary in found}
        asked = {each for s in found if s.level > 2 for each in s.covers} - known.keys()
    made = set[str]()
    for summary in sorted(known.values(), key=lambda s: s.level):
        if all(each in below or each in made for each in summary.covers):
            made.add(summary.summary_id)
    return made


RECALL_TOOLS = {name for name, tool in OWN_TOOLS.items() if tool.recalls}
RECALL_TOOLS |= {"recall", "search_memory", "search_history"}
"""Tools whose results are earlier records, which are not summarized a second time."""
MAX_FILES = 50
MAX_TOOLS = 30
_CALLS_CHARS = 12_000
_ARGUMENT_CHARS = 160
_RESULT_CHARS = 400
_SHORTEST_RESULT = 60
_MAX_MESSAGES = 1_000
_ORDER = {"write": 0, "read": 1, "search": 2}
_MAIN_ARGUMENTS = ("path", "command", "pattern", "query", "id")


def turn_records(turn: Turn, *, max_chars: int | None = None) -> str:
    """Return a turn for the model: its messages, indented, and each tool call in a line or two.

    If all that exceeds `max_chars`, the longest of the three parts are clipped in their middle.
    """
    calls = clip_middle("\n".join(_call_lines(turn.tool_calls)), _CALLS_CHARS)
    answer = set_in(turn.assistant_message)
    said = [("Person: ", set_in(turn.user_message)), ("Tool calls:\n", calls), ("Agent: ", answer)]
    parts = [(label, redact(clean(text))) for label, text in said if text]
    if max_chars is not None:
        room = max_chars - sum(len(label) + 2 for label, _ in parts)
        share = fair_share([len(text) for _, text in parts], room)
        parts = [(label, clip_middle(text, share)) for label, text in parts]
    return "\n\n".join(label + text for label, text in parts)


def summaries_records(summaries: Sequence[Summary]) -> str:
    """Return summaries for the model, in the given order."""
    entries = (
        "\n- ".join([f"Summary: {set_in(s.text)}", *map(set_in, s.key_findings)]) for s in summaries
    )
    return redact(clean("\n\n".join(entries)))


def thread_records(previous: str | None, since: Sequence[Turn], *, max_chars: int) -> str:
    """Return the session's summary so far, then `role: content` for at most 1,000 messages."""
    turns = list(since)[-_MAX_MESSAGES // 2 :]
    share = max(200, max_chars // max(1, 2 * len(turns)))
    parts = [f"summary of what went before: {set_in(previous)}"] if previous else []
    for turn in turns:
        for role, content in (("user", turn.user_message), ("assistant", turn.assistant_message)):
            if content:
                parts.append(f"{role}: {set_in(clip_middle(content, share))}")
    return redact(clean("\n\n".join(parts)))


def files_of(
    calls: Iterable[ToolCall], locate: Callable[[str], str] = posixpath.normpath
) -> tuple[str, ...]:
    """Return the files that recorded calls touched: changed ones first, then read, then found."""
    accesses = [a for call in calls for a in extract_accessed_files(call, locate=locate)]
    relevant = [a for a in accesses if a.access_type in _ORDER]
    found = dict.fromkeys(a.path for a in sorted(relevant, key=lambda a: _ORDER[a.access_type]))
    return tuple(found)[:MAX_FILES]


def tools_of(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    """Return the names of the tools called, in the order of their first call."""
    return tuple(dict.fromkeys(call.tool_name for call in calls))[:MAX_TOOLS]


def union(groups: Sequence[Sequence[str]], limit: int) -> tuple[str, ...]:
    """Return the values in most groups first, and among equals those in the latest groups."""
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for index, group in enumerate(groups):
        counts.update(set(group))
        last.update(dict.fromkeys(group, index))
    names = list(dict.fromkeys(name for group in groups for name in group))
    ranked = sorted(names, key=lambda name: (-counts[name], -last[name]))
    return tuple(ranked[:limit])


def main_argument(call: ToolCall) -> str:
    """Return a call's main argument, such as its path or command, or all of them, on one line."""
    about = argument(call, *_MAIN_ARGUMENTS) or call.arguments
    return one_line(about[: 2 * _ARGUMENT_CHARS], _ARGUMENT_CHARS)


def outcome(call: ToolCall, limit: int) -> str:
    """Return a call's result on one line: its beginning and its end."""
    if not call.result:
        return call.error or "no result was recorded"
    if call.tool_name in RECALL_TOOLS:
        return "brought back earlier records"
    text = result_text(call)
    if not call.success:
        return one_line(f"failed: {(call.error or text)[: 2 * limit]}", limit)
    words = _flat(text, 2 * limit)
    return words if len(words) <= limit else f"{words[: limit // 2]} … {words[-limit // 2 :]}"


def _flat(text: str, limit: int) -> str:
    """Return a text on one line; of a long one only both ends, so that megabytes cost nothing."""
    if len(text) > 4 * limit:
        text = f"{text[:limit]} … {text[-limit:]}"
    text = re.sub(r"^ *\d+\t", "", text, flags=re.MULTILINE)
    return one_line(text, len(text) + 1)


def _call_lines(calls: Sequence[ToolCall]) -> list[str]:
    share = max(_SHORTEST_RESULT, min(_RESULT_CHARS, _CALLS_CHARS // max(1, len(calls))))
    lines = []
    for call in calls:
        if call.preamble:
            lines.append(f"(said: {one_line(call.preamble[: 2 * _RESULT_CHARS], _RESULT_CHARS)})")
        name = one_line(call.tool_name, _ARGUMENT_CHARS)
        lines.append(f"- {name} {main_argument(call)} -> {outcome(call, share)}")
        if call.tool_name in EDITING_TOOLS and call.success:
            lines.append(f"  with {one_line(call.arguments[: 2 * share], share)}")
    return lines


T = TypeVar("T", bound=msgspec.Struct)

MAX_FINDINGS = 8
MAX_TOPICS = 8
FINDING_CHARS = 200
TOPIC_CHARS = 40
SHORT_CHARS = 200
"""Length that a summary may have however short its source is."""
_MOST_OBJECTS = 20
_LONGEST_ESCAPE = 10
"""Characters of the longest escape of an invisible character."""


class Digest(msgspec.Struct, frozen=True):
    """The part of a summary that a model writes; nothing else of its answer is kept."""

    text: str
    key_findings: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def bounded(found: Digest, *, text_chars: int) -> Digest:
    """Limit the texts of a digest; ValueError, with the reason, if its text is empty.

    A text longer than the prompt allows is cut after a sentence.
    """
    return Digest(
        text=clip_sentences(required_line(found.text, "text"), text_chars),
        key_findings=plain_lines(found.key_findings, FINDING_CHARS, MAX_FINDINGS),
        topics=plain_lines(found.topics, TOPIC_CHARS, MAX_TOPICS),
    )


def quoted_records(data: str, tag: str) -> str:
    """Return records between marks with these letters."""
    return f"<records-{tag}>\n{data}\n</records-{tag}>"


@cache
def schema_of(kind: type) -> dict[str, Json]:
    """Return a struct's JSON Schema in the form that providers require for structured output.

    Every object requires all its keys, and allows no others.
    """
    schema = msgspec.json.schema(kind)
    parts = schema.pop("$defs", {})
    for part in parts.values():
        part.pop("title", None)
        part.pop("description", None)
        keys = part.get("properties", {})
        for each in keys.values():
            each.pop("default", None)
        if keys:
            part |= {"required": list(keys), "additionalProperties": False}
    root: dict[str, Json] = parts.pop(schema["$ref"].rpartition("/")[2])
    return root | ({"$defs": parts} if parts else {})


def read_object(answer: str, kind: type[T], tag: str) -> T:
    """Read the JSON object in an answer as this struct; ValueError, with the reason, if invalid.

    `tag` are the letters of the marks around the data, which an answer must not repeat.
    """
    found = _found_object(answer, kind)
    if tag in answer:
        raise ValueError("it repeats the marks around the data")
    return found


def _found_object(answer: str, kind: type[T]) -> T:
    with suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(answer, type=kind)
    # Around the object may be a code fence, reasoning or a greeting: the last object counts.
    problem = "it contains no JSON object"
    found, end = None, 0
    starts = [match.start() for match in re.finditer(r"\{", answer)][:_MOST_OBJECTS]
    for start in starts:
        if start < end:
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(answer, start)
            found = as_struct(value, kind)
        except msgspec.ValidationError as error:
            problem = f"its field {in_words(str(error))}"
        except (ValueError, RecursionError):
            continue
    if found is None:
        raise ValueError(problem)
    return found


def as_struct(value: object, kind: type[T]) -> T:
    """Convert a JSON value to this struct; a text in place of a list becomes a list of one."""
    if isinstance(value, dict):
        lists = (f.encode_name for f in msgspec.structs.fields(kind) if get_origin(f.type) is tuple)
        value = value | {name: [value[name]] for name in lists if isinstance(value.get(name), str)}
    return msgspec.convert(value, kind)


def plain_lines(texts: Iterable[str], chars: int, most: int) -> tuple[str, ...]:
    """Return at most `most` texts, each as one line, redacted, without repeated and empty ones."""
    lines = dict.fromkeys(one_line(plain_line(text), chars) for text in texts)
    return tuple(line for line in lines if any(map(str.isalnum, line)))[:most]


def plain_line(text: str) -> str:
    """Redact a text and put it on one line, so that it can't forge headings, lists or marks."""
    text = redact(clean(text))
    return one_line(text, _LONGEST_ESCAPE * len(text))


def required_line(text: str, name: str) -> str:
    """Return the text on one line; ValueError, naming the answer's field, if it is empty."""
    line = plain_line(text)
    if not any(map(str.isalnum, line)):
        raise ValueError(f"its {name} is empty")
    return line


_QUESTION_CHARS = 160
_ANSWER_CHARS = 320
_DONE_CHARS = 90
_MOST_DONE = 4
_CODE = Regex(
    r"`[^`\n]{2,80}`"  # quoted
    r"|(?<![\w/.-])[\w.-]*/[\w./-]+"  # a path
    r"|\b\w+\.(?!\d)\w{1,5}\b(?!\.)"  # a file name
    r"|\b[A-Za-z]\w*_\w+\b|\b[A-Z]?[a-z]+[A-Z]\w*\b|\b[A-Z]{2,}\b"  # identifiers
    r"|\d[\d.,:/-]*"  # numbers, versions, dates
)


def turn_digest(turn: Turn, *, text_chars: int) -> Digest:
    """Make a turn's digest: prompt, first sentences of the answer, changed files and commands."""
    asked = prose_sentences(turn.user_message)
    answered = prose_sentences(turn.assistant_message)
    first = opening(answered, _ANSWER_CHARS)
    parts = [one_line(opening(asked, _QUESTION_CHARS), _QUESTION_CHARS), first, *_actions(turn)]
    text = clip_sentences(" — ".join(filter(None, parts)), text_chars)
    return Digest(
        text=text or "…",
        key_findings=_informative([s for s in answered if s not in first], MAX_FINDINGS),
    )


def summaries_digest(summaries: Sequence[Summary], *, text_chars: int) -> Digest:
    """Make a digest of summaries: first sentences and findings of each, the commonest topics."""
    source_chars = sum(summary.char_count for summary in summaries)
    limit = min(text_chars, max(source_chars, SHORT_CHARS))
    share = max(SHORT_CHARS // 2, limit // max(1, len(summaries)) - 1)
    most = max(1, limit // (share + 1))
    # If there are too many, an even selection, including the first and the last.
    step = max(1, len(summaries) - 1) / max(1, most - 1) if len(summaries) > most else 1
    shown = [summaries[min(round(i * step), len(summaries) - 1)] for i in range(most)]
    texts = dict.fromkeys(clip_sentences(s.text, share) for s in shown[: len(summaries)])
    topics = Counter(topic for s in summaries for topic in set(s.topics))
    dealt = _interleaved([s.topics for s in summaries])
    return Digest(
        text=clip_sentences(" ".join(texts), limit),
        key_findings=tuple(_interleaved([s.key_findings for s in summaries])[:MAX_FINDINGS]),
        topics=tuple(sorted(dealt, key=lambda topic: -topics[topic])[:MAX_TOPICS]),
    )


def thread_text(previous: str | None, since: Sequence[Turn], *, text_chars: int) -> str:
    """Return the summary so far, then the latest prompts and answers, as room allows."""
    budget = text_chars // 2 if previous else text_chars
    latest: list[str] = []
    for turn in reversed(since):
        text = turn_digest(turn, text_chars=_QUESTION_CHARS + _ANSWER_CHARS).text
        if latest and len(text) + 1 > budget:
            break
        latest.insert(0, clip_sentences(text, budget))
        budget -= len(latest[0]) + 1
    rest = " ".join(latest)
    before = clip_sentences(previous, max(1, text_chars - len(rest) - 1)) if previous else ""
    return one_line(" ".join(filter(None, [before, rest])), text_chars)


def _interleaved(groups: Sequence[Sequence[str]]) -> list[str]:
    rows = zip_longest(*groups)
    return list(dict.fromkeys(item for row in rows for item in row if item is not None))


def _actions(turn: Turn) -> list[str]:
    changed = dict.fromkeys(
        main_argument(call)
        for call in turn.tool_calls
        if call.tool_name in EDITING_TOOLS and call.success and call.result
    )
    commands = [call for call in turn.tool_calls if call.tool_name == RUN_COMMAND]
    lines = [", ".join(list(changed)[:_MOST_DONE])] if changed else []
    for call in commands[-2:]:
        ran = one_line(main_argument(call), _DONE_CHARS)
        lines.append(f"`{ran}`: {outcome(call, _DONE_CHARS)}")
    return [redact(clean(line)) for line in lines]


def _informative(sentences: Sequence[str], most: int) -> tuple[str, ...]:
    """Return the sentences that name code or figures, in order; if too many, those naming most."""
    scored = {s: n for s in sentences if (n := len(set(_CODE.findall(s))))}
    richest = sorted(scored, key=lambda s: -scored[s])[:most]
    return tuple(clip_sentences(s, FINDING_CHARS) for s in scored if s in richest)
