"""Code for the store's tests: scopes, files, and turns that have to do with them."""

from typing import Any

import msgspec

from ragmem.records import (
    AccessType,
    CodeFile,
    CodeReference,
    CodeScope,
    FileAccess as Access,
    PutCodeFile,
    PutReferences,
    RecordToolCall,
    ReferenceHow,
    ScopeQuery,
    Write,
)
from ragmem.store import Store
from tests.store.samples import at, called, created, whole_turn

GARDEN, KITCHEN, SHED = "project-garden", "project-kitchen", "project-shed"
ALL_SCOPES = ScopeQuery(limit=2**31 - 1)


def a_scope(scope_id: str, called: str | None = None, line: int = 1, **more: Any) -> CodeScope:
    """A function of five lines; `called` with what it is in."""
    name = scope_id if called is None else called
    fields: dict[str, Any] = {
        "kind": "function",
        "name": name.rpartition(".")[2],
        "qualified_name": name,
        "signature": f"def {name}(bed):",
        "docstring": "Water it.",
        "end_line": line + 4,
        "hash": f"hash of {scope_id}",
    }
    return CodeScope(scope_id=scope_id, start_line=line, **fields | more)


def put(path: str, *scopes: CodeScope | str, project_id: str = GARDEN, **more: Any) -> PutCodeFile:
    """A file is so from now on; a scope of a mere name has that id and name."""
    fields: dict[str, Any] = {"language": "python", "hash": f"hash of {path}"}
    whole = tuple(a_scope(each) if isinstance(each, str) else each for each in scopes)
    return PutCodeFile(
        file=CodeFile(project_id=project_id, path=path, scopes=whole, **fields | more)
    )


def refers(turn_id: str, **hows: ReferenceHow) -> PutReferences:
    """What the turn has to do with code: how with each scope."""
    references = tuple(CodeReference(scope_id=each, how=how) for each, how in hows.items())
    return PutReferences(turn_id=turn_id, references=references)


def touched(session_id: str, turn_id: str, access: AccessType, *paths: str) -> RecordToolCall:
    """A call that accessed these files."""
    write = called(session_id, turn_id, 0, tool_name=access)
    accesses = tuple(
        Access(path=path, tool_name=access, access_type=access, accessed_at=write.call.started_at)
        for path in paths
    )
    return msgspec.structs.replace(write, accesses=accesses)


def conversation(*turns: str, session_id: str = "s", **more: Any) -> list[Write]:
    """A session of the garden with these turns, a minute each."""
    writes: list[Write] = [created(session_id, **more)]
    for minute, turn_id in enumerate(turns):
        writes += whole_turn(session_id, turn_id, f"{turn_id}?", started_at=at(minute))
    return writes


async def code_seen(store: Store, *turn_ids: str) -> dict[str, object]:
    """All that is known of code, to be compared as one value."""
    found = await store.find_scopes(ALL_SCOPES)
    projects = sorted({each.project_id for each in found} | {GARDEN, KITCHEN, SHED})
    return {
        "files": [await store.code_files(each) for each in projects],
        "scopes": found,
        "references": await store.get(PutReferences, turn_ids),
        "count": (await store.info()).counts["scopes"],
    }


async def scopes_there(store: Store) -> dict[str, str]:
    """Scopes by id: where each is, in brackets where it was last."""
    return {
        each.scope.scope_id: each.path if each.defined else f"({each.path})"
        for each in await store.find_scopes(ALL_SCOPES)
    }
