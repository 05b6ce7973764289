"""By what a scope is known again: its text, whatever it is called."""

from textwrap import dedent

import pytest

from ragmem.index.cut import cut


def hashes(path: str, text: str) -> dict[str, str]:
    made = cut(path, dedent(text).lstrip("\n").encode())
    return {scope.qualified_name: scope.hash for scope in made.scopes}


@pytest.mark.parametrize(
    ("path", "text", "name", "renamed"),
    [
        ("a.py", "@cached\ndef walk(x):\n    return walk(x - 1)\n", "walk", "stride"),
        ("a.py", "async def walk(walk_on: int) -> None: ...\n", "walk(", "stride("),
        ("a.py", "# Limit.\nLIMIT = 3\n", "LIMIT", "MOST"),
        ("a.py", "class Bed:\n    def sow(self) -> 'Bed':\n        return 1\n", "Bed", "Patch"),
        ("a.py", "class A:\n    def go(self):\n        self.go()\n", "go", "run"),
        ("a.js", "export const walk = async (x) => {\n  walk(x);\n};\n", "walk", "stride"),
        ("a.js", "exports.walk = function (x) {\n  return x;\n};\n", "walk", "stride"),
        ("a.ts", "interface Bed {\n  next: Bed;\n}\n", "Bed", "Patch"),
        ("a.go", "// Walk walks.\nfunc Walk(x int) {\n\tWalk(x)\n}\n", "Walk", "Stride"),
        ("a.go", "// Walk walks.\nfunc Walk(x int) {\n\tWalk(x)\n}\n", "Walk(", "Stride("),
        ("a.rs", "fn walk(x: i8) {\n    Self::walk(x);\n}\n", "walk", "stride"),
        ("A.java", "class Bed {\n  Bed(int x) {\n    y = x;\n  }\n}\n", "Bed", "Patch"),
        ("a.cpp", "int Bed::sow(int x) {\n  return sow(x);\n}\n", "sow", "plant"),
        ("a.c", "struct bed {\n  struct bed *next;\n};\n", "bed", "patch"),
        ("a.rb", "def ripe?\n  colour\nend\n", "ripe?", "ready?"),
        ("a.sh", "walk() {\n  echo on\n}\n", "walk", "stride"),
        ("a.md", "# Garden\n\nHow to grow.\n", "Garden", "The beds"),
        ("a.md", "Garden\n======\n\nHow to grow.\n", "Garden\n======", "Beds\n===="),
        ("a.rst", "=====\nGrass\n=====\n\nGrow.\n", "=====\nGrass\n=====", "====\nBeds\n===="),
    ],
)  # fmt: skip
def test_a_name_is_no_part_of_it(path: str, text: str, name: str, renamed: str) -> None:
    before, after = hashes(path, text), hashes(path, text.replace(name, renamed))
    both = list(zip(before, after, strict=True))
    other = [(a, b) for a, b in both if a.rpartition(".")[2] != b.rpartition(".")[2]]
    assert other
    assert [before[a] for a, _ in other] == [after[b] for _, b in other]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def close(self):\n    self.file.close()\n", "def close(self):\n    self.file.shut()\n"),
        ("def f(x):\n    return x\n", "def f(y):\n    return y\n"),
        ("def token():\n    token = 1\n", "def token():\n    other = 1\n"),
        ("# About f.\ndef f(): ...\n", "# About g.\ndef f(): ...\n"),
        ("class A:\n    def f(self): ...\n", "class A:\n    def g(self): ...\n"),
        ("LIMIT = 3\n", "LIMIT = 4\n"),
    ],
)
def test_everything_else_is(one: str, other: str) -> None:
    assert next(iter(hashes("a.py", one).values())) != next(iter(hashes("a.py", other).values()))


def test_a_thing_of_that_name_stays_in_it() -> None:
    before = hashes("a.py", "def close(self):\n    self.file.close()\n")
    after = hashes("a.py", "def shut(self):\n    self.file.close()\n")
    assert before["close"] == after["shut"]


def test_characters_of_several_bytes_before_the_name() -> None:
    before = hashes("a.js", "/* Größe – 漢字 */ function walk(x) {\n  return x;\n}\n")
    after = hashes("a.js", "/* Größe – 漢字 */ function stride(x) {\n  return x;\n}\n")
    assert before["walk"] == after["stride"]
