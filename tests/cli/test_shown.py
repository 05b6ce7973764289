"""What a terminal shows: finds, conversations, checks, memories and sessions by the day."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot
from wcwidth import wcswidth

from ragmem.cli.doctor import Check, check_text
from ragmem.cli.output import Paint
from ragmem.cli.search import found_sessions
from ragmem.cli.shown import day_name, heading_text, memories_by_day, turn_text
from ragmem.ids import new_id
from ragmem.listings import Light, excerpt, hit_document, hits_text
from ragmem.memory.facts import FactHit
from ragmem.memory.recall import Hit, Replaced
from ragmem.records import MemoryRecord, Session, ToolCall, Turn
from ragmem.text import display_width, without_markdown
from ragmem.themes import ColorMode
from ragmem.tools.memory import hit_entry
from tests.cli.coding import on_a_terminal
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
EVIL = "\x1b]0;owned\x07\x1b[2J\u202eright"
LIT = "\x1b[1;33m"


def test_a_long_row_that_is_no_rule_takes_linear_time() -> None:
    """Of a table or a heading, with a word at its end."""
    began = time.process_time()
    row = "-" * 100_000 + " end"
    assert without_markdown(row) == row
    assert without_markdown("-" * 100_000) == ""
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        ("## The **two** beds\n\n- ferns\n- [ ] water", "The two beds\n\n• ferns\n• water"),
        ("see [the *docs*](https://x.y/z) and `a*b*c`", "see the docs and a*b*c"),
        ("**run `ship`** and `__init__`", "run ship and __init__"),
        ("snake_case_name, 2 * 3 * 4, a*b*c", "snake_case_name, 2 * 3 * 4, a*b*c"),
        ("```python\nprint(1)\n```\n> as said", "\nprint(1)\n\nas said"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n\n| 1 | 2 |"),
    ],
)
def test_an_excerpt_has_no_raw_markdown_and_keeps_names(markdown: str, said: str) -> None:
    assert without_markdown(markdown) == said


@pytest.mark.parametrize(
    ("query", "row", "lit"),
    [
        ("how do tomatoes drink?", "A tomato drinks; how nice", ["tomato", "drinks"]),
        ("Tank", "tank tanker TANK", ["tank", "tanker", "TANK"]),
        ("art", "the part of art", ["art"]),
        ("日本", "これは日本語です", ["日本"]),
        ("the", "the end of the day", ["the", "the"]),
        ("[a-z", "a [a-z] z", ["z", "z"]),
    ],
)
def test_the_words_looked_for_are_lit_with_other_endings(
    query: str, row: str, lit: list[str]
) -> None:
    parts = Light(query).parts(row)
    assert "".join(text for text, _ in parts) == row
    assert [text for text, style in parts if style] == lit


def test_an_excerpt_stands_about_the_first_word_that_was_looked_for() -> None:
    text = "word " * 400 + "then the **ferns** grow " + "more " * 400
    row = excerpt(text, Light("ferns"), 60)
    assert row.startswith("… word")
    assert "the ferns grow" in row
    assert display_width(row) <= 60


def a_session(**fields: Any) -> Session:
    times = dict.fromkeys(("started_at", "updated_at", "last_activity_at"), NOW)
    return Session(session_id=new_id(), cwd="/home/a/garden", project_id="p", **times, **fields)


def hits() -> tuple[Hit, FactHit]:
    turn = Turn(
        turn_id=new_id(),
        session_id=f"{new_id()[:-8]}0000000a",
        turn_index=3,
        started_at=NOW,
        user_message="Where do **ferns** grow?" + EVIL,
        assistant_message="## Ferns\n\nIn the shade" + EVIL,
    )
    memory = MemoryRecord(
        memory_id=f"{new_id()[:-8]}0000000b",
        content="Ferns stand in the `shade`" + EVIL,
        created_at=NOW,
        updated_at=NOW,
    )
    hit = Hit(
        type="turn", turn=turn, score=1, session_id=turn.session_id, session_title="x", at=NOW
    )
    return hit, FactHit(memory=memory, score=1, why=("its words" + EVIL,))


def test_finds_on_a_terminal() -> None:
    bare = hits_text(hits(), NOW, width=90, close=1)
    assert bare == snapshot("""\
