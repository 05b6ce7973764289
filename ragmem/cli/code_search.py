"""`ragmem search --code`: what the project's files define, found by words and by meaning."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.code_documents import (
    CodeSessionDocument,
    decided_documents,
    in_sessions,
    past_lines,
    session_documents,
)
from ragmem.cli.documents import to_json
from ragmem.cli.hits import HitDocument, flowing
from ragmem.cli.index import brought_up_to_date, code_of, project_here
from ragmem.cli.memory_values import MemoryDocument
from ragmem.cli.streams import say, write, write_utf8
from ragmem.cli.table import clip_to_width
from ragmem.codeindex.values import CodeHit
from ragmem.errors import StoreError
from ragmem.memory.code_past import NO_PAST, CodePast, inside_of, past_of_scopes
from ragmem.memory.files import shown_path
from ragmem.memory.hits import worth_showing
from ragmem.memory.projects import real_folder
from ragmem.store.code import FoundScope, ScopeQuery
from ragmem.text import one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.records import Project
    from ragmem.store.base import Store

_NARROWEST = 30
_QUOTED_CHARS = 500
_SPARE = 20
_GONE = 20
"""Scopes of a name that are looked up in the memory."""
_IDENTIFIER = re.compile(r"[^\W\d][\w.$]*\w|[^\W\d]")
_TELLING = re.compile(r"[a-z0-9][A-Z]|[._$]")
"""What a word has inside that is a name and nothing else."""
_HOLDS_OTHERS = ("class", "type", "section")


class ScopeDocument(HitDocument, frozen=True, kw_only=True):
    """A piece of code that was found, with what the memory has of it."""

    kind: str
    signature: str
    defined: bool
    """False: it is in no file any more; `path` and lines are where it was last."""
    sessions: tuple[CodeSessionDocument, ...]
    memories: tuple[MemoryDocument, ...]


class FoundCode(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, and its past."""

    hit: CodeHit
    defined: bool = True
    named: bool = False
    """The question names it."""
    past: CodePast = NO_PAST


async def search_code(
    opened: "App", query: str, *, limit: int, semantic: bool, output: Literal["table", "json"]
) -> None:
    """Print what was found."""
    code = await code_of(opened)
    refreshed = await brought_up_to_date(code)
    project = await project_here(opened)
    names = names_in(query)
    spare = _SPARE if names else 0
    hits = await code.search(query, limit=limit + spare, semantic=semantic)
    # What is called exactly so is what is meant, however much the others have to say of it.
    shown: Sequence[CodeHit] = sorted(hits, key=lambda hit: not _is_named(hit, names))[:limit]
    none_close = ""
    if output == "table":
        shown, none_close = worth_showing(shown, opened.memory.floor)
    found = await with_past(opened, project, query, shown)
    if refreshed.changed or refreshed.removed:
        await opened.leave_background()
    for notice in opened.notices():
        say(f"note: {visible(notice)}\n")
    if output == "json":
        write_utf8(to_json([scope_document(each) for each in found]))
    elif found:
        top = real_folder(project.path, opened.cwd)
        places = [shown_path(each.hit.path, cwd=opened.cwd, project=top) for each in found]
        width = get_terminal_size((120, 24)).columns
        say(f"{none_close}\n" if none_close else "")
        write(code_text(found, places, datetime.now(UTC), width=width))
    else:
        say("Nothing was found.\n")


async def with_past(
    opened: "App", project: "Project", query: str, hits: Sequence[CodeHit]
) -> list[FoundCode]:
    """The hits, and what is called as the question says but is gone, with their past.

    Without it where nothing is remembered, or the memory is away.
    """
    names = names_in(query)
    found = [FoundCode(hit=hit, named=_is_named(hit, names)) for hit in hits]
    if not opened.config.memory.enabled:
        return found
    try:
        store = await opened.store()
        found += await _gone(store, project.root_id, names, known={h.scope_id for h in hits})
        ids = {each.hit.scope_id: [each.hit.scope_id] for each in found}
        for each in found:
            if each.named and each.hit.kind in _HOLDS_OTHERS:
                ids[each.hit.scope_id] += await inside_of(
                    store, project.root_id, each.hit.path, each.hit.qualified_name
                )
        pasts = await past_of_scopes(store, project.root_id, ids)
    except StoreError as error:
        say(f"note: What the memory has of this is not shown. {visible(str(error))}\n")
        return found
    return [
        msgspec.structs.replace(each, past=pasts.get(each.hit.scope_id, NO_PAST)) for each in found
    ]


