"""The set as a model sees it, and what holds for its source."""

import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest
from inline_snapshot import snapshot

import ragmem.tools
from ragmem.agent import standard_toolset
from ragmem.messages import ToolUse
from ragmem.own_tools import EDITING_TOOLS, OWN_TOOLS
from ragmem.tools.base import AgentTool, Toolset, in_own_words
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.planning import UpdateTasks
from ragmem.tools.workspace import Workspace
from tests.tools.conftest import EDITING, LOOKING

SOURCES = sorted(Path(inspect.getfile(ragmem.tools)).parent.glob("*.py"))


def test_specs(desk):
    assert {
        spec.name: (sorted(spec.parameters["properties"]), spec.parameters.get("required", []))
        for spec in desk.toolset.specs()
    } == snapshot(
        {
            "read_file": (["limit", "offset", "path"], ["path"]),
            "list_directory": (["path"], []),
            "glob_files": (["path", "pattern"], ["pattern"]),
            "grep_files": (
                ["context", "glob", "limit", "mode", "offset", "path", "pattern"],
                ["pattern"],
            ),
            "create_file": (["content", "path"], ["path", "content"]),
            "write_file": (["content", "path"], ["path", "content"]),
            "edit_file": (["new", "old", "path", "replace_all"], ["path", "old", "new"]),
            "run_command": (["background", "command", "outside_sandbox", "timeout"], ["command"]),
        }
    )


def test_the_table_has_each_tool_and_marks_those_that_every_agent_has(desk):
    """And no other."""
    modules = [import_module(f"ragmem.tools.{source.stem}") for source in SOURCES]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    kinds = [each for each in found if issubclass(each, AgentTool) and hasattr(each, "name")]
    assert {kind.name for kind in kinds} == set(OWN_TOOLS)
    standard = [name for name, tool in OWN_TOOLS.items() if tool.is_standard]
    assert standard == list(desk.toolset.names)
    read_only = [name for name in standard if desk.toolset.is_read_only(name)]
    assert (read_only, EDITING_TOOLS) == (list(LOOKING), EDITING.keys())


def check_specs(toolset: Toolset) -> None:
    """What each tool and each argument is for is said, and every schema stands alone."""
    for spec in toolset.specs():
        assert 20 < len(spec.description) < 600
        assert spec.parameters["additionalProperties"] is False
        assert "$ref" not in str(spec.parameters)
        for name, schema in spec.parameters["properties"].items():
            assert "'description'" in str(schema), (spec.name, name)


def test_what_a_model_is_told_of_each_tool_is_whole(desk):
    planning = Toolset([UpdateTasks()])
    for toolset in (desk.toolset, planning):
        check_specs(toolset)
    assert "'enum': ['doing', 'done', 'open']" in str(planning.specs()[0].parameters)
    (command,) = [spec for spec in desk.toolset.specs() if spec.name == "run_command"]
    assert command.parameters["properties"]["timeout"] == {
        "description": "Seconds; at most 600.",
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 600,
    }


def test_a_tool_that_is_denied_and_never_asks_is_not_there(tmp_path: Path):
    given = {"data_dir": tmp_path, "more": [UpdateTasks()]}
    for deny in (["update_tasks"], ["update_tasks(*)"], []):
        toolset = standard_toolset(Workspace(tmp_path), rules=PermissionRules(deny=deny), **given)
        assert ("update_tasks" in toolset.names) == (not deny)


@pytest.mark.parametrize(
    ("name", "arguments", "title"),
    [
        ("read_file", '{"path": "a.py"}', "read_file a.py"),
        ("read_file", '{"path": "a.py", "offset": 20}', "read_file a.py from 20"),
        ("grep_files", '{"pattern": "x", "glob": "*.py"}', "grep_files x (*.py)"),
        ("glob_files", '{"pattern": "*.py", "path": "src"}', "glob_files *.py in src"),
        ("run_command", '{"command": "a\\nb\\u001b[2J"}', "run_command a …"),
        ("run_command", '{"command": "cat \\u001b[2J"}', "run_command cat \\e[2J"),
        ("edit_file", '{"path": 1}', "edit_file"),
    ],
)
def test_titles(desk, name, arguments, title):
    """One line for the person, without escapes, also for a wrong call."""
    assert desk.toolset.title(ToolUse("1", name, arguments)) == title


