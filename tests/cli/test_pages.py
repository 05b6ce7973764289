"""docs/memory.md, code.md and scripts.md are true: their commands run, what they name exists.

After a change that is meant, `python -m tests.cli.test_pages` writes the outputs anew.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragmem import config
from ragmem.cli.files import RELATED, STATUS, TOGETHER
from ragmem.cli.main import command, run
from ragmem.cli.search import SCOPE
from ragmem.listings import CODE_SESSION
from ragmem.records import SCOPE_KINDS
from ragmem.repl.commands import COMMANDS
from tests.cli.coding import PLAN, WATER, without_times
from tests.cli.process import COMMAND, SOURCE, Ragmem
from tests.fakes.forks import PATIENCE, forks
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

DOCS = SOURCE / "docs"
MEMORY, CODE, SCRIPTS = (DOCS / f"{name}.md" for name in ("memory", "code", "scripts"))
COMMANDS_PAGE, SETTINGS_PAGE = DOCS / "commands.md", DOCS / "settings.md"
HOME = "/home/ana"
WATERING = '''\
def litres(plants: int, days: int) -> float:
    """Water for so many plants."""
    return plants * 0.5 * days
'''
EDIT = {"path": "water.py", "old": "A_DAY = 0.5", "new": "A_DAY = 0.6"}
PLANNED = {"path": "plan.py", "old": "seven days", "new": "seven mornings"}
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
PATIENT = """
import sys
from ragmem.__main__ import main
from tests.fakes.forks import be_patient

sys.argv[0] = "ragmem"
be_patient(60)
main()
"""
"""ragmem, on a machine that may be busy."""
BLOCK = re.compile(r"(?<=```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_AGE = re.compile(r"just now|\d+ (?:minute|hour|day)s? ago")
_SECTION = re.compile(r"^(?:Last Time|Relevant Turns) .*$", re.MULTILINE)
_TOTAL = re.compile(r"^(?:System|total) .*$", re.MULTILINE)
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_ID = re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{8}\b")


def settings_in(page: str) -> set[str]:
    """Those that a page names; each exists."""
    known = set(config.keys())
    sections = "|".join(sorted({key.split(".")[0] for key in known}))
    named = set(re.findall(rf"`((?:{sections})(?:\.[a-z_]+)+)\b", page))
    assert named - known == set()
    return named


@pytest.mark.parametrize("page", [MEMORY, CODE], ids=lambda page: page.stem)
def test_the_page_shows_what_happens(page: Path) -> None:
    """An exchange from the prompt to the disk to the next prompt, as it is."""
    written = page.read_text()
    with tempfile.TemporaryDirectory() as folder:  # its name is short: no line breaks at it
        now = replayed(page, Path(folder))
    if _AGE.findall(now) != _AGE.findall(written):
        # On a machine that took its time an age has more words, and its section more characters.
        now, written = _SECTION.sub(_without_numbers, now), _SECTION.sub(_without_numbers, written)
    assert settled(page, now) == settled(page, written)


def test_its_settings_exist() -> None:
    """Each that a page names; that of the code has all that a person may set there."""
    assert settings_in(MEMORY.read_text()) >= {
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
    code = {"code.enabled", "code.vectors", "code.max_files", "code.max_file_kb"}
    assert settings_in(CODE.read_text()) >= code | {"memory.context.code_percent"}
    assert settings_in(SETTINGS_PAGE.read_text()) == set(config.keys())


@pytest.mark.parametrize("name", ["chat", "embeddings"])
def test_the_settings_of_an_example_can_be_put_into_the_file(name: str) -> None:
    page = DOCS / f"{name}.md"
    blocks = re.findall(r"(?<=```toml\n).*?(?=^```$)", page.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        config.check_tree(tomllib.loads(block), block, "the page")


@pytest.mark.parametrize(
    ("page", "least"), [(MEMORY, 10), (CODE, 15), (SCRIPTS, 5)], ids=["memory", "code", "scripts"]
)
def test_its_commands_and_flags_exist(page: Path, least: int) -> None:
    root = command()
    typed = re.findall(r"(?:`|\$ )ragmem ([a-z]+)([^`\n]*)", page.read_text())
    assert len(typed) > least
    for name, rest in typed:
        child = root.get_command(None, name)
        words = rest.split()
        if getattr(child, "commands", None) and words:
            child = child.commands[words[0]]
        flags = {flag for param in child.params for flag in getattr(param, "opts", ())}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", re.sub(r'".*?"', "", rest))) <= flags | {"--yes"}


def test_the_scripts_run_as_they_are_printed(tmp_path: Path) -> None:
    """But for what other programs make of an answer."""
    (shown,) = BLOCK.findall(SCRIPTS.read_text())
    lines = [line.removeprefix("$ ").split(" | jq")[0] for line in shown.splitlines()]
    with LLMServer([Answer('{"port": 80}')] * len(lines)) as server:
        ragmem = Ragmem(tmp_path, server.env)
        (ragmem.project / "question.txt").write_text("Which port?\n")
        subprocess.run(["git", "init", "-q"], cwd=ragmem.project, check=True)
        path = f"{Path(COMMAND[0]).parent}:{ragmem.env['PATH']}"
        for line in lines:
            done = ragmem.execute("bash", "-c", line, env={"PATH": path})
            assert (done.code, done.err) == (0, ""), line
            assert '"port": 80' in done.out.replace("\\", ""), line


def test_its_chat_commands_exist() -> None:
    named = set(re.findall(r"`/([a-z]+)", MEMORY.read_text()))
    assert named <= set(COMMANDS)
    assert {"context", "search", "summarize"} <= named


def test_its_parts_are_those_of_a_request() -> None:
    """The table of the request's parts names what `ragmem context` names."""
    (table,) = re.findall(r"^\| part \|.*?\n\n", MEMORY.read_text(), re.MULTILINE | re.DOTALL)
    rows = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[2:] if row]
    code = "".join(path.read_text() for path in (SOURCE / "ragmem/memory/context").glob("*.py"))
    names = [name for row in rows for name in row.split(", ")]
    assert len(names) == 19
    assert [name for name in names if f'"{name}"' not in code] == []


