"""Tokenization of texts to the terms that both stores index and search, so that both find the same.

A word yields itself (NFKC, case-folded, without accents) and, if it differs, its stem in the
text's language; an identifier, path, version or date yields the whole and its parts. No built-in
tokenizer of either store keeps identifiers both whole and split. Terms consist of letters, digits
and the characters of `JOINTS` only, so that a store can join them with spaces and split at spaces:
FTS5's tokenizer `ascii` with `tokenchars`, Lucene's `whitespace`. The language is guessed by a
text's stop words.
"""

import math
import re
import threading
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
import Stemmer

from ragmem.records import Summary, ToolCall, Turn
from ragmem.text import clean

# In case-folded form. Those that are content words in another language ("die", "main", "son") count
# for guessing the language only.
STOP_WORDS = {
    language: frozenset(words.split())
    for paragraph in (Path(__file__).parent / "stop_words.txt").read_text("utf-8").split("\n\n")
    for language, words in [paragraph.split(":")]
}

_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 4000
"""The number of characters at the start of a text's prose that the guess is based on."""
_LOOKED_AT = 4 * _SAMPLE
_FENCED = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_FEW_LINES = 3
_CODE = re.compile(
    r"""
      ^\s*(?: [@$|*] | [+-](?!\ \w) | //  )   # a change, a prompt, a comment
    | ^(?:\t|\ {4})\s*\S                    # an indented line
    | [{}\\=<>] | ;\s*$ | \w\( | :: | ->     # characters that prose doesn't have
    """,
    re.VERBOSE,
)
"""Matches in a line of code or of a diff."""
_LEAST_SCORE = 2
"""The least score of stop words for a guess."""
_LEAST_RATIO = 1.2
"""The least ratio of the first language's score to the second's."""

_LANGUAGES: dict[str, list[str]] = {
    word: [language for language, words in STOP_WORDS.items() if word in words]
    for word in frozenset().union(*STOP_WORDS.values())
}
"""The languages of each stop word."""


def guess_language(text: str) -> str | None:
    """Guess a text's language by the stop words in its prose; None if it is unclear."""
    counts = dict.fromkeys(STOP_WORDS, 0.0)
    for word in _WORD.findall(_prose(text[:_LOOKED_AT])[:_SAMPLE].casefold()):
        if languages := _LANGUAGES.get(word):
            # Those of one language decide between languages that share their commonest ones.
            weight = (1.0 if len(word) > 1 else 0.5) + (0.5 if len(languages) == 1 else 0.0)
            for language in languages:
                counts[language] += weight
    first, second = sorted(counts, key=counts.__getitem__, reverse=True)[:2]
    if counts[first] < _LEAST_SCORE or counts[first] < _LEAST_RATIO * counts[second]:
        return None
    return first


def _prose(text: str) -> str:
    """Remove code from a text: a loop's `do`, or a variable `es` or `se`, is no stop word.

    Of a text of a few lines, such as a question, all lines are kept, whatever names they have.
    """
    text = _INLINE_CODE.sub(" ", _FENCED.sub(" ", text))
    lines = text.split("\n")
    if len(lines) <= _FEW_LINES:
        return text
    return "\n".join(line for line in lines if not _CODE.search(line))


def is_stop_word(word: str, language: str | None) -> bool:
    """Return whether a case-folded word is a stop word of a language; None means any language."""
    if language is None:
        return any(word in stops for stops in STOP_WORDS.values())
    return word in STOP_WORDS.get(language, ())


TERMS_VERSION = 4
"""To be raised with every change of a text's terms, since stored rows depend on them."""
WITHOUT_PREAMBLES = 3
"""The previous version, whose only difference is that texts between tool calls are missing."""

JOINTS = "_./\\:@+#-"
"""The characters that join the parts of a compound term."""

LONGEST = 80
"""The maximum length of a term; nobody asks for longer words (base64, minified code)."""

_SPLIT_UP_TO = 200
"""The maximum length of a name that is split at case and underscore: longer ones are data."""

