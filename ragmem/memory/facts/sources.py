"""Where a quote really stands: only that decides how far it is believed.

A model that extracts memories may be told by a file what to write. So whatever it says about
who said something, its quote is looked for here: in the person's own words, in what they
pasted, in the answers of tools, in the agent's answer.
"""

import json
import re
from collections.abc import Callable, Iterator

import msgspec

from ragmem.memory.facts.comparing import PARTICULAR, normal
from ragmem.memory.facts.words import own_words, plain, sentences, with_digits
from ragmem.memory.summaries.material import RECALL_TOOLS
from ragmem.memory.window import result_text
from ragmem.messages import Json
from ragmem.records import Evidence, ToolCall, Trust, Turn
from ragmem.terms import guess_language, terms
from ragmem.terms.languages import is_stop_word
from ragmem.text import clean

_LONGEST_READ = 200_000
_LEAST_WORDS, _LEAST_CHARS = 2, 6
"""A shorter quote stands everywhere, and proves nothing."""
_COVERED = 0.6
"""Of what a memory says, so much must stand where it comes from."""
_LEAST_LESS_ONE = 3
"""Words of a quote that is believed though one of them stands nowhere: more than so many."""
_TURNING = frozenset(
    word
    for words in (
        """not no never none nothing neither nor without except unless only but don doesn didn isn
        aren wasn weren won can couldn shouldn wouldn mustn hasn haven cannot always all every any
        must may""",
        """ne pas non jamais aucun aucune rien sans sauf ni que seulement toujours tous chaque doit
        nicht kein keine nie niemals ohne immer nunca sin siempre mai senza sempre nao nem niet geen
        nooit altijd""",
    )
    for word in words.split()
)
"""Words that turn a sentence into another one."""
_PHRASING = frozenset(
    word
    for words in (
        """user person prefer prefers preference want wants like likes dislike dislikes use uses
        using project team agent should must always never decided decision agreed deadline due
        says said called name named rule remember""",
        """utilisateur personne prefere veut aime utilise projet equipe doit toujours jamais
        decide echeance appelle nom regle""",
    )
    for word in words.split()
)
"""Words by which a memory is told, that need not stand in what was said."""
_RULE = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|at all times|"
    r"must(?: not)?|mustn't|do not|don't|make sure|be sure to|only ever|as a rule|no exceptions?|"
    r"without exception|"
    r"toujours|jamais|desormais|a partir de maintenant|dorenavant|chaque fois|il faut|ne \w+ pas|"
    r"assure-toi|doit|doivent|interdit|immer|niemals?|nie wieder|ab jetzt|in zukunft|jedes mal|"
    r"siempre|nunca|a partir de ahora|cada vez|sempre|mai|d'ora in poi|a partir de agora|altijd|"
    r"nooit|vanaf nu)\b"
)


class Source(msgspec.Struct, frozen=True):
    """Where a quote was found."""

    trust: Trust
    quote: str
    """As it stands there: of the person their whole sentence."""
    call: ToolCall | None = None


class Sources:
    """What was said, pasted and read in a turn; of what was recalled nothing."""

    def __init__(self, turn: Turn) -> None:
        own = "" if turn.is_own_command else own_words(turn.user_message)
        self.own = own
        self.answer = turn.assistant_message[:_LONGEST_READ]
        self.results = [
            (call, result_text(call)[:_LONGEST_READ])
            for call in turn.tool_calls
            if call.result and call.tool_name not in RECALL_TOOLS
        ]
        self._sentences = [(_bounded(sentence), sentence) for sentence in sentences(own)]
        self._own = _bounded(own)
        self._pasted = _bounded(turn.user_message[:_LONGEST_READ])
        self._answer = _bounded(self.answer)
        self._results = [(call, _bounded(text)) for call, text in self.results]

    def find(self, quote: str) -> Source | None:
        """Where it stands, the person's own words first, the agent's last; None: nowhere.

        What the agent says may be what a file says, so a file is asked before it.
        """
        wanted = _bounded(quote)
        if len(wanted.split()) < _LEAST_WORDS or len(wanted) < _LEAST_CHARS + 2:
            return None
        return next(filter(None, (self._standing(each, quote) for each in _nearly(wanted))), None)

    def _standing(self, wanted: str, quote: str) -> Source | None:
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
    """Whether what a memory says stands where it is said to come from."""
    said, counted = plain(source), _bounded(source)
    for hard in PARTICULAR.findall(content):
        if plain(hard.strip("`.,:;")) not in said and _bounded(hard) not in counted:
            return False
    language = guess_language(content)
    words = {word for word in _bounded(content).split() if word not in _PHRASING}
    telling = {word for word in words if not is_stop_word(word, language)} or words
    there = frozenset(terms(source)) | frozenset(counted.split())
    # In any of its forms.
    found = [
        word for word in telling if not there.isdisjoint((word, *terms(word, language=language)))
    ]
    return len(found) >= _COVERED * len(telling)


def is_rule(sentence: str) -> bool:
    """Whether a sentence of the person lays down what holds from then on."""
    text = plain(sentence)
    return not text.endswith("?") and _RULE.search(text) is not None


def evidence_of(turn: Turn, source: Source, *, locate: Callable[[str], str]) -> Evidence:
    """As it is kept with the memory; `locate` turns a tool's path into its stored form."""
    call = source.call
    return Evidence(
        session_id=turn.session_id,
        turn_id=turn.turn_id,
        turn_index=turn.turn_index,
        tool_call_id=call.tool_call_id if call else "",
        tool_name=call.tool_name if call else "",
        path=_path(call, locate) if call else "",
        quote=source.quote,
        at=call.started_at if call else turn.timestamp,
    )


def argument(call: ToolCall, name: str) -> str:
    """One of its arguments, where it is a text."""
    try:
        arguments: Json = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return ""
    value = arguments.get(name) if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else ""


def _path(call: ToolCall, locate: Callable[[str], str]) -> str:
    path = argument(call, "path")
    return locate(path) if path else ""


def _bounded(text: str) -> str:
    """Words alone, with a space before and after each: no quote ends in the middle of one."""
    return f" {' '.join(with_digits(normal(text).split()))} "


def _nearly(wanted: str) -> Iterator[str]:
    """A quote, then the same less one word: models add one to what they repeat.

    Never one that turns what is said, nor a number.
    """
    yield wanted
    words = wanted.split()
    if len(words) > _LEAST_LESS_ONE:
        for at, word in enumerate(words):
            if word not in _TURNING and not any(map(str.isdigit, word)):
                yield f" {' '.join((*words[:at], *words[at + 1 :]))} "
