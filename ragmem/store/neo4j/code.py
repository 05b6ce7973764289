"""The store's part for code: see `ragmem.store` for what each of these guarantees."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ragmem import store
from ragmem.records import (
    MOST_CHANGED,
    REFERENCE_HOWS,
    ChangedTogether,
    CodeFile,
    CodeScope,
    CodeTurn,
    DropCodeFiles,
    FoundScope,
    PutReferences,
    ScopeQuery,
    TurnsQuery,
)
from ragmem.store import batches, join_conditions, strongest
from ragmem.store.neo4j.gateway import Gateway, Transaction, Value, from_text, named_statements
from ragmem.store.neo4j.memories import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties, path_key, title_key
from ragmem.text import clean


def qualified_key(name: str) -> str:
    """Return the key a qualified name is compared by."""
    return clean(name).casefold()


def tail_key(name: str) -> str:
    """Return the last dotted part of a name as a key, by which scopes are looked up."""
    return title_key(qualified_key(name).rpartition(".")[2])


def to_scope(text: str) -> CodeScope:
    """Return the scope of its fields, in order and separated by NUL."""
    held: dict[str, Any] = dict(zip(CodeScope.__struct_fields__, text.split("\0"), strict=True))
    held |= {name: int(held[name]) for name in ("start_line", "end_line")}
    return CodeScope(**held)


STATEMENTS = named_statements("code.cypher")


async def put_files(tx: Transaction, puts: Sequence[CodeFile]) -> None:
    """Put files as they are now, one after the other, and delete the scopes that they lost."""
    last: dict[tuple[str, str], CodeFile] = {}
    for file in puts:
        last.pop(_key(file), None)
        last[_key(file)] = file
    await _lock(tx, {project_id for project_id, _ in last})
    # If two files define a scope, it belongs to the later one.
    owners = {clean(scope.scope_id): key for key, file in last.items() for scope in file.scopes}
    # Sorted by path, as tool calls lock the files that they touch.
    files = [_file_row(key, last[key], owners) for key in sorted(last)]
    places: list[Properties] = [
        {name: value for name, value in row.items() if name != "scopes"} for row in files
    ]
    # The slowest statement first: it does not lock the files yet, which others wait for.
    await tx.run(STATEMENTS["put_scopes"], files=files)
    await tx.run(STATEMENTS["put_files"], files=places)
    lost = await tx.found(STATEMENTS["let_scopes_go"], files=places)
    unimported = await tx.found(STATEMENTS["let_imports_go"], files=places)
    await tx.run(STATEMENTS["define_scopes"], files=places)
    await tx.run(STATEMENTS["put_imports"], files=places)
    await forget_scopes(tx, lost)
    await tx.run(STATEMENTS["forget_files"], files=sorted(unimported))


def _key(file: CodeFile) -> tuple[str, str]:
    return clean(file.project_id), path_key(file.path)


def _file_row(
    key: tuple[str, str], file: CodeFile, owners: Mapping[str, tuple[str, str]]
) -> Properties:
    own = {
        scope_id: (order, scope)
        for order, scope in enumerate(file.scopes)
        if owners[scope_id := clean(scope.scope_id)] == key
    }
    return {
        "projectId": key[0],
        "path": key[1],
        "language": file.language,
        "hash": file.hash,
        "scopeIds": list(own),
        "orders": [order for order, _ in own.values()],
        "scopes": [
            [
                *msgspec.structs.astuple(scope),
                title_key(scope.name),
                qualified_key(scope.qualified_name),
                tail_key(scope.qualified_name),
            ]
            for _, scope in own.values()
        ],
        "imports": list(dict.fromkeys(map(path_key, file.imports))),
    }


async def drop_files(tx: Transaction, writes: Sequence[DropCodeFiles]) -> None:
    """Delete files that no longer exist, and scopes of theirs that no turn refers to."""
    keys = sorted(
        {(clean(write.project_id), path_key(path)) for write in writes for path in write.paths}
    )
    await _lock(tx, {project_id for project_id, _ in keys})
    bare: list[Properties] = [
        {"projectId": project_id, "path": path, "scopeIds": [], "imports": []}
        for project_id, path in keys
    ]
    lost = await tx.found(STATEMENTS["let_scopes_go"], files=bare)
    unimported = await tx.found(STATEMENTS["let_imports_go"], files=bare)
    await tx.run(STATEMENTS["drop_files"], files=keys)
    await forget_scopes(tx, lost)
    await tx.run(STATEMENTS["forget_files"], files=[*keys, *sorted(unimported)])


async def put_references(
    tx: Transaction,
    writes: Sequence[PutReferences],
    lock_sessions: Callable[[set[str]], Awaitable[object]],
) -> None:
    """Put the references of turns to code; of several for one turn the last one counts."""
    last = {clean(write.turn_id): write for write in writes}
    turn_ids = sorted(last)
    rows: list[Properties] = [
        {"turnId": turn_id, "scopeId": scope_id, "how": how}
        for turn_id in turn_ids
        for scope_id, how in strongest(last[turn_id].references).items()
    ]
    scope_ids = sorted({str(row["scopeId"]) for row in rows})
    projects = await tx.found(STATEMENTS["projects_of_scopes"], ids=scope_ids, turnIds=turn_ids)
    await _lock(tx, projects)
    homes = await tx.found(MEMORIES["sessions_of_turns"], ids=turn_ids)
    await lock_sessions({home for _, home in homes})
    before = await tx.found(STATEMENTS["forget_references"], turnIds=turn_ids)
    await tx.run(STATEMENTS["put_references"], references=rows)
    await tx.run(STATEMENTS["references_are_known"], turnIds=turn_ids)
    await forget_scopes(tx, before)


async def hold_scopes_of(tx: Transaction, session_id: str) -> list[str]:
    """Return the scopes that a session's turns refer to, locked against changes by others."""
    found = await tx.found(STATEMENTS["scopes_of_session"], sessionId=session_id)
    await _lock(tx, {project_id for _, project_id in found})
    return [scope_id for scope_id, _ in found]


