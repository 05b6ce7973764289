"""The row below the prompt and the live one above it: what is going on, and how much of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from ragmem.events import ModelCallStarted, Notice, RetryWaiting, TextDelta
from ragmem.llm.base import RetryChunk, TextChunk
from ragmem.records import Usage
from ragmem.repl.about import Status, dollars, next_mode, toolbar
from ragmem.repl.output import paint
from ragmem.repl.turn import TurnView
from ragmem.text import display_width
from tests.e2e.house import House
from tests.fakes.llm_server import Answer, LLMServer
from tests.repl.fake_app import EVIL, turn_finished
from tests.repl.pty_chat import FakeChat

SHIFT_TAB, ESC = "\x1b[Z", "\x1b"


def a_status(**fields: Any) -> Status:
    given = {
        "model": "openai/main",
        "session": "my nice session",
        "mode": "acceptEdits",
        "tokens": 41_000,
        "window": 100_000,
        "cost_usd": 0.12,
        "doing": "summaries",
    }
    return Status(**{**given, **fields})


def row(columns: int, **fields: Any) -> str:
    return "".join(text for _, text in toolbar(a_status(**fields), columns))


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (
            100,
            "  openai/main · my nice session · edits allowed"
            "              ▓▓▓▓░░░░░░ 41% · $0.12 · ⟳ summaries",
        ),
        (75, "  openai/main · my nice session · edits allowed  ▓▓▓▓░░░░░░ 41% · $0.12"),
        (64, "  openai/main · my nice session · edits allowed  41% · $0.12"),
        (58, "  openai/main · my nice ses… · edits allowed  41% · $0.12"),
        (51, "  main · my nice ses… · edits allowed  41% · $0.12"),
        (44, "  openai/main · edits allowed  41% · $0.12"),
        (36, "  main · edits allowed  41% · $0.12"),
        (23, "  main · edits ok  41%"),
        (21, "  edits allowed  41%"),
        (10, "  edits ok"),
        (6, "  edi…"),
    ],
)
def test_the_least_important_goes_first(columns: int, shown: str) -> None:
    said = row(columns)
    assert said.split() == shown.split()
    assert display_width(said) <= columns


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"mode": "default", "sandboxed": True}, "  openai/main · work/garden  41% · $0.12"),
        ({"sandboxed": True}, "  main · edits allowed · work/garden  41%"),
        ({"sandboxed": False}, "  main · edits allowed · no sandbox  41%"),
        (
            {"sandboxed": False, "mode": "bypassPermissions", "model": "openai/gpt-5-codex"},
            "  everything allowed · no sandbox  41%",
        ),
    ],
)
def test_what_matters_most_stays_in_a_narrow_window(fields: dict[str, Any], shown: str) -> None:
    """The mode, that there is no sandbox, how full it is; then the model and the branch."""
    said = row(42, branch="work/garden", **fields)
    assert said.split() == shown.split()
    assert display_width(said) <= 42


def test_an_id_goes_before_a_word_is_shortened() -> None:
    said = row(42, session="00000002", is_named=False, mode="bypassPermissions", tokens=0)
    assert " ".join(said.split()) == "openai/main · everything allowed $0.12"


def test_that_there_is_a_sandbox_is_said_where_there_is_room() -> None:
    assert "sandbox" not in row(120)  # not known yet
    assert " · sandbox" in row(120, sandboxed=True)
    assert "no sandbox" not in row(120, sandboxed=True)
    assert ("warning", "no sandbox") in toolbar(a_status(sandboxed=False), 80)


def test_that_nothing_is_kept_is_said_also_where_there_is_little_room() -> None:
    assert ("warning", "not stored") in toolbar(a_status(keeps=False), 100)
    assert " · not stored" in row(40, keeps=False)
    assert "kept" not in row(100)


def test_a_chat_of_which_nothing_is_kept_says_so_below_the_prompt(house: House) -> None:
    with house.chat("chat", "--ephemeral") as chat:
        chat.wait_for_screen(r"^  openai/scripted · .*not stored")
        chat.leave()


def test_the_usual_mode_is_not_spoken_of_and_the_others_have_a_style() -> None:
    assert "allowed" not in row(80, mode="default")
    assert ("plan", "plan: read-only") in toolbar(a_status(mode="plan"), 80)
    assert ("danger", "everything allowed") in toolbar(a_status(mode="bypassPermissions"), 80)
    assert "2 allowed always" in row(100, mode="default", always_count=2)


def test_nothing_is_guessed() -> None:
    """No bar without a window, no dollars without a price, nothing before the first request."""
    assert "context 41k tokens" in row(80, window=None)
    assert "%" not in row(80, window=None)
    assert "$" not in row(80, cost_usd=None)
    assert "%" not in row(80, tokens=0)


def test_a_full_window_is_seen() -> None:
    shown = dict(reversed(each) for each in toolbar(a_status(tokens=95_000), 100))  # type: ignore[misc]
    assert shown["95%"] == "danger"


def test_a_name_with_escapes_is_harmless() -> None:
    assert "\x1b" not in row(120, session=EVIL, model=f"a/{EVIL}")


@pytest.mark.parametrize(
    ("cost_usd", "shown"),
    [(0.0, "$0.00"), (0.0001, "<$0.001"), (0.0123, "$0.012"), (0.1, "$0.10"), (12.345, "$12.35")],
)
def test_an_amount_is_as_exact_as_it_is_small(cost_usd: float, shown: str) -> None:
    assert dollars(cost_usd) == shown


def test_the_key_goes_through_the_modes_but_never_to_the_one_that_allows_all() -> None:
    modes = ["default"]
    for _ in range(3):
        modes.append(next_mode(modes[-1]))  # type: ignore[arg-type]
    assert modes == ["default", "acceptEdits", "plan", "default"]
    assert next_mode("bypassPermissions") == "default"


# --- the live row -----------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def live(view: TurnView) -> str:
    return "".join(text for _, text in view.live(80, 10)[-1])


def test_a_retry_is_counted_down_with_its_reason() -> None:
    time = Time()
    view = TurnView(clock=time)
    view.show(ModelCallStarted(number=1))
    view.show(RetryWaiting(reason="rate limited", attempt=2, most=4, wait_s=3.0))
    assert live(view) == "rate limited · try 2 of 4 in 3 s · Esc stops"
    time.now = 2.5
    assert live(view) == "rate limited · try 2 of 4 in 1 s · Esc stops"
    time.now = 4
    assert live(view) == "rate limited · try 2 of 4 · Esc stops"
    view.show(TextDelta(text="At"))
    assert live(view) == "answering · 4 s · Esc stops"


def test_a_retry_is_a_line_where_nothing_is_live() -> None:
    ((kind, told),) = TurnView(shows_live=False).show(
        RetryWaiting(reason="rate limited", attempt=2, most=4, wait_s=3.0)
    )
    assert kind == "notice"
    assert paint(told, width=80, mode="none") == "· rate limited · try 2 of 4 in 3 s\n"


def test_the_half_of_an_answer_that_is_asked_for_again_stays_with_a_row_below_it() -> None:
    view = TurnView()
    view.show(ModelCallStarted(number=1))
    view.show(TextDelta(text="It prints hel"))
    told = Notice(level="warning", text="The answer broke off here; asking for it again.")
    printed = [*view.show(told)]
    view.show(RetryWaiting(reason="asking again", attempt=2, most=4, wait_s=1.0))
    assert live(view).startswith("asking again · try 2 of 4 in 1 s")
    view.show(TextDelta(text="It prints hello."))
    printed += view.show(turn_finished("success", usage=Usage(), duration_ms=10))
    assert [kind for kind, _ in printed] == ["text", "notice", "text", "closing"]
    rows = [paint(part, width=80, mode="none") for _, part in printed]
    assert [row.rstrip() for row in rows[:3]] == [
        "It prints hel",
        f"· {told.text}",
        "It prints hello.",
    ]


def test_the_clock_stands_still_while_the_person_is_waited_for() -> None:
    time = Time()
    view = TurnView(clock=time)
    time.now = 2
    view.pause()
    time.now = 60
    assert live(view) == "waiting for you · Esc stops"
    view.go_on()
    time.now = 61
    assert live(view) == "waiting for the model · 3 s · Esc stops"
    ended = turn_finished("success", usage=Usage(), duration_ms=61_000)
    (_, told) = view.show(ended)[-1]
    assert paint(told, width=80, mode="none") == "  3.0 s\n"


# --- in a chat --------------------------------------------------------------------


@pytest.mark.chat(columns=42, rows=20, env={"NO_COLOR": "1"})
def test_what_goes_on_is_told_on_a_small_screen_without_colours(chat: FakeChat) -> None:
    chat.send("limited\r", shows=r"^rate limited.* · try 2 of 4 in \d+ s")
    chat.wait_for_screen(r"41%")
    chat.let("limit")
    chat.wait_for(r"^At last\.")
    chat.wait_for_screen(r"^  (openai/)?scripted .*41%")
    assert "▓" not in chat.screen
    assert all(len(line) <= 42 for line in chat.screen.split("\n"))
    numbers = set(re.findall(rb"\x1b\[([0-9;]*)m", chat.raw))
    assert {int(n) for code in numbers for n in code.split(b";") if n} <= {0, 1, 2, 3, 4, 7}


def test_shift_tab_changes_the_mode_at_once_also_beside_a_running_turn(chat: FakeChat) -> None:
    chat.send("a draft")
    chat.send(SHIFT_TAB, shows=r"^  openai/scripted · 00000002 · edits allowed")
    assert "› a draft" in chat.screen
    chat.send("\x15slow\r", shows="word3")
    chat.send(SHIFT_TAB, shows=r"· plan: read-only")
    chat.send(ESC, prints=r"^  interrupted$")
    chat.send(SHIFT_TAB, until=lambda: "plan" not in chat.screen.split("\n")[-1])
    assert [line["mode"] for line in chat.log("mode")] == ["acceptEdits", "plan", "default"]


@pytest.mark.chat(columns=120, files={".git/HEAD": "ref: refs/heads/main\n"})
def test_the_branch_is_told_below_and_is_seen_anew_after_what_was_done(
    chat: FakeChat, tmp_path: Path
) -> None:
    chat.wait_for_screen(r"^  openai/scripted · 00000002 · main")
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/spool\n")
    chat.send("hello\r", shows=r"^  openai/scripted · 00000002 · spool")


async def test_the_model_tells_why_and_for_how_long_it_waits() -> None:
    from ragmem.llm.base import ModelInfo, Request
    from ragmem.llm.http_client import Endpoint, OpenAIClient
    from ragmem.messages import user

    limited = Answer(mode="429", retry_after="0.2")
    with LLMServer([limited, Answer(mode="502"), Answer("ok")]) as server:
        client = OpenAIClient(
            ModelInfo(name="x/y"), Endpoint(base_url=server.url, model="y"), retries=3
        )
        chunks = [chunk async for chunk in client.stream(Request(messages=(user("hi"),)))]
        await client.aclose()
    first, second, *rest = chunks
    assert first == RetryChunk(reason="rate limited", attempt=2, most=4, wait_s=0.2)
    assert isinstance(second, RetryChunk)
    assert second.attempt == 3
    assert second.reason.endswith("answered 502")
    assert TextChunk("ok") in rest


# --- the queue --------------------------------------------------------------------


def test_what_only_reads_is_answered_beside_a_running_turn(chat: FakeChat) -> None:
    chat.send("tool held\r", shows=r"^working")
    chat.send("next\r/cost\r", prints=r"^this chat +0 model calls")
    chat.wait_for_screen(r"^queued: next\nUp edits the last one$")
    assert chat.prompts == ["tool held"]
    chat.let("tool")
    chat.until(lambda: chat.prompts == ["tool held", "next"])
    chat.wait_for(r"^You said 'next'\.")
