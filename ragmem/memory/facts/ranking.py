"""Search and rank the memories of a scope: pure functions.

A scope has few enough memories (thousands at most) to score all of them: by the share of the
question's words that they contain, the cosine similarity of their meaning, and their subjects.
A subject with two names is found by either: aliases are parsed from the memories themselves.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import is_

import msgspec

from ragmem.memory.facts import FactHit, FactQuestion
from ragmem.memory.facts.words import TOPICAL, asks_what_failed, is_generic, plain
from ragmem.memory.recall import BY_MEANING, BY_WORDS
from ragmem.records import MemoryRecord
from ragmem.similarity import WORDS_AS_COSINE
from ragmem.terms import QueryTerm, query_terms, rarity, terms
from ragmem.text import Regex

_WORDS, _MEANING, _SUBJECT, _ALIAS = 1.0, 1.2, 0.6, 0.5
"""The maximum score of each sign; scores are added up."""
_TRUST = {"person": 1.0, "model": 0.95, "tool": 0.85}
"""The factor for a memory's source: what the user said ranks before what a file says."""
_TOPIC = TOPICAL | {"stem", "short"}
_OF_BEST = 0.6
"""The share of the best similarity that other hits must reach: most questions ask one thing. Fitted
on the stories of tests/recall/days: it loses hardly any relevant memory, and two thirds of the
irrelevant ones."""
_OF_WORDS = 0.06
"""The weighted share of the question's words from which a memory without a vector is relevant: one
common word among others means little."""
_OF_FAILURE = 0.4
"""The share below which a failure's words don't count at all: outputs are full of ordinary words,
which are not yet frequent, and so weigh much, in a new project."""
_EXIT_CODE = Regex(r"(?<=` failed: )exit code \d+")
_LONGEST_NAME = 4
"""The maximum number of words of a subject or name that is looked up in a question."""
_WORD = Regex(r"\w+(?:[-'’.]\w+)*")
_AROUND = "`'\"()[]<>.,;:!?"
"""The punctuation that may surround a path."""


_OF_PERSON = Regex(
    r"\b(?:(?:about|of|know|remember) (?:me|myself)|who am i|(?:de|sur) moi|qui suis-je|"
    r"(?:uber|an|du) mich|von mir|wer bin ich|quien soy|chi sono)\b"
)
"""A question about the user, not the project: "What do you know about me?"."""


class IndexedFact(msgspec.Struct, frozen=True):
    """A memory with its index terms and subjects."""

    memory: MemoryRecord
    terms: frozenset[str]
    """The terms of its content and subjects."""
    subjects: frozenset[str]
    """Its subjects, in `plain` form."""


class Book(msgspec.Struct, frozen=True):
    """The search index of a scope's memories."""

    memories: Sequence[MemoryRecord]
    """What it was made of, newest first."""
    entries: tuple[IndexedFact, ...]
    postings: dict[str, list[int]]
    """Positions in `entries`, by term."""
    subjects: dict[str, list[int]]
    """Positions in `entries`, by subject."""
    aliases: dict[str, frozenset[str]]
    """The other names of each name that has some."""


# --- names --------------------------------------------------------------------------------

# The patterns match `plain` text: "k8s is short for kubernetes", "jean, dit jeannot" and
# "alias: prod = srv-14"; `_ME` excludes "the person's name is ana" and "he is called bob".
_N = r"[\w][\w .'’-]{0,38}?[\w]|\w"
_ALIASES = (
    rf"(?P<a>{_N})'s? (?:real|full|actual|other|nick|first|last|code) ?names? (?:is|are) "
    rf"(?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) (?:is|are) (?:(?:also|sometimes|usually|often|better|now|really) )?"
    rf"(?:called|known as|named|nicknamed) (?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) (?:is|are) (?:an?|the) (?:alias|nickname|other name|short(?:hand)?|"
    rf"abbreviation|code ?name|pseudonym|handle|login|user ?name) (?:of|for) (?P<b>{_N})[.!]?",
    rf"(?:the )?(?:alias|nickname|handle|code ?name) (?:of|for) (?P<a>{_N}) is "
    rf"(?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}),? (?:a\.?k\.?a\.?|alias|also known as) (?P<b>{_N})[.!]?",
    rf"alias:? (?P<a>{_N}) ?(?:=|->|→|:) ?(?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) (?:stands for|is short for|goes by) (?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) and (?P<b>{_N}) are (?:the same(?: person| thing| project)?|one)[.!]?",
    rf"(?:le )?(?:vrai |autre |sur|pre)?nom de (?P<a>{_N}) est (?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) (?:s'appelle|est (?:aussi |egalement )?(?:appelee?|connue? sous le nom de|"
    rf"surnommee?|nommee?)|se nomme)(?: aussi| en fait| en realite)? (?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}),? (?:dite?|alias) (?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) est (?:un|le|l'|son) ?(?:alias|surnom|pseudo(?:nyme)?|diminutif) "
    rf"(?:de |d'|pour )(?P<b>{_N})[.!]?",
    rf"(?P<a>{_N}) (?:hei(?:ß|ss)t|se llama|si chiama|se chama|heet)(?: eigentlich| auch| en "
    rf"realidad| anche)? (?P<b>{_N})[.!]?",
)
_ME = Regex(
    "i|me|my|the user|user|the person|person|je|moi|mon|he|she|it|this|that|il|elle|ce|we|they|"
    "the user's|the person's|l'utilisateur"
)
_MOST_NAMES = 8
"""The maximum size of a group of aliases."""


