"""`ragmem graph` and `ragmem stats --html`: one file, for its user alone, where it says it is."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ragmem.memory.recording import REQUESTS_FILE, RequestLog
from tests.cli.coding import recorded
from tests.cli.process import Ragmem


@pytest.fixture(scope="module")
def ragmem(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ragmem]:
    """What the tests only read."""
    with recorded(tmp_path_factory.mktemp("graph")) as one:
        one.ok("memory", "add", "Greetings are short.")
        yield one


def shown(ragmem: Ragmem, *arguments: str) -> dict[str, list[str]]:
    """Labels of the nodes by their kind."""
    file = ragmem.project.parent / "out.json"
    file.unlink(missing_ok=True)
    done = ragmem.ok("graph", *arguments, "--format", "json", "-o", str(file))
    assert done.out == f"{file}\n"
    labels: dict[str, list[str]] = {}
    for node in json.loads(file.read_text())["nodes"]:
        labels.setdefault(node["kind"], []).append(node["label"])
    return labels


def test_the_page_lies_in_the_own_folder_and_takes_the_place_of_the_one_before(
    ragmem: Ragmem,
) -> None:
    for _ in range(2):
        done = ragmem.ok("graph")
        file = Path(done.out.strip())
        assert file == ragmem.home / "data" / "graph.html"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert done.err == "5 nodes, 3 edges\n"
    page = file.read_text()
    assert "What does hello.py do?" in page
    assert "default-src 'none'" in page
    none = ragmem.project.parent / "none.html"
    ragmem.refused("graph", "--file", "none.py", "-o", str(none))
    assert not none.exists()


def test_what_is_asked_for_is_shown(ragmem: Ragmem) -> None:
    asked = ["What does hello.py do?", "Why?"]
    whole = shown(ragmem)
    assert (whole["turn"], whole["file"]) == (asked, ["hello.py"])
    assert whole["memory"] == ["Greetings are short."]
    [path] = shown(ragmem, "--all")["file"]  # A long one is cut.
    assert len(path) > 30
    assert f"{ragmem.project}/hello.py".startswith(path.partition("…")[0])
    assert shown(ragmem, "--file", "hello.py")["turn"] == asked[:1]
    [session] = ragmem.sessions()
    assert shown(ragmem, "-r", session["session_id"])["turn"] == asked
    [memory] = ragmem.read("memory", "list")
    assert shown(ragmem, "--memory", memory["id"]) == {"memory": ["Greetings are short."]}
    assert shown(ragmem, "--since", "7d")["turn"] == asked
    file = ragmem.project.parent / "out.graphml"
    ragmem.ok("graph", "--format", "graphml", "-o", str(file))
    assert ElementTree.parse(file).getroot().tag.endswith("graphml")


def test_an_empty_memory_is_a_page_that_says_so(tmp_path: Path) -> None:
    done = Ragmem(tmp_path).ok("graph")
    assert done.err.startswith("Nothing to show yet.")
    assert Path(done.out.strip()).is_file()


def test_numbers_as_a_page(ragmem: Ragmem) -> None:
    file = Path(ragmem.ok("stats", "--html").out.strip())
    assert file == ragmem.home / "data" / "stats.html"
    page = file.read_text()
    assert '"numbers":[{"day":' in page
    assert '"input_tokens":' in page


def test_each_request_is_kept_as_it_was_sent_and_goes_with_its_session(tmp_path: Path) -> None:
    with recorded(tmp_path) as ragmem:
        log = RequestLog(ragmem.home / "data")
        kept = list(log.known().values())
        [session] = ragmem.sessions()
        assert [each.session_id for each in kept] == [session["session_id"]] * 2
        sections = {each.name: each for each in kept[1].sections}
        assert sections["Prompt"].chars == len("Why?")
        file = ragmem.home / "data" / REQUESTS_FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        page = Path(ragmem.ok("graph").out.strip()).read_text()
        assert '"request":{"most":' in page
        ragmem.ok("ask", "--ephemeral", "Not to be kept?")
        assert len(log.known()) == 2
        ragmem.ok("sessions", "delete", session["session_id"], "--yes")
        assert log.known() == {}
        assert session["session_id"] not in file.read_text()
