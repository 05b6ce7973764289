"""The picker as a person sees it, and how a few letters find what was meant."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ragmem.records.conversation import UNDO
from ragmem.repl.choices import THEMES, session_rows, turn_question
from ragmem.repl.commands import COMMANDS
from ragmem.repl.completion import ChatCompleter, fold, rate, spread
from tests.memory.builders import a_call, a_turn
from tests.repl.fake_app import session
from tests.repl.pty_chat import FakeChat

ESC, CTRL_C, CTRL_N, CTRL_P = "\x1b", "\x03", "\x0e", "\x10"
UP, DOWN, HOME, END = f"{ESC}[A", f"{ESC}[B", f"{ESC}[H", f"{ESC}[F"
PAGE_UP, PAGE_DOWN = f"{ESC}[5~", f"{ESC}[6~"


@pytest.fixture
def picker(tmp_path: Path) -> Iterator[FakeChat]:
    """A chat with forty sessions before it, asked which to go on with."""
    with FakeChat(tmp_path, "past", "more=40") as begun:
        begun.send("/resume\r", shows=r"^  Resume › +41 of 41  tab: all folders$")
        yield begun


def chosen(chat: FakeChat) -> str:
    found = re.search(r"^  ▸ (\S+ \S+)", chat.screen, re.MULTILINE)
    return found[1] if found else ""


def test_words_in_any_order_find_a_session_and_enter_goes_on_with_it(picker: FakeChat) -> None:
    picker.send("7 wrk", shows=r"^  Resume › 7 wrk +\d+ of 41  tab")
    picker.wait_for_screen(r"^  ▸ Work 7 +8 turns +\d+ (month|year)s?  #wip\n    Work 17 ")
    picker.wait_for_screen(r"^  ─+\n    last: and then\?.*\n    1 file changed · open: the gate st")
    assert b"\x1b]0;owned" not in picker.raw
    picker.send("\r", shows=r"openai/scripted · Work 7")


@pytest.mark.chat("past", "continue", "more=3")
def test_a_picker_that_is_left_leaves_no_row_of_it_behind(chat: FakeChat) -> None:
    """Nor does Esc Esc; what is picked stands below the command that it was picked for."""
    chat.send(
        ESC + ESC,
        shows=r"^  Rewind to before .*› [\s\S]*^  ▸ and then\?.* turn 2  \d+ (month|year)s?",
    )
    chat.wait_for_screen(r"^    1 turn from there on\n    no files changed$")
    chat.send(CTRL_C, shows=r"^›$")
    assert "Rewound to" not in chat.text
    chat.send("/resume\r", shows=r"^  ▸ ")
    chat.send(f"{DOWN}\r", prints=r"^› /resume\n\n↩ Work ")


def test_every_key_that_lists_know_moves_the_choice(picker: FakeChat) -> None:
    for keys, expected in (
        (DOWN, "Work 0"),
        (CTRL_N, "Work 1"),
        (CTRL_P, "Work 0"),
        (UP, "Past work"),
        (UP, "Work 39"),
        (HOME, "Past work"),
        (PAGE_DOWN, "Work 9"),
        (PAGE_UP, "Past work"),
        (END, "Work 39"),
    ):
        picker.send(keys)
        picker.until(lambda wanted=expected: chosen(picker) == wanted, expected)
    rows = [row for row in picker.screen.split("\n") if re.match(r"  [▸ ] (Past|Work)", row)]
    assert len(rows) == 10


def test_tab_goes_to_the_sessions_of_all_folders_and_back(picker: FakeChat) -> None:
    picker.send("far", shows=r"No matches\.")
    picker.send("\t", shows=r"^  ▸ Far away +3 turns  \d+ (month|year)s?  place$")
    picker.wait_for_screen(r"1 of 42  tab: this folder$")
    picker.send("\t", shows=r"No matches\.")


def test_a_preview_says_that_it_loads_until_it_is_there(picker: FakeChat) -> None:
    picker.send("work 3", shows=r"^  ▸ Work 3 .*\n(.*\n)+  ─+\n    loading …$")
    picker.let("recap")
    picker.wait_for_screen(r"^  ─+\n    last: and then\?")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (30, 9)])
def test_the_picker_fits_the_window(tmp_path: Path, columns: int, rows: int) -> None:
    """Nothing is wrapped, and as much as has room is shown."""
    with FakeChat(tmp_path, "past", "more=40", columns=columns, rows=rows, ready="") as chat:
        chat.until(lambda: "openai" in chat.screen or chat.log("agent"))
        chat.send("/resume\r", until=lambda: "▸ Past" in chat.screen)
        listed = [row for row in chat.screen.split("\n") if re.match(r"  [▸ ] (Past|Work)", row)]
        assert len(listed) == min(10, rows // 2 - 1)
        assert ("───" in chat.screen) == (rows >= 12)
        last = "  Enter picks · Esc leaves" + " · type to find" * (columns > 41)
        assert chat.screen.rstrip().endswith(last)
        chat.send("\r", until=lambda: len(chat.log("agent")) == 2)
        assert chat.log("agent")[1]["session"].endswith("00000001")


def test_sessions_of_one_name_are_told_apart() -> None:
    """By what was last said in them; beside them what is short, so that it can be compared."""
    found = [
        session(1, title="Spool", turn_count=2, last_message="drain it"),
        session(2, title="Spool", turn_count=1, last_message="measure it", tags=("wip", "a")),
        session(3, title="Other", turn_count=1, last_message="what?"),
        session(4, title="Never begun"),
    ]
    rows = session_rows(found, folders=True)
    assert [row.text for row in rows] == ["Spool · drain it", "Spool · measure it", "Other"]
    assert rows[1].facts[0] == "1 turn"
    assert rows[1].facts[2:] == ("project", "#wip #a")
    [row] = session_rows([session(4, turn_count=1, status="archived")])
    assert row.facts[2:] == ("archived", "")


@pytest.mark.chat("past", "more=3")
def test_a_signal_ends_the_chat_from_within_the_picker(chat: FakeChat) -> None:
    chat.send("/resume\r", shows=r"^  Enter picks · Esc leaves")
    chat.process.kill(15)
    assert chat.exit_code() == 143
    assert chat.is_restored()
    assert "Enter picks" not in chat.screen


@pytest.mark.chat(files={"history": "".join(f"\n+prompt number {i}\n" for i in range(30))})
def test_earlier_prompts_are_picked_while_an_answer_comes(chat: FakeChat) -> None:
    """The answer goes on above the list, in any window, and nothing of either stays behind."""
    chat.send("slow\r", shows=r"word1 ")
    chat.send("draft\x12", shows=r"^  Earlier prompts › +31 of 31$")
    for columns, rows in ((42, 20), (120, 40), (20, 5), (80, 24)):
        chat.resize(columns, rows)
        chat.pump(0.2)
    chat.send("ber 17", shows=r"^answering · .*\n  Earlier prompts › ber 17 +1 of 31$")
    chat.send("\r", shows=r"^› prompt number 17$")
    assert "Earlier prompts" not in chat.screen
    chat.send(ESC, prints=r"^  interrupted$")


# --- what fits ------------------------------------------------------------------


def test_letters_of_a_name_find_it_and_a_beginning_comes_first() -> None:
    assert rate(["smz"], "summarize") is not None
    assert rate(["smz"], "rename") is None
    names = ["exit", "the next thing", "context", "a text", "text file"]
    rated = {name: rate(["text"], name) for name in names}
    found = sorted(filter(rated.get, names), key=lambda name: rated[name] or ())
    assert found == ["text file", "a text", "context", "the next thing"]
    prompts = ["fix the flaky pump test", "a test of the fix", "fix test", "fine, exit: the test"]
    fits = {prompt: rate(["fix", "test"], prompt) for prompt in prompts}
    assert sorted(prompts, key=lambda prompt: fits[prompt] or ()) == [
        "fix test",  # as it was typed, then the words somewhere, then their letters alone
        "fix the flaky pump test",
        "a test of the fix",
        "fine, exit: the test",
    ]
    assert rate(["spool", "fix"], "fix the spool") is not None
    assert rate(["wip"], "measure the spool", "4 turns #wip") is not None
    assert rate(["wpi"], "measure the spool", "4 turns #wip") is None


@given(
    st.text("abß\u0130 .", max_size=8), st.text(max_size=40) | st.text("abß\u0130 .", max_size=40)
)
def test_the_letters_that_are_found_spell_what_was_typed(typed: str, text: str) -> None:
    """And folding keeps each character at its place."""
    word, folded = fold(typed), fold(text)
    assert len(folded) == len(text)
    places = spread(word, folded) if word else []
    assert "".join(folded[at] for at in places) in ("", word)
    rest = iter(folded)
    assert bool(places) == (bool(word) and all(letter in rest for letter in word))


# --- the menu -------------------------------------------------------------------


def test_the_menu_shows_ten_commands_with_their_arguments_apart(chat: FakeChat) -> None:
    """In the terminal's own colours, with the marked one to see; letters alone find one too."""
    chat.send("/", shows=r"^    /resume \[id or name\] +switch to another session$")
    chat.until(lambda: len(re.findall(r"^ {4}/\w", chat.screen, re.MULTILINE)) == 10, "ten")
    chat.send(f"{DOWN}{DOWN}", shows=r"^› /\n    /help .*\n  ▸ /new +start a new session$")
    chat.send(f"{CTRL_C}/smz", shows=r"^› /smz\n  ▸ /summarize  summarize this session now$")
    chat.send("\t", shows=r"^› /summarize$")
    backgrounds = re.findall(rb"\x1b\[[0-9;]*(?:;4[0-7]|;10[0-7]|48;)[0-9;]*m", chat.raw)
    assert backgrounds == []


