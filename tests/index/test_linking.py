"""What a turn has to do with code: from its calls and words to references."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ragmem.index.index import CodeIndex
from ragmem.index.links import MOST_READ, MOST_REFERENCES, edited_paths, places_of, references_of
from ragmem.records import Project, ReferenceHow, ScopeKind, ToolCall, Turn
from ragmem.tools.files import changed_lines, unified_diff
from tests.index.cuts import Index, function

T0 = datetime(2026, 1, 10, 12, tzinfo=UTC)
HOWS: tuple[ReferenceHow, ...] = ("edited", "read", "found", "named")


AUTH = [("AuthService.validate", 1, 10), ("AuthService.renew", 12, 20), ("run", 22, 30)]


def a_call(name: str, *, success: bool = True, arguments: Any = None, **result: Any) -> ToolCall:
    return ToolCall(
        tool_call_id="c",
        turn_id="t",
        order=0,
        tool_name=name,
        arguments=json.dumps(arguments or {}),
        result=json.dumps(result),
        success=success,
        started_at=T0,
    )


def a_turn(*calls: ToolCall, user: str = "", answer: str = "") -> Turn:
    return Turn(
        turn_id="t", session_id="s", user_message=user, assistant_message=answer, started_at=T0,
        tool_calls=calls,
    )  # fmt: skip


Lines = tuple[str, int, int]
"""A scope's name, its first and its last line."""


async def found(folder: Path, turn: Turn, **files: Sequence[Lines]) -> dict[str, str]:
    """How a turn refers to the scopes of an index of these files."""
    made = Index(
        folder,
        {
            f"{path.replace('__', '/')}.py": [
                function(name, "\n" * (last - first), line=first, kind=_kind(name))
                for name, first, last in scopes
            ]
            for path, scopes in files.items()
        },
    )
    rows = made.connection.execute(
        "SELECT scope_id, path, qualified_name FROM scopes JOIN files USING (file)"
    )
    names = {scope_id: f"{path.removesuffix('.py')}:{name}" for scope_id, path, name in rows}
    index = CodeIndex(Project(project_id="p", path="/p", created_at=T0), folder / "index.sqlite")
    references = await references_of(turn, index, lambda path: path.removeprefix("./"))
    await index.aclose()
    assert [r.how for r in references] == sorted((r.how for r in references), key=HOWS.index)
    return {names.get(r.scope_id, r.scope_id): r.how for r in references}


def _kind(name: str) -> ScopeKind:
    return "method" if "." in name else "function"


async def test_each_kind(tmp_path: Path) -> None:
    turn = a_turn(
        a_call("edit_file", path="auth.py", text="Edited", changed=[[3, 4]]),
        a_call("read_file", path="auth.py", text="…", first_line=1, last_line=15),
        a_call("grep_files", path=".", text="auth.py\n13:x\n\nsub/a.py\n2:y\n[more]"),
        user="Why does `run` fail?",
        answer="AuthService.renew does it.",
    )
    assert await found(tmp_path, turn, auth=AUTH, sub__a=[("helper", 1, 5)]) == {
        "auth:AuthService.validate": "edited",
        "auth:AuthService.renew": "read",
        "sub/a:helper": "found",
        "auth:run": "named",
    }


async def test_matches_are_read_with_their_context(tmp_path: Path) -> None:
    """Lines around a match are no match; paths may hold colons and dashes."""
    page = "a-1.py\n--\n11-before\n12:match\n13-after\n--\n25:too\n\nb.py\n[1–2; there is more]"
    turn = a_turn(a_call("grep_files", path=".", text=page))
    assert await found(tmp_path, turn, **{"a-1": AUTH, "b": [("x_y", 1, 9)]}) == {
        "a-1:AuthService.renew": "found",
        "a-1:run": "found",
    }


async def test_a_path_may_look_like_a_match_or_a_note(tmp_path: Path) -> None:
    page = "a.py\n3:def x\n\n[id]/b.py\n7:foo\n\n0001-c.py\n2:bar\n[1–3; there is more]"
    files = {"a": [("x", 1, 9)], "[id]__b": [("foo", 1, 9)], "0001-c": [("bar", 1, 9)]}
    turn = a_turn(a_call("grep_files", path=".", text=page))
    assert await found(tmp_path, turn, **files) == {
        "a:x": "found",
        "[id]/b:foo": "found",
        "0001-c:bar": "found",
    }


async def test_brain_search_names_its_scopes(tmp_path: Path) -> None:
    files = [{"path": "a.py", "scope_id": "s1"}, {"path": "b.py"}]
    turn = a_turn(a_call("brain_search", text="", files=files))
    assert await found(tmp_path, turn) == {"s1": "found"}


