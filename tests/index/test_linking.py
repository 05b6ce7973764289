"""What a turn has to do with code: from its calls and words to references."""

import json
import random
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from ragmem.index.links import MOST_READ, MOST_REFERENCES, edited_paths, places_of, references_of
from ragmem.records import CodeScope, FoundScope, ReferenceHow, ToolCall, Turn
from ragmem.tools.files import changed_lines, unified_diff

T0 = datetime(2026, 1, 10, 12, tzinfo=UTC)
HOWS: tuple[ReferenceHow, ...] = ("edited", "read", "found", "named")


class Index:
    """Scopes of files, each of so many lines, asked as the code index is."""

    def __init__(self, **files: Sequence[tuple[str, int, int]]) -> None:
        self.scopes = {
            path.replace("__", "/") + ".py": [
                CodeScope(
                    scope_id=f"{path}:{name}",
                    kind="method" if "." in name else "function",
                    name=name.rpartition(".")[2],
                    qualified_name=name,
                    start_line=first,
                    end_line=last,
                    hash="",
                )
                for name, first, last in scopes
            ]
            for path, scopes in files.items()
        }

    async def scopes_at(self, path: str, lines: Sequence[tuple[int, int]]) -> list[CodeScope]:
        return [
            scope
            for scope in self.scopes.get(path, ())
            if any(a <= scope.end_line and scope.start_line <= b for a, b in lines)
        ]

    async def scopes_named(self, names: Collection[str]) -> dict[str, list[FoundScope]]:
        found: dict[str, list[FoundScope]] = {}
        for name in names:
            own = [
                FoundScope(project_id="p", path=path, defined=True, scope=scope)
                for path, scopes in self.scopes.items()
                for scope in scopes
                if name.casefold() in (scope.name.casefold(), scope.qualified_name.casefold())
            ]
            if 0 < len(own) <= 5:
                found[name] = own
        return found


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


async def found(turn: Turn, index: Index) -> dict[str, str]:
    def locate(path: str) -> str:
        return path if path.startswith("/") else path.removeprefix("./")

    references = await references_of(turn, index, locate)
    assert [r.how for r in references] == sorted((r.how for r in references), key=HOWS.index)
    return {r.scope_id: r.how for r in references}


async def test_each_kind() -> None:
    turn = a_turn(
        a_call("edit_file", path="auth.py", text="Edited", changed=[[3, 4]]),
        a_call("read_file", path="auth.py", text="…", first_line=1, last_line=15),
        a_call("grep_files", path=".", text="auth.py\n13:x\n\nsub/a.py\n2:y\n[more]"),
        user="Why does `run` fail?",
        answer="AuthService.renew does it.",
    )
    index = Index(auth=AUTH, sub__a=[("helper", 1, 5)])
    assert await found(turn, index) == {
        "auth:AuthService.validate": "edited",
        "auth:AuthService.renew": "read",
        "sub__a:helper": "found",
        "auth:run": "named",
    }


async def test_matches_are_read_with_their_context() -> None:
    """Lines around a match are no match; paths may hold colons and dashes."""
    page = "a-1.py\n--\n11-before\n12:match\n13-after\n--\n25:too\n\nb.py\n[1–2; there is more]"
    index = Index(**{"a-1": AUTH, "b": [("x_y", 1, 9)]})
    turn = a_turn(a_call("grep_files", path=".", text=page))
    assert await found(turn, index) == {
        "a-1:AuthService.renew": "found",
        "a-1:run": "found",
    }


async def test_a_path_may_look_like_a_match_or_a_note() -> None:
    page = "a.py\n3:def x\n\n[id]/b.py\n7:foo\n\n0001-c.py\n2:bar\n[1–3; there is more]"
    index = Index(a=[("x", 1, 9)], **{"[id]__b": [("foo", 1, 9)], "0001-c": [("bar", 1, 9)]})
    turn = a_turn(a_call("grep_files", path=".", text=page))
    assert await found(turn, index) == {
        "a:x": "found",
        "[id]__b:foo": "found",
        "0001-c:bar": "found",
    }


