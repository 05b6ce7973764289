"""What a person sees, as text: snapshots at 80 and at 40 columns, and no escape from content."""

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from rich.console import RenderableType

from ragmem.events import Notice, ReasoningDelta, TextDelta, ToolFinished, ToolStarted
from ragmem.listings import files_table, sessions_table
from ragmem.records import Usage
from ragmem.repl.diffs import edit_result
from ragmem.repl.output import (
    ChatOutput,
    answer,
    clipped,
    closing,
    columns,
    command_block,
    command_result,
    failure,
    fold,
    listing,
    notice,
    paint,
    tool_result,
    wrap,
)
from ragmem.repl.recalled import picture
from ragmem.repl.turn import ProposalBlock, TurnView
from ragmem.text import clip_to_width, clusters, display_width, duration, folder_name
from ragmem.tools.base import Proposal
from tests.repl.fake_app import (
    DIFF,
    EVIL,
    EVIL_CONTEXT,
    EVIL_FILE,
    session,
    tool_done as done,
    turn_finished as finished,
)
from tests.repl.paper import Paper

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MARKDOWN = """# A title that is rather long for a narrow window

Words with *emphasis*, **weight** and `code`, and a [link](https://example.org/a) too,
also <https://example.org/b> and ![an image](https://example.org/c.png).

1. first
2. second

   - nested

```python
def f(x: int) -> int:
    return x + 1
```

| name | value |
|------|-------|
| a    | 1     |

- [x] done
- [ ] open

---

> quoted

<b>html</b> stays
"""


def plain(what: RenderableType, width: int = 80) -> str:
    return paint(what, width=width, mode="none")


def test_markdown_wide() -> None:
    """Links as text and address, images as text, HTML not hidden."""
    assert plain(answer(MARKDOWN)) == snapshot("""\
A title that is rather long for a narrow window

Words with emphasis, weight and code, and a link (https://example.org/a) too,
also https://example.org/b and [image: https://example.org/c.png].

 1 first
 2 second
    • nested

  def f(x: int) -> int:
      return x + 1

name  value
───────────
a     1

 • ☑ done
 • ☐ open

────────────────────────────────────────

▌ quoted

<b>html</b> stays
""")


def test_what_a_command_takes_is_shown_whole_in_a_narrow_window() -> None:
    shown = plain(columns([("/permissions", "what is asked: [allow|project|session|remove]")]), 30)
    assert "".join(row[14:] for row in shown.split("\n")).replace(" ", "").endswith("|remove]")


def test_markdown_narrow() -> None:
    """40 columns: what has more breaks between words, what fits stays as it is."""
    wide, narrow = plain(answer(MARKDOWN)), plain(answer(MARKDOWN), 40)
    head, _, rest = narrow.partition(" 1 first")
    assert rest == wide.partition(" 1 first")[2]
    assert head == snapshot("""\
A title that is rather long for a narrow
window

Words with emphasis, weight and code,
and a link (https://example.org/a) too,
also https://example.org/b and [image:
https://example.org/c.png].

""")


TABLE = """\
| Store | Where it is kept | What it costs | For whom |
|---|---|--:|---|
| SQLite | one file in the data folder | nothing | one person |
| Neo4j | a server | | teams |
"""


def test_a_table_without_room_for_its_columns_is_a_list_of_its_rows() -> None:
    assert plain(answer(TABLE), 42) == snapshot("""\
Store: SQLite
  Where it is kept: one file in the data
  folder
  What it costs: nothing
  For whom: one person
Store: Neo4j
  Where it is kept: a server
  For whom: teams
""")
    assert plain(answer(TABLE), 80) == snapshot("""\
Store   Where it is kept             What it costs  For whom
──────────────────────────────────────────────────────────────
SQLite  one file in the data folder        nothing  one person
Neo4j   a server                                    teams
""")