async def forget_scopes(tx: Transaction, scope_ids: Sequence[str]) -> None:
    """Delete those of the scopes that no file defines and no turn refers to."""
    await tx.run(STATEMENTS["forget_scopes"], ids=sorted(scope_ids))


async def _lock(tx: Transaction, project_ids: Iterable[str]) -> None:
    if ids := sorted(set(project_ids)):
        await tx.run(STATEMENTS["lock_code"], ids=ids)


_FILES_AT_ONCE = 500
_SCOPES_AT_ONCE = 5_000


async def code_files(
    gateway: Gateway, project_id: str, paths: Sequence[str] = ()
) -> list[CodeFile]:
    """Return the files with these paths, or all, that define scopes, with those; by path.

    In several reads: all files of a large project would take longer than the deadline.
    """
    files: list[CodeFile] = []
    if paths:
        keys = sorted(set(map(path_key, paths)))
        for part in batches(keys, _FILES_AT_ONCE):
            files += await _files(gateway, "files_of_paths", project_id, paths=part)
        return files
    after = ""
    while True:
        found = await _files(gateway, "files_after", project_id, after=after, limit=_FILES_AT_ONCE)
        files += found
        if len(found) < _FILES_AT_ONCE:
            return files
        after = found[-1].path


async def _files(gateway: Gateway, which: str, project_id: str, **given: Value) -> list[CodeFile]:
    statement = STATEMENTS["code_files"].replace("/* which */", STATEMENTS[which])
    [[found]] = await gateway.read(lambda tx: tx.values(statement, projectId=project_id, **given))
    return [
        CodeFile(
            project_id=clean(project_id),
            path=path,
            language=language,
            hash=digest,
            scopes=tuple(map(to_scope, scopes)),
            imports=tuple(imports),
        )
        for path, language, digest, scopes, imports in found
    ]


async def find_scopes(gateway: Gateway, query: ScopeQuery) -> list[FoundScope]:
    """Find the scopes that match, including those no file defines any more; in several reads."""
    ids = await gateway.read(lambda tx: _scope_ids(tx, query))
    found: list[FoundScope] = []
    for part in batches(ids, _SCOPES_AT_ONCE):
        [[rows]] = await gateway.read(
            partial(Transaction.values, statement=STATEMENTS["scopes_by_id"], ids=part)
        )
        found += [
            FoundScope(project_id=project_id, path=path, defined=defined, scope=to_scope(text))
            for project_id, path, defined, text in rows
        ]
    return found


async def code_turns(tx: Transaction, query: TurnsQuery) -> list[CodeTurn]:
    """Return turns, newest first; each once, with all its relations to what was asked for."""
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


async def changed_with(
    tx: Transaction, project_ids: Sequence[str], path: str, *, limit: int = 20
) -> list[ChangedTogether]:
    """Return other files written to in turns that wrote to this one; those with most first."""
    [[found]] = await tx.values(
        STATEMENTS["changed_with"],
        projectIds=await _family(tx, project_ids),
        path=path_key(path),
        most=MOST_CHANGED,
        limit=max(0, limit),
    )
    return [
        ChangedTogether(path=other, turn_count=turns, session_count=sessions, last_at=from_text(at))
        for other, turns, sessions, at in found
    ]


async def references_of(tx: Transaction, ids: Sequence[str]) -> list[PutReferences]:
    """Return references of those turns that have some, in this order; the strongest first."""
    order = [clean(each) for each in dict.fromkeys(ids)]
    [[found]] = await tx.values(STATEMENTS["references_of"], ids=order)
    return store.references_of(found)


async def code_projects(tx: Transaction) -> list[str]:
    """Return every project whose files define scopes."""
    [[found]] = await tx.values(STATEMENTS["code_projects"])
    return list(found)


async def _scope_ids(tx: Transaction, query: ScopeQuery) -> list[str]:
    """Return the ids of the scopes that match, in order."""
    projects = await _family(tx, query.project_ids)
    conditions = join_conditions(
        (True, "s.projectId IN $projects" if projects else "s.projectId IS NOT NULL"),
        (query.path, "s.path = $path"),
        (query.defined is not None, "EXISTS { (s)<-[:DEFINES]-(:File) } = $defined"),
    )
    which = STATEMENTS["scopes_by_name" if query.name else "scopes_by_place"]
    which = which.replace("/* conditions */", f" AND {conditions}")
    [[found]] = await tx.values(
        STATEMENTS["find_scopes"].replace("/* which */", which),
        projects=projects,
        path=path_key(query.path),
        defined=query.defined,
        nameKey=title_key(query.name),
        tailKey=tail_key(query.name),
        qualifiedKey=qualified_key(query.name),
        limit=max(0, query.limit),
    )
    return list(map(str, found))


async def _family(tx: Transaction, project_ids: Sequence[str]) -> list[str]:
    """Return these projects with all that are joined to the same ones; none for none."""
    if not project_ids:
        return []
    found = await tx.found(STATEMENTS["family"], projectIds=sorted(set(project_ids)))
    return list(map(str, found))
