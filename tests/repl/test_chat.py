"""The chat as a person sees it: a real process on a pty, a terminal emulator, a scripted app."""

import re
import signal
import stat
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.repl.fake_app import DECIDED
from tests.repl.pty_chat import LOADED, FakeChat

ESC, CTRL_C, CTRL_D, CTRL_R = "\x1b", "\x03", "\x04", "\x12"
UP, DOWN, SHIFT_TAB = f"{ESC}[A", f"{ESC}[B", f"{ESC}[Z"
HOME, RIGHT, DELETE = f"{ESC}[H", f"{ESC}[C", f"{ESC}[3~"
WORDS = r"word[1-9]\d* "
"""Of an answer that goes on and on: those that came first may be out of sight already."""
LINES = "\n".join(f"line {i}" for i in range(12))
PASTE = f"{ESC}[200~{LINES}{ESC}[201~"


def test_a_question_and_its_answer(chat: FakeChat) -> None:
    """Prompt, tool calls as they run, Markdown, costs, the command that resumes."""
    chat.send("tool held\r", shows=r"^● read_file ragmem/app.py\nworking · .* · Esc stops")
    chat.let("tool")
    chat.wait_for(r"^It is an app\.\n  2\.3 s · 2 model calls · 1,234 tokens in, 56 out")
    chat.send("markdown\r", prints=r"^\[image: http://host/image.png\] link \(http://host/\)$")
    chat.wait_for_screen(r"^  openai/scripted · 00000002 · no sandbox +▓▓▓▓░░░░░░ 41% · \$0\.026$")
    chat.leave()
    assert "● read_file ragmem/app.py\n  ⎿ 120 lines (12 ms)\n\nIt is an app." in chat.text
    assert "Title\n\nSome text and code.\n\n  x = 1\n\n • one\n • two\n\n[image:" in chat.text
    assert chat.text.endswith("Resume with: ragmem chat -r 00000002")
    assert chat.prompts == ["tool held", "markdown"]
    assert [*chat.log("opened"), *chat.log("closed")]
    assert chat.is_restored()


@pytest.mark.chat("early=held", "load=held", columns=40, ready=r"^›")
def test_what_is_typed_before_the_prompt_is_ready_is_kept(chat: FakeChat) -> None:
    """Ready for typing before any heavy import; an Enter sends, a paste does not."""
    typed = f"{ESC}[200~a question that is longer\nthan one row{ESC}[201~ is\rand a dra"
    chat.send(typed)
    chat.let("early")
    chat.wait_for_screen(r"loading …\nqueued: a question")
    chat.wait_for_screen(r"^› and a dra$")
    chat.let("load")
    chat.send("ft\r", prints=r"^› and a draft$")
    chat.until(lambda: len(chat.prompts) == 2)
    assert chat.prompts == ["a question that is longer\nthan one row is", "and a draft"]
    assert "^[" not in chat.text


@pytest.mark.chat("early=held", ready=r"^›")
def test_a_paste_that_has_not_all_come_before_the_prompt_is_ready_is_one(chat: FakeChat) -> None:
    """None of the lines that come behind is taken for an Enter: each would be a prompt."""
    chat.send(f"{ESC}[200~plum\nfig")
    chat.let("early")
    chat.wait_for_screen(LOADED)
    chat.send(f"\npear\n{ESC}[201~jam\r", until=lambda: chat.prompts)
    assert chat.prompts == ["plum\nfig\npear\njam"]


@pytest.mark.chat("early=held", ready=r"^›")
def test_a_shell_that_had_the_terminal_before_the_prompt_is_ready_holds_nobody_up(
    chat: FakeChat,
) -> None:
    """After Ctrl-Z and `fg` the terminal is as shells leave it, and hands out whole lines."""
    mode = termios.tcgetattr(chat._terminal)
    mode[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(chat._terminal, termios.TCSANOW, mode)
    chat.send("hel")
    chat.let("early")
    chat.wait_for_screen(r"^› hel$")
    chat.send("lo\r", until=lambda: chat.prompts == ["hello"])
    chat.leave()
    assert chat.is_restored()


@pytest.mark.chat("early=held", "no_model", ready=r"^›")
def test_failing_to_start_leaves_a_clean_line(chat: FakeChat) -> None:
    """The error, its hint and its exit code; typed text does not reach the shell."""
    chat.send("rm -rf everything\n")
    chat.let("early")
    assert chat.exit_code() == 2
    assert chat.screen == "error: No model can be used.\nSet OPENAI_API_KEY."
    assert chat.is_restored()


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143), (1, 129)])
@pytest.mark.chat("early=held", env={"PYTHONSAFEPATH": "1"}, ready=r"^›")
def test_signals_before_anything_is_imported(chat: FakeChat, number: int, code: int) -> None:
    """The first prompt is erased, the terminal as it was, the exit code the signal's."""
    # A setting of the interpreter's own: no fork, which has imported everything.
    chat.send("typed")
    chat.process.kill(number)
    assert chat.exit_code() == code
    assert "typed" not in chat.screen
    assert chat.is_restored()


