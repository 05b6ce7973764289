"""docs/python.md is true: its programs run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragmem
from ragmem import Conversation, ConversationAgent, ConversationConfig, OpenMemory
from tests.cli.process import SOURCE

PAGE = Path(ragmem.__file__).parents[1] / "docs" / "python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def run(program: str, folder: Path) -> list[str]:
    """Its output, from a fresh process with an empty home, in a folder of its own."""
    (folder / "src").mkdir(parents=True)
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCE),
        "HOME": str(folder),
        "RAGMEM_HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        # Where a model would be looked for: nothing is sent anywhere.
        "OLLAMA_HOST": "http://127.0.0.1:9",
        # Nor is a busy machine one whose embedder is away.
        "RAGMEM_MEMORY__EMBEDDINGS__TIMEOUT_S": "60",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_memory_program(tmp_path: Path) -> None:
    """It stores, finds by meaning, knows files, builds a context."""
    stored, best, *_, files, context = run(PROGRAMS[0], tmp_path / "project")
    assert re.fullmatch(r"stored turn 1 as [0-9a-f-]{36}", stored)
    assert re.fullmatch(r"\d\.\d\d turn \d+% > Why do users get logged out\? The token .*", best)
    assert files == "files: ['src/auth.py']"
    assert re.fullmatch(r"\d+ tokens in \['System', 'Recent Conversation', .*'Prompt'\]", context)


def test_the_conversation_program(tmp_path: Path) -> None:
    """A model and a tool of one's own, over a conversation that is loaded."""
    assert run(PROGRAMS[1], tmp_path / "project") == [
        "It is noon in Oslo. ['tell_time']",
        "user - What time is it?",
        "assistant - It is noon in Oslo.",
        "user - Thank you!",
        "assistant - Polly wants a cracker.",
        "4 messages of 4 are replayed",
    ]


def test_all_programs_are_run() -> None:
    """None stands on the page that no test runs."""
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("cls", [OpenMemory, ConversationAgent, Conversation])
def test_the_page_knows_every_method(cls: type) -> None:
    """What there is is told, by its name."""
    told = set(re.findall(r"`(\w+)\(", PAGE.read_text("utf-8")))
    told |= {"new_session", "join", "leave", "finish", "opened", "place", "summarize"}
    told |= {"fill_cache", "session", "archive", "store", "builder", "aclose"}
    public = {name for name in vars(cls) if not name.startswith("_")}
    callables = {name for name in public if callable(getattr(cls, name))}
    assert callables - told == set()


def test_the_page_knows_every_setting() -> None:
    """ConversationConfig, with its defaults."""
    page = PAGE.read_text("utf-8")
    default = ConversationConfig()
    for name in default.__struct_fields__:
        value = getattr(default, name)
        shown = f'"{value}"' if isinstance(value, str) else value
        assert f"`{name}={shown}`" in page
