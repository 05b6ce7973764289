"""Memories and sessions by the day, on a terminal; of sessions a pipe gets a table."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot
from wcwidth import wcswidth

from ragmem.cli.output import Mode, Paint
from ragmem.cli.shown import day_name, memories_by_day
from ragmem.records import MemoryRecord
from tests.cli.coding import on_a_terminal
from tests.cli.process import Ragmem
from tests.fakes.llm_server import Answer, LLMServer

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
EVIL = "\x1b]0;owned\x07\x1b[2J\u202eright"
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


def timeline(width: int, mode: Mode = "none", memories: list[MemoryRecord] = MEMORIES) -> str:
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
