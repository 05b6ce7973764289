"""Questions about code with known answers, made from its authors' descriptions.

From docstrings: the first sentence without the names of its scope. From release notes: an entry
that names one function or class, without that name. Such questions say what a thing does, but not
what it is called.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from ragmem.index import CutScope
from ragmem.index.search import is_test
from ragmem.terms import STOP_WORDS, terms

T = TypeVar("T")
Origin = Literal["docstring left in", "docstring taken out", "release notes"]

_LEAST_WORDS = 5
_MOST_CHARS = 300
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(])|\n\s*\n")
_WORD = re.compile(r"[A-Za-z_][\w]*")
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CODE = ("function", "method", "class", "type")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and the scope that answers it."""

    text: str
    path: str
    qualified_name: str
    origin: Origin


class Placed(msgspec.Struct, frozen=True):
    """A scope with its file."""

    path: str
    scope: CutScope


def of_docstrings(placed: Sequence[Placed], count: int, seed: str) -> list[Question]:
    """Return `count` questions; every second one is for a copy without its docstring."""
    said = Counter(_first_sentence(each.scope.docstring) for each in placed)
    found: list[Question] = []
    for each in _shuffled(_worth_asking(placed), seed):
        sentence = _first_sentence(each.scope.docstring)
        text = _without_names(sentence, each)
        if said[sentence] > 1 or not _enough(text):
            continue
        out = len(found) % 2 == 1
        found.append(_question(text, each, "docstring taken out" if out else "docstring left in"))
        if len(found) == count:
            break
    return found


def of_release_notes(
    entries: Iterable[str], placed: Sequence[Placed], count: int, seed: str
) -> list[Question]:
    """Return questions from entries that name exactly one scope; one per scope."""
    by_name: dict[str, list[Placed]] = defaultdict(list)
    for each in placed:
        if each.scope.kind in _CODE:
            by_name[each.scope.name].append(each)
    found: dict[str, Question] = {}
    for entry in _shuffled(list(dict.fromkeys(entries)), seed):
        quoted = list(_quoted(entry))
        meant = {
            (each.path, each.scope.qualified_name): each
            for _, name in quoted
            for each in _defined(name, by_name)
        }
        if len(meant) != 1:
            continue
        (each,) = meant.values()
        text = " ".join(_without_names(_plain(entry), each).split())[:_MOST_CHARS]
        if is_test(each.path) or not _enough(text):
            continue
        found.setdefault(
            f"{each.path} {each.scope.qualified_name}", _question(text, each, "release notes")
        )
        if len(found) == count:
            break
    return list(found.values())


def _question(text: str, each: Placed, origin: Origin) -> Question:
    return Question(
        text=text, path=each.path, qualified_name=each.scope.qualified_name, origin=origin
    )


def _shuffled(things: Sequence[T], seed: str) -> list[T]:
    """Return the things ordered by a hash of the seed and each thing."""

    def key(thing: T) -> bytes:
        said = (
            f"{thing.path} {thing.scope.qualified_name} {thing.scope.start_line}"
            if isinstance(thing, Placed)
            else str(thing)
        )
        return hashlib.blake2b(f"{seed} {said}".encode()).digest()

    return sorted(things, key=key)


def _worth_asking(placed: Sequence[Placed]) -> list[Placed]:
    return [
        each
        for each in placed
        if each.scope.kind in _CODE and each.scope.docstring and not is_test(each.path)
    ]


def _first_sentence(docstring: str) -> str:
    first = _SENTENCE.split(docstring.strip(), maxsplit=1)[0]
    return " ".join(first.split())[:_MOST_CHARS]


def _enough(text: str) -> bool:
    words = [w.casefold() for w in _WORD.findall(text)]
    return len({w for w in words if w not in STOP_WORDS["english"]}) >= _LEAST_WORDS


def _without_names(text: str, each: Placed) -> str:
    """Remove the identifiers of the scope and its parents, and its name's words if all occur."""
    own = {part.casefold() for part in each.scope.qualified_name.split(".")}
    stem = each.path.rsplit("/", 1)[-1].split(".")[0]
    if len(_SPLIT.findall(stem)) > 1:
        own.add(stem.casefold())
    text = _WORD.sub(lambda m: "" if m[0].casefold() in own else m[0], text)
    name = {_stemmed(word) for word in _SPLIT.findall(each.scope.name)}
    held = {_stemmed(word) for word in _WORD.findall(text)}
    if name and name <= held:
        text = _WORD.sub(lambda m: "" if _stemmed(m[0]) in name else m[0], text)
    return " ".join(text.split())


