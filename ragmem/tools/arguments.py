"""Accept calls that deviate from a tool's own form where their meaning is plain.

Models are trained with the tools of other agents. Their names for tools and arguments, numbers
given as text, and a single text in place of a list are accepted; what a tool does is never guessed.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ragmem.messages import Json
from ragmem.own_tools import READ_FILE, RUN_COMMAND, Effect

_TOOLS = {
    READ_FILE: "read view",
    "list_directory": "ls list list_dir list_files",
    "glob_files": "glob file_search",
    "grep_files": "grep grep_search search_files search_file_content",
    "write_file": "write write_to_file",
    "edit_file": "edit replace replace_in_file",
    RUN_COMMAND: "bash shell exec_command execute_command run_shell_command run_terminal_cmd",
}
"""By own tool, the names of equivalent tools of other agents."""
_OWN_NAMES = {other: own for own, others in _TOOLS.items() for other in others.split()}
_ARGUMENTS = {
    "path": "file_path filepath filename file absolute_path target_file dir_path directory dir",
    "content": "contents file_text text",
    "old": "old_string old_str old_text",
    "new": "new_string new_str new_text",
    "command": "cmd",
    "pattern": "query regex",
    "query": "pattern",
    "glob": "include",
    "background": "run_in_background is_background",
}
"""By own argument, the names of equivalent arguments of other agents."""
_EXPLANATIONS = {"description", "explanation", "instruction", "justification"}
"""Arguments in which a model explains its call; they do not affect what is done."""


def own_name(name: str) -> str:
    """Return the own name of another agent's tool; empty if there is no equivalent."""
    return _OWN_NAMES.get(name.casefold(), "")


def in_own_words(given: Mapping[str, Json], schema: Mapping[str, Any]) -> dict[str, Json]:
    """Return arguments under their own names, without optional nulls; lists as lists."""
    known = schema["properties"]
    own = {
        other: name
        for name in known.keys() - given.keys()
        if (other := next((o for o in _ARGUMENTS.get(name, "").split() if o in given), ""))
        and other not in known
    }
    named = {own.get(name, name): value for name, value in given.items()}
    required = schema.get("required", ())
    return {
        name: _as_list(value, known.get(name, {}))
        for name, value in named.items()
        if value is not None or name in required or name not in known
    }


def _as_list(value: Json, schema: Mapping[str, Any]) -> Json:
    """Turn a text into a list where the schema wants one: parsed as JSON, else as its only item."""
    if schema.get("type") != "array" or not isinstance(value, str):
        return value
    with suppress(ValueError, RecursionError):
        if isinstance(listed := json.loads(value), list):
            return listed
    return [value]


def left_out(given: Mapping[str, Json], schema: Mapping[str, Any], effect: Effect) -> list[str]:
    """Return the names of unknown arguments that can safely be ignored.

    For a tool that changes something, an unknown argument could be essential, such as another
    folder.
    """
    unknown = [name for name in given if name not in schema["properties"]]
    is_harmless = effect in ("read", "memory")
    return [name for name in unknown if is_harmless or name in _EXPLANATIONS]


def signature(schema: Mapping[str, Any]) -> str:
    """Return a tool's arguments on one line, with their types: `path: string, limit?: integer`."""
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(each)}"
        for name, each in schema["properties"].items()
    )


def _kind(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"enum": choices}:
            return "|".join(map(str, choices))
        case {"anyOf": kinds}:
            return "|".join(map(_kind, kinds))
        case {"items": items}:
            return f"[{_kind(items)}]"
        case {"properties": _}:
            return f"{{{signature(schema)}}}"
        case _:
            return str(schema.get("type", "any"))
