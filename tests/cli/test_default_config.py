"""The file of settings: written with its defaults, changed one key at a time."""

import re
import tomllib
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.config import Config, check_tree, keys, load_config
from ragmem.config.file import config_toml, default_toml, with_value
from ragmem.errors import ConfigError

FILE = Path("ragmem.toml")


def test_default_file_changes_nothing_and_its_values_are_the_defaults() -> None:
    """One TOML file; each key stands in it, commented out, with its default."""
    text = default_toml()
    assert check_tree(tomllib.loads(text), text, "defaults") == Config()
    uncommented = re.sub(r"(?m)^#(?=\w+ = )", "", text)
    assert check_tree(tomllib.loads(uncommented), uncommented, "defaults") == Config()
    assert len(re.findall(r"(?m)^#\w+ = ", text)) == len(keys())


def test_default_file_explains_its_keys() -> None:
    text = default_toml()
    start = text.index("# How models are reached.")
    assert text[start : text.index("# Where memory is kept.")] == snapshot("""\
# How models are reached.
[llm]
# `auto`: Anthropic, Gemini and OpenAI-compatible servers directly, others by litellm.
# `openai`: the same, but never OpenAI's Responses. `litellm`: all by litellm.
#client = "auto"
# URL of an OpenAI-compatible server; empty: the provider's own.
#api_base = ""
# Seconds without data from the server before a request times out.
#timeout_s = 120.0
# Number of retries for a failed or interrupted model call.
#retries = 3

""")


def test_shown_settings_are_a_file_that_gives_the_same_settings() -> None:
    text = config_toml(Config())
    assert check_tree(tomllib.loads(text), text, "shown") == Config()
    assert "#" not in text


def test_setting_a_key_keeps_comments_and_order() -> None:
    before = '# mine\n[ui]\ncolor = "auto" # for the cinema\n\n[model]\nmain = "a/b"\n'
    assert with_value(before, FILE, "ui.color", "never") == snapshot("""\
# mine
[ui]
color = "never" # for the cinema

[model]
main = "a/b"
""")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("memory.enabled", "false", "enabled = false"),
        ("memory.context.max_chars", "20000", "max_chars = 20000"),
        ("store.timeout_s", "2.5", "timeout_s = 2.5"),
        ("model.main", "openai/gpt-5", 'main = "openai/gpt-5"'),
        ("model.main", "5", 'main = "5"'),
    ],
)
def test_values_get_the_type_of_their_setting(key: str, value: str, line: str) -> None:
    assert line in with_value("", FILE, key, value)


@pytest.mark.parametrize(
    ("text", "key", "value", "message"),
    [
        ("", "ui.colour", "never", "Unknown setting 'ui.colour'."),
        ("", "modle.mian", "x", "Unknown setting 'modle.mian'.\nDid you mean 'model.main'?"),
        ("", "model.mian", "x", "Unknown setting 'model.mian'.\nDid you mean 'model.main'?"),
        ("", "retrys", "x", "Unknown setting 'retrys'.\nDid you mean 'llm.retries'?"),
        ("", "nope", "x", "Unknown setting 'nope'.\n`ragmem config show` lists all settings."),
        ("", "memory.worker", "of", "can't be 'of': not a valid choice.\nUse one of"),
        (
            "",
            "memory.context.relevant_percent",
            "200",
            "memory.context.relevant_percent can't be '200': it must be at most 100.0.",
        ),
        ("", "ui.color", "", "ui.color can't be '': not a valid choice."),
        ("", "memory.enabled", "maybe", "memory.enabled must be true or false, not 'maybe'."),
        ("", "ui.color", "pink", "ui.color can't be 'pink': not a valid choice."),
        ("", "llm.retries", "many", "llm.retries must be a whole number, not 'many'."),
        (
            "",
            "ui",
            "x",
            "Unknown setting 'ui'.\nThat is a section; one of its settings is 'ui.color'.",
        ),
        ("", "sandbox.write", '["x"]', "a folder must be a path that begins with / or ~."),
        ("[ui\n", "ui.color", "never", "ragmem.toml is not valid TOML"),
        (f"x = {'[' * 3_000}", "ui.color", "never", "ragmem.toml is not valid TOML"),
        ("[ui]\n[ui]\n", "ui.color", "never", "may appear only once: put its lines below"),
        ("ui = 1\n", "ui.color", "never", "ui is a value in this file, not a table."),
        ("", "tools.max_iterations", "0", "it must be at least 1."),
        ("", "store.timeout_s", "0", "it must be more than 0.0."),
        ("", "store.timeout_s", "inf", "it must be at most 86400.0."),
        ("", "memory.facts.shown", "9" * 20, "it must be at most 1000000000."),
        ("", "code.max_files", "9" * 20, "it must be at most 1000000000."),
        ("", "memory.context.max_chars", "9" * 20, "it must be at most 1000000000."),
    ],
)
def test_a_wrong_setting_is_refused(text: str, key: str, value: str, message: str) -> None:
    """What was typed is named, not a line of a file that was not written."""
    with pytest.raises(ConfigError) as caught:
        with_value(text, FILE, key, value)
    assert message in f"{caught.value}\n{caught.value.hint}"


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    """Some editors on Windows begin a file with one."""
    file = tmp_path / "ragmem.toml"
    file.write_bytes(b"\xef\xbb\xbf[ui]\r\ncolor = 'never'\r\n")
    assert load_config(file, environ={}).ui.color == "never"
