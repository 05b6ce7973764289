"""What a turn has to do with code: the scopes that it edited, read, found and named."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from ragmem.codeindex.names import is_telling, names_in
from ragmem.records import CodeReference, CodeScope, ReferenceHow, ToolCall, Turn
from ragmem.store.code import FoundScope

MOST_REFERENCES = 100
"""Of one turn; the strongest are kept."""
MOST_READ = 20
"""Scopes of one read: of a large file those that are spoken of, then those at its top."""
_MOST_LINES = 200
_EDITS = ("edit_file", "write_file", "create_file")
_LAST_LINE = 10_000_000

_MATCH = re.compile(r"(\d{1,9}):")

Lines = tuple[int, int]


class Scopes(Protocol):
    """Of the code index, what finds the scopes of a turn."""

    async def scopes_at(self, path: str, lines: Sequence[Lines]) -> list[CodeScope]:
        """The innermost scopes that these lines touch."""
        ...

    async def scopes_named(self, names: Collection[str]) -> dict[str, list[FoundScope]]:
        """Those that are called so; a name that many have is left out."""
        ...


class Place(msgspec.Struct, frozen=True):
    """Lines of a file that a call was about."""

    how: ReferenceHow
    path: str
    """As the tool gave it."""
    lines: tuple[Lines, ...]
    replaced: tuple[int, ...] = ()
    """Of an edit, how many lines each of those took the place of; empty where that is not known."""

    def later(self, edit: "Place") -> "Place":
        """Where its lines are after a later edit of the same file."""
        if len(edit.replaced) != len(edit.lines):
            return self
        moved = [(min(_moved(first, edit)), max(_moved(last, edit))) for first, last in self.lines]
        return msgspec.structs.replace(self, lines=tuple(moved))


def _moved(line: int, edit: Place) -> Lines:
    """Where a line is after an edit: itself, or all that took its place."""
    grown = 0
    for (first, last), replaced in zip(edit.lines, edit.replaced, strict=True):
        begins = first - grown
        if line < begins:
            break
        if line < begins + replaced:
            return first, last
        grown += last - first + 1 - replaced
    return line + grown, line + grown


class _Item(msgspec.Struct, frozen=True):
    scope_id: str = ""


class _Result(msgspec.Struct, frozen=True):
    text: str = ""
    path: str = ""
    first_line: int = 0
    last_line: int = 0
    changed: tuple[Lines, ...] | None = None
    replaced: tuple[int, ...] = ()
    files: tuple[_Item, ...] = ()


async def references_of(
    turn: Turn, scopes: Scopes, locate: Callable[[str], str]
) -> tuple[CodeReference, ...]:
    """The turn's references, strongest first; `locate` gives a tool's path its stored form."""
    named = await _named(turn, scopes)
    hows: dict[str, ReferenceHow] = {}
    for place in sorted(places_of(turn), key=lambda p: ("edited", "read", "found").index(p.how)):
        path = locate(place.path)
        if path.startswith("/"):
            continue
        found = await scopes.scopes_at(path, place.lines)
        for scope in _most_telling(found, named) if place.how != "found" else found:
            hows.setdefault(scope.scope_id, place.how)
    for scope_id in searched_scopes(turn.tool_calls):
        hows.setdefault(scope_id, "found")
    for scope_id in named:
        hows.setdefault(scope_id, "named")
    return tuple(
        CodeReference(scope_id=scope_id, how=how)
        for wanted in ("edited", "read", "found", "named")
        for scope_id, how in hows.items()
        if how == wanted
    )[:MOST_REFERENCES]


def edited_paths(turn: Turn) -> list[str]:
    """The files that the turn wrote to, as its tools named them."""
    return list(dict.fromkeys(place.path for place in places_of(turn) if place.how == "edited"))


def places_of(turn: Turn) -> list[Place]:
    """What its finished calls were about, in their order, with the lines as the turn left them."""
    places: list[Place] = []
    for call in turn.tool_calls:
        now = list(_places(call)) if call.success else []
        for edit in now:
            if edit.how == "edited":
                places = [p.later(edit) if p.path == edit.path else p for p in places]
        places += now
    return places


def searched_scopes(calls: Iterable[ToolCall]) -> list[str]:
    """The scopes that brain_search has found."""
    found = [
        item.scope_id
        for call in calls
        if call.success and call.tool_name == "brain_search" and (result := _result(call))
        for item in result.files
        if item.scope_id
    ]
    return list(dict.fromkeys(found))


async def _named(turn: Turn, scopes: Scopes) -> dict[str, None]:
    """Ids of the scopes that the person or the agent named, the first named first."""
    names = list(dict.fromkeys([*names_in(turn.user_message), *names_in(turn.assistant_message)]))
    asked = {suffix: None for name in names for suffix in _suffixes(name)}
    found = await scopes.scopes_named(list(asked)) if asked else {}
    ids: dict[str, None] = {}
    for name in names:
        for suffix in _suffixes(name):
            if known := found.get(suffix) or found.get(suffix.casefold()):
                ids |= dict.fromkeys(each.scope.scope_id for each in known)
                break
    return ids


def _suffixes(name: str) -> Iterator[str]:
    """`auth.Service.validate`, `Service.validate`, and `validate` where that alone tells much."""
    yield name
    while "." in name:
        name = name.partition(".")[2]
        if "." in name or is_telling(name):
            yield name


def _places(call: ToolCall) -> Iterator[Place]:
    result = _result(call)
    if result is None:
        return
    if call.tool_name == "read_file" and result.path and result.last_line > 0:
        yield Place("read", result.path, ((result.first_line, result.last_line),))
    elif call.tool_name in _EDITS and result.path:
        if result.changed is None:
            yield Place("edited", result.path, ((1, _LAST_LINE),))
        else:
            yield Place("edited", result.path, result.changed, result.replaced)
    elif call.tool_name == "grep_files":
        yield from _matches(result.text)


def _matches(text: str) -> Iterator[Place]:
    """A page of matches: a path on a line of its own, below it `12:text` for each match.

    A path stands first, or behind an empty line, whatever it looks like (`[id]/page.tsx`).
    """
    path, lines, begins = "", list[Lines](), True
    count = 0
    for row in text.split("\n"):
        if begins and row:
            if lines:
                yield Place("found", path, tuple(lines))
            path, lines = row, []
        elif path and count < _MOST_LINES and (match := _MATCH.match(row)):
            lines.append((int(match[1]), int(match[1])))
            count += 1
        begins = not row
    if lines:
        yield Place("found", path, tuple(lines))


def _most_telling(found: Sequence[CodeScope], named: Collection[str]) -> Sequence[CodeScope]:
    if len(found) <= MOST_READ:
        return found
    first = sorted(found, key=lambda s: (s.scope_id not in named, "." in s.qualified_name))
    return first[:MOST_READ]


def _result(call: ToolCall) -> _Result | None:
    try:
        return msgspec.json.decode(call.result, type=_Result)
    except msgspec.DecodeError:
        return None
