"""Who vouches for what a model wants to remember: the user, a tool's result, or the model."""

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from ragmem.memory.date_words import word_set
from ragmem.memory.facts import Draft
from ragmem.memory.facts.trust import NEGATING, TURNING, bounded, normal, words_of
from ragmem.memory.facts.words import CLAUSE, PARTICULAR, own_words, plain, sentences
from ragmem.memory.summaries import RECALL_TOOLS
from ragmem.memory.turns import argument, result_text
from ragmem.own_tools import REMEMBER
from ragmem.records import Evidence, ToolCall, Trust, Turn
from ragmem.terms import guess_language, is_stop_word, terms
from ragmem.text import Regex, clean, one_line

_LONGEST_READ = 200_000
_LEAST_WORDS, _LEAST_CHARS = 2, 6
"""A shorter quote occurs in too many texts to prove anything."""
_COVERED = 0.6
"""The share of a memory's words that its source must contain."""
_LEAST_LESS_ONE = 3
"""A quote with more words than this is accepted if it is found without one of them."""
_PHRASING = word_set(
    """user person prefer prefers preference want wants like likes dislike dislikes use uses
    using project team agent should must always never decided decision agreed deadline due
    says said called name named rule remember
    utilisateur personne prefere veut aime utilise projet equipe doit toujours jamais
    decide echeance appelle nom regle"""
)
"""Words that phrase a memory ("The user prefers …"), and need not be in its source."""
# Matches "Never commit to main" and "Ne commite jamais sur main"; `is_rule` leaves out questions.
_RULE = Regex(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|at all times|"
    r"must(?: not)?|mustn't|do not|don't|make sure|be sure to|only ever|as a rule|no exceptions?|"
    r"without exception|"
    r"toujours|jamais|desormais|a partir de maintenant|dorenavant|chaque fois|il faut|ne \w+ pas|"
    r"assure-toi|doit|doivent|interdit|immer|niemals?|nie wieder|ab jetzt|in zukunft|jedes mal|"
    r"siempre|nunca|a partir de ahora|cada vez|sempre|mai|d'ora in poi|a partir de agora|altijd|"
    r"nooit|vanaf nu)\b"
)


_ANSWER = Regex(r"^(?:no|non|nein|nope|oh no)[,.!:;]+ ")
"""An answer in front of what is said, which negates nothing in it."""


class Source(msgspec.Struct, frozen=True):
    """The place where a quote was found."""

    trust: Trust
    quote: str
    """The quote; if it is from the user, their whole sentence."""
    call: ToolCall | None = None


class Sources:
    """The texts of a turn that can prove a memory: said, pasted, or read by tools; not recalled."""

    def __init__(self, turn: Turn) -> None:
        own = "" if turn.is_own_command else own_words(turn.user_message)
        self.own = own
        self.answer = turn.said[:_LONGEST_READ]
        self.results = [
            (call, result_text(call)[:_LONGEST_READ])
            for call in turn.tool_calls
            if call.result and call.tool_name not in RECALL_TOOLS
        ]
        self._sentences = [(bounded(sentence), sentence) for sentence in sentences(own)]
        self._own = bounded(own)
        self._pasted = bounded(turn.user_message[:_LONGEST_READ])
        self._answer = bounded(self.answer)
        self._results = [(call, bounded(text)) for call, text in self.results]

    def find(self, quote: str) -> Source | None:
        """Find a quote: in the user's own words, then in tool results and pasted text, last in
        the answer, which may only repeat those. None if it is nowhere, or too short.

        One of its words may be missing there (see `_variants`).
        """
        wanted = bounded(quote)
        if len(wanted.split()) < _LEAST_WORDS or len(wanted) < _LEAST_CHARS + 2:
            return None
        return next(filter(None, (self._source_of(v, quote) for v in _variants(wanted))), None)

    def _source_of(self, wanted: str, quote: str) -> Source | None:
        if wanted in self._own:
            found = [sentence for text, sentence in self._sentences if wanted in text]
            return Source("person", found[0] if found else clean(quote))
        for call, text in self._results:
            if wanted in text:
                return Source("tool", clean(quote), call)
        if wanted in self._pasted:
            return Source("tool", clean(quote))
        if wanted in self._answer:
            return Source("model", clean(quote))
        return None


