"""Accessed files: extraction, one entry a path, the section."""

import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from ragmem.memory.turns import (
    extract_accessed_files,
    format_accessed_files,
    recently_accessed,
    shown_path,
    stored_path,
)
from ragmem.records import AccessType, FileAccess, ToolCall

from .builders import T0, a_call, access


def call(name: str, arguments: object = None, result: object = None, **other: object) -> ToolCall:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    told = result if isinstance(result, str) else json.dumps(result or {"text": "ok"})
    return a_call(tool_name=name, arguments=given, result=told, **other)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read_file", "read"), ("write_file", "write"), ("edit_file", "write"),
        ("create_file", "write"), ("list_directory", "list"), ("glob_files", "list"),
    ],
)  # fmt: skip
def test_path_argument_gives_the_file(name: str, kind: str) -> None:
    """The call's own time; one form of the path."""
    (found,) = extract_accessed_files(call(name, {"path": "./src/../a.py"}, order=3), turn_index=7)
    assert found == FileAccess(
        path="a.py", tool_name=name, access_type=kind, accessed_at=T0, turn_index=7, order=3
    )


@pytest.mark.parametrize("name", ["grep_files", "brain_search"])
@pytest.mark.parametrize(
    "result",
    [
        [{"file": "a.py", "path": "x"}, {"path": "b.py"}, {"line": 3}],
        {"files": [{"path": "a.py"}, {"path": "b.py"}]},
        {"matches": [{"file": "a.py"}, {"file": "b.py"}, {"file": "a.py"}]},
    ],
    ids=["list", "wrapped", "matches"],
)
def test_searches_give_the_files_of_their_results(name: str, result: object) -> None:
    found = extract_accessed_files(call(name, {"path": "ignored"}, result))
    assert [(f.path, f.access_type) for f in found] == [("a.py", "search"), ("b.py", "search")]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(call("read_file"), id="no path"),
        pytest.param(call("read_file", {"path": 3}), id="path of another type"),
        pytest.param(call("read_file", '{"path": "a'), id="truncated arguments"),
        pytest.param(call("grep_files", {}, '[{"file": "a'), id="truncated result"),
        pytest.param(call("grep_files", {}, "[" * 100_000), id="deep result"),
        pytest.param(call("grep_files", {}, {"text": "no list"}), id="not a list"),
        pytest.param(call("run_command", {"path": "a"}), id="other tools"),
        pytest.param(call("search_files", {}, [{"path": "a"}]), id="another's tool"),
        pytest.param(call("read_file", {"path": "a"}, success=False), id="failed"),
        pytest.param(a_call(tool_name="edit_file", result=""), id="still running"),
    ],
)
def test_what_touched_nothing_gives_nothing(odd: ToolCall) -> None:
    assert extract_accessed_files(odd) == []


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_extraction_never_raises(name: str, arguments: str, result: str) -> None:
    """Whatever was stored."""
    extract_accessed_files(call(name, arguments, result or "x"))
    extract_accessed_files(call("grep_files", arguments, result or "x"))


def test_paths_have_one_form(tmp_path: Path) -> None:
    """Relative to the project when stored, to the folder of the agent when shown."""
    cwd, project = tmp_path / "p" / "sub", tmp_path / "p"
    for given_path in ("a.py", "./a.py", "../sub/a.py", str(cwd / "a.py")):
        assert stored_path(given_path, cwd=cwd, project=project) == "sub/a.py"
    outside = str(tmp_path / "p-evil" / "x")
    assert stored_path(outside, cwd=cwd, project=project) == outside
    assert shown_path("sub/a.py", cwd=cwd, project=project) == "a.py"
    assert shown_path("b.py", cwd=cwd, project=project) == str(project / "b.py")
    assert shown_path(outside, cwd=cwd, project=project) == outside


def test_latest_access_of_a_path_counts() -> None:
    """Read in turn 1 and again in turn 5 is one entry, Turn 5, first."""
    found = recently_accessed([access("a", 1), access("b", 2), access("a", 5)])
    assert [(f.path, f.turn_index) for f in found] == [("a", 5), ("b", 2)]


def test_order_is_by_sequence_not_by_clock() -> None:
    """A clock that jumped back changes nothing."""
    late = msgspec.structs.replace(access("b", 9), accessed_at=T0 - timedelta(days=9))
    assert [f.path for f in recently_accessed([late, access("a", 8)])] == ["b", "a"]


def test_written_stays_modified() -> None:
    """A path written within the window stays under Modified whatever came later."""
    (found,) = recently_accessed([access("a", 1, "write"), access("a", 2)])
    assert (found.access_type, found.turn_index) == ("write", 1)
    (later,) = recently_accessed([access("a", 1), access("a", 2, "search")])
    assert later.access_type == "search"


def test_no_more_than_a_hundred_by_default_and_modified_first() -> None:
    """Floor(5000 / 50) files; when they are too many, written ones stay."""
    many = [access("old.py", 1, "write"), *(access(f"f{i}", 2, order=i) for i in range(300))]
    found = recently_accessed(many)
    assert len(found) == 100
    assert found[0].path == "f299"
    assert found[-1].path == "old.py"


def test_section_format() -> None:
    """Groups in order, their line formats, an empty line at the end."""
    text, dropped = format_accessed_files(
        [
            access("app.py", 3, "write"),
            access("read.py", 2),
            access("x/found.py", 2, "search"),
            access("src", 1, "list"),
        ]
    )
    assert dropped == 0
    assert text == snapshot("""\
## Recently Accessed Files
Files that were accessed by tools in recent turns:

**Read:**
- read.py (via read_file, Turn 2)

**Modified:**
- app.py (via edit_file, Turn 3)

**Found in searches:**
- x/found.py

**Listed:**
- src
""")


def test_nothing_is_shown_for_no_files() -> None:
    assert format_accessed_files([]) == ("", 0)
    text, _ = format_accessed_files([access("a", 1)])
    assert "Modified" not in text


@given(
    st.lists(
        st.tuples(
            st.text("abc/", min_size=1, max_size=400),
            st.sampled_from(["read", "write", "search", "list"]),
        ),
        max_size=60,
    ),
    st.integers(100, 3000),
)
def test_section_keeps_its_budget(items: list[tuple[str, AccessType]], budget: int) -> None:
    """Also with long paths."""
    files = [access(path, i + 1, kind) for i, (path, kind) in enumerate(items)]
    text, dropped = format_accessed_files(files, max_chars=budget)
    assert len(text) <= budget
    assert 0 <= dropped <= len(files)
