"""What a model says is worth keeping, believed as far as its quotes reach."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

import msgspec

from ragmem.memory.dates import days
from ragmem.memory.facts.drafts import is_about_person
from ragmem.memory.facts.sources import Source, Sources, covers, evidence_of, is_rule
from ragmem.memory.facts.values import Draft
from ragmem.memory.facts.words import is_instruction, plain, problem_with
from ragmem.memory.summaries.digest import read_object, shaped
from ragmem.records import MEMORY_KINDS, MemoryKind, MemoryScope, Turn
from ragmem.text import clean, one_line

MOST = 6
"""Of one turn; more is a summary."""
_CONTENT_CHARS = 300
_SUBJECT_CHARS = 40
_MOST_SUBJECTS = 6
_EVERYWHERE = re.compile(
    r"\b(?:(?:all|every|any|each)(?: of)?(?: my| our)? (?:projects?|repos?|repositor(?:y|ies))|"
    r"everywhere|wherever|tous (?:mes|les|nos) projets|chaque projet|partout|in allen projekten|"
    r"uberall|en todos (?:mis )?los proyectos|en todas partes)\b"
)


class Extracted(msgspec.Struct, frozen=True):
    """One memory as the model gives it; none of it is believed yet.

    It is asked for `from` as well, so that it thinks of that; where the words stand is looked up.
    """

    content: str
    kind: str = "fact"
    subjects: tuple[str, ...] = ()
    ttl: str | None = None
    scope: str = ""
    evidence: str = ""


class _Answer(msgspec.Struct, frozen=True):
    memories: list[Any]


def parse_memories(answer: str, tag: str) -> tuple[Extracted, ...]:
    """The memories of an answer; ValueError says what is wrong with all of it.

    One that is not as it should be is left out, and so is what goes beyond the limit.
    """
    found = read_object(answer, _Answer).memories
    if tag in answer:
        raise ValueError("it repeats the marks around the data")
    out: list[Extracted] = []
    for item in found:
        try:
            given = shaped(item, Extracted) if isinstance(item, dict) else item
            out.append(msgspec.convert(given, Extracted))
        except (msgspec.ValidationError, RecursionError):
            continue
    if found and not out:
        raise ValueError("no memory in it has the keys that were asked for")
    return tuple(out[:MOST])


def believed(
    item: Extracted,
    sources: Sources,
    turn: Turn,
    *,
    now: datetime,
    locate: Callable[[str], str],
) -> Draft | None:
    """What is kept of it; None where its words stand nowhere, or give an order to somebody.

    `now`: the turn's time where the person is.
    """
    source = sources.find(clean(item.evidence))
    content = one_line(clean(item.content), _CONTENT_CHARS)
    if source is None or problem_with(content):
        return None
    kind = _kind(item)
    if kind == "rule" and source.trust == "person" and is_rule(source.quote):
        # In their own words: no other wording of it is a rule.
        content = source.quote
    elif not covers(source.quote, content):
        return None
    elif source.trust == "person":
        kind = "fact" if kind == "rule" else kind
    elif is_instruction(content) or is_instruction(source.quote):
        return None
    else:
        kind = "failure" if kind == "failure" else "fact"
    due = next(iter(days(source.quote, now)), None) if kind == "deadline" else None
    if due is not None and due.day.isoformat() not in content:
        content = f"{content.rstrip('.')} ({due.day.isoformat()})"
    return Draft(
        content=content,
        kind=kind,
        subjects=_subjects(item),
        trust=source.trust,
        scope=_scope(item, kind, content, source),
        ttl=item.ttl[:20] if item.ttl else None,
        at=due.at(now) if due else None,
        evidence=(evidence_of(turn, source, locate=locate),),
    )


def _kind(item: Extracted) -> MemoryKind:
    kind = item.kind.strip().casefold()
    return next((known for known in get_args(MemoryKind) if known == kind), MEMORY_KINDS[0])


def _scope(item: Extracted, kind: MemoryKind, content: str, source: Source) -> MemoryScope | None:
    """None: of its kind; known everywhere is only what is about the person, or they say so."""
    if source.trust != "person":
        return "project"
    if kind == "rule" and _EVERYWHERE.search(plain(source.quote)):
        return "user"
    if item.scope == "project" and not is_about_person(content):
        return "project"
    return None


def _subjects(item: Extracted) -> tuple[str, ...]:
    found = [one_line(clean(subject), _SUBJECT_CHARS) for subject in item.subjects]
    return tuple(subject for subject in found if subject)[:_MOST_SUBJECTS]