def test_tool_results() -> None:
    """Their first lines, and how long it took."""
    events = (
        done("120 lines"),
        done("nothing there", success=False, duration_ms=0),
        done("\n".join(f"line {i}" for i in range(9)), duration_ms=61_000),
    )
    wide, narrow = ("".join(plain(tool_result(e), w) for e in events) for w in (80, 30))
    assert wide == snapshot("""\
  ⎿ 120 lines (12 ms)
  ⎿ nothing there
  ⎿ line 0 (1 min 1 s)
    line 1
    line 2
    line 3
    line 4
    line 5
    … 3 more lines · /expand
""")
    assert narrow == wide


def test_what_would_take_a_row_to_say_that_a_row_is_left_out_is_shown() -> None:
    seven, eight = ("\n".join(map(str, range(count))) for count in (7, 8))
    assert plain(tool_result(done(seven))).endswith("    5\n    6\n")
    assert plain(tool_result(done(eight))).endswith("    5\n    … 2 more lines · /expand\n")


def test_how_turns_end() -> None:
    """Each subtype says what happened and what to do."""
    shown = "".join(
        plain(closing(event), 60)
        for event in (
            finished("success"),
            finished("success", usage=Usage(model_calls=1)),
            finished("interrupted"),
            finished("error_max_turns", error="The limit was reached.", hint="Go on with `-c`."),
            finished("error_during_execution", error="429 from the provider.", hint="Wait."),
            finished("error_during_execution", error="It is away.", usage=Usage()),
        )
    )
    assert shown == snapshot("""\
  2.3 s · 2 model calls · 1,234 tokens in, 56 out · $0.0123
  2.3 s · 1 model call
  interrupted
  2.3 s · 2 model calls · 1,234 tokens in, 56 out · $0.0123
✗ The limit was reached.
  Go on with `-c`.
  2.3 s · 2 model calls · 1,234 tokens in, 56 out · $0.0123
✗ 429 from the provider.
  Wait.
  2.3 s · 2 model calls · 1,234 tokens in, 56 out · $0.0123
✗ It is away.
  2.3 s
""")
    assert plain(closing(finished("success")), 50).endswith(" 56 out\n  · $0.0123\n")


def proposal(**fields: object) -> Proposal:
    given = {"tool_name": "t", "title": "edit_file a.py", "kind": "diff", "body": DIFF}
    return Proposal(**{**given, **fields})  # type: ignore[arg-type]


def test_a_proposed_command_hides_nothing() -> None:
    """All of it is there, with a count."""
    body = "echo safe" + " " * 2_000 + "; evil \u202e\u200b\U000e0041\x1b[8m\ufe0f\u3164"
    shown = plain(ProposalBlock(proposal(kind="command", title="run_command", body=body)), 60)
    assert "; evil \\u{202e}\\u{200b}\\u{e0041}\\e[8m\\u{fe0f}" in shown.replace("\n│ ", "")
    assert "\\u{3164}" in shown
    assert re.search(r"^  2,0\d\d characters$", shown, re.MULTILINE)
    assert all(row.startswith("│") for row in shown.splitlines()[1:-3])
    assert "no rule possible" in shown


def everything() -> list[RenderableType]:
    known = session(title=EVIL, last_message=EVIL, turn_count=1)
    evil_diff = f"--- {EVIL}\n+++ {EVIL}\n@@ -0,0 +1 @@ {EVIL}\n+{EVIL}\n{EVIL}"
    return [
        answer(f"{EVIL}\n\n# {EVIL}\n\n`{EVIL}` [{EVIL}](http://h/{EVIL}) ![{EVIL}]({EVIL})"),
        answer(f"```{EVIL}\n{EVIL}\n```\n\n|{EVIL}|\n|-|\n|{EVIL}|"),
        answer("&#27;]8;;owned&#7; &#x9b;2J &#x202e; &#13; &#12; `x` [&#x202e;](<&#x200b;>)"),
        tool_result(done(EVIL)),
        *(
            edit_result(done(evil_diff, name="edit_file"), asked=asked) or ""
            for asked in (True, False)
        ),
        ProposalBlock(proposal(title=f"edit_file {EVIL}", body=evil_diff)),
        notice(Notice(level="error", text=EVIL)),
        closing(finished("error_during_execution", error=EVIL, hint=EVIL)),
        failure(EVIL, EVIL),
        ProposalBlock(proposal(title=EVIL, body=EVIL, warnings=(EVIL,))),
        ProposalBlock(proposal(title=EVIL, body=EVIL, kind="command")),
        command_block(EVIL, ended(f"{EVIL}\n{EVIL}", success=False)),
        command_result(ended(f"{EVIL}\n{EVIL}")),
        listing(sessions_table([known], NOW, width=60, current="")),
        listing(files_table([EVIL_FILE], NOW, width=60)),
        picture(EVIL_CONTEXT, width=60, window=100_000, items=True),
    ]