@pytest.mark.chat("more=9")
def test_what_follows_a_command_is_completed(chat: FakeChat) -> None:
    for typed, seen, completed in (
        ("/effort hi", r"^  ▸ high +thinks for long$", r"^› /effort high$"),
        ("/resume work 7", r"^    00000107  Work 7 · 8 turns · \d+", r"^› /resume 00000107$"),
        ("/model sma", r"smollm2-135m|^  openai/scripted", r"^› /model "),
    ):
        chat.send(typed, shows=seen)
        chat.send("\t", shows=completed)
        chat.send(CTRL_C, shows=r"^›$")


def test_enter_runs_the_command_that_the_menu_marks(chat: FakeChat) -> None:
    """The first that fits, or the one that the arrow keys have gone to; Tab fills it in."""
    chat.send("/eff", shows=r"^  ▸ /effort ")
    chat.send("\r", prints=r"^› /effort\n[\s\S]*provider's default")
    chat.send("/co", shows=r"^  ▸ /(\w+)[^\n]*\n    /(\w+) ")
    second = re.search(r"^  ▸ /\w+[^\n]*\n    /(\w+) ", chat.screen, re.MULTILINE)
    assert second
    chat.send(DOWN, shows=rf"^› /co\n    /\w+[^\n]*\n  ▸ /{second[1]}")
    chat.send("\t", shows=rf"^› /{second[1]}$")
    chat.send(f"{CTRL_C}/effort hi", shows=r"^  ▸ high ")
    chat.send("\r", prints=r"^› /effort high$")
    assert chat.prompts == []