TermKind = Literal[
    "word", "stem", "identifier", "part", "number", "name", "digits", "hint", "short", "stop"
]


class QueryTerm(msgspec.Struct, frozen=True):
    """A term to search for, and the weight of a match.

    `hint`: the beginning or end of a word, which compounds may share, or its stem in a language
    that it may be of. `short`: a common abbreviation of a word, or the word for one. `stop`: only
    used if the others find fewer turns than wanted.
    """

    term: str
    weight: float
    kind: TermKind


# Runs of word characters with joints between them; bounded, so that no whole line is one chunk.
_CHUNK = re.compile(
    r"\w{1,400}(?:(?:[./\\:@+'’-]{1,3}|,(?=\d{3}(?!\d)))\w{1,400}){0,12}(?:\+\+|#)?"
)
_JOINT = re.compile(r"[./\\:@+'’,#-]+")
_CAMEL = re.compile(r"(?<=[a-zà-öø-ÿ])(?=[A-ZÀ-ÖØ-Þ])|(?<=[A-ZÀ-ÖØ-Þ])(?=[A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ])")
_ALPHA_RUN = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+(?:[.,:_/-]\d+)*")
_MEASURE = re.compile(r"(\d+)([^\W\d_]{1,3})")
_RELEASE = re.compile(r"(\d{1,4}\.\d{1,4})\.\d{1,4}")
_HASH = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,64}")
_HASH_START = 7
"""The length to which git abbreviates a commit's hash."""
_LINE = re.compile(r"(?<=[^\W\d_])(?::\d{1,8}){1,2}$")
_VERSION = re.compile(r"v(\d+(?:\.\d+)*(?:[.-]?\w+)?)", re.IGNORECASE)
_ELISION = re.compile(r"['’,]")
# Scripts without spaces between words, and Hangul, whose particles are attached to nouns.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_BY_SCRIPT = (
    ("russian", "\u0400", "\u04ff"),
    ("greek", "\u0370", "\u03ff"),
    ("arabic", "\u0600", "\u06ff"),
    ("hindi", "\u0900", "\u097f"),
    ("armenian", "\u0530", "\u058f"),
    ("tamil", "\u0b80", "\u0bff"),
    ("yiddish", "\u0590", "\u05ff"),
)
_MEMO_LIMIT = 20_000

_lock = threading.Lock()
_memos: dict[tuple[str, str | None], dict[str, tuple[str, ...]]] = {}


def terms(text: str, *, language: str | None = None, beside: str | None = None) -> list[str]:
    """Return a document's index terms, in order; `language` saves guessing it.

    Latin text of an unknown language is stemmed as English, the language of code. `beside` is the
    language of the text around it, which then decides about terms for the edges of words.
    """
    text = _normalized(text)
    known = language or guess_language(text)
    language = known or "english"
    joining = known or beside
    joining = joining if joining in _COMPOUNDING else None
    memo = _memos.setdefault((language, joining), {})
    out: list[str] = []
    for chunk in _CHUNK.findall(text):
        found = memo.get(chunk) or _chunk_terms(chunk, language, joining)
        if len(chunk) <= LONGEST:
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            memo[chunk] = found
        out += found
    return out


def _chunk_terms(chunk: str, language: str, joining: str | None) -> tuple[str, ...]:
    found = [term for term, _ in _expanded(chunk, language)]
    if joining:
        found += _edges(chunk, joining)
    # A part that is its own stem counts once; pairs in unspaced text count as often as they occur.
    return tuple(found if _UNSPACED.search(chunk) else dict.fromkeys(found))