def test_no_control_character_of_content_is_printed() -> None:
    """From models, tools, files, names, errors, titles; only our own colours are escapes."""
    paper = Paper(60)
    ChatOutput(paper, mode="color").prompt(EVIL)
    for printed in (paper.text, *(paint(what, width=60) for what in everything())):
        without_colours = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        assert all(c.isprintable() or c == "\n" for c in without_colours), printed
        assert "owned" in re.sub(r"\n(│ )?", "", without_colours)


def test_a_row_that_has_no_room_ends_with_an_ellipsis() -> None:
    """Also where it is printed by itself."""
    row = clipped(("● ", "green"), ("run_command make all and more", "bold"))
    assert plain(row, 20) == "● run_command make …\n"


def test_no_color_keeps_weight_alone() -> None:
    """NO_COLOR; and without any ink no escape sequence is written."""
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", paint(answer(MARKDOWN), width=80, mode="mono")))
    numbers = {int(number) for code in codes for number in code.split(";") if number}
    assert numbers
    assert numbers <= set(range(10))
    assert "\x1b" not in plain(answer(MARKDOWN))


@given(st.text(alphabet="ab 日\u0301\n\t", max_size=80), st.integers(2, 20))
def test_folding_loses_nothing(text: str, width: int) -> None:
    """Every character of what is approved stands in some row."""
    assert "".join(fold(text, width)) == text.expandtabs(4).replace("\n", "")


@given(st.text(alphabet="ab 日\n", max_size=80), st.integers(2, 20))
def test_wrapping_keeps_every_word(text: str, width: int) -> None:
    """Blanks at the ends of rows are all that goes."""
    assert "".join("".join(wrap(text, width)).split()) == "".join(text.split())


def test_durations() -> None:
    """In the unit that a person would use."""
    said = {0: "0 ms", 999: "999 ms", 1_000: "1.0 s", 250_000: "4 min 10 s", 7_500_000: "2 h 5 min"}
    assert {ms: duration(ms) for ms in said} == said


def shown_live(view: TurnView, columns: int = 40, rows: int = 8) -> list[str]:
    return ["".join(text for _, text in line) for line in view.live(columns, rows)]


def test_the_open_block_is_live_and_printed_once_it_closes() -> None:
    """Streamed without flicker: whole blocks are printed, the tail is live."""
    view = TurnView(clock=lambda: 0.0)
    assert shown_live(view) == ["", "waiting for the model · 0 s · Esc stops"]
    assert view.show(TextDelta(text="One.\n\nTwo goes")) != []
    assert shown_live(view) == ["", "Two goes", "", "answering · 0 s · Esc stops"]
    long = "\\\n".join(f"line {i}" for i in range(20))
    assert view.show(TextDelta(text=f" on\n{long}")) == []
    assert shown_live(view, rows=6)[1:4] == ["line 17", "line 18", "line 19"][-3:]
    assert len(shown_live(view, rows=2)) == 2


def test_a_huge_block_is_printed_as_it_is() -> None:
    """To lay out a table of that size takes seconds, in which no key is answered."""
    row, paper = "| one | two |\n", Paper(40)
    table = "| a | b |\n|---|---|\n" + row * 4_000
    ChatOutput(paper, mode="none").answer(table)
    assert paper.text.splitlines() == table.splitlines()