def test_enter_fills_a_command_in_that_needs_more(chat: FakeChat) -> None:
    chat.send("/rena", shows=r"^  ▸ /rename name ")
    chat.send("\r", shows=r"^› /rename$")
    chat.send("bean beds\r", prints=r"This session is now called bean beds\.")


def test_a_command_that_is_typed_whole_goes_before_those_that_begin_so() -> None:
    host: Any = SimpleNamespace(commands={"planet": "x", "plan": "read only: /plan [what to do]"})
    found = ChatCompleter(host).get_completions(Document("/plan"), CompleteEvent())
    assert [each.text for each in found] == ["/plan", "/planet"]


def test_of_a_theme_its_name_alone_is_found_and_of_a_session_all_that_is_told() -> None:
    """Else Enter took another one than was typed: there is no choice without its name."""
    offered = {"theme": THEMES, "effort": {"low": "thinks a little"}, "resume": {"0107": "Ferns"}}
    host: Any = SimpleNamespace(values=lambda command: list(offered[command].items()))
    for typed, found in {
        "/theme foo": [],
        "/theme for": [],
        "/theme dk": ["dark"],
        "/effort thinks": [],
        "/effort LO": ["low"],
        "/resume fern": ["0107"],
    }.items():
        completions = ChatCompleter(host).get_completions(Document(typed), CompleteEvent())
        assert [each.text for each in completions] == found, typed


@pytest.mark.parametrize("typed", ["/e", "/ex"])
def test_no_beginning_that_others_share_is_to_leave(typed: str) -> None:
    host: Any = SimpleNamespace(commands=COMMANDS)
    found = ChatCompleter(host).get_completions(Document(typed), CompleteEvent())
    names = [each.text.split()[0] for each in found]
    assert names[0] == "/export"
    assert "/exit" in names


@pytest.mark.chat(files={"readme.md": ""})
def test_enter_takes_the_marked_file_and_sends_nothing(chat: FakeChat) -> None:
    """Once it is there whole, Enter sends."""
    chat.send("see @readm", shows=r"^  ▸ readme\.md$")
    chat.send("\r", shows=r"^› see @readme\.md$")
    assert chat.prompts == []
    chat.send("now\r", until=lambda: chat.prompts == ["see @readme.md now"])
    chat.send("and @readme.md\r", until=lambda: chat.prompts[1:] == ["and @readme.md"])


@pytest.mark.chat(files={"readme.md": ""})
def test_enter_changes_nothing_where_no_row_is_marked(chat: FakeChat) -> None:
    for typed in ("/", "see @", "/model openai/x"):
        chat.send(typed, shows=rf"^› {re.escape(typed)}$")
        chat.pump(0.3)
        assert "▸" not in chat.screen
        chat.send("\r", prints=rf"^› {re.escape(typed)}\n\n")
        chat.wait_for_screen(r"^›$")


@pytest.mark.parametrize("keys", [ESC, f"{HOME}x"], ids=["Esc", "what goes before it"])
def test_a_menu_that_is_closed_marks_nothing(chat: FakeChat, keys: str) -> None:
    chat.send("/res", shows=r"^  ▸ /resume ")
    chat.send(keys, until=lambda: "▸" not in chat.screen)
    chat.send("\r", prints=rf"^› {'x' if 'x' in keys else ''}/res$")


def test_one_goes_back_to_before_what_was_asked_and_not_to_before_an_undo() -> None:
    undone = a_call(tool_name=UNDO, origin="person")
    turns = [a_turn(1, "Dig."), a_turn(2, "/undo", calls=(undone,)), a_turn(3, "Plant.")]
    assert [row.text for row in turn_question(turns).rows] == ["Plant.", "Dig."]