def test_several_lines_and_history(tmp_path: Path) -> None:
    """Alt-Enter or a trailing backslash adds a line; Up and Ctrl-R find prompts again."""
    with FakeChat(tmp_path) as chat:
        chat.send(f"one{ESC}\rtwo\\\rthree\r", prints=r"› one\n  two\n  three\n\nYou said")
        chat.send("second\r", prints=r"You said 'second'")
        assert chat.prompts == ["one\ntwo\nthree", "second"]
        chat.send(CTRL_D)
        assert chat.exit_code() == 0
    assert stat.S_IMODE(chat.history.stat().st_mode) == 0o600
    with FakeChat(tmp_path) as chat:
        chat.send(UP, shows=r"^› second$")
        chat.send(CTRL_C, shows=r"^›$")
        chat.send(CTRL_R, shows=r"^  Earlier prompts › +2 of 2$")
        chat.send("two", shows=r"^  ▸ one two three$")
        chat.send("\r", shows=r"^› one\n  two\n  three")
        chat.send("\r", until=lambda: chat.prompts[-1] == "one\ntwo\nthree")


def test_long_pastes_fold_and_are_sent_whole(chat: FakeChat) -> None:
    """Pasted text of many lines folds; backspace takes all of it."""
    chat.send(f"see {PASTE}", shows=r"^› see \[pasted 12 lines\]$")
    chat.send("\x7f", shows=r"^› see$")
    chat.send(f"{PASTE} there\r", until=lambda: chat.prompts == [f"see {LINES} there"])
    chat.wait_for(r"^› see \[pasted 12 lines\] there$")
    chat.send(UP, shows=r"^› see \[pasted 12 lines\] there$")
    chat.send(CTRL_C, shows=r"^›$")
    chat.send(CTRL_R, shows=r"^  Earlier prompts ›")
    chat.send("line 11", shows=r"^  ▸ see \[pasted 12 lines\] there$")
    chat.send("\r", until=lambda: "Earlier prompts" not in chat.screen)
    chat.send("\r", until=lambda: len(chat.prompts) == 2)
    assert chat.prompts[1] == chat.prompts[0]


def test_what_hides_in_a_pasted_text_is_shown_and_sent_as_it_was_pasted(chat: FakeChat) -> None:
    """The keys go over it as one character; a wide blank stays itself."""
    text = "pay\u202eeva\U000e0041\u3000now"
    chat.send(f"{ESC}[200~{text}{ESC}[201~", shows=r"^› pay\\u{202e}eva\\u{e0041}\u3000 ?now$")
    chat.send(f"{HOME}{RIGHT * 3}{DELETE}", shows=r"^› payeva\\u{e0041}\u3000 ?now$")
    chat.send("\r", until=lambda: chat.prompts == [text.replace("\u202e", "")])


def test_what_is_drawn_anew_is_shown_by_the_terminal_at_once(chat: FakeChat) -> None:
    """Nothing is printed and no row erased outside of a synchronized update, if it knows those."""
    chat.send("hello\r", shows=r"^You said 'hello'\.\n")
    chat.wait_for_screen(r"^›$")
    outside = re.sub(rb"\x1b\[\?2026h.*?\x1b\[\?2026l", b"", bytes(chat.raw), flags=re.DOTALL)
    assert b"hello" not in outside
    assert b"\x1b[K" not in outside
    assert b"\x1b[J" not in outside


def test_prompts_typed_meanwhile_are_queued(chat: FakeChat) -> None:
    """Queued, shown, done in order."""
    chat.send("tool held\rfirst\rsecond\r", shows=r"^queued: first\nqueued: second$")
    chat.let("tool")
    chat.until(lambda: chat.prompts == ["tool held", "first", "second"])
    chat.wait_for(r"You said 'second'")