def names_of(content: str) -> tuple[str, str] | None:
    """Return the two names that a memory equates, in `plain` form; None if it doesn't.

    "Neptune is the code name of the billing project" gives "neptune" and "billing project".
    """
    text = plain(content)
    if len(text) > 160:
        return None
    for pattern in _ALIASES:
        if match := re.fullmatch(pattern, text):
            a, b = (_strip_name(match[name]) for name in "ab")
            few = len(a.split()) <= _LONGEST_NAME and len(b.split()) <= _LONGEST_NAME
            if a and b and a != b and few and not (_ME.fullmatch(a) or _ME.fullmatch(b)):
                return a, b
    return None


def _strip_name(name: str) -> str:
    return re.sub(r"^(?:the|a|an|le|la|l'|un|une|user|person|project) ", "", name.strip(" '\"."))


def _aliases(memories: Iterable[MemoryRecord]) -> dict[str, frozenset[str]]:
    """Return the other names of each name, including those by way of a third name."""
    of: dict[str, set[str]] = {}
    for memory in memories:
        if pair := names_of(memory.content):
            joined = {*pair, *(n for name in pair for n in of.get(name, ()))}
            if len(joined) <= _MOST_NAMES:
                for name in joined:
                    of[name] = joined
    return {name: frozenset(group - {name}) for name, group in of.items()}


# --- a book -------------------------------------------------------------------------------


def _entry_of(memory: MemoryRecord) -> IndexedFact:
    content = memory.content
    if memory.kind == "failure":
        content = _EXIT_CODE.sub("", content)
    found = frozenset(terms(" ".join([content, *memory.subjects])))
    subjects = frozenset(map(plain, memory.subjects))
    return IndexedFact(memory, found, subjects)


def book_of(memories: Sequence[MemoryRecord], before: Book | None = None) -> Book:
    """Build the index of memories, which must be ordered newest first; since this is slow, keep
    what an index made `before` says of those that have not changed."""
    if before and before.memories is memories:
        return before
    known = {entry.memory.memory_id: entry for entry in before.entries} if before else {}
    old = [known.get(memory.memory_id) for memory in memories]
    entries = tuple(
        entry if entry and entry.memory == memory else _entry_of(memory)
        for memory, entry in zip(memories, old, strict=True)
    )
    if before and len(entries) == len(before.entries) and all(map(is_, entries, before.entries)):
        return msgspec.structs.replace(before, memories=memories)
    postings: dict[str, list[int]] = {}
    subjects: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        for term in entry.terms:
            postings.setdefault(term, []).append(place)
        for subject in entry.subjects:
            subjects.setdefault(subject, []).append(place)
    return Book(memories, entries, postings, subjects, _aliases(memories))


# --- a search -----------------------------------------------------------------------------


