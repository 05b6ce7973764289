"""What a model says of its records, taken for data: parsed strictly, bounded, cleaned."""

import json
import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from ragmem.redact import redact
from ragmem.text import clean, one_line

T = TypeVar("T")

MAX_FINDINGS = 8
MAX_TOPICS = 8
FINDING_CHARS = 200
TOPIC_CHARS = 40
SHORT_CHARS = 200
"""A summary may be as long as this, however short what it sums up."""
_MOST_OBJECTS = 20
_OTHER_NAMES = {
    "text": ("summary", "content"),
    "key_findings": ("findings", "key_points"),
    "main_topic": ("topic",),
    "action_items": ("actions", "todo"),
    "title": ("name",),
}
"""Keys by which models call the same, the likeliest first."""
_LONGEST_ESCAPE = 10
"""Characters by which one that is hidden is shown."""
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”»)\]`]*(?=\s|$)|[。！？]")


class Digest(msgspec.Struct, frozen=True):
    """The part of a summary that a model writes; nothing else of its answer is kept."""

    text: str
    key_findings: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def parse_digest(answer: str, *, tag: str, text_chars: int) -> Digest:
    """The digest in an answer; ValueError says what is wrong with it.

    Of other keys than the three nothing is kept. A text that is longer than the prompt
    allows is cut after a sentence.
    """
    found = read_object(answer, Digest)
    if tag in answer:
        raise ValueError("it repeats the marks around the data")
    text = plain_line(found.text)
    if not any(char.isalnum() for char in text):
        raise ValueError("its text is empty")
    return Digest(
        text=clip_sentences(text, text_chars),
        key_findings=plain_lines(found.key_findings, FINDING_CHARS, MAX_FINDINGS),
        topics=plain_lines(found.topics, TOPIC_CHARS, MAX_TOPICS),
    )


def clip_sentences(text: str, limit: int) -> str:
    """At most `limit` characters, ended after a sentence where that keeps half of the room."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit)]
    if ends and ends[-1] >= limit // 2:
        return text[: ends[-1]]
    return one_line(text, limit)


def read_object(answer: str, kind: type[T]) -> T:
    """The JSON object in an answer as this struct; ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, RecursionError):
        pass
    # Around the object there may be a fence, thoughts, or a word of welcome: the last one counts.
    problem = "it holds no JSON object"
    found, end = None, 0
    for start in _starts(answer):
        if start < end:
            continue
        try:
            value, end = json.JSONDecoder().raw_decode(answer, start)
            found = msgspec.convert(shaped(value, kind), kind)
        except msgspec.ValidationError as error:
            problem = str(error)
        except (ValueError, RecursionError):
            continue
    if found is None:
        raise ValueError(problem)
    return found


def shaped(value: dict[str, object], kind: type) -> dict[str, object]:
    """The object with its keys and values as they are asked for, where it is plain what is meant.

    Under another name for a key stands the same; a list of lines is a text, a text a list of one.
    """
    out = dict(value)
    for field in msgspec.structs.fields(kind):
        names = (field.encode_name, *_OTHER_NAMES.get(field.encode_name, ()))
        name = next((name for name in names if name in value), None)
        if name is None:
            continue
        given = value[name]
        if field.type is str and isinstance(given, list) and all(isinstance(g, str) for g in given):
            given = " ".join(given)
        elif field.type == tuple[str, ...] and (isinstance(given, str) or given is None):
            given = [given] if given else []
        out[field.encode_name] = given
    return out


def _starts(answer: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\{", answer)][:_MOST_OBJECTS]


def plain_lines(texts: Iterable[str], chars: int, most: int) -> tuple[str, ...]:
    """So many of them, a line each, without repeats, secrets and what says nothing."""
    lines = dict.fromkeys(one_line(plain_line(text), chars) for text in texts)
    return tuple(line for line in lines if any(map(str.isalnum, line)))[:most]


def plain_line(text: str) -> str:
    """On one line: no heading, list or mark of its own can be forged in what it is shown in."""
    text = redact(clean(text))
    return one_line(text, _LONGEST_ESCAPE * len(text))