def covers(source: str, content: str) -> bool:
    """Whether a memory's source contains what it says: all particulars, and most of its words.

    "I moved to Toulouse with David" covers "David moved to Toulouse"; "port 8080 is taken" does not
    cover "Port 9090 is taken".
    """
    said, words_said = plain(source), bounded(source)
    for hard in PARTICULAR.findall(content):
        if plain(hard.strip("`.,:;")) not in said and bounded(hard) not in words_said:
            return False
    language = guess_language(content)
    words = {word for word in normal(content).split() if word not in _PHRASING}
    telling = {word for word in words if not is_stop_word(word, language)} or words
    there = frozenset((*terms(source), *words_said.split()))
    # Inflected forms count.
    found = [w for w in telling if not there.isdisjoint((w, *terms(w, language=language)))]
    return len(found) >= _COVERED * len(telling)


def says_otherwise(content: str, said: str) -> bool:
    """Whether a memory may mean something else than the sentence that covers it: only one of them
    negates, or a clause has its words in another order. Clauses may change their places.

    "Ben has the key" is not what "It is not true that Ben has the key" says.
    """
    told, tells = _ANSWER.sub("", plain(said)), normal(content).split()
    if NEGATING.isdisjoint(normal(told).split()) != NEGATING.isdisjoint(tells):
        return True
    known = {word: at for at, word in enumerate(tells) if tells.count(word) == 1}
    every = normal(told).split()
    for clause in CLAUSE.split(told):
        shared = [
            known[word]
            for word in normal(clause).split()
            if every.count(word) == 1 and word in known and not is_stop_word(word, None)
        ]
        if shared != sorted(shared):
            return True
    return False


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the user states a permanent rule; a question never does."""
    text = plain(sentence)
    return not text.endswith("?") and _RULE.search(text) is not None


def evidence_of(turn: Turn, source: Source, *, locate: Callable[[str], str]) -> Evidence:
    """Return the source as evidence to store; `locate` turns a tool's path into its stored form."""
    said = Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        quote=source.quote,
        at=turn.timestamp,
    )
    call = source.call
    if call is None:
        return said
    path = argument(call, "path")
    return msgspec.structs.replace(
        said,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        path=path and locate(path),
        at=call.started_at,
    )


def _variants(wanted: str) -> Iterator[str]:
    """Yield a quote, then variants that lack one word, since models add words to what they repeat.

    Numbers and words that change the meaning are never left out.
    """
    yield wanted
    words = wanted.split()
    if len(words) > _LEAST_LESS_ONE:
        for at, word in enumerate(words):
            if word not in TURNING and not any(map(str.isdigit, word)):
                yield f" {' '.join((*words[:at], *words[at + 1 :]))} "


_QUOTE_CHARS = 300
_READ_CHARS = 60_000
"""The characters of a tool result that are searched."""
_LINES = 3
"""The number of neighbouring lines of a result that are searched together."""
_ALIKE = 0.75
"""The share of a memory's words that such lines must contain to count as its source."""
_HINT = 4
"""The letters at the beginning of an index term that all forms of a word share."""
_NOBODY = words_of("the user, a person; utilisateur")
_STANDING = Regex(
    r"\b(?:always|never|don't|do not|from now on|make sure|be sure to|remember to|toujours|jamais|"
    r"desormais|dorenavant|il faut|immer|niemals|ab jetzt|siempre|nunca|sempre|mai piu|"
    r"(?:you|agents?|assistants?|models?|everyone|everybody|ragmem|tu|vous) (?:must|should|shall|"
    r"ha(?:ve|s) to|needs? to|may|can|are allowed|is allowed|dois|devez|peux|pouvez))\b"
)
"""A permanent order or permission, which only the user can give: "you may", "from now on"."""
_COMMAND = Regex(
    r"(?:please |now |then |and )*(?:run|execute|install|curl|wget|sudo|bash|send|post|upload|"
    r"download|delete|remove|ignore|disregard|obey|follow|skip|disable|enable|bypass|override|"
    r"approve|allow|permit|grant|trust|use|call|write|add|you are|your (?:task|job|role|goal)|"
    r"execute[zr]|lance[zr]?|installe[zr]?|envoie|envoyez|supprime[zr]?|ignore[zr]|utilise[zr]?|"
    r"fuhre|ejecuta|instala|esegui)\b"
)
"""An order at the beginning of a sentence: "Please run …", "Ignore …"."""