def test_what_comes_together_is_written_together() -> None:
    """Each write draws the prompt again: a list that comes at once would block the keys."""

    class Counting(Paper):
        writes = 0

        def write(self, text: str) -> None:
            self.writes += 1
            super().write(text)

    parts = TurnView().show(TextDelta(text="- one\n" * 50 + "\nEnd"))
    together, single = Counting(), Paper()
    ChatOutput(together, mode="none").show_all(parts)
    one_by_one = ChatOutput(single, mode="none")
    for kind, what in parts:
        one_by_one.show(what, kind)
    assert together.writes == 1
    assert together.text == single.text
    assert together.text.count("one") == 50


@pytest.mark.parametrize(
    "text",
    [
        "- one\n- **two**\n  on\n- three\n",
        "So:\n* one\n  * in it\n  1. and\n* two\n\nEnd.",
        "1. one\n\n   more\n2. two\n```\n- no\n- item\n```\n3. three",
        "> q\n- one\n- two\n+ three\n+ four\n1. five\n2) six\n",
        "- one\n- two\n\n- three\n\n# End\n- four\n- five",
        "| a | b |\n|---|---|\n| 1 | 2 |\n- one\n- - two\n- - -\n- [x] three",
    ],
)
def test_a_list_is_printed_item_by_item_and_looks_as_if_it_had_come_at_once(text: str) -> None:
    whole, view, paper = Paper(40), TurnView(), Paper(40)
    blocks = ChatOutput(whole, mode="none")
    for block in re.split(r"(?<=\n\n)(?=- three|End|# End)|(?<=# End\n)|(?=```\n- no)", text):
        blocks.answer(block)
    output = ChatOutput(paper, mode="none")
    for char in text:
        for kind, part in view.show(TextDelta(text=char)):
            output.show(part, kind)
    for kind, part in view.show(finished("success"))[:-1]:
        output.show(part, kind)
    assert paper.text == whole.text


def test_an_item_of_a_list_is_printed_as_soon_as_the_next_begins() -> None:
    view = TurnView()
    view.show(TextDelta(text="- **one**\n- t"))
    assert shown_live(view)[1] == " • t"


def test_the_open_block_looks_as_it_will_when_it_is_whole() -> None:
    view = TurnView()
    view.show(TextDelta(text="A **bold** word, `co*d*e`, *so* [it](x) **op"))
    (row,) = view.live(80, 8)[1:2]
    assert row == (
        ("", "A "), ("bold", "bold"), ("", " word, "), ("cyan", "co*d*e"), ("", ", "),
        ("italic", "so"), ("", " it (x) **op"),
    )  # fmt: skip
    view.show(TextDelta(text="\n\n```\n**a**\n"))
    assert shown_live(view)[1:3] == ["  **a**", ""]
    view.show(TextDelta(text=f"```\n`{EVIL}`"))
    assert "\x1b" not in "".join(shown_live(view))


CODE = """```python
def water(beds):
    '''Water them,
    one by one.'''
    return [bed + 1 for bed in beds]  # all
```
"""
BEDS = """| Bed | How **much** | `when` |
|:----|-------------:|:------:|
| by the wall | 12 | dawn |
| by the shed, which is in the shade | 3 | `dusk` |
"""


@pytest.mark.parametrize("columns", [24, 36, 80])
@pytest.mark.parametrize("text", [CODE, BEDS], ids=["code", "a table"])
def test_code_and_tables_look_while_they_come_as_they_do_when_they_are_whole(
    text: str, columns: int
) -> None:
    """Row by row: no mark of Markdown is seen, and nothing jumps at the end."""
    view = TurnView(clock=lambda: 0.0)
    for at, char in enumerate(text[:-4] if text is CODE else text):
        view.show(TextDelta(text=char))
        rows = shown_live(view, columns, 30)
        assert not any("```" in row or "|:" in row for row in rows), (at, rows)
    live = [row.rstrip() for row in shown_live(view, columns, 30)[1:-2]]
    paper = Paper(columns)
    ChatOutput(paper, mode="none").answer(text)
    assert live == paper.text.rstrip("\n").split("\n")


def test_code_is_coloured_while_it_comes() -> None:
    view = TurnView(clock=lambda: 0.0)
    view.show(TextDelta(text=CODE.partition("    return")[0]))
    rows = view.live(80, 12)
    assert {("bright_blue", "def"), ("bright_green", "water")} <= set(rows[1])
    view.show(TextDelta(text="    return 1 # x\n"))
    assert any("dim" in style for style, _ in view.live(80, 12)[4])


