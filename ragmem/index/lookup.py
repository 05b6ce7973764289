"""Code that a person looks for: what the files hold, and what the memory has of it."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from ragmem.errors import StoreError
from ragmem.index.identity import HOLDERS
from ragmem.index.names import is_named, names_in
from ragmem.index.values import CodeHit
from ragmem.memory.code_past import NO_PAST, CodePast, inside_of, past_of_scopes
from ragmem.records import CodeStore, FoundScope, ScopeQuery

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex


_SPARE = 20
"""How many hits are asked for beyond those shown: what is named may be among them."""


class FoundCode(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, and its past."""

    hit: CodeHit
    defined: bool = True
    """Whether a file still has it; else path and lines are where it was last."""
    named: bool = False
    """Whether the question names it."""
    past: CodePast = NO_PAST

    def is_close(self, floor: float | None) -> bool:
        """Return whether it has to do with the question beyond doubt."""
        return not self.defined or self.hit.is_close(floor)


class Finds(msgspec.Struct, frozen=True, kw_only=True):
    """What a question finds."""

    found: tuple[FoundCode, ...]
    """The scopes that it names, then the best."""
    problem: str = ""
    """The reason why the memory's part is missing, for people; empty if it isn't."""


async def find_code(
    code: "CodeIndex",
    query: str,
    *,
    project_id: str,
    open_store: Callable[[], Awaitable[CodeStore]] | None,
    limit: int = 10,
    semantic: bool = True,
) -> Finds:
    """Find at most `limit` scopes; without `open_store` nothing is told of their past."""
    names = frozenset(name.casefold() for name in names_in(query, alone=True))
    hits = await code.search(query, limit=limit + (_SPARE if names else 0), semantic=semantic)
    found = [_found(hit, names) for hit in hits]
    # What is called exactly so is what is meant, however much the others have to say of it.
    found.sort(key=lambda each: not each.named)
    if open_store is None:
        return Finds(found=tuple(found[:limit]))
    try:
        store = await open_store()
        gone, twins = await _gone(store, project_id, names, hits, limit + _SPARE)
        named = sum(each.named for each in found)
        shown = [*found[:named], *gone, *found[named:]][:limit]
        return Finds(found=tuple(await _with_past(store, project_id, shown, twins)))
    except StoreError as error:
        return Finds(found=tuple(found[:limit]), problem=str(error))


def _found(hit: CodeHit, names: Collection[str]) -> FoundCode:
    return FoundCode(hit=hit, named=is_named(hit.name, hit.qualified_name, names))


_Place = tuple[str, str, str]
"""Path, kind and whole name: who comes back there is who went."""


async def _gone(
    store: CodeStore, project_id: str, names: Collection[str], hits: Sequence[CodeHit], most: int
) -> tuple[list[FoundCode], dict[str, list[str]]]:
    """What is called so and no file defines any more: it may have been spoken of all the same.

    And by the id of a scope that is there those of scopes that were in its place before.
    """
    there: dict[_Place, str] = {
        (hit.path, hit.kind, hit.qualified_name): hit.scope_id for hit in hits
    }
    live = set(there.values())
    went: dict[str, FoundScope] = {}
    for name in sorted(names):
        if len(went) >= most:
            break
        query = ScopeQuery(project_ids=(project_id,), name=name, defined=False, limit=most)
        for each in await store.find_scopes(query):
            if each.scope.scope_id not in live:
                went[each.scope.scope_id] = each
    # The index is never behind the store.
    there = await _defined(store, project_id, went.values()) | there
    gone: list[FoundCode] = []
    twins: dict[str, list[str]] = {}
    for scope_id, each in went.items():
        scope = each.scope
        if (now := there.get((each.path, scope.kind, scope.qualified_name))) is None:
            gone.append(FoundCode(hit=_hit_of(each), defined=False, named=True))
        else:
            twins.setdefault(now, []).append(scope_id)
    return gone, twins


async def _defined(
    store: CodeStore, project_id: str, went: Collection[FoundScope]
) -> dict[_Place, str]:
    """Scopes in the places of those that went, where files define such."""
    found: dict[_Place, str] = {}
    for path, name in sorted({(each.path, each.scope.qualified_name) for each in went}):
        query = ScopeQuery(project_ids=(project_id,), path=path, name=name, defined=True)
        for each in await store.find_scopes(query):
            place = (each.path, each.scope.kind, each.scope.qualified_name)
            found[place] = each.scope.scope_id
    return found


async def _with_past(
    store: CodeStore,
    project_id: str,
    found: Sequence[FoundCode],
    twins: dict[str, list[str]],
) -> list[FoundCode]:
    ids: dict[str, list[str]] = {}
    for each in found:
        hit = each.hit
        ids[hit.scope_id] = [hit.scope_id, *twins.get(hit.scope_id, ())]
        if each.named and hit.kind in HOLDERS:
            inside = await inside_of(store, project_id, hit.path, hit.qualified_name)
            ids[hit.scope_id] += inside
    pasts = await past_of_scopes(store, project_id, ids)
    return [
        msgspec.structs.replace(each, past=pasts.get(each.hit.scope_id, NO_PAST)) for each in found
    ]


def _hit_of(found: FoundScope) -> CodeHit:
    scope = msgspec.structs.asdict(found.scope)
    del scope["hash"]
    return CodeHit(**scope, path=found.path, score=0.0, why=(f"name: {found.scope.name}",))