def search(
    book: Book,
    asked: FactQuestion,
    similarities: Mapping[int, float],
    now: datetime,
    *,
    least: float | None = None,
) -> list[FactHit]:
    """Return the best hits, best first; `similarities` are raw cosines by position in `entries`.

    The question's words are extended by the aliases of the names in it. With `asked.floor`, a
    memory counts as similar only above `least`, to which its share of the words is added. A generic
    question is filled up with the latest memories: failures if it asks what failed, others if not.
    """
    floor = least if asked.floor else None
    alive = {i for i, e in enumerate(book.entries) if e.memory.is_current(now)}
    named, others = _named(book, asked)
    about = {i for name in named | others for i in book.subjects.get(name, ())}
    if asked.subjects:
        alive &= about
    words = {
        i: share
        for i, share in _word_shares(book, asked.text, others).items()
        if not asked.floor or not _is_failure(book, i) or share >= _OF_FAILURE
    }
    near = {
        i: similarity + WORDS_AS_COSINE * words.get(i, 0.0)
        for i, similarity in similarities.items()
        if i in alive
    }
    bar = max(floor or -1.0, _OF_BEST * max(near.values(), default=-1.0))
    bear = {i for i, value in near.items() if value > bar}
    bear |= {i for i, share in words.items() if share >= _OF_WORDS and i not in near}
    hits: dict[int, FactHit] = {}
    # All others would score zero, or be too dissimilar.
    for i in alive & (about | (bear if asked.floor else words.keys() | near.keys())):
        entry = book.entries[i]
        hit = _hit(entry, floor, words.get(i, 0.0), similarities.get(i), named, others)
        bears = not asked.floor or i in bear or _is_named(entry, named | others)
        if asked.subjects or (hit.score > 0 and bears):
            hits[i] = hit
    of_failures = asks_what_failed(asked.text)
    if of_failures or is_generic(asked.text):
        latest = [i for i in sorted(alive - hits.keys()) if _is_failure(book, i) == of_failures]
        if _OF_PERSON.search(plain(asked.text)):
            latest = [i for i in latest if book.entries[i].memory.project_id is None] or latest
        for i in latest[: max(0, asked.limit - len(hits))]:
            memory, similarity = book.entries[i].memory, similarities.get(i)
            why = ("among the latest",)
            hits[i] = FactHit(memory=memory, score=0.0, similarity=similarity, why=why)
    # Positions go from newest to oldest: of two equal scores the newer memory comes first.
    order = sorted(hits, key=lambda i: (-round(hits[i].score, 9), i))
    return [hits[i] for i in order[: asked.limit]]


def _is_failure(book: Book, place: int) -> bool:
    return book.entries[place].memory.kind == "failure"


def _hit(
    entry: IndexedFact,
    floor: float | None,
    words: float,
    similarity: float | None,
    named: frozenset[str],
    others: frozenset[str],
) -> FactHit:
    score, reasons = _WORDS * words, [BY_WORDS] if words else []
    if similarity is not None and (floor is None or similarity > floor):
        score += _MEANING * max(0.0, similarity)
        reasons.append(BY_MEANING)
    if entry.subjects & named:
        score += _SUBJECT
        reasons.append("its subject")
    elif entry.subjects & others:
        score += _ALIAS
        reasons.append("another name of its subject")
    score *= _TRUST[entry.memory.trust]
    return FactHit(memory=entry.memory, score=score, similarity=similarity, why=tuple(reasons))


def _is_named(entry: IndexedFact, names: frozenset[str]) -> bool:
    """Whether the names include a subject of the memory; for a failure, no ordinary word such as
    the program "make"."""
    is_failure = entry.memory.kind == "failure"
    return any(not (is_failure and name.isalpha()) for name in entry.subjects & names)


def _named(book: Book, asked: FactQuestion) -> tuple[frozenset[str], frozenset[str]]:
    """Return the subjects and names in the question, and their aliases."""
    text = plain(asked.text)
    words = _WORD.findall(text)
    spans = {
        " ".join(words[i : i + n])
        for n in range(1, _LONGEST_NAME + 1)
        for i in range(len(words) - n + 1)
    }
    spans |= {word.removesuffix("'s") for word in words}
    spans |= {path.strip(_AROUND) for path in text.split() if "/" in path}
    named = {span for span in spans if span in book.subjects or span in book.aliases}
    named |= set(map(plain, asked.subjects))
    others = {other for name in named for other in book.aliases.get(name, ())}
    return frozenset(named), frozenset(others - named)


def _word_shares(book: Book, text: str, others: Collection[str]) -> dict[int, float]:
    """Return the weighted share (0 to 1) of the text's words in each memory that has any, by
    position; aliases (`others`) count as words of the text."""
    wanted = [t for t in query_terms(text) if t.kind in _TOPIC]
    wanted += [QueryTerm(t, 0.8, "name") for name in others for t in dict.fromkeys(terms(name))]
    shares: dict[int, float] = defaultdict(float)
    total = 0.0
    for term in wanted:
        places = book.postings.get(term.term, ())
        tells = term.weight * rarity(len(places), len(book.entries))
        total += tells if term.kind != "short" else 0.0
        for i in places:
            shares[i] += tells
    return {i: min(1.0, share / total) for i, share in shares.items()}
