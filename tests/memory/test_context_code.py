"""Code that bears on the prompt, as a section of the request; files that others have changed."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, strategies as st

from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import Context
from ragmem.memory.context.collect import CodePassage, ProjectCode
from ragmem.records import ToolCall

from .builders import APP, BIG, VALIDATE, a_call, a_context, a_turn, passage

SMALL = ModelInfo(name="x/small", context_window=4_096, supports_tools=False)


def build(*code: CodePassage, **more: Any) -> Context:
    return a_context("Is it good?", place=APP, code=code, **more)


def section(context: Context) -> str:
    """The text of Relevant Code; empty where there is none."""
    text = context.messages[-1].text.split("</memory-t>")[0]
    _, found, rest = text.partition("## Relevant Code\n")
    return rest.split("\n\n## ")[0].split("\n\nToday is")[0].rstrip() if found else ""


def read(path: str, lines: Sequence[str], first: int = 1, **fields: Any) -> ToolCall:
    """A call as read_file is recorded."""
    rows = [f"{number:>6}\t{line}" for number, line in enumerate(lines, first)]
    result = {"text": "\n".join(rows), "path": path, "first_line": first}
    return a_call(arguments=json.dumps({"path": path}), result=json.dumps(result), **fields)


def test_each_passage_says_where_it_is_from_and_why_it_is_there() -> None:
    """In `context`, too, which shows what else there is of a section."""
    (part,) = [s for s in build(passage()).sections if s.name == "Relevant Code"]
    assert part.budget == 10_000
    assert [(item.label, item.why) for item in part.items] == [
        ("auth.py:10-12 AuthService.validate", "name: validate; meaning")
    ]


def test_the_model_is_told_that_the_code_is_still_being_indexed() -> None:
    """Also where nothing was found yet; one without tools takes it for the question."""
    for passages in ((), (passage(),)):
        code = ProjectCode(passages=passages, files_so_far=4_200)
        told = a_context("Is it good?", place=APP, code=code).messages[-1].text
        assert "indexed for the first time, 4,200 files so far" in told
        small = a_context("Is it good?", place=APP, code=code, info=SMALL).messages[-1].text
        assert "indexed" not in small
    assert "indexed" not in build(passage()).messages[-1].text


def test_lines_that_a_read_in_the_window_shows_are_not_repeated() -> None:
    """The same lines under the same numbers; lines that moved or changed are shown."""
    lines = VALIDATE.split("\n")
    same = a_turn(1, calls=(read("auth.py", ["", *lines, ""], first=9),))
    assert section(build(passage(), turns=[same])) == ""

    moved = a_turn(1, calls=(read("auth.py", lines, first=7),))
    assert VALIDATE.split("\n")[0] in section(build(passage(), turns=[moved]))

    elsewhere = a_turn(1, calls=(read("other.py", lines, first=10),))
    assert section(build(passage(), turns=[elsewhere]))

    partly = a_turn(1, calls=(read("auth.py", lines[:2], first=10),))
    assert section(build(passage(), turns=[partly])).split("\n")[1:] == [
        "     …",
        f"    12\t{lines[2]}",
    ]


def test_lines_of_a_file_that_the_prompt_names_are_not_repeated() -> None:
    """It stands below the block anyway."""
    mention = read("auth.py", VALIDATE.split("\n"), first=10, origin="mention")
    assert section(build(passage(), mentions=[mention])) == ""
    assert section(build(passage("app/b.py"), mentions=[mention]))


def test_a_scope_inside_of_another_is_shown_once() -> None:
    """A class and its method."""
    outer = "class A:\n" + "\n".join(f"    a{n} = {n}" for n in range(8)) + "\n" + VALIDATE
    context = build(passage(), passage(first=1, text=outer, name="AuthService"))
    text = section(context)
    assert text.count("def validate") == 1
    assert text.index("class A") > text.index("def validate")
    assert section(build(passage(), passage())).count("def validate") == 1


def test_a_flood_keeps_to_its_tenth() -> None:
    """10% of the request; the best whole, long ones clipped in the middle, by lines."""
    long = "\n".join(f"    step_{n}()  # {'x' * 60}" for n in range(400))
    code = [passage(f"app/f{n}.py", 1, long, name=f"f{n}") for n in range(50)]
    context = build(*code)
    (part,) = [s for s in context.sections if s.name == "Relevant Code"]
    assert 5_000 < part.chars <= part.budget == 10_000
    assert part.dropped >= 42
    text = section(context)
    first = text.split("\n\n")[0].split("\n")
    assert first[1] == "     1\t    step_0()  # " + "x" * 60
    assert first[-1].startswith("   400\t")
    assert "     …" in first
    assert all(len(row) < 90 for row in first)

    whole = build(passage(), *code)
    assert section(whole).startswith("[auth.py:10-12")
    assert VALIDATE.split("\n")[2] in section(whole)


def test_a_line_without_end_is_cut() -> None:
    """A minified line is no flood."""
    text = section(build(passage(text="x" * 50_000)))
    assert len(text) < 500


def test_a_model_without_tools_gets_little() -> None:
    """At most two passages, without what is said about them; not of a file that is named."""
    code = [passage(f"app/f{n}.py", 1, VALIDATE, name=f"f{n}") for n in range(5)]
    context = build(*code, info=SMALL)
    text = section(context) or context.messages[-1].text
    assert text.count("def validate") == 2
    assert "meaning" not in text
    (part,) = [s for s in context.sections if s.name == "Relevant Code"]
    assert part.chars <= part.budget <= 0.15 * context.max_chars
    mention = read("f0.py", ["else"], origin="mention")
    assert "[f0.py" not in build(*code, info=SMALL, mentions=[mention]).messages[-1].text


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 200), st.integers(0, 120)), max_size=12),
    st.integers(1_000, 120_000),
    st.booleans(),
)
def test_budget_of_code(scopes: list[tuple[int, int, int]], max_chars: int, native: bool) -> None:
    """Whatever is found; no line of a file twice."""
    code = [
        passage("app/a.py", first, "\n".join("y" * width for _ in range(count + 1)))
        for first, count, width in scopes
    ]
    context = build(*code, info=BIG if native else SMALL, max_chars=max_chars)
    for part in context.sections:
        if part.name == "Relevant Code":
            assert part.chars <= part.budget
    rows = [row for row in section(context).split("\n") if "\t" in row]
    assert len(rows) == len(set(rows))