def test_esc_stops_the_answer_keeps_what_came_and_takes_the_queue_back(chat: FakeChat) -> None:
    """What waited stands unsent before the draft, and can be sent."""
    chat.send("slow\r", shows=WORDS)
    chat.send("later\rdraft", shows=r"^queued: later$")
    chat.wait_for_screen(r"^› draft$")
    chat.send(ESC, shows=r"^› later\n  draft$")
    chat.wait_for(r"^  interrupted$")
    assert "word1 " in chat.text
    assert chat.log("finished")[0]["subtype"] == "interrupted"
    chat.pump(0.3)
    assert chat.prompts == ["slow"]
    chat.send("\r", until=lambda: chat.prompts == ["slow", "later\ndraft"])


def test_ctrl_c_interrupts_then_clears_then_leaves(chat: FakeChat) -> None:
    """The ladder; any key takes its last step back, and the exit code is that of SIGINT."""
    chat.send("slow\r", shows=WORDS)
    chat.send("draft", shows=r"^› draft")
    chat.send(CTRL_C, prints=r"^  interrupted$")
    chat.wait_for_screen(r"^› draft")
    chat.send(CTRL_C, shows=r"^›$")
    chat.send(CTRL_C, shows=r"^  Ctrl-C again to leave$")
    chat.send("x\x7f", until=lambda: "Ctrl-C again" not in chat.screen)
    chat.send(CTRL_C, shows=r"^  Ctrl-C again to leave$")
    chat.send(CTRL_C)
    assert chat.exit_code() == 130
    assert chat.is_restored()


def test_ctrl_c_at_a_turn_that_is_over_clears_the_draft(chat: FakeChat) -> None:
    """The ladder goes by what is seen, though the turn's last work may not be done."""
    chat.send("lingering\rdraft", prints=r"^You said 'lingering'\.\n  2\.3 s · 2 model calls")
    chat.wait_for_screen(r"^› draft$")
    chat.send(CTRL_C, shows=r"^›$")
    chat.let("end")
    chat.send("again\r", prints=r"You said 'again'")
    assert "interrupted" not in chat.text


def test_a_hundred_ctrl_c(chat: FakeChat) -> None:
    """SIGINT a hundred times in an answer: the turn is recorded, the terminal restored."""
    chat.send("slow\r", shows=WORDS)
    for _ in range(100):
        chat.process.kill(signal.SIGINT)
    chat.until(lambda: chat.log("finished"))
    # From then on the keys go to the draft again: before, they would end the turn once more.
    chat.wait_for(r"interrupted")
    # Signals that arrive together are one: the rest may or may not have been enough.
    if chat.is_alive:
        chat.send(CTRL_C + CTRL_C)
    # One that comes when all is done, and Python on its way out, ends it: 130 to a shell too.
    assert chat.exit_code() in (130, -signal.SIGINT)
    assert chat.log("finished")[0]["subtype"] == "interrupted"
    assert chat.log("closed")
    assert chat.is_restored()


@pytest.mark.parametrize(
    ("begun", "number", "code"),
    [("slow\r", signal.SIGTERM, 143), ("slow\r", signal.SIGHUP, 129), ("", signal.SIGTERM, 143)],
)
def test_signals_end_it_in_order(
    chat: FakeChat, begun: str, number: signal.Signals, code: int
) -> None:
    """Turn recorded, app closed, terminal restored."""
    chat.send(begun, shows=WORDS if begun else "")
    chat.process.kill(number)
    assert chat.exit_code() == code
    assert [line["subtype"] for line in chat.log("finished")] == ["interrupted"] * bool(begun)
    assert chat.log("closed")
    assert chat.is_restored()


def test_a_prompt_sent_off_in_the_same_moment_does_not_keep_it(chat: FakeChat) -> None:
    """Enter and Ctrl-D at once: it ends in order, and does not wait for an answer."""
    chat.send(f"slow\r{CTRL_D}")
    assert chat.exit_code() == 0
    assert chat.log("closed")
    assert chat.is_restored()


@pytest.mark.chat("hurried")
def test_a_turn_that_does_not_end_is_left_behind(chat: FakeChat) -> None:
    """SIGTERM ends the process within two seconds, whatever does not listen."""
    chat.send("deaf\r", shows=r"listening to nobody")
    chat.process.kill(signal.SIGTERM)
    assert chat.exit_code() == 143
    assert chat.is_restored()


def test_a_terminal_that_goes_away_ends_it(chat: FakeChat) -> None:
    """SIGHUP and end of input at once: no spinning, no traceback."""
    chat.send("slow\r", shows=WORDS)
    assert chat.hang_up() == 129
    assert chat.log("finished")[0]["subtype"] == "interrupted"
    assert chat.log("closed")