def _stemmed(word: str) -> str:
    return terms(word, language="english")[-1] if terms(word, language="english") else word


# --- release notes -----------------------------------------------------------------------

_ROLE = re.compile(r":[a-z:]*:`([^`]+)`")
_TICKS = re.compile(r"``([^`]+)``|`([^`]+)`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_NOISE = re.compile(r"\(?:(?:ticket|cve|commit):`[^`]*`\)?|#\d+|\(\s*\)|\[\s*\]")


def entries_of(text: str) -> Iterator[str]:
    """Yield the list items of release notes, each on one line."""
    item: list[str] = []
    for line in text.splitlines():
        if re.match(r"\s{0,4}[*-] ", line):
            if item:
                yield " ".join(item)
            item = [line.strip()[2:]]
        elif item and line.startswith(" ") and line.strip():
            item.append(line.strip())
        elif item:
            yield " ".join(item)
            item = []
    if item:
        yield " ".join(item)


def _quoted(entry: str) -> Iterator[tuple[str, str]]:
    """Yield the code in an entry: as it is written, and as a name."""
    for match in _ROLE.finditer(entry):
        yield match[0], _bare(match[1])
    for match in _TICKS.finditer(_ROLE.sub("", entry)):
        yield match[0], _bare(match[1] or match[2])


def _bare(name: str) -> str:
    name = name.split("<")[-1].rstrip(">") if "<" in name else name
    return re.sub(r"\(.*", "", name).strip("~.!* ")


def _defined(name: str, by_name: dict[str, list[Placed]]) -> list[Placed]:
    """Return the scopes that a name may mean; a qualified name must match their parents, too."""
    parts = [part for part in re.split(r"[.#]", name) if part]
    if not parts:
        return []
    found = [each for each in by_name.get(parts[-1], []) if not is_test(each.path)]
    if len(parts) > 1:
        before = parts[-2]
        found = [
            each
            for each in found
            if before in (each.scope.qualified_name.split(".") + re.split(r"[/.]", each.path))
        ]
    return found


def _plain(entry: str) -> str:
    """Remove markup, ticket numbers and links."""
    entry = _LINK.sub(r"\1", _NOISE.sub("", entry))
    entry = _ROLE.sub(lambda m: _bare(m[1]).split(".")[-1], entry)
    return re.sub(r"`+|\*+|\[\s*\]|\(\s*\)", "", entry)


# --- a copy without the docstrings that questions were made from ----------------------------


def without_docstrings(source: str, scopes: Iterable[CutScope]) -> str:
    """Return the source with empty lines in place of these scopes' docstrings."""
    lines = source.split("\n")
    for scope in scopes:
        said = {bare for line in scope.docstring.splitlines() if (bare := _letters(line))}
        places = range(scope.start_line - 1, min(scope.end_line, len(lines)))
        first = next((place for place in places if _letters(lines[place]) in said), None)
        if first is None:
            continue
        last = first
        for place in range(first + 1, places.stop):
            bare = _letters(lines[place])
            if bare in said:
                last = place
            elif bare:
                break
        first, last = _with_marks(lines, first, last)
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        is_string = lines[first].lstrip("rRuU \t").startswith(('"', "'"))
        lines[first : last + 1] = [f"{indent}pass" if is_string else ""] + [""] * (last - first)
    return "\n".join(lines)


def _letters(line: str) -> str:
    return " ".join(re.findall(r"\w+", line))


def _with_marks(lines: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Extend a range of lines by those that open and close the string or comment."""
    while first > 0 and re.fullmatch(r"\s*[rRuU]?(\"\"\"|'''|/\*\*?)\s*", lines[first - 1]):
        first -= 1
    said = "\n".join(lines[first : last + 1])
    mark = next((m for m in ('"""', "'''", "*/") if said.count(m[::-1] if m == "*/" else m)), "")
    is_open = said.count(mark) == 1 if mark != "*/" else "*/" not in said
    while mark and is_open and last + 1 < len(lines):
        last += 1
        is_open = mark not in lines[last]
    return first, last
