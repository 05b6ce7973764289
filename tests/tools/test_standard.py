"""The set as a model sees it, and what holds for its source."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from inline_snapshot import snapshot

import ragmem.tools
from ragmem.agent import standard_toolset
from ragmem.messages import ToolUse
from ragmem.own_tools import OWN_TOOLS
from ragmem.tools.base import Toolset
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.planning import UpdateTasks
from ragmem.tools.workspace import Workspace

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
            "run_command": (
                ["background", "command", "outside_sandbox", "timeout"],
                ["command"],
            ),
        }
    )


def test_the_table_has_each_tool_with_the_effect_that_its_class_says(desk):
    """And no other; those that every agent has are marked."""
    modules = [import_module(f"ragmem.tools.{source.stem}") for source in SOURCES]
    kinds = [each for module in modules for each in vars(module).values() if hasattr(each, "name")]
    said = {kind.name: kind.effect for kind in kinds if hasattr(kind, "effect")}
    assert said == {name: tool.effect for name, tool in OWN_TOOLS.items()}
    standard = [name for name, tool in OWN_TOOLS.items() if tool.is_standard]
    assert standard == list(desk.toolset.names)


def test_a_tool_that_is_denied_and_never_asks_is_not_there(tmp_path: Path):
    given = {"data_dir": tmp_path, "more": [UpdateTasks()]}
    for deny in (["update_tasks"], ["update_tasks(*)"], []):
        toolset = standard_toolset(Workspace(tmp_path), rules=PermissionRules(deny=deny), **given)
        assert ("update_tasks" in toolset.names) == (not deny)


def test_every_argument_is_described(desk):
    for spec in desk.toolset.specs():
        assert 20 < len(spec.description) < 600
        assert spec.parameters["additionalProperties"] is False
        for name, schema in spec.parameters["properties"].items():
            described = schema.get("description") or str(schema)
            assert "description" in schema or "description" in described, (spec.name, name)


def test_schemas_stand_alone(desk):
    specs = [*desk.toolset.specs(), *Toolset([UpdateTasks()]).specs()]
    assert "$ref" not in str([spec.parameters for spec in specs])
    assert "'enum': ['doing', 'done', 'open']" in str(specs[-1].parameters)


def test_read_only_tools_are_known(desk):
    names = [name for name in desk.toolset.names if desk.toolset.is_read_only(name)]
    assert names == ["read_file", "list_directory", "glob_files", "grep_files"]


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
        '{"path": null}', '{"path": 1}', '{"path": "a", "extra": 1}', '{"path": "a", "limit": NaN}',
        '{"path": "a", "limit": ' + "9" * 5000 + "}", "[" * 100_000, '{"path": "a", "limit": 1.5}',
    ],
    ids=lambda a: a[:20] or "empty",
)  # fmt: skip
async def test_wrong_arguments_execute_nothing(desk, arguments):
    """Cut, doubled, trailing or mistyped arguments are never repaired."""
    desk.file("a", "x")
    for name in ("read_file", "write_file"):
        outcome = await desk.toolset.call(ToolUse("1", name, arguments))
        assert not outcome.success
        assert "Nothing was executed" in outcome.text
    assert desk.seen.hash_of("a") is None


def test_no_shell_strings_in_the_source():
    """CVE-2026-35020: nothing but run_command's own argv hands text to a shell."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.keyword):
                assert not (node.arg == "shell" and getattr(node.value, "value", None)), source
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("system", "popen", "getoutput"), source


def test_no_fixed_temporary_names():
    """CVE-2026-46406: nothing predictable in a folder that others can write to."""
    for source in SOURCES:
        assert not re.search(r"[\"']/tmp|gettempdir|mktemp\(", source.read_text()), source


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"pattern": "x", "limit": "3"}, "limit has to be a whole number, not text"),
        ({"pattern": "x", "limit": 0}, "limit has to be at least 1"),
        ({"pattern": 3}, "pattern has to be text, not a whole number"),
        ({}, "pattern is missing"),
        ({"pattern": "x", "where": "here"}, "there is no where"),
        ({"pattern": "x", "mode": "all"}, "mode can't be 'all'"),
        ({"pattern": "x", "path": None}, "path has to be text, not nothing"),
    ],
)
async def test_wrong_arguments_are_told_the_person_in_words_and_the_model_exactly(
    desk, arguments: dict[str, object], shown: str
) -> None:
    outcome = await desk.fails("grep_files", **arguments)
    assert outcome.display == f"called wrongly: {shown}. The model is told."
    assert "arguments do not fit grep_files: " in outcome.text
