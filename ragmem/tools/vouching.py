"""Whose word a memory is that the model asks for, and where it stands: the turn itself tells."""

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from ragmem.memory.facts.trust import Source, Sources, evidence_of, is_rule, words_of
from ragmem.memory.facts.words import plain, sentences
from ragmem.records import Evidence, MemoryKind, Trust, Turn
from ragmem.text import Regex, one_line

REMEMBER = "remember"
"""The tool that asks for one."""
_QUOTE_CHARS = 300
_READ_CHARS = 60_000
"""Of a result so much is looked through."""
_LINES = 3
"""Neighbouring lines of a result in which the words of a memory are looked for together."""
_ALIKE = 0.75
"""Shared of a memory's words, from which it is taken for what those lines say."""
_LEAST_WORDS = 2
_HINT = 4
"""Letters of an index term, from which on endings differ."""
_NOBODY = words_of("the user, a person; utilisateur")
_STANDING = Regex(
    r"\b(?:always|never|don't|do not|from now on|make sure|be sure to|remember to|toujours|jamais|"
    r"desormais|dorenavant|il faut|immer|niemals|ab jetzt|siempre|nunca|sempre|mai piu|"
    r"(?:you|agents?|assistants?|models?|everyone|everybody|ragmem|tu|vous) (?:must|should|shall|"
    r"ha(?:ve|s) to|needs? to|may|can|are allowed|is allowed|dois|devez|peux|pouvez))\b"
)
"""An order or a permission that is to hold: nobody but the person gives any."""
_COMMAND = Regex(
    r"(?:please |now |then |and )*(?:run|execute|install|curl|wget|sudo|bash|send|post|upload|"
    r"download|delete|remove|ignore|disregard|obey|follow|skip|disable|enable|bypass|override|"
    r"approve|allow|permit|grant|trust|use|call|write|add|you are|your (?:task|job|role|goal)|"
    r"execute[zr]|lance[zr]?|installe[zr]?|envoie|envoyez|supprime[zr]?|ignore[zr]|utilise[zr]?|"
    r"fuhre|ejecuta|instala|esegui)\b"
)
"""At the beginning of a sentence: it tells somebody to do something."""


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """Who says it, what it may be, and where it stands."""

    content: str
    """As it was asked for; a rule and the like as the person said it."""
    trust: Trust
    kind: MemoryKind = "fact"
    evidence: tuple[Evidence, ...] = ()
    at: datetime | None = None
    """Of a deadline, when it is due."""
    may_be_kept: bool = True
    """False of an order that the person did not give."""


def vouch(
    content: str, turn: Turn | None, *, now: datetime, locate: Callable[[str], str]
) -> Vouched:
    """`turn` is the one in flight, `now` its time where the person is.

    `locate` turns a path as a tool gave it into its stored form.
    """
    is_order = _is_order(content)
    if turn is None:
        return Vouched(content=content, trust="model", may_be_kept=not is_order)
    sources = Sources(turn)
    source = sources.find(content)
    if source and source.trust == "person":
        return _theirs(content, source, turn, now)
    if is_order:
        return Vouched(content=content, trust="model", may_be_kept=False)
    words = words_of(content) - _NOBODY
    if len(words) >= _LEAST_WORDS and words <= words_of(sources.own):
        # Said in other words, but with none that the person did not use.
        said = _asked(turn, one_line(sources.own, _QUOTE_CHARS))
        return Vouched(content=content, trust="person", evidence=(said,))
    if source is None or source.trust != "tool":
        source = _standing_in(sources, words)
    if source:
        read = evidence_of(turn, source, locate=locate)
        return Vouched(content=content, trust="tool", evidence=(read,))
    return Vouched(content=content, trust="model", evidence=(_asked(turn, ""),))


def _is_order(content: str) -> bool:
    return _STANDING.search(plain(content)) is not None or any(
        _COMMAND.match(plain(sentence)) for sentence in sentences(content)
    )


def _theirs(content: str, source: Source, turn: Turn, now: datetime) -> Vouched:
    """Word for word what the person said; of a rule their whole sentence, for what a part of it
    says may be the opposite."""
    said = source.quote
    evidence = (_asked(turn, said),)
    from ragmem.memory.facts.episodes import episodes

    for episode in episodes(said, "", now):
        if episode.kind != "fact":
            return Vouched(
                content=episode.content,
                trust="person",
                kind=episode.kind,
                evidence=evidence,
                at=episode.at,
            )
    if is_rule(said):
        return Vouched(content=said, trust="person", kind="rule", evidence=evidence)
    return Vouched(content=content, trust="person", evidence=evidence)


def _asked(turn: Turn, quote: str) -> Evidence:
    """The turn, and the call that asks for it: the one that has no answer yet."""
    asking = [c for c in turn.tool_calls if c.tool_name == REMEMBER and not c.result]
    return Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        tool_call_id=asking[-1].tool_call_id if asking else "",
        tool_name=REMEMBER if asking else "",
        quote=one_line(quote, _QUOTE_CHARS),
        at=turn.started_at,
    )


def _standing_in(sources: Sources, words: frozenset[str]) -> Source | None:
    """The lines of a tool's answer that hold most of the words, the latest call first."""
    if len(words) < _LEAST_WORDS:
        return None
    for call, text in reversed(sources.results):
        best = max(_shared(text[:_READ_CHARS], words), default=(0, ""))
        if best[0] >= _ALIKE * len(words):
            return Source("tool", one_line(best[1], _QUOTE_CHARS), call)
    return None


def _shared(text: str, words: frozenset[str]) -> Iterator[tuple[int, str]]:
    lines = [line for line in text.split("\n") if line.strip()]
    # Most lines hold the beginning of none, and finding the words of a line takes time.
    hints = tuple(word[:_HINT] for word in words)
    found = [_held(line, words, hints) for line in lines]
    for i in range(len(lines)):
        union = frozenset[str]().union(*found[i : i + _LINES])
        if union:
            yield len(union), "\n".join(lines[i : i + _LINES])


def _held(line: str, words: frozenset[str], hints: tuple[str, ...]) -> frozenset[str]:
    flat = plain(line)
    return words & words_of(line) if any(hint in flat for hint in hints) else frozenset()