@pytest.mark.parametrize(("first", "then"), [("a", "a"), ("v", "n")])
def test_what_is_folded_is_shown_before_it_can_be_allowed(
    chat: FakeChat, first: str, then: str
) -> None:
    """A yes to a folded change shows the whole of it, and asks again."""
    chat.send("edit long\r", shows=r"^▸ v view all$")
    assert "Allow this change? It is long; a yes shows all of it first." in chat.screen
    assert "● Create a.py  +120" in chat.text
    assert "│  20 + line_20 = 20\n  … 81 more rows (v shows all)\n│ 102 + line_102" in chat.text
    chat.send(first, prints=r"^│  60 \+ line_60 = 60$")
    chat.wait_for_screen(r"^Allow this change\?")
    assert "That is all of it. Please answer." in chat.text
    assert "view all" not in chat.screen
    assert not chat.log("decided")
    decided = chat.decides(then)
    assert (decided["allowed"], decided["remember"]) == (then != "n", then == "a")


@pytest.mark.chat(columns=40)
def test_decisions(chat: FakeChat) -> None:
    """Each answer reaches the agent, and none is taken for a prompt."""
    for number, (keys, expected) in enumerate(
        (
            ("y", (True, False, "")),
            ("Y\r", (True, False, "")),
            ("Yes\r", (True, False, "")),
            ("a", (True, True, "")),
            ("n", (False, False, "the user refused")),
            ("no\r", (False, False, "the user refused")),
            (f"{DOWN}\r", (True, False, "")),
            (f"{DOWN}{DOWN}{DOWN}\r", (True, True, "")),
            (f"{DOWN}{DOWN}{UP}{UP}{UP}\r", (True, False, "")),
        ),
        1,
    ):
        chat.send("edit\r", shows=r"^  r no, because …$")
        decided = chat.decides(keys)
        assert tuple(decided[field] for field in DECIDED) == expected
        chat.until(lambda number=number: len(chat.log("finished")) == number)
        chat.until(lambda: "r no, because …" not in chat.screen)
        chat.wait_for_screen(r"^›$")
    assert set(chat.prompts) == {"edit"}


def test_enter_alone_decides_nothing_and_the_arrow_keys_show_what_it_would(chat: FakeChat) -> None:
    chat.send("edit\r", shows=r"^Allow this change\?\n  y yes$")
    chat.send(f"\r{DOWN}", shows=r"^Allow this change\?\n▸ y yes\n  n no$")
    assert not chat.log("decided")
    chat.send(f"{DOWN}\r", prints=r"^  ✗ denied$")


@pytest.mark.chat("wall_clock", files={"wall_clock": "0"})
def test_a_question_comes_into_sight_although_the_machines_clock_was_set_back(
    chat: FakeChat, tmp_path: Path
) -> None:
    (tmp_path / "wall_clock").write_text("-3600")
    chat.send("command plain\r", shows=r"^Allow this command\?")


@pytest.mark.chat("clock", files={"clock": "0"})
def test_enter_takes_yes_where_nothing_warns_but_not_in_the_first_moment(
    chat: FakeChat, tmp_path: Path
) -> None:
    """Nor does an Enter that is held down; and the arrow keys don't go round."""
    asks = r"^Allow this command\?\n▸ y yes$"
    chat.send("command plain\r", shows=asks)
    for number, seconds in enumerate(("0.9", "1.8", "2.7"), 1):
        (tmp_path / "clock").write_text(seconds)
        # Once the next key has done something, the Enter has not.
        chat.send(f"\r{SHIFT_TAB}", until=lambda number=number: len(chat.log("mode")) == number)
    assert not chat.log("decided")
    (tmp_path / "clock").write_text("3.8")
    assert chat.decides("\r")["allowed"]
    chat.wait_for_turn(r"^Done so\.")
    chat.wait_for_screen(r"^›$")
    chat.send("command plain\r", shows=asks)
    chat.send(f"{DOWN * 9}{UP}", shows=r"^▸ p permanently …$")
    chat.send(f"{UP * 9}", shows=r"^▸ y yes$")
    assert chat.decides("\r")["allowed"]


def test_a_draft_that_made_way_for_a_question_is_not_taken_for_a_yes(chat: FakeChat) -> None:
    """The Enter that was to send it chooses nothing, however late it comes."""
    chat.send("command plain\rmy draft", shows=r"^Allow this command\?\n  y yes$")
    chat.pump(1.2)
    chat.send("\r")
    chat.pump(0.5)
    assert not chat.log("decided")
    chat.send("n", shows=r"^› my draft$")