@given(
    text=st.text(alphabet="ab|`*:-\n \t日\\#'\"/", max_size=120),
    at=st.lists(st.integers(0, 120), max_size=20),
    width=st.integers(1, 30),
    rows=st.integers(1, 12),
)
def test_whatever_comes_is_live_within_its_room(
    text: str, at: list[int], width: int, rows: int
) -> None:
    view = TurnView(clock=lambda: 0.0)
    edges = [0, *sorted(min(each, len(text)) for each in at), len(text)]
    for begin, end in pairwise(edges):
        view.show(TextDelta(text=text[begin:end]))
        shown = view.live(width, rows)
        assert len(shown) <= max(rows, 1)
        for line in shown[:-1]:
            assert display_width("".join(said for _, said in line)) <= max(width, 6)


def test_an_edit_that_nobody_was_asked_about_stands_apart_as_a_question_does() -> None:
    paper, view = Paper(40), TurnView()
    output = ChatOutput(paper, mode="none")
    for call, (name, display) in enumerate(
        (("read_file", "15 lines"), ("edit_file", DIFF), ("read_file", "15 lines"))
    ):
        view.show(ToolStarted(tool_call_id=str(call), name=name, title=f"{name} a.py"))
        for kind, part in view.show(
            done(display, tool_call_id=str(call), name=name, duration_ms=0)
        ):
            output.show(part, kind)
    read = "● read_file a.py\n  ⎿ 15 lines\n"
    edit = "● Edit a.py  +1 −1\n│ 1 - print('old')\n│ 1 + print('new')\n"
    assert paper.text == f"{read}\n{edit}\n{read}"


def test_how_long_was_thought_is_said_and_not_how_much() -> None:
    now = [0.0]
    view = TurnView(clock=lambda: now[0])
    view.show(ReasoningDelta(text="They want numbers."))
    now[0] = 3.2
    assert shown_live(view)[1:] == ["thinking · 3 s · Esc stops"]
    (_, part), *_ = view.show(TextDelta(text="Three."))
    assert plain(part) == "· thought for 3.2 s · /expand\n"


def test_parallel_calls_are_live_and_printed_with_their_results() -> None:
    """Calls of one message run in parallel; each stays beside its result."""
    now = [0.0]
    view = TurnView(clock=lambda: now[0])
    for call in ("1", "2"):
        started = ToolStarted(tool_call_id=call, name="read_file", title=f"read_file {call}.py")
        assert view.show(started) == []
    now[0] = 0.5
    assert shown_live(view)[1:3] == ["● read_file 1.py", "● read_file 2.py"]
    parts = view.show(done("9 lines", tool_call_id="2", name="read_file", duration_ms=3))
    assert [plain(part) for _, part in parts] == ["● read_file 2.py\n", "  ⎿ 9 lines (3 ms)\n"]
    assert shown_live(view)[1:2] == ["● read_file 1.py"]


def test_a_call_that_has_just_begun_or_is_asked_about_does_not_look_as_if_it_ran() -> None:
    """It is shown once it has run for a moment, what was waited for left out."""
    now = [0.0]
    view = TurnView(clock=lambda: now[0])
    view.show(ToolStarted(tool_call_id="1", name="run_command", title="run_command rm -rf build"))
    now[0] = 0.3
    assert shown_live(view)[1:] == ["working · 0 s · Esc stops"]
    view.pause()
    now[0] = 9.0
    assert shown_live(view)[1:] == ["waiting for you · Esc stops"]
    view.go_on()
    assert shown_live(view)[1:] == ["working · 0 s · Esc stops"]
    now[0] = 9.2
    assert shown_live(view)[1:2] == ["● rm -rf build"]


def test_a_call_that_is_interrupted_stays_on_the_screen() -> None:
    """What was running when the person stopped it is said, once."""
    view = TurnView(clock=lambda: 0.0)
    view.show(ToolStarted(tool_call_id="1", name="t", title="t 1"))
    shown = [plain(part) for _, part in view.show(finished("interrupted"))]
    assert shown[:2] == ["✗ t 1\n", "  ⎿ stopped\n"]
    assert shown[2].startswith("  interrupted\n")
    assert len(shown) == 3


