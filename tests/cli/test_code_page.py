"""docs/code.md is true: its commands are run again, its settings, commands and links exist.

After a change that is meant, `python -m tests.cli.test_code_page` writes the outputs anew.
"""

import re
import sys
import tempfile
from pathlib import Path

from ragmem import config
from ragmem.cli.documents import CODE_SESSION
from ragmem.cli.files import RELATED, TOGETHER
from ragmem.cli.index import STATUS
from ragmem.cli.main import command
from ragmem.cli.search import SCOPE
from ragmem.records import SCOPE_KINDS
from tests.cli.coding import PLAN, WATER, without_times
from tests.cli.process import SOURCE
from tests.cli.test_memory_page import BLOCK, Garden, stable
from tests.fakes.llm_server import Answer, Call, LLMServer, Received

PAGE = SOURCE / "docs" / "code.md"
EDIT = {"path": "water.py", "old": "A_DAY = 0.5", "new": "A_DAY = 0.6"}
PLANNED = {"path": "plan.py", "old": "seven days", "new": "seven mornings"}


def test_the_page_shows_what_happens() -> None:
    written = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:  # its name is short: no line breaks at it
        assert settled(replayed(written, Path(folder))) == settled(written)


def test_its_settings_exist() -> None:
    """Each setting that the page names, and all of the section `code` that a person may set."""
    page, known = PAGE.read_text(), set(config.keys())
    sections = "|".join(sorted({key.split(".")[0] for key in known}))
    named = set(re.findall(rf"`((?:{sections})(?:\.[a-z_]+)+)\b", page))
    assert named - known == set()
    assert named >= {"code.enabled", "code.vectors", "code.max_files", "code.max_file_kb"}
    assert "memory.context.code_percent" in named


def test_its_commands_and_flags_exist() -> None:
    page = PAGE.read_text()
    root = command()
    typed = re.findall(r"(?:`|\$ )ragmem ([a-z]+)([^`\n]*)", page)
    assert len(typed) > 15
    for name, rest in typed:
        child = root.get_command(None, name)
        words = rest.split()
        if getattr(child, "commands", None) and words:
            child = child.commands[words[0]]
        flags = {flag for param in child.params for flag in getattr(param, "opts", ())}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", re.sub(r'".*?"', "", rest))) <= flags | {"--yes"}


def test_its_links_lead_somewhere() -> None:
    for target, _, anchor in re.findall(r"\]\(([\w.]+\.md)(#([\w-]+))?\)", PAGE.read_text()):
        text = (PAGE.parent / target).read_text()
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings


def test_its_keys_are_those_of_the_documents() -> None:
    page = PAGE.read_text()
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


def replayed(page: str, folder: Path) -> str:
    """The page with the outputs that its commands give now, in an empty home."""
    with LLMServer([said], repeat=True) as server:
        env = {**server.env, "RAGMEM_MODEL__SUMMARY": "openai/small"}
        garden = Garden(folder, {**env, "RAGMEM_MEMORY__WORKER": "inline"})
        for name, text in (("water.py", WATER), ("plan.py", PLAN)):
            (garden.project / name).write_text(text)
        (garden.project / "README.md").write_text("# Garden\n\nFerns stand in the shade.\n")
        return BLOCK.sub(lambda found: garden.run_block(found[0]), page)


def said(request: Received) -> Answer:
    """What the scripted model answers."""
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


def settled(page: str) -> str:
    """Without what differs from run to run."""
    # What a find was found by is the search's affair; that there is something is seen.
    page = re.sub(r"(?:\d+% alike|ALIKE) · |(?<=found by )\S.*$", "", stable(page), flags=re.M)
    return without_times(page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = replayed(PAGE.read_text(), Path(folder))
    PAGE.write_text(text)
    sys.exit(0)