def test_an_answer_that_comes_before_its_question_is_kept_for_no_prompt(chat: FakeChat) -> None:
    """It answers nothing, and stands nowhere afterwards."""
    chat.send("command plain\ry", shows=r"^Allow this command\?\n▸ y yes$")
    chat.pump(1.2)
    assert not chat.log("decided")
    chat.send("n", until=lambda: chat.log("finished"))
    chat.send("hello\r", until=lambda: len(chat.prompts) == 2)
    assert chat.prompts[1] == "hello"


def test_esc_behind_a_choice_goes_back_to_the_choices(chat: FakeChat) -> None:
    """Nothing is decided by it; a second one there refuses, and ends the turn."""
    chat.send("command plain\r", shows=r"^Allow this command\?")
    for key, seen in (("r", r"^Why not\?"), ("p", r"^Allow without asking from now on")):
        chat.send(key, shows=seen)
        chat.send(ESC, shows=r"^Allow this command\?\n▸ y yes$")
    # Also before what is behind it has come.
    chat.send("p", until=lambda: "Allow this command?" not in chat.screen)
    chat.send(ESC, shows=r"^Allow this command\?\n▸ y yes$")
    assert not chat.log("decided")
    assert not chat.decides(ESC)["allowed"]
    chat.until(lambda: chat.log("finished"))
    assert chat.log("finished")[0]["subtype"] == "interrupted"


@pytest.mark.parametrize(
    ("asked", "key"),
    [("edit", CTRL_C), ("command plain", ESC), ("edit", CTRL_D)],
    ids=["Ctrl-C", "Esc", "Ctrl-D"],
)
def test_a_question_that_is_left_ends_the_turn(chat: FakeChat, asked: str, key: str) -> None:
    """What waits in the queue comes back into the draft: nothing runs unasked.

    Whatever was asked about, the turn's end alone says that it was stopped: it was not denied.
    """
    chat.send(f"{asked}\r", shows=r"^Allow this")
    chat.send("next words\r", shows=r"^queued: next words$")
    decided = chat.decides(key)
    assert (decided["allowed"], decided["reason"]) == (False, "the user stopped the turn")
    chat.wait_for(r"^  interrupted$")
    assert chat.log("finished")[0]["subtype"] == "interrupted"
    chat.wait_for_screen(r"^› next words$")
    assert chat.prompts == [asked]
    assert "denied" not in chat.text
    assert "✗" not in chat.text


@pytest.mark.parametrize("key", ["y", CTRL_C], ids=["yes", "Ctrl-C"])
def test_a_question_stays_last_on_the_screen_while_calls_beside_it_end(
    chat: FakeChat, key: str
) -> None:
    """Their results are printed when it is answered."""
    asked = r"^\? run_command a\.py\n│ git status\n\nwaiting for you.*\nAllow this command\?$"
    chat.send("command plain beside\r", shows=asked)
    chat.let("tool")
    chat.until(lambda: chat.log("read"))
    chat.pump(0.5)
    chat.wait_for_screen(asked)
    chat.send(key, prints=r"^│ git status\n\n● read_file ragmem/app\.py\n  ⎿ 120 lines \(12 ms\)$")
    chat.until(lambda: chat.log("finished"))


def test_a_reason_is_told_and_the_draft_is_kept(chat: FakeChat) -> None:
    """Denied with a reason; what was being typed comes back."""
    chat.send("command\rmy draft", shows=r"^Allow this command\?")
    assert "; evil\n  2,013 characters" in chat.text
    chat.send("r", shows=r"^Why not\?")
    chat.send("use make\r", prints=r"^  ✗ denied: use make$")
    chat.wait_for_screen(r"^› my draft$")
    chat.until(lambda: chat.log("decided"))
    assert chat.log("decided")[0]["reason"] == "use make"


def test_words_are_no_decision(chat: FakeChat) -> None:
    """A draft that begins with a letter of the choices decides nothing; why is said beside it."""
    chat.send("edit\r", shows=r"^Allow this change\?")
    chat.send("yes and then", shows=r"^› yes and then$")
    chat.wait_for_screen(r"^  text in the prompt · clear it to answer$")
    chat.pump(1.0)
    chat.send(f"{ESC}[200~y{ESC}[201~")
    chat.pump(0.8)
    assert chat.log("decided") == []
    chat.send("\r", shows=r"^queued: yes and then$")
    chat.until(lambda: "clear it to answer" not in chat.screen)
    assert not chat.decides("n")["allowed"]
    chat.until(lambda: chat.prompts == ["edit", "yes and then"])


