"""The tour of the code: what it names is there, and its recipes name what they take."""

import re
from pathlib import Path
from typing import get_origin

from msgspec.structs import fields

from ragmem.records.writes import OF_SESSIONS
from ragmem.store.neo4j import shapes
from ragmem.store.sqlite.connection import stored_fields
from ragmem.store.transfer.document import SessionDocument

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
_A_FILE = re.compile(r"`((?:ragmem|tests|scripts)/[\w./-]*)[` ]")


def recipe(name: str) -> set[str]:
    """The files that a recipe names."""
    text = PAGE.split(f"### {name}\n")[1].split("\n### ")[0]
    return set(_A_FILE.findall(text))


def holding(word: str) -> set[str]:
    """The files of the product that hold a word."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ragmem").rglob("*")
        if path.suffix in {".py", ".sql", ".cypher"} and word in path.read_text("utf-8")
    }


def test_every_file_that_a_page_names_is_there() -> None:
    assert len(set(_A_FILE.findall(PAGE))) > 40
    named = [
        (page.name, name)
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in _A_FILE.findall(page.read_text("utf-8"))
    ]
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_every_room_is_in_the_drawing() -> None:
    drawing = PAGE.split("```")[1]
    rooms = [path.parent.name for path in (ROOT / "ragmem").glob("*/__init__.py")]
    assert [room for room in rooms if f"ragmem/{room}/" not in drawing] == []


def test_the_recipe_of_a_record_names_every_file_that_puts_or_holds_one() -> None:
    """All that knows the `Write` of an insight, but what shares it out by its name alone."""
    by_name = {"ragmem/records/__init__.py", "ragmem/memory/titles.py"}
    assert holding("PutInsight") - by_name <= recipe("A kind of record")


def test_a_record_of_a_session_has_fields_that_both_stores_keep() -> None:
    """Others would be left out without a word, and so would a kind that documents lack."""
    for kind in OF_SESSIONS:
        record = kind.record
        assert [f.name for f in shapes._fields(record) if not f.kind and not f.part] == []
        assert [f.name for f in fields(record)] == list(stored_fields(record))
        kept_as_json = [f.name for f in fields(record) if get_origin(f.type) in (dict, list, set)]
        assert kept_as_json == []
        assert kind.table in SessionDocument.__struct_fields__


def test_the_recipe_of_a_tool_names_where_the_tools_are_put_together() -> None:
    assert holding("CreateFile(") <= recipe("A tool")


def test_the_recipe_of_a_provider_names_the_table() -> None:
    assert holding('"mistral",') <= recipe("A provider")