@pytest.mark.parametrize(
    "arguments",
    [
        "", "{", '{"path": "a"', '{"path": "a"}x', '{"path": "a", "path": "b"}', "[]", "null",
        '{"path": null}', '{"path": 1}', '{"path": "a", "limit": NaN}',
        '{"path": "a", "limit": ' + "9" * 5000 + "}", "[" * 100_000, '{"path": "a", "limit": 1.5}',
    ],
    ids=lambda a: a[:20] or "empty",
)  # fmt: skip
async def test_wrong_arguments_execute_nothing(desk, arguments):
    """Cut, doubled or trailing arguments are never repaired, nor is it guessed what they mean."""
    desk.file("a", "x")
    for name in ("read_file", "write_file"):
        outcome = await desk.toolset.call(ToolUse("1", name, arguments))
        assert not outcome.success
        assert "Nothing was executed" in outcome.text
    assert desk.seen.hash_of("a") is None


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"pattern": "x", "limit": "a few"}, "limit must be a whole number, not text"),
        ({"pattern": "x", "limit": 0}, "limit must be at least 1"),
        ({"pattern": 3}, "pattern must be text, not a whole number"),
        ({}, "pattern is missing"),
        ({"pattern": "x", "mode": "all"}, "mode can't be 'all'"),
        ({"pattern": None}, "pattern must be text, not null"),
    ],
)
async def test_wrong_arguments_are_told_the_person_in_words_and_the_model_exactly(
    desk, arguments: dict[str, object], shown: str
) -> None:
    outcome = await desk.fails("grep_files", **arguments)
    assert outcome.display == f"invalid call: {shown}. The model was told."
    assert "invalid arguments for grep_files: " in outcome.text
    assert outcome.text.partition("grep_files takes ")[2].startswith(
        "pattern: string, path?: string, glob?: string, mode?: count|files|lines, "
        "context?: integer, limit?: integer, offset?: integer. Nothing was executed"
    )


@pytest.mark.parametrize(
    ("name", "given", "own"),
    [
        ("Read", {"file_path": "a"}, ("read_file", {"path": "a"})),
        ("read", {"filename": "a", "limit": None}, ("read_file", {"path": "a"})),
        ("Bash", {"command": "ls"}, ("run_command", {"command": "ls"})),
        ("exec_command", {"cmd": "ls"}, ("run_command", {"command": "ls"})),
        ("Grep", {"query": "x", "include": "*"}, ("grep_files", {"pattern": "x", "glob": "*"})),
        ("replace", {"old_str": "a", "new_str": "b"}, ("edit_file", {"old": "a", "new": "b"})),
        ("read_file", {"path": "a", "file": "b"}, ("read_file", {"path": "a", "file": "b"})),
        ("Read", {"file_path": 3}, ("read_file", {"path": 3})),
        ("search_web", {"query": "x"}, ("search_web", {"query": "x"})),
        ("wanted__read", {"query": "x"}, ("wanted__read", {"query": "x"})),
    ],
)  # fmt: skip
def test_a_call_by_the_names_of_another_agent_is_one_of_our_own(
    desk, name: str, given: dict[str, object], own: tuple[str, dict[str, object]]
) -> None:
    use = desk.toolset.own(ToolUse("1", name, json.dumps(given)))
    assert (use.name, json.loads(use.arguments)) == own


async def test_values_of_another_type_are_taken_where_it_is_plain_what_they_mean(desk) -> None:
    desk.file("a.py", "x = 1\nx = 2\n")
    found = await desk.do("grep_files", pattern="x", limit="1", context="0", glob=None)
    assert "x = 1" in found.text
    assert "x = 2" not in found.text
    await desk.do("read_file", path="a.py", offset="1")
    await desk.do("edit_file", path="a.py", old="x", new="y", replace_all="true")
    assert (desk.cwd / "a.py").read_text() == "y = 1\ny = 2\n"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a name", ["a name"]),
        ('["a", "b"]', ["a", "b"]),
        ("[draft] notes", ["[draft] notes"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_one_text_where_a_list_is_wanted_is_the_list_that_it_spells_or_its_item(
    given: object, meant: list[str]
) -> None:
    schema = {"properties": {"subjects": {"type": "array", "items": {"type": "string"}}}}
    assert in_own_words({"subjects": given}, schema) == {"subjects": meant}


async def test_an_unknown_argument_is_left_out_where_nothing_can_hang_on_it(desk) -> None:
    """A command in another folder than it was meant for would be another command."""
    desk.file("a.py", "x = 1\n")
    found = await desk.do("grep_files", pattern="x", output_mode="content")
    assert "x = 1" in found.text
    assert "[Unknown arguments were ignored: output_mode. grep_files takes pat" in found.text
    outcome = await desk.fails("run_command", command="touch made", workdir="/tmp")
    assert outcome.display == "invalid call: unknown field workdir. The model was told."
    assert not (desk.cwd / "made").exists()
    await desk.do("run_command", command="touch made", description="Make a file")
    assert (desk.cwd / "made").exists()
