"""Completion, folded pastes, the history file: the small parts of the prompt."""

import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.data_structures import Point
from prompt_toolkit.document import Document

from ragmem.files import forget_prompts, restore_prompts
from ragmem.memory.turns import was_said
from ragmem.repl.commands import COMMANDS
from ragmem.repl.completion import ChatCompleter, command_at, mention_at, project_files
from ragmem.repl.drawing import Pastes, PromptHistory, does_fold, folded

FILES = ["README.md", "ragmem/app.py", "ragmem/repl/render.py", "tests/test_app.py", "a b.txt"]


def offered(typed: str) -> list[str]:
    host: Any = SimpleNamespace(commands=COMMANDS, values=lambda _: [(path, "") for path in FILES])
    found = ChatCompleter(host).get_completions(Document(typed), CompleteEvent())
    return [completion.text for completion in found]


def test_slash_commands_complete() -> None:
    """Completed with Tab."""
    assert sorted(offered("/con")) == ["/config", "/context"]
    assert [text.rstrip() for text in offered("/")] == [f"/{name}" for name in COMMANDS]
    assert [text for text in offered("/") if text.endswith(" ")] == [
        "/rename ", "/search ", "/pin "
    ]  # fmt: skip
    assert {"memory", "why", "pin", "forget"} <= set(COMMANDS)
    assert offered("see /co") == []


def test_files_complete_after_an_at_sign() -> None:
    """`@path`, fuzzy; a name with blanks is quoted as the agent reads it."""
    assert offered("explain @app.") == ["@ragmem/app.py ", "@tests/test_app.py "]
    assert offered("@rmrp") == ["@ragmem/repl/render.py "]
    assert offered("@b.t") == ['@"a b.txt" ']
    assert offered("me@app") == []


@pytest.mark.parametrize(
    ("before", "mention", "command"),
    [
        ("@a", "a", None),
        ("x @", "", None),
        ("x @a b", None, None),
        ("/he", None, "he"),
        ("/help ", None, None),
        (" /help", None, None),
        ("a@b", None, None),
        ("!npm i @types", None, None),
    ],
)
def test_what_is_completed(before: str, mention: str | None, command: str | None) -> None:
    """Only where a command or a mention is being typed."""
    assert (mention_at(before), command_at(before)) == (mention, command)


def test_long_pastes_fold() -> None:
    """Pasted text of many lines folds, and is sent whole."""
    pastes = Pastes()
    one, other = "a\nb\nc\nd\ne\nf", "1\n2\n3\n4\n5\n6\n"
    assert pastes.fold("short\r\ntext") == "short\ntext"
    assert pastes.fold(one) == "[pasted 6 lines]"
    assert pastes.fold(one) == "[pasted 6 lines]"
    assert pastes.fold(other) == "[pasted 6 lines #2]"
    assert pastes.fold("x" * 2000) == "[pasted 2000 characters]"
    hides = "one\u202e\u200b\xa0" * 6_000
    assert pastes.fold(hides) == "[pasted 36000 characters, 12,000 hidden characters]"
    draft = "see [pasted 6 lines] and [pasted 6 lines #2]"
    assert pastes.unfold(draft) == f"see {one} and {other}"
    assert pastes.mark_before("see [pasted 6 lines]") == "[pasted 6 lines]"
    assert pastes.mark_before("see [pasted 6 lines") == ""


def test_a_mark_inside_a_paste_is_not_unfolded() -> None:
    """What was pasted arrives as it was."""
    pastes = Pastes()
    first = pastes.fold("[pasted 7 lines]\n" * 6)
    second = pastes.fold("x\n" * 7)
    assert pastes.unfold(first) == "[pasted 7 lines]\n" * 6
    assert pastes.unfold(second) == "x\n" * 7


def test_the_history_file_is_private_and_lasts(tmp_path: Path) -> None:
    """Persistent history; 0600; several lines, odd characters, no doubles."""
    file = tmp_path / "data" / "history"
    history = PromptHistory(file)
    for text in ("one", "two\nlines", "two\nlines", "bad \ud800 \0 end", "x" * 30_000):
        history.remember(text, text if len(text) < 100 else "[pasted]")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = ["[pasted]", "bad \ufffd  end", "two\nlines", "one"]
    assert PromptHistory(file).load_history_strings() == kept


def test_a_long_paste_in_the_history_goes_with_the_turn_that_it_is_of(tmp_path: Path) -> None:
    """The history has its mark, the turn the whole text."""
    file, pastes = tmp_path / "history", Pastes()
    history = PromptHistory(file)
    mark = pastes.fold("a line of the log\n" * 2_000)
    for typed in (f"Why did {mark} fail?", f"Where is {mark}?"):
        history.remember(pastes.unfold(typed), typed)
    said = [pastes.unfold(f"Why did {mark} fail?")]
    gone = forget_prompts(file, lambda typed: was_said(typed, said))
    assert PromptHistory(file).load_history_strings() == [f"Where is {mark}?"]
    restore_prompts(file, gone)
    assert PromptHistory(file).load_history_strings() == [
        f"Why did {mark} fail?",
        f"Where is {mark}?",
    ]


def test_where_there_is_no_history_none_is_left(tmp_path: Path) -> None:
    """It would have been made by the deletion, for all to read."""
    restore_prompts(tmp_path / "history", forget_prompts(tmp_path / "history", lambda _: True))
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_cannot_be_written_costs_no_prompt(tmp_path: Path) -> None:
    """A folder in its place, a link, a parent that is a file."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "link", tmp_path / "file" / "history"):
        history = PromptHistory(place)
        history.remember("kept", "kept")
        assert history.get_strings() == ["kept"]
        assert PromptHistory(place).load_history_strings() == []
    assert not (tmp_path / "elsewhere").exists()


def test_files_are_listed_by_ripgrep(tmp_path: Path) -> None:
    """What .gitignore names, caches and names that hide are left out."""
    (tmp_path / ".gitignore").write_text("ignored\n")
    made = ("__pycache__/a.cpython-311.pyc", "node_modules/b/c.js")
    for name in ("a.py", "ignored", "evil\x1b[2J", "hidden\u202e", *made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert project_files(tmp_path, threading.Event()) == [".gitignore", "a.py"]


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    """The working directory was deleted."""
    assert project_files(tmp_path / "gone", threading.Event()) == []


def test_a_narrower_window_folds_what_was_drawn_and_the_first_row_is_farther_up() -> None:
    widths = [0, 9, 86, 0, 30, 2, 60]
    assert folded(widths, Point(x=2, y=5), 120) == Point(x=2, y=5)
    assert folded(widths, Point(x=2, y=5), 60) == Point(x=2, y=6)
    assert folded(widths, Point(x=50, y=6), 40) == Point(x=10, y=6 + 2 + 1)


def test_who_cuts_rows_off_folds_none() -> None:
    assert does_fold({"TERM": "xterm-256color"})
    assert does_fold({"TERM": "screen", "TMUX": "/tmp/x,1,0", "XTERM_VERSION": "XTerm(390)"})
    for cuts in ({"XTERM_VERSION": "XTerm(390)"}, {"TERM": "linux"}, {"STY": "1.tty"}):
        assert not does_fold(cuts)
