"""Whatever the bytes: never an error, every line in a scope, in bounded time."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ragmem.index.cut import cut
from ragmem.index.cut.parser import GRAMMARS
from tests.index.cut.outline import check

SOURCES = {
    "a.py": '"""Doc."""\nimport a\nX = 1\n"""x"""\n@d\nclass A(B):\n    """D."""\n    # c\n'
    "    def f(self, x=(1,)):\n        '''s'''\n        return g(x)\n\nif a:\n    b()\n",
    "a.js": "/** D. */\nexport const f = (x) => { g(x) }\nclass A { m() { } p = () => {} }\n"
    "describe('a', () => { it(`b`, function () { c() }) })\nmodule.exports = { a() {} }\n",
    "a.ts": "@D()\nexport abstract class A<T> { @M() f(x: T): void { g() } }\n"
    "namespace N.M { export const x = 1 }\nfunction over(a: string): void\ntype T = {}\n",
    "a.tsx": "export default function App() { return <A b={() => c()}>x</A> }\n",
    "a.go": 'package a\nimport "b"\n// C.\nfunc (s *S[T]) F(x int) error { return g(x) }\n'
    "type (\n  // D.\n  S struct{ a int }\n)\nconst (\n  A = iota\n  B\n)\n",
    "a.rs": "//! D\nuse a::{b, c::{d}};\n#[x(\n)]\nimpl<T> A for B<T> { fn f(&self) { g!(h()) } }\n"
    "mod m { struct S; }\nmacro_rules! z { () => {} }\n",
    "A.java": "package a;\n/** D */\n@X class A { @O void f() { g(); }\n"
    "enum E { B { void h() {} } } }\n",
    "a.c": '#include "b.h"\n#define M(x) \\\n  f(x)\ntypedef struct s { int a; } t;\n'
    "int *f(int x)\n{ return g(x); }\n#ifdef A\nstatic int X[] = { 1 };\n#endif\n",
    "a.cpp": "namespace a::b {\ntemplate <class T> class C : D { T f() { return g<T>(); } };\n"
    "template <> int C<int>::h() { return 1; }\n}\n",
    "a.cs": "namespace A;\n[X]\npublic class B { int P {\n get { f(); }\n set {}\n}\n"
    "void M() => g(); }\n",
    "a.rb": "module A::B\n  # D\n  class C < D\n    def self.f; g(1); end\n  end\nend\n"
    "describe 'x' do\n  it 'y' do\n  end\nend\n",
    "a.php": "<?php\nnamespace A\\B;\n#[X]\nclass C { /** d */ function f() { g(); } }\n?>\n<p>\n",
    "a.sh": "#!/bin/sh\nX=1\n# D\nf() {\n  g \"$(h)\"\n}\ncat <<E\ntext\nE\n",
    "a.md": "---\na: b\n---\nText\n# A\n## B `c.d()`\n```\n# no\n```\nE\n===\n",
    "a.rst": "===\nT\n===\n\nA\n--\n\ntext\n\nB\n--\n",
    "a.json": '{\n  "a": 1,\n  "b": {\n    "c": 2\n  }\n}\n',
    "a.yaml": "a: 1\nb:\n  - c\n# d\n'e f': g\n",
    "a.toml": "a = 1\n[b]\nc = 2\n[[d.e]]\n",
    "a.txt": "some text\n\nmore\n",
}  # fmt: skip
PATHS = st.sampled_from(sorted(SOURCES))
BITS = (
    st.sampled_from(
        [
            *"{}()[]<>;:,.=#/'\"`\\@é漢🎉\u2028\ufeff",
            *("=>", "//", "/*", "*/", '"""', "->", "${", "$(", "```", "===", "---"),
            *("describe(", "namespace::", "class ", "def ", "fn ", "impl ", "end"),
            *(" ", "\t", "\n", "\n\n", "\r", "\r\n", "\f", "\0", "    ", "\n    "),
        ]
    ).map(str.encode)
    | st.binary(max_size=4)
    | st.sampled_from(sorted(SOURCES)).map(lambda path: SOURCES[path].encode())
)
MANY = settings(max_examples=2 * settings().max_examples)


@given(PATHS | st.text(max_size=20), st.binary(max_size=400))
def test_any_bytes(path: str, data: bytes) -> None:
    check(cut(path, data), data)


@MANY
@given(
    PATHS,
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30), BITS), max_size=6),
    st.booleans(),
)
def test_mutated_sources(path: str, edits: list[tuple[int, int, bytes]], of_windows: bool) -> None:
    """With other files within them too, as conflicts and templates leave them."""
    data = SOURCES[path].encode()
    for place, taken, put in edits:
        place %= len(data) + 1
        data = data[:place] + put + data[place + taken :]
    if of_windows:
        data = data.replace(b"\n", b"\r\n")
    check(cut(path, data), data)