async def test_brain_search_names_its_scopes() -> None:
    files = [{"path": "a.py", "scope_id": "s1"}, {"path": "b.py"}]
    turn = a_turn(a_call("brain_search", text="", files=files))
    assert await found(turn, Index()) == {"s1": "found"}


async def test_failed_calls_and_files_outside_are_left_out() -> None:
    """What failed touched nothing; outside of the project nothing is indexed."""
    turn = a_turn(
        a_call("edit_file", success=False, path="auth.py", changed=[[1, 2]]),
        a_call("read_file", path="/etc/auth.py", first_line=1, last_line=9),
        a_call("read_file", path=7, first_line=1, last_line=9),
        a_call("run_command", text="auth.py:3"),
    )
    assert await found(turn, Index(auth=AUTH)) == {}
    assert edited_paths(turn) == []


async def test_a_whole_file_read_counts_for_twenty_scopes() -> None:
    many = [(f"A.m{n}" if n % 2 else f"top{n}", n * 10, n * 10 + 9) for n in range(1, 61)]
    turn = a_turn(
        a_call("read_file", path="big.py", first_line=1, last_line=999), user="Fix `A.m59`."
    )
    references = await found(turn, Index(big=many))
    assert len(references) == MOST_READ
    assert "big:A.m59" in references
    assert set(references) - {"big:A.m59"} <= {f"big:top{n}" for n in range(61)}


async def test_a_new_file_is_all_edited() -> None:
    turn = a_turn(a_call("create_file", path="./auth.py", preimage=None))
    assert set((await found(turn, Index(auth=AUTH))).values()) == {"edited"}
    assert edited_paths(turn) == ["./auth.py"]


async def test_later_edits_of_the_turn_move_earlier_lines() -> None:
    """What was edited, read or found before lies where later edits have moved it to."""
    turn = a_turn(
        a_call("grep_files", path=".", text="auth.py\n3:match\n"),
        a_call("read_file", path="auth.py", first_line=11, last_line=12),
        a_call("edit_file", path="auth.py", changed=[[2, 2]], replaced=[1]),
        a_call("edit_file", path="other.py", changed=[[1, 90]], replaced=[0]),
        a_call("edit_file", path="auth.py", changed=[[1, 20]], replaced=[0]),
    )
    scopes = [("new", 1, 20), ("first", 21, 25), ("second", 30, 40)]
    assert await found(turn, Index(auth=scopes)) == {
        "auth:new": "edited",
        "auth:first": "edited",
        "auth:second": "read",
    }
    old = a_turn(
        a_call("edit_file", path="auth.py", changed=[[22, 22]]),
        a_call("edit_file", path="auth.py", changed=[[1, 20]]),
    )
    assert await found(old, Index(auth=scopes)) == {"auth:new": "edited", "auth:first": "edited"}


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


async def test_at_most_a_hundred() -> None:
    files = {f"f{n}": [(f"g_{n}", 1, 9)] for n in range(150)}
    calls = [a_call("read_file", path=f"f{n}.py", first_line=1, last_line=9) for n in range(150)]
    edit = a_call("write_file", path="f149.py", changed=[[2, 2]])
    references = await found(a_turn(*calls, edit), Index(**files))
    assert len(references) == MOST_REFERENCES
    assert references["f149:g_149"] == "edited"


async def test_a_name_with_its_module() -> None:
    index = Index(auth=AUTH)
    said = a_turn(user="Look at app.auth.AuthService.renew and at app.auth.run")
    assert await found(said, index) == {"auth:AuthService.renew": "named"}


async def test_what_is_stored_badly_is_nothing() -> None:
    broken = ToolCall(
        tool_call_id="c", turn_id="t", order=0, tool_name="read_file", result="", started_at=T0
    )
    assert await references_of(a_turn(broken), Index(), str) == ()