Turn 3 · session 0000000a “x” · just now
  > Where do ferns grow?\\e]0;owned\\x07\\e[2J\\u{202e}right
  Ferns In the shade\\e]0;owned\\x07\\e[2J\\u{202e}right

Less relevant:

Memory 0000000b · fact · told by you · just now
  found by its words\\e]0;owned\\x07\\e[2J\\u{202e}right
  Ferns stand in the `shade`\\e]0;owned\\x07\\e[2J\\u{202e}right
""")
    colored = hits_text(hits(), NOW, width=90, paint=Paint("color"), query="fern", close=1)
    assert f"{LIT}ferns\x1b[0m grow?" in colored
    for width in (30, 42, 80, 120):
        text = hits_text(hits(), NOW, width=width, query="fern", close=1)
        assert max(map(display_width, text.splitlines())) <= width


def test_a_find_says_what_took_the_place_of_its_decision_wherever_it_is_listed() -> None:
    """On a terminal, in a pipe, below its session, in JSON, and to the agent."""
    (hit, _) = hits()
    assert hit.turn
    now = "Since replaced by: Ferns stand in the sun."
    hit = hit.judged({hit.turn.turn_id: Replaced("Ferns stand in the sun.")})
    below = [(a_session(), [hit])]
    listed = [
        hits_text([hit], NOW, width=90, close=1),
        found_sessions(below, NOW, width=90, paint=Paint("none"), query="fern", close=1),
        hit_entry(hit, "fern", "", NOW),
    ]
    for text in listed:
        assert text.rstrip().endswith((f"\n    {now}", f"\n  {now}"))
    assert hit_document(hit)["since"] == now


def test_a_conversation_on_a_terminal_is_set() -> None:
    (hit, _) = hits()
    assert hit.turn
    call = ToolCall(
        tool_call_id=new_id(),
        turn_id="t",
        order=0,
        tool_name="run_command",
        arguments='{"command": "make ship"}',
        result='{"text": "no"}',
        success=False,
        error="exit code 1, " * 9 + EVIL,
        started_at=NOW,
    )
    ran = msgspec.structs.replace(
        call, success=True, error=None, tool_name="ran", result='{"text": "no", "exit_code": 3}'
    )
    session = a_session(title="Ferns" + EVIL)
    turn = msgspec.structs.replace(hit.turn, tool_calls=(call, ran))
    text = heading_text(session) + turn_text(turn, width=80, paint=Paint("none"), results=True)
    for shown in ("\n✗ make ship", "\n✗ ran", "\nFerns\n"):  # no `## ` before it
        assert shown in text
    assert text.replace("\n", "").isprintable()
    paint = Paint("color")
    colored = heading_text(session, paint) + turn_text(turn, width=80, paint=paint)
    assert "\x1b[31m✗\x1b[0m \x1b[1mmake ship\x1b[0m" in colored
    assert "\x1b[1mWhere do **ferns**" in colored
    assert not re.search(r"\x1b(?!\[[\d;]*m)", colored)


def test_a_check_is_green_and_trouble_is_not() -> None:
    def painted(health: str, advice: str = "") -> str:
        check = Check("store", health, "away" + EVIL, advice)  # type: ignore[arg-type]
        return check_text(check, 80, Paint("color"))

    assert painted("ok").startswith("\x1b[32mok\x1b[0m     store")
    assert painted("note").startswith("\x1b[1;33mnote\x1b[0m")
    assert painted("broken", "do it").startswith("\x1b[1;31mbroken\x1b[0m")
    assert "\x1b]" not in painted("ok")
    assert "\x1b" not in check_text(Check("store", "ok", "away" + EVIL), None, Paint("none"))


# --- by the day; of sessions a pipe gets a table ------------------------------

WIDE = "日本語のメモ 👩‍💻 naïve e\u0301 שלום " * 12


def memory(number: int, content: str, **fields: object) -> MemoryRecord:
    at = fields.pop("at_day", NOW)
    given = {"project_id": "p", "created_at": at, "updated_at": at, **fields}
    whole = f"00000000-0000-7000-8000-0000{number:08d}"
    return MemoryRecord(memory_id=whole, content=content, **given)  # type: ignore[arg-type]


MEMORIES = [
    memory(1, "never push to main without running ruff", kind="rule", project_id=None),
    memory(
        2,
        "`make ship` failed: 403 from the registry, since the token of the build had expired",
        kind="failure",
        trust="tool",
        expires_at=NOW + timedelta(days=29),
    ),
    memory(3, "the deploy key rotates on Mondays", at_day=NOW - timedelta(days=3)),
    memory(4, "the beds are watered by night", at_day=NOW - timedelta(days=11), kind="decision"),
    memory(5, "tabs, not spaces", at_day=NOW - timedelta(days=400), kind="preference"),
]


def timeline(width: int, mode: ColorMode = "none", memories: list[MemoryRecord] = MEMORIES) -> str:
    return memories_by_day(memories, NOW, width=width, paint=Paint(mode))


def test_a_day_is_named_as_people_say_it() -> None:
    days = [0, 1, 2, 6, 7, 11, 365]
    named = [day_name(NOW - timedelta(days=back), NOW) for back in days]
    assert named == snapshot(
        ["today", "yesterday", "2 days ago", "6 days ago", "16 Nov", "12 Nov", "23 Nov 2025"]
    )
    assert day_name(NOW + timedelta(days=2), NOW) == "today"


def test_what_is_remembered_comes_first_and_whole() -> None:
    assert timeline(100) == snapshot("""\
today        ★ never push to main without running ruff                  rule · you · user · 00000001
             ✗ `make ship` failed: 403 from the registry, since the token of the build had expired
                                                  failure · tool · project · until 22 Dec · 00000002
3 days ago   · the deploy key rotates on Mondays                     fact · you · project · 00000003
12 Nov       ◆ the beds are watered by night                     decision · you · project · 00000004
19 Oct 2025  · tabs, not spaces                                preference · you · project · 00000005
""")


def test_a_small_terminal_gets_the_day_above_and_the_facts_below() -> None:
    assert timeline(42) == snapshot("""\
today
★ never push to main without running ruff
  rule · you · user · 00000001
✗ `make ship` failed: 403 from the
  registry, since the token of the build
  had expired
  failure · tool · project · until 22 Dec
  00000002

3 days ago
· the deploy key rotates on Mondays
  fact · you · project · 00000003

12 Nov
◆ the beds are watered by night
  decision · you · project · 00000004

19 Oct 2025
· tabs, not spaces
  preference · you · project · 00000005
""")


def test_the_painted_timeline_says_the_same_and_mono_has_no_colour() -> None:
    assert "\x1b[2mrule · you · user · 00000001\x1b[0m" in timeline(100, "color")
    assert "\x1b[33m★\x1b[0m" in timeline(100, "color")
    mono = timeline(100, "mono")
    assert "\x1b[2m" in mono
    assert "\x1b[3" not in mono
    bare = mono.replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert bare == timeline(100)


@pytest.mark.parametrize("width", range(30, 121, 10))
def test_no_row_is_wider_than_the_terminal_and_none_can_steer_it(width: int) -> None:
    memories = [memory(n, said) for n, said in enumerate((WIDE, EVIL, "x" * 300, "short"))]
    people = {"": EVIL * 3}
    text = memories_by_day(memories, NOW, width=width, paint=Paint("none"), people=people)
    assert max(map(wcswidth, text.splitlines())) <= width
    assert min(map(wcswidth, text.splitlines())) >= 0
    assert all(f"{n:08d}" in text for n in range(4))
    assert text.replace("\n", "").replace("\u200d", "").isprintable()


@pytest.fixture(scope="module")
def ragmem(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ragmem]:
    with LLMServer([Answer("So it is.")], repeat=True) as server:
        ragmem = Ragmem(tmp_path_factory.mktemp("shown"), server.env)
        for said in ("How much do tomatoes drink?", "Where do ferns grow?"):
            ragmem.ok("sessions", "rename", ragmem.session_of(said), "The garden")
        ragmem.ok("memory", "add", "--kind", "rule", "The tomatoes are watered by night")
        yield ragmem


def test_a_terminal_gets_days_and_a_pipe_the_table(ragmem: Ragmem) -> None:
    raw, rows = on_a_terminal(ragmem, "sessions", "list", columns=100)
    assert rows[0].startswith("today  The garden #ask")
    assert rows[1].startswith("       The garden #ask")
    assert b"\x1b[1mThe garden #ask\x1b[0m" in raw
    night = "today  ★ The tomatoes are watered by night"
    _, rows = on_a_terminal(ragmem, "memory", "list", columns=100)
    assert rows[0].startswith(night)
    assert rows[0].split(" · ")[0].endswith("  rule")
    memories, sessions = ragmem.ok("memory", "list").out, ragmem.ok("sessions", "list").out
    assert memories.startswith(night)
    assert sessions.startswith("ID        LAST ACTIVITY")
    assert "\x1b" not in memories + sessions


@pytest.mark.parametrize(
    ("env", "sequences"),
    [
        ({"NO_COLOR": "1"}, {b"1", b"2", b"0"}),
        ({"NO_COLOR": "1", "RAGMEM_UI__COLOR": "always"}, {b"1", b"2", b"36", b"0"}),
        ({"RAGMEM_UI__COLOR": "never"}, {b"1", b"2", b"0"}),
        ({"TERM": "dumb"}, set()),
    ],
)
def test_no_more_colour_than_is_wanted(
    ragmem: Ragmem, env: dict[str, str], sequences: set[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setitem(ragmem.env, name, value)
    raw, _ = on_a_terminal(ragmem, "sessions", "list")
    assert set(re.findall(rb"\x1b\[([\d;]*)m", raw)) == sequences
    assert raw.count(b"\x1b") == len(re.findall(rb"\x1b\[[\d;]*m", raw))