@pytest.mark.parametrize("path", sorted(SOURCES))
def test_sources_are_cut_by_their_parser(path: str) -> None:
    """What the mutations start from is read as its language, under any line end and encoding."""
    data = SOURCES[path].encode()
    made = cut(path, data)
    check(made, data)
    if made.language in GRAMMARS:
        assert any(scope.name and scope.kind != "block" for scope in made.scopes)
        assert not any(scope.kind == "text" for scope in made.scopes)
    for other in (
        b"\xef\xbb\xbf" + data,
        data.replace(b"\n", b"\r\n"),
        b"\xff\xfe" + SOURCES[path].encode("utf-16-le"),
    ):
        assert cut(path, other) == made


def test_each_parser_has_a_source_and_queries_without_predicates() -> None:
    """The binding would read the file anew for them, through memory that is given back by then."""
    queries = [
        path for path in resources.files("ragmem.index.cut").iterdir() if path.name.endswith(".scm")
    ]
    assert len(queries) == len(GRAMMARS)
    assert {cut(path, SOURCES[path].encode()).language for path in SOURCES} >= set(GRAMMARS)
    assert not any("(#" in path.read_text("utf-8") for path in queries)


def test_cutting_keeps_no_memory() -> None:
    """The binding never gives back what a parser has read: a file's bytes for each of them."""
    text = random.Random(1).randbytes(40_000).hex()
    rows = (f'row = "{text[place : place + 400]}"\n' for place in range(0, len(text), 400))
    data = (SOURCES["a.py"] + "".join(rows)).encode()
    for _ in range(10):
        cut("a.py", data)
    before = resident()
    for _ in range(60):
        assert len(cut("a.py", data).scopes) > 3
    assert resident() - before < 2_000_000  # 5.5 MB where they stay


def test_a_pause_does_not_count_as_parsing() -> None:
    """Collecting garbage takes the time of who triggers it: half a second in a large process."""
    pauses: list[str] = []

    def pause(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "read" and not pauses:
            pauses.append(frame.f_code.co_filename)
            end = time.thread_time() + 0.6
            while time.thread_time() < end:
                pass

    sys.setprofile(pause)
    try:
        found = cut("a.cs", SOURCES["a.cs"].encode())
    finally:
        sys.setprofile(None)
    assert len(pauses) == 1
    assert not any(scope.kind == "text" for scope in found.scopes)


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_invalid_utf8_and_nuls() -> None:
    data = b"# \xff\xfe\0\ndef caf\xc3\xa9(x):\n    '\xe9\0'\n    return h\xc3\xa9(x)\n\n"
    data += b"class B:\n    pass\n"
    made = cut("a.py", data)
    check(made, data)
    assert [scope.qualified_name for scope in made.scopes] == ["café", "B"]
    assert made.scopes[0].calls == ("hé",)
    assert not any("\0" in scope.text for scope in made.scopes)


BAD: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a megabyte on one line": ("a.py a.json a.txt", lambda: b"x = [" + b"1, " * 400_000 + b"]"),
    "a megabyte of lines": ("a.ts a.md", lambda: b"x = 1\n" * 200_000),
    "a megabyte of brackets": ("a.py a.go a.json", lambda: b"(" * 999_000),
    "brackets on lines": ("a.js a.rs", lambda: b"[\n" * 400_000),
    "open types": ("A.java a.cpp a.ts", lambda: b"a<\n" * 20_000),
    "arrows": ("A.java a.ts", lambda: b"a=>\n" * 20_000),
    "brackets after words": ("A.java a.cs a.rb", lambda: b"%w(" * 20_000),
    "open blocks": ("A.java a.cs", lambda: b"class A { void f() {\n" * 45_000),
    "functions in functions": (
        "a.py",
        lambda: b"".join(b" " * row + b"def f():\n" for row in range(1300)),
    ),
    "conditions": ("a.c a.php", lambda: b"if (x)\n" * 140_000),
    "quotes": ("a.py a.rb a.sh", lambda: b"\"'`" * 300_000),
    "an open string": ("a.py a.c", lambda: b'"' + b"\\\n" * 400_000),
    "comments": ("A.java", lambda: b"/*\n" * 300_000),
    "comment ends": (
        "a.ts",
        lambda: b"*/\n" * 300_000 + b"int f() { return 1; }\n",
    ),
    "headings": ("a.md", lambda: b"# a\n" * 20_000),
    "backticks": ("a.md", lambda: b"`" * 400_000),
    "rules": ("a.md a.rst", lambda: b"a\n---\n" * 20_000),
    "same names": ("a.py", lambda: b"def f(): g()\n" * 70_000),
    "decorators": ("a.py a.ts", lambda: b"@a\n" * 300_000),
    "white space": ("a.py a.txt", lambda: b" " * 500_000 + b"\n" * 400_000),
}


def bad_input() -> Iterator[Any]:
    """Each shape in the first of its languages; in the others under `--all`."""
    for name, (paths, made) in sorted(BAD.items()):
        first, *others = paths.split()
        yield pytest.param(first, made, id=f"{name} in {first}")
        for path in others:
            yield pytest.param(path, made, id=f"{name} in {path}", marks=pytest.mark.campaign)


@pytest.mark.parametrize(("path", "made"), list(bad_input()))
def test_bad_input(path: str, made: Callable[[], bytes]) -> None:
    """Long lines, deep nesting, what parsers need the square of time for: cut all the same."""
    data = made()
    found = cut(path, data)
    assert len(found.scopes) <= 4000
    check(found, data)
