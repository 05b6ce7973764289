"""Files, their scopes, and what turns have to do with them, written inside a transaction.

Who changes a project's code holds its CodeProject (`lock_code`): what is read of scopes from there
on is the latest. It is taken before the sessions, so that none of them is held while it is waited
for: files may come in for a minute.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ragmem.records import REFERENCE_HOWS, CodeFile, DropCodeFiles, PutReferences, ReferenceHow
from ragmem.store.neo4j.code_shapes import scope_row
from ragmem.store.neo4j.cypher import named_statements
from ragmem.store.neo4j.gateway import Transaction
from ragmem.store.neo4j.remembering import STATEMENTS as MEMORIES
from ragmem.store.neo4j.shapes import Properties, path_key
from ragmem.text import clean

STATEMENTS = named_statements("code.cypher")


async def put_files(tx: Transaction, puts: Sequence[CodeFile]) -> None:
    """Files as they are now, one after the other; what they lost goes."""
    last: dict[tuple[str, str], CodeFile] = {}
    for file in puts:
        last.pop(_key(file), None)
        last[_key(file)] = file
    await _lock(tx, {project_id for project_id, _ in last})
    # Of two files that define a scope, it is the later one's.
    owners = {clean(scope.scope_id): key for key, file in last.items() for scope in file.scopes}
    # By path, as tool calls lock the files that they touched.
    files = [_file_row(key, last[key], owners) for key in sorted(last)]
    places: list[Properties] = [_without(row, "scopes") for row in files]
    # What takes longest first: who touches one of the files waits for the rest.
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
        "scopes": [scope_row(scope) for _, scope in own.values()],
        "imports": list(dict.fromkeys(map(path_key, file.imports))),
    }


def _without(row: Properties, name: str) -> Properties:
    return {key: value for key, value in row.items() if key != name}


async def drop_files(tx: Transaction, writes: Sequence[DropCodeFiles]) -> None:
    """Files that are no more, with what only they held."""
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
    """What turns have to do with code; of each turn the last counts."""
    last = {clean(write.turn_id): write for write in writes}
    turn_ids = sorted(last)
    rows: list[Properties] = [
        {"turnId": turn_id, "scopeId": scope_id, "how": how}
        for turn_id in turn_ids
        for scope_id, how in _strongest(last[turn_id]).items()
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


def _strongest(write: PutReferences) -> Mapping[str, ReferenceHow]:
    ranked = sorted(write.references, key=lambda each: -REFERENCE_HOWS.index(each.how))
    return {clean(each.scope_id): each.how for each in ranked}


async def hold_scopes_of(tx: Transaction, session_id: str) -> list[str]:
    """The scopes that a session's turns have to do with; nobody else changes them meanwhile."""
    found = await tx.found(STATEMENTS["scopes_of_session"], sessionId=session_id)
    await _lock(tx, {project_id for _, project_id in found})
    return [scope_id for scope_id, _ in found]


async def forget_scopes(tx: Transaction, scope_ids: Sequence[str]) -> None:
    """Those of them that no file defines and no turn has to do with."""
    await tx.run(STATEMENTS["forget_scopes"], ids=sorted(scope_ids))


async def _lock(tx: Transaction, project_ids: Iterable[str]) -> None:
    if ids := sorted(set(project_ids)):
        await tx.run(STATEMENTS["lock_code"], ids=ids)