def test_a_folded_paste_survives_a_question_and_a_recall(chat: FakeChat) -> None:
    """Sent whole, also when the draft had to make way, or came back from the queue."""
    chat.send(f"edit\r{PASTE}", shows=r"^Allow this change\?")
    chat.send("other words\r", shows=r"^queued: other words$")
    chat.send("n", until=lambda: chat.prompts == ["edit", "other words"])
    # Until then Ctrl-C would end the answer, and leave the draft.
    chat.wait_for_screen(r"^You said 'other words'\.\n  2\.3 s · 2 model calls")
    chat.wait_for_screen(r"^› \[pasted 12 lines\]$")
    chat.send(CTRL_C + "slow\r", shows=WORDS)
    chat.send(f"{PASTE}\r", shows=r"^queued: \[pasted 12 lines\]$")
    chat.send(ESC, shows=r"^› \[pasted 12 lines\]$")
    chat.send("\r", until=lambda: chat.prompts[-1] == LINES)


@pytest.mark.chat(files={"history": "\n+an earlier one\n"})
def test_searching_the_history_can_be_left(chat: FakeChat) -> None:
    """Ctrl-C and Esc give the search up, and leave the draft and the chat as they were."""
    chat.send("draft")
    for key in (CTRL_C, ESC):
        chat.send(f"{CTRL_R}nothing like it", shows=r"^    No matches\.$")
        chat.send(key, shows=r"^› draft$")
        assert "Earlier prompts" not in chat.screen
    chat.send(" sent\r", until=lambda: chat.prompts == ["draft sent"])


@pytest.mark.chat(files={"history": "\n+an earlier one\n"})
def test_a_search_that_is_begun_as_a_question_comes_does_not_stand_before_it(
    chat: FakeChat,
) -> None:
    """Between what is asked about and the question: neither could be left from then on."""
    chat.send("edit\r", prints=r"print\('new'\)")
    chat.send(CTRL_R, shows=r"^Allow this change\?")
    assert chat.decides("y")["allowed"]
    chat.send(f"{CTRL_R}earlier", shows=r"an earlier one")
    chat.send(ESC, shows=r"^›$")


@pytest.mark.chat("past", "resume=00000001")
def test_no_escape_of_content_reaches_the_terminal(chat: FakeChat) -> None:
    """Answers in single characters, tools, names, notices, errors, titles, the past."""
    for prompt, seen in (
        ("evil", r"model calls"),
        ("fail", r"Try again\."),
        ("/files", r"src/"),
        ("/context all", r"of 25k tokens"),
        ("/sessions", r"1 ●  00000001 .* Past work"),
        ("/owned", "Unknown command"),
    ):
        chat.send(f"{prompt}\r", prints=seen)
    chat.leave()
    assert r"\e]0;owned\x07\e[2J\e[6n\x9b31m\x0dcarriage\x08back\u{202e}right" in chat.text
    # But for our own titles, and a question about its colour, nothing is told to the window.
    raw = re.sub(rb"\x1b\](0;[ -~\x80-\xff]*|11;\?)\x1b\\", b"", chat.raw)
    for never in (b"owned\x07", b"\x1b]", b"\x1b[6n", b"\x9b31m", "\u202e".encode(), b"\x08b"):
        assert never not in raw
    assert b"\x1b[2J" not in chat.raw