def names_in(query: str) -> frozenset[str]:
    """What the question names: a word by itself, or one that can only be a name; casefolded."""
    words = _IDENTIFIER.findall(query)
    alone = len(query.split()) == 1
    return frozenset(w.casefold() for w in words if alone or _TELLING.search(w))


def _is_named(hit: CodeHit, names: frozenset[str]) -> bool:
    name, whole = hit.name.casefold(), hit.qualified_name.casefold()
    return any(asked in (name, whole) or whole.endswith(f".{asked}") for asked in names if hit.name)


async def _gone(
    store: "Store", project_id: str, names: frozenset[str], *, known: set[str]
) -> list[FoundCode]:
    """What is called so and no file defines any more: it may have been spoken of all the same."""
    found: dict[str, FoundCode] = {}
    for name in sorted(names):
        query = ScopeQuery(project_ids=(project_id,), name=name, limit=_GONE)
        for each in await store.find_scopes(query):
            if not each.defined and each.scope.scope_id not in known:
                found[each.scope.scope_id] = FoundCode(hit=_hit_of(each), defined=False, named=True)
    return list(found.values())


def _hit_of(found: FoundScope) -> CodeHit:
    scope = found.scope
    return CodeHit(
        scope_id=scope.scope_id,
        kind=scope.kind,
        path=found.path,
        name=scope.name,
        qualified_name=scope.qualified_name,
        signature=scope.signature,
        docstring=scope.docstring,
        start_line=scope.start_line,
        end_line=scope.end_line,
        score=0.0,
        why=(f"name: {scope.name}",),
    )


# --- shown --------------------------------------------------------------------


def code_text(
    found: Sequence[FoundCode], places: Sequence[str], now: datetime, *, width: int
) -> str:
    """For people: where each stands, how it begins, why it was found, what was done with it."""
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for each, place in zip(found, places, strict=True):
        lines += flowing(_facts(each, place, now), width)
        lines += [f"  {clip_to_width(row, width - 2)}" for row in _quotes(each.hit)]
        if each.named:
            lines += past_lines(each.past, now, indent=2, width=width)
        lines.append("")
    return "\n".join(lines)


def _facts(found: FoundCode, place: str, now: datetime) -> list[str]:
    hit = found.hit
    lines = f"{hit.start_line}-{hit.end_line}"
    where = one_line(f"{place}:{lines}" if found.defined else f"was in {place}", 400)
    alike = "" if hit.similarity is None else f"{hit.similarity * 100:.0f}% alike"
    why = one_line(hit.reasons, 200)
    past = "" if found.named else in_sessions(found.past, now)
    name = one_line(hit.qualified_name, 200)
    return [each for each in (name, hit.kind, where, alike, why, past) if each]


def _quotes(hit: CodeHit) -> list[str]:
    """How it begins."""
    first = hit.signature or next((row for row in hit.text.splitlines() if row.strip()), "")
    about = next((row for row in hit.docstring.splitlines() if row.strip()), "")
    told = [one_line(row, _QUOTED_CHARS) for row in (first, about)]
    return [row for i, row in enumerate(told) if row and not (i and row in told[0])]


def scope_document(found: FoundCode) -> ScopeDocument:
    """As JSON; what belongs to conversations alone is null."""
    hit = found.hit
    return ScopeDocument(
        type="scope",
        id=hit.scope_id,
        session_id=None,
        turn_index=None,
        level=None,
        text=hit.text,
        path=hit.path,
        name=hit.qualified_name,
        start_line=hit.start_line,
        end_line=hit.end_line,
        score=hit.score,
        similarity=hit.similarity,
        timestamp=found.past.last_at,
        why="; ".join(hit.why),
        kind=hit.kind,
        signature=hit.signature,
        defined=found.defined,
        sessions=session_documents(found.past),
        memories=decided_documents(found.past),
    )
