"""docs/memory.md is true: its commands are run again, its settings and commands exist.

After a change that is meant, `python -m tests.cli.test_memory_page` writes the outputs anew.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from ragmem import config
from ragmem.cli.main import command
from ragmem.repl.commands import COMMANDS
from tests.cli.process import COMMAND, SOURCE, Ragmem
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

PAGE = SOURCE / "docs" / "memory.md"
HOME = "/home/ana"
WATER = '''\
def litres(plants: int, days: int) -> float:
    """Water for so many plants."""
    return plants * 0.5 * days
'''
DIGESTS = {
    "How much water": (
        '{"text": "Four plants need 14 litres a week by litres() in water.py.", '
        '"key_findings": ["litres() counts half a litre a day for each plant"], '
        '"topics": ["watering"]}'
    ),
    "tomatoes get": (
        '{"text": "The tomatoes stand in the sun and get a full litre a day.", '
        '"key_findings": ["tomatoes: 1 litre a day"], "topics": ["watering", "tomatoes"]}'
    ),
}
DIGESTS["How thirsty"] = DIGESTS["tomatoes get"]
NOTHING = '{"memories": []}'
LEARNED = json.dumps(
    {
        "memories": [
            {
                "kind": "fact",
                "content": "The tomatoes stand in the sun and get a full litre a day.",
                "subjects": ["tomatoes", "watering"],
                "ttl": None,
                "scope": "project",
                "evidence": "the tomatoes get a full litre a day, they stand in the sun",
                "from": "person",
            }
        ]
    }
)
BLOCK = re.compile(r"(?<=```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_ID = re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8}\b")


def test_the_page_shows_what_happens() -> None:
    """An exchange from the prompt to the disk to the next prompt, as it is."""
    written = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:  # its name is short: no line breaks at it
        assert stable(replayed(written, Path(folder))) == stable(written)


def test_its_settings_exist() -> None:
    page, known = PAGE.read_text(), set(config.keys())
    sections = "|".join(sorted({key.split(".")[0] for key in known}))
    named = set(re.findall(rf"`((?:{sections})(?:\.[a-z_]+)+)\b", page))
    assert named - known == set()
    assert named >= {
        "memory.embeddings.enabled",
        "memory.recent.window_percent",
        "memory.recent.turns",
        "memory.summaries.enabled",
        "memory.summaries.max_cost_usd_per_session",
        "memory.context.max_chars",
        "memory.worker",
        "memory.enabled",
        "model.embedding",
        "model.summary",
    }
    for block in re.findall(r"(?<=```toml\n).*?(?=^```$)", page, re.DOTALL | re.MULTILINE):
        config.check_tree(tomllib.loads(block), block, "the page")


def test_its_parts_are_those_of_a_request() -> None:
    """The table of the request's parts names what `ragmem context` names."""
    (table,) = re.findall(r"^\| part \|.*?\n\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[2:] if row]
    code = "".join(path.read_text() for path in (SOURCE / "ragmem/memory/context").glob("*.py"))
    names = [name for row in rows for name in row.split(", ")]
    assert len(names) == 18
    assert [name for name in names if f'"{name}"' not in code] == []


def test_its_commands_exist() -> None:
    page = PAGE.read_text()
    root = command()
    groups = {n: getattr(root.get_command(None, n), "commands", {}) for n in root.commands}
    typed = re.findall(r"(?:`|\$ )ragmem ([a-z]+)(?: ([a-z]+))?", page)
    assert len(typed) > 10
    for name, child in typed:
        assert name in groups
        assert not groups[name] or child in groups[name]
    assert set(re.findall(r"`/([a-z]+)", page)) <= set(COMMANDS)
    assert {"context", "search", "summarize"} <= set(re.findall(r"`/([a-z]+)", page))


def replayed(page: str, folder: Path) -> str:
    """The page with the outputs that its commands give now, in an empty home."""
    with LLMServer([said], repeat=True) as server:
        env = {**server.env, "RAGMEM_MODEL__SUMMARY": "openai/small"}
        garden = Garden(folder, {**env, "RAGMEM_MEMORY__WORKER": "inline"})
        return BLOCK.sub(lambda found: garden.run_block(found[0]), page)


class Garden:
    """The project of the page."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        ragmem = Ragmem(folder, env)
        self.project = folder / "garden"
        ragmem.project.rename(self.project)
        (self.project / "water.py").write_text(WATER)
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "ragmem"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o700)
        self._env = {**ragmem.env, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "96"}
        self._folder = str(folder)
        self._ids: dict[str, str] = {}

    def run_block(self, block: str) -> str:
        """Commands, each with its output below; ids that the page shows stand for the real ones."""
        out = []
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, before = entry.partition("\n")
            for shown, real in self._ids.items():
                line = line.replace(shown, real)
            now = self._run(line)
            for shown, real in zip(_ID.findall(before), _ID.findall(now), strict=False):
                self._ids.setdefault(shown, real)
            for shown, real in self._ids.items():
                line, now = line.replace(real, shown), now.replace(real, shown)
            out.append(f"$ {line}\n{now.strip(chr(10))}\n")
        return "\n".join(out)

    def _run(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.project,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.decode().replace(self._folder, HOME)


def said(request: Received) -> Answer:
    """What the scripted model answers: it knows only what the request tells it."""
    if request.body["model"] == "small":
        asked = str(request.body["messages"])
        if "You name a conversation" in asked:
            return Answer('{"title": "Watering the garden"}')
        if "Two notes are about the same subject" in asked:
            return Answer('{"verdict": "different"}')
        if "write down what is worth" in asked:
            return Answer(LEARNED if "tomatoes get a full litre a day" in asked else NOTHING)
        return Answer(next((text for key, text in DIGESTS.items() if key in asked), "{}"))
    messages = request.body["messages"]
    last = messages[-1]
    prompt = str(last["content"])
    if last["role"] == "tool":
        assert "plants * 0.5 * days" in prompt
        return Answer("14 litres: half a litre a day for each plant (water.py:3).")
    if "How much water" in prompt.rpartition("</memory")[2]:
        return Answer(tools=[Call("read_file", {"path": "water.py"})])
    if "tomatoes get a full litre" in prompt.rpartition("</memory")[2]:
        return Answer("Noted: a litre a day for the tomatoes.")
    if "tomatoes get a full litre" in prompt.partition("</memory")[0]:
        return Answer("They get a full litre a day, you said: they stand in the sun.")
    return Answer("I don't know.")


def stable(page: str) -> str:
    """Without what differs from run to run: ids, ages, dates, likeness, the system's size."""
    page = _ID.sub("ID", _UUID.sub("UUID", page))
    page = re.sub(r"just now|\d+ (?:minute|hour|day)s? ago", "AGO", page)
    page = re.sub(r"(?:\w+day, )?\d{4}-\d\d-\d\d(?: \d\d:\d\d)?", "DATE", page)
    page = re.sub(r"\d+% alike|Relevance: (?:\d+%|text match)", "ALIKE", page)
    # A context waits a second for the embedder, which a busy machine may need to load it.
    page = re.sub(r"^(Relevant Turns .*), its meaning$", r"\1", page, flags=re.MULTILINE)
    page = re.sub(r"^(Remembered Facts .*  )its .*$", r"\1WHY", page, flags=re.MULTILINE)
    page = re.sub(r"memory-[0-9a-f]+", "memory-TAG", page)
    return re.sub(
        r"^(?:System|total) .*$", lambda row: re.sub(r"[\d,]+ *", "N ", row[0]), page, flags=re.M
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = replayed(PAGE.read_text(), Path(folder))
    PAGE.write_text(text)
    sys.exit(0)