def test_a_warning_breaks_between_its_words() -> None:
    warned = proposal(warnings=("It runs in the sandbox: no browser can reach its ports.",))
    assert plain(ProposalBlock(warned), 36).splitlines()[-2:] == [
        "! It runs in the sandbox: no browser",
        "  can reach its ports.",
    ]


def test_a_hint_names_the_command_of_the_chat() -> None:
    """What is a flag of `ask` is a command here."""
    end = finished("error_during_execution", error="500.", hint="Use another model (-m).")
    assert "Use another model (/model)." in plain(closing(end))
    hint = "Ask it to continue (-c), or raise the limit (--max-turns)."
    told = plain(closing(finished("error_max_turns", error="The limit was reached.", hint=hint)))
    here = 'continue (type "continue"), or raise the limit (/config tools.max_iterations).'
    assert here in " ".join(told.split())


def test_a_long_folders_end_is_what_is_named() -> None:
    assert folder_name("/home/me/src/garden", "/home/me", 40) == "~/src/garden"
    assert folder_name("/home/me", "/home/me", 40) == "~"
    assert folder_name("/home/melon/garden", "/home/me", 40) == "/home/melon/garden"
    assert folder_name("/srv/" + "deep/" * 9 + "garden", "/home/me", 12) == "…deep/garden"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("cafe\u0301", 4),
        ("한글", 4),
        ("👨\u200d👩\u200d👧!", 3),
        ("❤\ufe0f", 2),
        ("👍🏽", 2),
        ("שלום", 4),
        ("a\u200bb", 2),
    ],
)
def test_what_stands_in_one_place_is_measured_as_one_and_never_cut(text: str, cells: int) -> None:
    assert display_width(text) == cells
    for width in range(1, cells + 2):
        rows = fold(text, width)
        assert "".join(rows) == text
        assert all(row in ("", text) or set(clusters(row)) <= set(clusters(text)) for row in rows)
        assert display_width(clip_to_width(text, width)) <= width


def ended(text: str, **fields: object) -> ToolFinished:
    """The end of a command."""
    given = {"name": "run_command", "text": text, "duration_ms": 1500}
    return done(**{"display": " ".join(text.split()), **given, **fields})


def test_how_a_command_ended_has_room_beside_the_longest_title() -> None:
    told = command_block(
        "make " + "all " * 40, ended("Exit code 2\nno", exit_code=2, display="Exit code 2\nno")
    )
    first, *rest = plain(told, 60).splitlines()
    assert first.startswith("✗ make all")
    assert first.endswith("…  exit 2 · 1.5 s")
    assert rest == ["  ⎿ no"]


def test_what_one_ran_says_in_the_same_words_how_it_ended_and_what_it_left() -> None:
    left = ended("Exit code 0 (1 process left in the background was stopped)\nhi", exit_code=0)
    assert plain(command_result(left)) == (
        "  hi\n  ✓ 1 process left in the background was stopped · 1.5 s\n"
    )
    late = ended("Stopped after 1 s. Make it do less.\nhi", success=False)
    assert plain(command_result(late)) == "  hi\n  ✗ Stopped after 1 s · 1.5 s\n"
    long = ended("\n".join(["Exit code 0", *map(str, range(1, 5001))]), exit_code=0)
    rows = plain(command_result(long)).splitlines()
    assert rows[58:61] == ["  59", "  60", "  … 4,800 more lines · /expand …"]
    assert rows[-2:] == ["  5000", "  ✓ 1.5 s"]


def test_what_a_stopped_command_had_printed_keeps_its_lines() -> None:
    view = TurnView()
    view.show(ToolStarted(tool_call_id="1", name="run_command", title="run_command make"))
    parts = view.show(ended("Stopped by the user.\none\ntwo", success=False))
    assert [plain(part) for _, part in parts] == [
        "✗ make  Stopped by you · 1.5 s\n  ⎿ one\n    two\n"
    ]