async def test_failed_calls_and_files_outside_are_left_out(tmp_path: Path) -> None:
    """What failed touched nothing; outside of the project nothing is indexed."""
    turn = a_turn(
        a_call("edit_file", success=False, path="auth.py", changed=[[1, 2]]),
        a_call("read_file", path="/etc/auth.py", first_line=1, last_line=9),
        a_call("read_file", path=7, first_line=1, last_line=9),
        a_call("run_command", text="auth.py:3"),
    )
    assert await found(tmp_path, turn, auth=AUTH) == {}
    assert edited_paths(turn) == []


async def test_a_whole_file_read_counts_for_twenty_scopes(tmp_path: Path) -> None:
    many = [(f"A.m{n}" if n % 2 else f"top{n}", n * 10, n * 10 + 9) for n in range(1, 61)]
    turn = a_turn(
        a_call("read_file", path="big.py", first_line=1, last_line=999), user="Fix `A.m59`."
    )
    references = await found(tmp_path, turn, big=many)
    assert len(references) == MOST_READ
    assert "big:A.m59" in references
    assert set(references) - {"big:A.m59"} <= {f"big:top{n}" for n in range(61)}


async def test_a_new_file_is_all_edited(tmp_path: Path) -> None:
    turn = a_turn(a_call("create_file", path="./auth.py", preimage=None))
    assert set((await found(tmp_path, turn, auth=AUTH)).values()) == {"edited"}
    assert edited_paths(turn) == ["./auth.py"]


async def test_later_edits_of_the_turn_move_earlier_lines(tmp_path: Path) -> None:
    """What was edited, read or found before lies where later edits have moved it to."""
    turn = a_turn(
        a_call("grep_files", path=".", text="auth.py\n3:match\n"),
        a_call("read_file", path="auth.py", first_line=11, last_line=12),
        a_call("edit_file", path="auth.py", changed=[[2, 2]], replaced=[1]),
        a_call("edit_file", path="other.py", changed=[[1, 90]], replaced=[0]),
        a_call("edit_file", path="auth.py", changed=[[1, 20]], replaced=[0]),
    )
    scopes = [("new", 1, 20), ("first", 21, 25), ("second", 30, 40)]
    assert await found(tmp_path, turn, auth=scopes) == {
        "auth:new": "edited",
        "auth:first": "edited",
        "auth:second": "read",
    }
    old = a_turn(
        a_call("edit_file", path="auth.py", changed=[[22, 22]]),
        a_call("edit_file", path="auth.py", changed=[[1, 20]]),
    )
    assert await found(tmp_path, old, auth=scopes) == {"auth:new": "edited", "auth:first": "edited"}


@pytest.mark.parametrize("seed", range(40))
def test_a_line_that_stays_is_followed(seed: int) -> None:
    chance = random.Random(seed)
    text = [f"line {n}" for n in range(30)]
    calls = [a_call("read_file", path="a.py", first_line=n, last_line=n) for n in range(1, 31)]
    for edit in range(4):
        before = "".join(f"{line}\n" for line in text)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(4)] = [
                f"new {edit} {n} {at}" for n in range(chance.randrange(4))
            ]
        changes = changed_lines(unified_diff(before, "".join(f"{x}\n" for x in text), "a.py")[0])
        calls.append(
            a_call(
                "edit_file",
                path="a.py",
                changed=[[first, last] for first, last, _ in changes],
                replaced=[count for _, _, count in changes],
            )
        )
    exact = 0
    reads = [place for place in places_of(a_turn(*calls)) if place.how == "read"]
    assert len(reads) == 30
    for number, place in enumerate(reads):
        ((first, last),) = place.lines
        if (line := f"line {number}") in text:
            assert first <= text.index(line) + 1 <= last
            exact += first == last
    assert exact or len(text) < 15


async def test_at_most_a_hundred(tmp_path: Path) -> None:
    files = {f"f{n}": [(f"g_{n}", 1, 9)] for n in range(150)}
    calls = [a_call("read_file", path=f"f{n}.py", first_line=1, last_line=9) for n in range(150)]
    edit = a_call("write_file", path="f149.py", changed=[[2, 2]])
    references = await found(tmp_path, a_turn(*calls, edit), **files)
    assert len(references) == MOST_REFERENCES
    assert references["f149:g_149"] == "edited"


async def test_a_name_with_its_module(tmp_path: Path) -> None:
    said = a_turn(user="Look at app.auth.AuthService.renew and at app.auth.run")
    assert await found(tmp_path, said, auth=AUTH) == {"auth:AuthService.renew": "named"}


async def test_what_is_stored_badly_is_nothing(tmp_path: Path) -> None:
    broken = ToolCall(
        tool_call_id="c", turn_id="t", order=0, tool_name="read_file", result="", started_at=T0
    )
    assert await found(tmp_path, a_turn(broken)) == {}
