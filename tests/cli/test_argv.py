"""Command lines as people type them."""

import pytest

from ragmem.__main__ import rewrite, shows_prompt_early
from ragmem.cli.main import command


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("", "chat"),
        ("-c", "chat -c"),
        ("-r", "chat --resume="),
        ("-r abc", "chat -r abc"),
        ("-p hello", "ask hello"),
        ("--print hello -c", "ask hello -c"),
        ("-c -p hello --output-format json", "ask -c hello --output-format json"),
        ("-m openai/x -p", "ask -m openai/x"),
        ("-- -p", "chat -- -p"),
        ("--help", "--help"),
        ("-h", "-h"),
        ("--version", "--version"),
        ("--install-completion", "--install-completion"),
        ("ask -p", "ask -p"),
        ("ask hello -r", "ask hello --resume="),
        ("ask -r - ", "ask --resume= -"),
        ("ask -r --no-tools hello", "ask --resume= --no-tools hello"),
        ("ask -r abc hello", "ask -r abc hello"),
        ("ask -- -r", "ask -- -r"),
        ("chat --resume -c", "chat --resume= -c"),
        ("chat --resume=abc", "chat --resume=abc"),
        ("context hello -r", "context hello --resume="),
        ("sessions list", "sessions list"),
        ("config set ui.color -r", "config set ui.color -r"),
    ],
)
def test_rewrite(typed: str, read: str) -> None:
    assert rewrite(typed.split()) == read.split()


def test_every_command_of_a_session_lets_one_choose_it() -> None:
    root = command()
    for name in root.commands:
        takes = any("--resume" in each.opts for each in root.get_command(None, name).params)
        assert rewrite([name, "-r"]) == [name, "--resume=" if takes else "-r"]


def test_what_holds_a_blank_is_a_prompt_for_a_chat() -> None:
    """A single word is a command, or a mistake that is told."""
    asked = "why does it fail?"
    assert rewrite([asked]) == ["chat", "--", asked]
    assert rewrite([asked, "-c"]) == ["chat", "-c", "--", asked]
    assert rewrite([asked, "-r"]) == ["chat", "--resume=", "--", asked]
    assert rewrite(["chat", "-c", asked]) == ["chat", "-c", asked]
    assert rewrite(["sesions"]) == ["sesions"]


@pytest.mark.parametrize(
    ("typed", "early"),
    [
        ("", True),
        ("chat", True),
        ("chat -c", True),
        ("-c", True),
        ("-r abc", True),
        ("chat -r", False),
        ("-r", False),
        ("chat --help", False),
        ("chat -h", False),
        ("-p hello", False),
        ("ask hello", False),
        ("sessions list", False),
        ("--help", False),
    ],
)
def test_prompt_is_shown_early_only_for_a_chat(typed: str, early: bool) -> None:
    assert shows_prompt_early(rewrite(typed.split())) is early