@pytest.mark.chat("past", rows=40)
def test_slash_commands(chat: FakeChat) -> None:
    """Each of them says something."""
    chat.wait_for(
        r"^· The last session here, \d+ (month|year)s? ago: “Past work”\. Open: the gate still"
    )
    chat.send(
        "/help\r", prints=r"^/init +have the agent .*\n/exit +leave\n\n@path +mentions a file"
    )
    chat.send(
        "/context\r",
        prints=(
            r"^No request has been sent in this chat yet\.[\s\S]*/context "
            r"PROMPT"
        ),
    )
    chat.send("/cost\r", prints=r"^this chat +0 model calls")
    chat.wait_for(r"^background +3 model calls · 300 tokens in, 60 out · \$0\.0012")
    chat.send("hello\r/cost\r")
    chat.wait_for(r"^this chat +2 model calls · 1,234 tokens in, 56 out · \$0\.0123")
    chat.send("/model\r", shows=r"^  ▸ ● openai/scripted +answers now$")
    chat.send("\r", prints=r"^openai/scripted  \(change with /model PROVIDER/MODEL")
    chat.send("/effort\r")
    chat.wait_for(r"^provider's default  \(change with /effort none\|low\|medium\|high\)")
    chat.send("/effort hgih\r")
    chat.wait_for(r"^✗ Unknown effort: 'hgih'\.\n  Available levels: none, low, medium, high\.")
    chat.send("/effort high\r", prints=r"^high")
    chat.send("/model none\r", prints=r"^✗ No model can be used\.\n  Set OPENAI_API_KEY\.")
    unknown = r"^openai/other  \(ragmem does not know this model; the next prompt shows"
    chat.send("/model openai/other\r", prints=unknown, shows=r"^  openai/other · 00000002")
    chat.send("/model openai/gpt-4o\r", prints=r"^openai/gpt-4o$")
    chat.send("/model openai/other\r", shows=r"^  openai/other · 00000002")
    chat.send("/resume past\r")
    chat.wait_for(
        r"^↩ Past work · 2 turns · last used \d+ (month|year)s? ago\n    changed: a\.py\n"
        r"    open: the gate still squeaks\n\n  Ctrl-O shows all\n"
        r"  › what is it\?\n    .*\n\n› and then\?.*\n\nIt.* fell\.\n\n  ─+$"
    )
    chat.wait_for_screen(r"^  openai/other · Past work")
    chat.send("/cost\r")
    chat.wait_for(r"^whole session +2 model calls · 200 tokens in, 20 out · \$0\.0200")
    chat.send("/new\r", shows=r"^  openai/other · 00000002")
    chat.send("/etc/hosts what\r", until=lambda: chat.prompts[-1] == "/etc/hosts what")


def test_choosing_a_session_at_the_start(tmp_path: Path) -> None:
    """`-r` without a value is a picker; choosing nothing leaves."""
    with FakeChat(tmp_path, "past", "resume=", ready=r"^  ▸ Past work +2 turns  \d+ ") as chat:
        chat.send("\r", shows=r"openai/scripted · Past work")
    with FakeChat(tmp_path, "past", "resume=", ready=r"^  ▸ Past work") as chat:
        chat.send(ESC)
        assert chat.exit_code() == 0
        assert chat.log("agent")[1:] == []


def test_a_dumb_terminal_asks_for_a_number(tmp_path: Path) -> None:
    """`-r` without a value, where the cursor is never moved."""
    asks = r"   1   Past work  2 turns  \d+ (month|year)s?\nWhich one\?"
    with FakeChat(tmp_path, "past", "resume=", env={"TERM": "dumb"}, ready=asks) as chat:
        chat.send("1\n", prints=r"↩ Past work · 2 turns")
        assert b"\x1b" not in chat.raw


@pytest.mark.chat("files=held", files={"readme.md": ""})
def test_files_are_offered_when_they_are_listed(chat: FakeChat) -> None:
    """What is typed is completed without another key."""
    chat.send("see @readm", shows=r"^› see @readm$")
    chat.let("files")
    chat.wait_for_screen(r"^  ▸ readme\.md$")
    assert "› see @readm" in chat.screen
    chat.send("\t\r", until=lambda: chat.prompts == ["see @readme.md "])


@pytest.mark.chat("load=held", files={"readme.md": ""}, ready=r"loading")
def test_files_are_offered_for_what_was_typed_while_the_chat_was_loaded(chat: FakeChat) -> None:
    chat.send("see @readm", shows=r"^› see @readm$")
    chat.let("load")
    chat.wait_for_screen(r"^  ▸ readme\.md$")


def test_resizing(chat: FakeChat) -> None:
    """Narrow, tiny and wide windows, in an answer and in an approval."""
    chat.send("slow\r", shows=WORDS)
    for columns, rows in ((40, 24), (1, 1), (3, 2), (500, 200), (20, 5), (60, 24)):
        chat.resize(columns, rows)
        chat.pump(0.15)
    chat.send(ESC, prints=r"interrupted")
    chat.send("edit\r", shows=r"Allow this change\?")
    chat.resize(30, 20)
    chat.pump(0.2)
    chat.send("y", until=lambda: chat.log("decided"))
    chat.resize(80, 24)
    chat.leave()
    assert chat.is_restored()


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path, term: str) -> None:
    """TERM=dumb or unset: no escape sequence; everything can still be done."""
    with FakeChat(tmp_path, "early", env={"TERM": term}, ready="· Project instr") as chat:
        chat.send("two\\\nlines\n", until=lambda: chat.prompts == ["two\nlines"])
        chat.send("tool\n")
        chat.wait_for(r"^● read_file ragmem/app.py\n  ⎿ 120 lines \(12 ms\)\n\nIt is an app\.")
        chat.send("edit\n", prints=r"^Allow this change\?  y yes  n no")
        chat.send("your tests fail\n", until=lambda: chat.text.count("Allow this change?") == 2)
        chat.send("yes\n", prints=r"Done so\.")
        assert "your tests fail" in chat.prompts
        chat.send("slow\n", until=lambda: "slow" in chat.prompts)
        chat.send(CTRL_C, prints=r"  interrupted")
        chat.send("/nonsense\n", prints=r"Unknown command: /nonsense")
        chat.send(CTRL_D)
        assert chat.exit_code() == 0
        assert b"\x1b" not in chat.raw
        assert chat.is_restored()


