"""Scopes as properties of nodes, and back from the texts that code.cypher gives."""

from ragmem.records import CodeFile, CodeScope
from ragmem.store.code import FoundScope
from ragmem.store.neo4j.gateway import Value
from ragmem.store.neo4j.shapes import title_key
from ragmem.text import clean


def qualified_key(name: str) -> str:
    """What a qualified name is compared by."""
    return clean(name).casefold()


def tail_key(name: str) -> str:
    """What stands after the last dot of a name: what its scopes are looked up by."""
    return title_key(qualified_key(name).rpartition(".")[2])


def scope_row(scope: CodeScope) -> list[Value]:
    """A scope as `put_scopes` takes it."""
    return [
        scope.scope_id,
        scope.kind,
        scope.name,
        scope.qualified_name,
        scope.signature,
        scope.docstring,
        scope.start_line,
        scope.end_line,
        scope.hash,
        title_key(scope.name),
        qualified_key(scope.qualified_name),
        tail_key(scope.qualified_name),
    ]


def to_scope(text: str) -> CodeScope:
    """From its fields, parted by NUL."""
    scope_id, kind, name, qualified_name, signature, docstring, first, last, digest = text.split(
        "\0"
    )
    return CodeScope(
        scope_id=scope_id,
        kind=kind,  # type: ignore[arg-type]
        name=name,
        qualified_name=qualified_name,
        signature=signature,
        docstring=docstring,
        start_line=int(first),
        end_line=int(last),
        hash=digest,
    )


def to_file(project_id: str, columns: tuple[str, str, str, list[str], list[str]]) -> CodeFile:
    """From a row of `code_files`."""
    path, language, digest, scopes, imports = columns
    return CodeFile(
        project_id=project_id,
        path=path,
        language=language,
        hash=digest,
        scopes=tuple(map(to_scope, scopes)),
        imports=tuple(imports),
    )


def to_found(columns: tuple[str, str, bool, str]) -> FoundScope:
    """From a row of `find_scopes`."""
    project_id, path, defined, text = columns
    return FoundScope(project_id=project_id, path=path, defined=defined, scope=to_scope(text))