def query_terms(text: str) -> tuple[QueryTerm, ...]:
    """Return the terms to search for, heaviest first.

    Words are stemmed in the question's language and in English, the language of code. A few words
    of an unknown language are stemmed in all languages, as hints. Stop words come last, in case
    the others find too little: searching for them costs the most.
    """
    text = _normalized(text)[:20_000]
    own = guess_language(text)
    stemmers = tuple(dict.fromkeys(filter(None, (own, "english"))))
    is_short = not own and len(_WORD.findall(text)) <= _FEW_WORDS
    found: dict[str, QueryTerm] = {}
    for match in _CHUNK.finditer(text):
        chunk = match.group()
        before = text[max(0, match.start() - 8) : match.start()].rstrip(" \t\"'«“(¿¡-*>#")
        # German capitalizes every noun, so a capital doesn't make a name.
        is_first = own == "german" or not before or before[-1] in ".!?:\n"
        kind_of_chunk = _kind(chunk, first=is_first)
        idle = all(is_stop_word(p, own) for p in _JOINT.split(chunk.casefold()) if p)
        for language in stemmers:
            for term, kind in _expanded(chunk, language):
                if idle:
                    if kind == "stem":
                        continue
                    kind = "stop"
                elif kind == "word":
                    kind = kind_of_chunk
                weight = _WEIGHTS.get(kind, 1)
                if term not in found or found[term].weight < weight:
                    found[term] = QueryTerm(term, weight, kind)
        if other := _ABBREVIATIONS.get(chunk.casefold()):
            found.setdefault(other, QueryTerm(other, _WEIGHTS["short"], "short"))
        hints = _edges(chunk, own) if own else _stems(chunk) if is_short else ()
        for hint in hints if not idle else ():
            found.setdefault(hint, QueryTerm(hint, _WEIGHTS["hint"], "hint"))
    return tuple(sorted(found.values(), key=lambda t: (t.kind == "stop", -t.weight))[:_MOST_TERMS])


_MOST_TERMS = 48
"""The maximum number of a question's terms."""
_FEW_WORDS = 6
"""The most words of a question that are stemmed in all languages if theirs is unknown."""


# A person's name counts double. Heavier identifiers and lighter stems were tried and found no
# more; stop words with the weight of other words find less.
_WEIGHTS: dict[TermKind, float] = {
    "name": 2, "digits": 0.5, "hint": 0.5, "short": 0.8, "stop": 0.5
}  # fmt: skip
"""By kind; other kinds have the weight 1."""
_ABBREVIATION_PAIRS = (
    "prod production", "db database", "auth authentication", "config configuration",
    "repo repository", "env environment", "k8s kubernetes", "docs documentation",
    "perf performance", "deps dependencies", "infra infrastructure", "postgres postgresql",
    "js javascript", "ts typescript", "admin administrator", "dir directory", "params parameters",
)  # fmt: skip
"""Developers' abbreviations, with the whole word."""
_ABBREVIATIONS = {
    one: other for pair in map(str.split, _ABBREVIATION_PAIRS) for one, other in (pair, pair[::-1])
}
_COMPOUNDING = frozenset(["german", "dutch"])
"""Languages with compounds: Mahnlauf and Mahnung, Schritt and Berechnungsschritt."""
_EDGE = 4
"""The number of letters at each end of a stem that are indexed too. In German, five or more at the
start only, at both ends, or all runs of four or five letters found no more."""


