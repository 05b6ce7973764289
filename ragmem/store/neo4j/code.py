"""The store's part of code: see `ragmem.store.code` for what each of these promises."""

from collections.abc import Sequence
from functools import partial

from ragmem.records import REFERENCE_HOWS, CodeFile, CodeReference, PutReferences
from ragmem.store.code import (
    MOST_CHANGED,
    ChangedTogether,
    CodeTurn,
    FoundScope,
    ScopeQuery,
    TurnsQuery,
)
from ragmem.store.neo4j.code_shapes import qualified_key, tail_key, to_file, to_found
from ragmem.store.neo4j.coding import STATEMENTS
from ragmem.store.neo4j.gateway import Gateway, Transaction
from ragmem.store.neo4j.instants import from_text
from ragmem.store.neo4j.shapes import Properties, path_key, title_key
from ragmem.text import clean

_FILES_AT_ONCE = 500
_SCOPES_AT_ONCE = 5_000


class Neo4jCode:
    """Files, scopes, and the turns that have to do with them; a part of the store."""

    _gateway: Gateway

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""
        if not paths:
            return await self._all_files(project_id)
        keys = sorted(set(map(path_key, paths)))
        files: list[CodeFile] = []
        for start in range(0, len(keys), _FILES_AT_ONCE):
            part = keys[start : start + _FILES_AT_ONCE]
            files += await self._files("files_of_paths", project_id, {"paths": part})
        return files

    async def _all_files(self, project_id: str) -> list[CodeFile]:
        files: list[CodeFile] = []
        after = ""
        while True:
            # Each by itself: of a large project all together would take longer than the deadline.
            given: Properties = {"after": after, "limit": _FILES_AT_ONCE}
            part = await self._files("files_after", project_id, given)
            files += part
            if len(part) < _FILES_AT_ONCE:
                return files
            after = part[-1].path

    async def _files(self, which: str, project_id: str, given: Properties) -> list[CodeFile]:
        statement = STATEMENTS["code_files"].replace("/* which */", STATEMENTS[which])
        [[found]] = await self._gateway.read(
            lambda tx: tx.values(statement, projectId=project_id, **given)
        )
        return [to_file(clean(project_id), columns) for columns in found]

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Those that match, those that no file defines any more too."""

        ids = await self._gateway.read(lambda tx: _scope_ids(tx, query))
        found: list[FoundScope] = []
        for start in range(0, len(ids), _SCOPES_AT_ONCE):
            # Each by itself, as files.
            part = ids[start : start + _SCOPES_AT_ONCE]
            [[rows]] = await self._gateway.read(
                partial(Transaction.values, statement=STATEMENTS["scopes_by_id"], ids=part)
            )
            found += map(to_found, rows)
        return found

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""

        async def work(tx: Transaction) -> list[CodeTurn]:
            [[found]] = await tx.values(
                STATEMENTS["code_turns"],
                scopeIds=sorted(set(query.scope_ids)),
                projectIds=await _family(tx, query.project_ids) if query.paths else [],
                paths=sorted(set(map(path_key, query.paths))),
                limit=max(0, query.limit),
            )
            return [
                CodeTurn(
                    turn_id=turn_id,
                    session_id=session_id,
                    turn_index=turn_index,
                    at=from_text(at),
                    hows=tuple(how for how in REFERENCE_HOWS if how in hows),
                    accesses=tuple(sorted(accesses)),
                )
                for turn_id, session_id, turn_index, at, hows, accesses in found
            ]

        return await self._gateway.read(work)

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first, then newest.

        Of turns that wrote to more than 50 files nothing is learned: they are left out.
        """

        async def work(tx: Transaction) -> list[ChangedTogether]:
            [[found]] = await tx.values(
                STATEMENTS["changed_with"],
                projectIds=await _family(tx, project_ids),
                path=path_key(path),
                most=MOST_CHANGED,
                limit=max(0, limit),
            )
            return [
                ChangedTogether(
                    path=other,
                    turn_count=turns,
                    session_count=sessions,
                    last_at=from_text(last),
                )
                for other, turns, sessions, last in found
            ]

        return await self._gateway.read(work)

    async def references_of(self, turn_ids: Sequence[str]) -> list[PutReferences]:
        """Of those of them that have some, in this order; the strongest references first."""
        [[found]] = await self._gateway.read(
            lambda tx: tx.values(STATEMENTS["references_of"], ids=sorted(set(turn_ids)))
        )
        held: dict[str, list[CodeReference]] = {}
        for turn_id, scope_id, how in found:
            held.setdefault(turn_id, []).append(CodeReference(scope_id=scope_id, how=how))
        return [
            PutReferences(turn_id=turn_id, references=tuple(sorted(held[turn_id], key=_strength)))
            for turn_id in map(clean, turn_ids)
            if turn_id in held
        ]

    async def code_projects(self) -> list[str]:
        """Every project whose files define scopes."""
        [[found]] = await self._gateway.read(lambda tx: tx.values(STATEMENTS["code_projects"]))
        return list(found)


def _strength(reference: CodeReference) -> tuple[int, str]:
    return REFERENCE_HOWS.index(reference.how), reference.scope_id


async def _scope_ids(tx: Transaction, query: ScopeQuery) -> list[str]:
    """Those that match, in order."""
    projects = await _family(tx, query.project_ids)
    conditions = ["s.projectId IN $projects" if projects else "s.projectId IS NOT NULL"]
    if query.path:
        conditions.append("s.path = $path")
    if query.defined is not None:
        conditions.append(f"{'' if query.defined else 'NOT '}EXISTS {{ (s)<-[:DEFINES]-(:File) }}")
    which = STATEMENTS["scopes_by_name" if query.name else "scopes_by_place"]
    which = which.replace("/* conditions */", "".join(f" AND {each}" for each in conditions))
    [[found]] = await tx.values(
        STATEMENTS["find_scopes"].replace("/* which */", which),
        projects=projects,
        path=path_key(query.path),
        nameKey=title_key(query.name),
        tailKey=tail_key(query.name),
        qualifiedKey=qualified_key(query.name),
        limit=max(0, query.limit),
    )
    return list(map(str, found))


async def _family(tx: Transaction, project_ids: Sequence[str]) -> list[str]:
    """These projects with all that were joined to the same; none for none."""
    if not project_ids:
        return []
    found = await tx.found(STATEMENTS["family"], projectIds=sorted(set(project_ids)))
    return list(map(str, found))
