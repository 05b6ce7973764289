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
_LONGEST_ESCAPE = 10
"""Characters by which one that is hidden is shown."""
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”»)\]`]*(?=\s|$)|[。！？]")


class Digest(msgspec.Struct, frozen=True):
    """The part of a summary that a model writes; nothing else of its answer is kept."""

    text: str
    key_findings: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def parse_digest(answer: str, *, tag: str, source_chars: int, text_chars: int) -> Digest:
    """The digest in an answer; ValueError says what is wrong with it.

    Of other keys than the three nothing is kept. A text that is too long is cut
    after a sentence, one that is longer than its source is refused.
    """
    found = read_object(answer, Digest)
    if tag in answer:
        raise ValueError("it repeats the marks around the data")
    text = plain_line(found.text)
    if not any(char.isalnum() for char in text):
        raise ValueError("its text is empty")
    if len(text) > max(source_chars, SHORT_CHARS):
        raise ValueError("its text is longer than what it sums up")
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
            found = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            problem = str(error)
        except (ValueError, RecursionError):
            continue
    if found is None:
        raise ValueError(problem)
    return found


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