def test_another_locale(tmp_path: Path) -> None:
    """LANG=C and PYTHONUTF8=0: what the encoding lacks is replaced, nothing breaks."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with FakeChat(tmp_path, "early", env=env) as chat:
        chat.send("tool\r", prints=r"It is an app\.")
        chat.send(CTRL_D)
        assert chat.exit_code() == 0


def test_a_huge_paste(chat: FakeChat) -> None:
    """A megabyte, with escapes in it, arrives whole and as text."""
    lines = 200_000
    text = f"x{ESC}[2J" + "line\n" * lines + "end"
    chat.send_much(f"{ESC}[200~{text}{ESC}[201~")
    chat.wait_for_screen(rf"^› \[pasted {lines + 1} lines, 1 hidden character\]")
    chat.send("\r", until=lambda: chat.prompts)
    assert chat.prompts == [text]
    assert chat.history.stat().st_size < 1_000


@pytest.mark.chat("early", through="| cat", ready="· Project instr")
def test_output_that_is_no_terminal(chat: FakeChat) -> None:
    """`| cat`: plain lines, nothing of the prompt's drawing."""
    chat.send("tool\n", prints=r"It is an app\.")
    chat.send("/exit\n")
    assert chat.exit_code() == 0
    assert b"\x1b" not in chat.raw


@pytest.mark.chat("early", through="| head -c 20", ready="ragmem 0.1")
def test_output_that_is_closed(chat: FakeChat) -> None:
    """EPIPE ends the chat, without a traceback."""
    with suppress(OSError):
        chat.send("tool\n")
    chat.until(lambda: chat.log("closed"))
    assert chat.exit_code() == 0
    assert "Traceback" not in chat.text


def test_wide_and_combining_characters(chat: FakeChat) -> None:
    """What is typed is what is asked."""
    text = "日本語 e\u0301 👩\u200d💻 ﷽"
    chat.send(f"{text}\r", until=lambda: chat.prompts == [text])


@pytest.mark.chat(
    through="; echo stopped; read; fg; echo again; read; kill -TERM %1; fg", jobs=True
)
def test_suspending_gives_the_terminal_back(chat: FakeChat) -> None:
    """Ctrl-Z, and the shell is there; SIGCONT draws the prompt again. No signal is lost then."""
    chat.send("draft", shows=r"^› draft")
    chat.send("\x1a", prints=r"^stopped$")
    assert chat.is_restored()
    chat.send("\r", prints=r"^stopped\n[\s\S]*^› draft$")
    chat.send(" goes on\r", prints=r"^You said 'draft goes on'")
    chat.send("\x1a", prints=r"^again$")
    chat.send("\r", until=lambda: chat.log("closed"))
    chat.exit_code()
    assert chat.is_restored()


def test_one_that_is_stopped_can_be_ended_without_its_terminal(tmp_path: Path) -> None:
    """`kill %1` of a shell lets it go on beside the shell: the terminal is not its own then."""
    ended = "while kill -0 %1 2>&-; do sleep 0.1; done; echo has ended; read"
    ending = f"; echo is stopped; read; kill -TERM %1; {ended}"
    with FakeChat(tmp_path, through=ending, jobs=True) as chat:
        chat.send("\x1a", prints=r"^is stopped$")
        chat.send("\r", prints=r"^has ended$")
        assert chat.log("closed")
        assert chat.is_restored()


def test_one_in_the_background_goes_on_and_shows_it_in_the_foreground(tmp_path: Path) -> None:
    """`bg`, and `fg` when it is done."""
    ending = "; echo is stopped; bg; read; fg"
    with FakeChat(tmp_path, through=ending, jobs=True) as chat:
        chat.send("limited\r", shows="rate limited")
        chat.send("\x1a", prints=r"^is stopped$")
        assert not chat.log("finished")
        chat.let("limit")
        chat.until(lambda: chat.log("finished"))
        assert "At last." not in chat.text
        chat.send("\r", prints=r"^is stopped\n[\s\S]*^At last\.")
        chat.leave()
