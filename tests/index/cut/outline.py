"""What a file is cut into, as tests compare it, and what holds for every file."""

import re
from collections.abc import Iterator
from textwrap import dedent, wrap

from ragmem.index import Cut
from ragmem.index.cut import cut

Row = tuple[str, str, str, str, str, tuple[str, ...]]


def outline(path: str, text: str) -> list[Row]:
    """Kind, qualified name, lines, signature, docstring and calls of each scope."""
    data = dedent(text).lstrip("\n").encode()
    made = cut(path, data)
    check(made, data)
    return [
        (
            scope.kind,
            scope.qualified_name,
            f"{scope.start_line}-{scope.end_line}",
            scope.signature,
            scope.docstring,
            scope.calls,
        )
        for scope in made.scopes
    ]


def drawn(path: str, text: str) -> str:
    """The same as text: `1-9 class Name: signature`, below it `| docstring` and `> calls`."""
    lines: list[str] = []
    for kind, name, rows, signature, docstring, calls in outline(path, text):
        head = f"{rows} {kind} {name}:"
        if len(head) + len(signature) < 98:
            lines.append(f"{head} {signature}")
        else:
            lines += [head, *wrap(signature, 98, initial_indent="  ", subsequent_indent="  ")]
        lines += [f"  | {line}".rstrip() for line in docstring.split("\n") if docstring]
        lines += wrap(", ".join(calls), 98, initial_indent="  > ", subsequent_indent="  > ")
    return "\n".join(lines)


def lines_of(data: bytes) -> list[str]:
    """The lines as every other tool counts them, by line feeds."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\0", " ").split("\n")
    return lines if lines[-1] else lines[:-1]


def check(made: Cut, data: bytes) -> None:
    """What is promised of every cut, whatever the bytes."""
    lines = lines_of(data)
    assert made.line_count == len(lines)
    covered = set()
    for scope in made.scopes:
        assert 1 <= scope.start_line <= scope.end_line <= len(lines)
        covered.update(range(scope.start_line, scope.end_line + 1))
        assert scope.text.strip()
        assert re.fullmatch("[0-9a-f]{32}", scope.hash)
        assert len(scope.signature) <= 300
        assert len(scope.docstring) <= 500
        assert "\n" not in scope.signature + scope.name + scope.qualified_name
    bare = {row for row, line in enumerate(lines, 1) if line.strip()}
    assert bare <= covered
    keys = [(scope.kind, scope.qualified_name) for scope in made.scopes]
    assert len(keys) == len(set(keys))
    assert list(made.scopes) == sorted(made.scopes, key=lambda s: (s.start_line, -s.end_line))
    assert all(name and len(name) <= 300 for name in made.imports)


def texts(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The qualified name and the text of each scope."""
    for scope in cut(path, dedent(text).lstrip("\n").encode()).scopes:
        yield scope.qualified_name, scope.text