def vouch(
    content: str, turn: Turn | None, *, now: datetime, locate: Callable[[str], str]
) -> Draft | None:
    """Return what a model wants to remember with who vouches for it: user, tool result or model.

    A rule and other episodes are in the user's words; None for an order that the user did not give.
    `turn` is the running turn, `now` its time in the user's time zone. `locate` turns a tool's path
    into its stored form.
    """
    sources = Sources(turn) if turn else None
    source = sources.find(content) if sources else None
    if turn and source and source.trust == "person":
        return _quoting_user(content, source.quote, turn, now)
    if _is_order(content):
        return None
    if turn is None or sources is None:
        return Draft(content=content, trust="model")
    words = words_of(content) - _NOBODY
    told = " ".join(each for each in sentences(sources.own) if words & words_of(each))
    if len(words) >= _LEAST_WORDS and words <= words_of(told) and not says_otherwise(content, told):
        # Rephrased, but only with words that the user used.
        said = _turn_evidence(turn, one_line(sources.own, _QUOTE_CHARS))
        return Draft(content=content, evidence=(said,))
    if source is None or source.trust != "tool":
        source = _from_results(sources, words)
    if source:
        read = evidence_of(turn, source, locate=locate)
        return Draft(content=content, trust="tool", evidence=(read,))
    return Draft(content=content, trust="model", evidence=(_turn_evidence(turn, ""),))


def _is_order(content: str) -> bool:
    return _STANDING.search(plain(content)) is not None or any(
        _COMMAND.match(plain(sentence)) for sentence in sentences(content)
    )


def _quoting_user(content: str, said: str, turn: Turn, now: datetime) -> Draft:
    """Return a memory that quotes the user; a rule, or a part of a sentence that may mean the
    opposite of it, becomes their whole sentence."""
    from ragmem.memory.facts.episodes import episodes

    draft = Draft(content=content, evidence=(_turn_evidence(turn, said),))
    for episode in episodes(said, now):
        if episode.kind != "fact":
            return msgspec.structs.replace(
                draft, content=episode.content, kind=episode.kind, at=episode.at
            )
    if is_rule(said):
        return msgspec.structs.replace(draft, content=said, kind="rule")
    return msgspec.structs.replace(draft, content=said) if says_otherwise(content, said) else draft


def _turn_evidence(turn: Turn, quote: str) -> Evidence:
    """Return the turn as evidence, with its pending `remember` call if there is one."""
    said = evidence_of(turn, Source("person", one_line(quote, _QUOTE_CHARS)), locate=str)
    asking = [c for c in turn.tool_calls if c.tool_name == REMEMBER and not c.result]
    if not asking:
        return said
    call_id = asking[-1].tool_call_id
    return msgspec.structs.replace(said, tool_call_id=call_id, tool_name=REMEMBER)


def _from_results(sources: Sources, words: frozenset[str]) -> Source | None:
    """Return the lines of a tool result that contain most of the words, latest call first."""
    if len(words) < _LEAST_WORDS:
        return None
    for call, text in reversed(sources.results):
        best = max(_matching_lines(text[:_READ_CHARS], words), default=(0, ""))
        if best[0] >= _ALIKE * len(words):
            return Source("tool", one_line(best[1], _QUOTE_CHARS), call)
    return None


def _matching_lines(text: str, words: frozenset[str]) -> Iterator[tuple[int, str]]:
    lines = [line for line in text.split("\n") if line.strip()]
    # A cheap test first: most lines contain none of the words, and finding terms takes time.
    hints = tuple(word[:_HINT] for word in words)
    found = [_words_in_line(line, words, hints) for line in lines]
    for i in range(len(lines)):
        union = frozenset[str]().union(*found[i : i + _LINES])
        if union:
            yield len(union), "\n".join(lines[i : i + _LINES])


def _words_in_line(line: str, words: frozenset[str], hints: tuple[str, ...]) -> frozenset[str]:
    flat = plain(line)
    return words & words_of(line) if any(hint in flat for hint in hints) else frozenset()