def _normalized(text: str) -> str:
    # Valid for stores and regular expressions, with one form for each character.
    text = clean(text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _kind(chunk: str, *, first: bool) -> TermKind:
    """Return the kind of a chunk without parts: a capital within a sentence makes it a name."""
    if chunk[0].isdigit():
        return "number"
    return "name" if chunk[0].isupper() and not first else "word"


def _expanded(chunk: str, language: str) -> list[tuple[str, TermKind]]:
    if chunk.isalpha() and chunk.isascii() and (chunk.islower() or chunk[1:].islower()):
        return _word(chunk, language)
    if _UNSPACED.search(chunk):
        return _unspaced(chunk, language)
    if _NUMBER.fullmatch(chunk):
        return _number(chunk)
    if _ELISION.search(chunk):
        pieces = [p for p in _ELISION.split(chunk) if len(p) > 2 or p.isdigit()]
        return [found for piece in pieces for found in _expanded(piece, language)]
    if chunk.isalpha() and not _CAMEL.search(chunk):
        return _word(chunk, language)
    return _compound(chunk, language)


def _word(word: str, language: str) -> list[tuple[str, TermKind]]:
    low = word.casefold()
    if len(low) > LONGEST:
        return []
    raw = _folded(low)
    out: list[tuple[str, TermKind]] = [(raw, "word")]
    if len(low) > 2:
        for stem in dict.fromkeys((_stem(low, language), _stem(raw, language))):
            if (folded := _folded(stem)) != raw:
                out.append((folded, "stem"))
    return out


def _edges(chunk: str, language: str) -> list[str]:
    """Return the beginning and end of a word's stem, with a hyphen, so that no word equals them."""
    low = chunk.casefold()
    if language not in _COMPOUNDING or not low.isalpha() or is_stop_word(low, language):
        return []
    if len(low) > LONGEST or _CAMEL.search(chunk) or _UNSPACED.search(chunk):
        return []
    stem = _folded(_stem(low, language))
    return [f"{stem[:_EDGE]}-", f"-{stem[-_EDGE:]}"] if len(stem) >= _EDGE else []


def _stems(chunk: str) -> list[str]:
    low = chunk.casefold()
    if not low.isalpha() or not 2 < len(low) <= LONGEST or _CAMEL.search(chunk):
        return []
    return [_folded(_stem(low, language)) for language in STOP_WORDS]


def _number(chunk: str) -> list[tuple[str, TermKind]]:
    if "," in chunk or "_" in chunk:
        chunk = chunk.replace(",", "").replace("_", "")
    out: list[tuple[str, TermKind]] = [(chunk[:LONGEST], "number")]
    if re.fullmatch(r"\d{4}-\d\d-\d\d", chunk):
        out.append((chunk[:7], "part"))
    if release := _RELEASE.fullmatch(chunk):
        out.append((release[1], "part"))
    return out


def _compound(chunk: str, language: str) -> list[tuple[str, TermKind]]:
    whole = _folded(chunk.casefold())
    out: list[tuple[str, TermKind]] = []
    if line := _LINE.search(chunk):
        numbers: list[tuple[str, TermKind]] = [
            (n, "digits") for n in line.group().split(":") if len(n) > 1
        ]
        return [*_expanded(chunk[: line.start()], language), *numbers]
    if len(whole) <= LONGEST:
        out.append((whole, "identifier"))
    if _HASH.fullmatch(whole):
        return [*out, (whole[:_HASH_START], "part")]
    if version := _VERSION.fullmatch(chunk):
        number = version.group(1).casefold()[:LONGEST]
        return [*out, *(_number(number) if _NUMBER.fullmatch(number) else [(number, "number")])]
    if measure := _MEASURE.fullmatch(chunk):
        return [*out, (measure.group(1), "digits")]
    path = re.split(r"[/\\]+", chunk)
    if len(path) > 1:
        name = path[-1]
        if _JOINT.search(name) and len(name) <= LONGEST:
            out.append((_folded(name.casefold()), "identifier"))
    pieces = [p for p in _JOINT.split(chunk) if p]
    for piece in pieces:
        if _NUMBER.fullmatch(piece):
            if len(piece) > 1:
                out.append((piece[:LONGEST], "part"))
            continue
        out += _piece(piece, language, alone=len(pieces) == 1)
    return out


def _piece(piece: str, language: str, *, alone: bool) -> list[tuple[str, TermKind]]:
    out: list[tuple[str, TermKind]] = []
    if len(piece) > _SPLIT_UP_TO:
        return out
    subwords = [w for p in piece.split("_") for w in _CAMEL.split(p) if w]
    if len(subwords) > 1 and not alone and len(piece) <= LONGEST:
        out.append((_folded(piece.casefold()), "identifier"))
    for subword in subwords:
        if subword.isdigit():
            if len(subword) > 1:
                out.append((subword[:LONGEST], "part"))
            continue
        runs = _ALPHA_RUN.findall(subword)
        if runs != [subword] and len(subword) <= LONGEST and (len(subwords) > 1 or not alone):
            out.append((_folded(subword.casefold()), "identifier"))
        for run in runs:
            if len(run) > 1:
                out += [(t, "part" if k == "word" else k) for t, k in _word(run, language)]
    return out


def _unspaced(chunk: str, language: str) -> list[tuple[str, TermKind]]:
    """Return the bigrams of unspaced scripts, and the usual terms for the text between them."""
    out: list[tuple[str, TermKind]] = []
    for place, piece in enumerate(_UNSPACED.split(chunk)):
        if place % 2:
            out += [(piece[i : i + 2], "word") for i in range(max(1, len(piece) - 1))]
        else:
            out += [t for rest in _CHUNK.findall(piece) for t in _expanded(rest, language)]
    return out


def _folded(word: str) -> str:
    """Remove accents, so that é and e match; case folding has turned ß into ss already."""
    if word.isascii():
        return word
    nfkd = unicodedata.normalize("NFKD", word)
    return unicodedata.normalize("NFC", "".join(c for c in nfkd if not "\u0300" <= c <= "\u036f"))


@lru_cache(maxsize=16)
def _stemmer(language: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(language, 0)


def _stem(word: str, language: str) -> str:
    if not word.isascii():
        for name, first, last in _BY_SCRIPT:
            if first <= word[0] <= last:
                language = name
                break
    with _lock:  # A stemmer is not thread-safe.
        stem: str = _stemmer(language).stemWord(word)
    return stem


RESULT_CHARS = 300
"""The indexed part of a tool's result: its beginning says what it was; the rest is in files."""
ARGUMENT_CHARS = 2_000
"""The indexed part of each argument: the lines of a patch, but not all of a new file."""
MESSAGE_CHARS = 200_000
"""The indexed part of a message: longer ones contain a pasted file."""


class _Result(msgspec.Struct, frozen=True):
    text: str = ""


def turn_terms(turn: Turn) -> list[str]:
    """Return the index terms of a turn: question, answer, and tool calls.

    Each text has its own language: a French question can have an English answer. Terms of tool
    calls count once each, since repetitive output would outweigh the conversation.
    """
    asked, answered = turn.user_message[:MESSAGE_CHARS], turn.said[:MESSAGE_CHARS]
    of_question, of_answer = guess_language(asked), guess_language(answered)
    out = terms(asked, language=of_question, beside=of_answer)
    out += terms(answered, language=of_answer, beside=of_question)
    done = dict.fromkeys(t for call in turn.tool_calls for t in terms(condensed(call)))
    return out + list(done)


def summary_terms(summary: Summary) -> list[str]:
    """Return the index terms of a summary: its text, findings, topics, and mentioned files."""
    texts = (summary.text, *summary.key_findings, *summary.topics, *summary.files_mentioned)
    beside = guess_language(summary.text)
    return [term for text in texts for term in terms(text[:MESSAGE_CHARS], beside=beside)]


def condensed(call: ToolCall) -> str:
    """Return a tool call as text: its name, the arguments' values, and the result's beginning."""
    return "\n".join((call.tool_name, *_values(call.arguments), _result(call.result)))


def _values(arguments: str) -> list[str]:
    try:
        decoded = msgspec.json.decode(arguments, type=dict[str, object])
    except msgspec.MsgspecError:
        return [arguments[:ARGUMENT_CHARS]]
    return [
        (v if isinstance(v, str) else msgspec.json.encode(v).decode())[:ARGUMENT_CHARS]
        for v in decoded.values()
    ]


def _result(result: str) -> str:
    try:
        return msgspec.json.decode(result, type=_Result).text[:RESULT_CHARS]
    except msgspec.MsgspecError:
        return result[:RESULT_CHARS]


def rarity(having: int, among: int) -> float:
    """Return the inverse document frequency (BM25) of a word in `having` of `among` records."""
    return math.log(1 + (among - having + 0.5) / (having + 0.5))