def test_its_links_lead_somewhere() -> None:
    for target, _, anchor in re.findall(r"\]\(([\w.]+\.md)(#([\w-]+))?\)", CODE.read_text()):
        text = (CODE.parent / target).read_text()
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings


def test_its_keys_are_those_of_the_documents() -> None:
    page = CODE.read_text()
    assert set(re.findall(r"^\| `(\w+)(?:\[\])?` \|", page, re.MULTILINE)) >= set(SCOPE.split())
    rows = dict(re.findall(r"^\| (`ragmem (?:files|index)[^|]*) \| (.*) \|$", page, re.MULTILINE))
    told = {name: set(re.findall(r"`(\w+)(?:\[\]|\{\})?`", row)) for name, row in rows.items()}
    related = told["`ragmem files PATH`, `ragmem files --related`"]
    assert related >= {*RELATED.split(), *TOGETHER.split()}
    assert told["`ragmem index`"] == {*STATUS.split(), "changed", "removed", "seconds"}
    for key in CODE_SESSION.split():
        assert f"`{key}" in page
    for kind in SCOPE_KINDS:
        assert f"`{kind}`" in page


def test_the_page_of_commands_has_what_each_says_that_it_takes(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them: nothing else is offered, and nothing is missing."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for words in commands(command(), ()):
        assert run([*words, "--help"]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        shown.append(f"$ {' '.join(['ragmem', *words, '--help'])}\n{out}")
    told = COMMANDS_PAGE.read_text().split("## What each takes\n")[1]
    assert "\n".join(BLOCK.findall(told)) == "\n".join(shown)
    headings = re.findall(r"^### (.*)$", told, re.MULTILINE)
    assert headings == list(
        dict.fromkeys(" ".join(["ragmem", *words[:1]]) for words in commands(command(), ()))
    )
    # What a list of commands says of each is whole.
    cut = [row for text in shown for row in text.split("\n") if row.endswith("...")]
    assert [row for row in cut if not row.startswith("Usage: ")] == []


def commands(parent: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command that help names, groups before what is in them."""
    yield words
    for name in getattr(parent, "commands", ()):
        child = parent.get_command(None, name)
        if not child.hidden:
            yield from commands(child, (*words, name))


def replayed(page: Path, folder: Path) -> str:
    """The page with the outputs that its commands give now, in an empty home."""
    files = {"water.py": WATERING}
    if page == CODE:
        files = {"water.py": WATER, "plan.py": PLAN}
        files["README.md"] = "# Garden\n\nFerns stand in the shade.\n"
    with LLMServer([said if page == MEMORY else done], repeat=True) as server:
        env = {**server.env, PATIENCE: "60", "RAGMEM_MODEL__SUMMARY": "openai/small"}
        garden = Garden(folder, {**env, "RAGMEM_MEMORY__WORKER": "inline"}, files)
        return BLOCK.sub(lambda found: garden.run_block(found[0]), page.read_text())


class Garden:
    """The project of a page."""

    def __init__(self, folder: Path, env: dict[str, str], files: dict[str, str]) -> None:
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "ragmem"
        start = shlex.join([sys.executable, "-P", "-c", PATIENT])
        program.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
        program.chmod(0o700)
        path = f"{programs}:{os.environ['PATH']}"
        ragmem = Ragmem(folder, {**env, "PATH": path, "COLUMNS": "96"})
        self._project = folder / "garden"
        ragmem.project.rename(self._project)
        for name, text in files.items():
            (self._project / name).write_text(text)
        self._env = ragmem.env
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
        """What a line prints: by a shell, but for ragmem alone, which is warm."""
        name, *words = shlex.split(line)
        is_alone = name == "ragmem" and not any(re.match(r"[|<]|\d?>", word) for word in words)
        with tempfile.TemporaryFile() as out, open(os.devnull) as nothing:
            printed = {"stdout": out, "stderr": out, "stdin": nothing, "cwd": self._project}
            if is_alone:
                streams = [nothing.fileno(), out.fileno(), out.fileno()]
                code = forks().run(words, env=self._env, cwd=self._project, streams=streams)
            else:
                code = subprocess.run(["bash", "-c", line], env=self._env, **printed).returncode
            out.seek(0)
            text = out.read().decode()
        assert code == 0, text
        return text.replace(self._folder, HOME)


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
    page = _AGE.sub("AGO", page)
    page = re.sub(r"(?:\w+day, )?\d{4}-\d\d-\d\d(?: \d\d:\d\d)?", "DATE", page)
    page = re.sub(r"\d+% alike|Relevance: (?:\d+%|text match)", "ALIKE", page)
    # A context waits a second for the embedder, which a busy machine may need to load it.
    page = re.sub(r"^(Relevant Turns .*), its meaning$", r"\1", page, flags=re.MULTILINE)
    page = re.sub(r"^(Remembered Facts .*  )its .*$", r"\1WHY", page, flags=re.MULTILINE)
    # So do the tokens of a question: one that was not embedded in time is not counted.
    page = re.sub(r"(?<= out, )\d+ embedded$", "N embedded", page, flags=re.MULTILINE)
    # A memory that is learned twice is written twice, perhaps in another minute.
    page = re.sub(r"^  last written DATE\n", "", page, flags=re.MULTILINE)
    page = re.sub(r"memory-[0-9a-f]+", "memory-TAG", page)
    return _TOTAL.sub(_without_numbers, page)


def _without_numbers(row: re.Match[str]) -> str:
    return re.sub(r"[\d,]+ *", "N ", row[0])


def done(request: Received) -> Answer:
    """What the model of the page on code answers."""
    if request.body["model"] == "small":
        asked = str(request.body["messages"])
        named = "You name a conversation" in asked
        return Answer('{"title": "More water"}' if named else "{}")
    last = request.body["messages"][-1]
    if last["role"] == "user" and "0.6 litres" in str(last["content"]):
        return Answer(
            tools=[
                Call("read_file", {"path": "water.py"}),
                Call("edit_file", EDIT),
                Call("read_file", {"path": "plan.py"}),
                Call("edit_file", PLANNED),
            ]
        )
    return Answer("0.6 litres a day, in the morning: water.py and plan.py say so now.")


def settled(page: Path, text: str) -> str:
    """Without what differs from run to run."""
    text = stable(text)
    if page == MEMORY:
        return text
    # What a find was found by is the search's affair; that there is something is seen.
    text = re.sub(r"(?:\d+% alike|ALIKE) · |(?<=found by )\S.*$", "", text, flags=re.M)
    return without_times(text)


if __name__ == "__main__":
    for page in (MEMORY, CODE):
        with tempfile.TemporaryDirectory() as folder:
            text = replayed(page, Path(folder))
        page.write_text(text)
