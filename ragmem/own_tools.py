"""The agent's own tools, a row each: all that is decided by a tool's name asks this table.

A tool that is not in it is another's, a server's or an imported session's: what a call of it
does is not known.
"""

from typing import Literal

import msgspec

from ragmem.records import AccessType

Effect = Literal["read", "edit", "command", "memory"]
"""What a call changes: nothing, files, whatever a command does, or what is remembered."""


class OwnTool(msgspec.Struct, frozen=True):
    """What is known of a tool by its name."""

    name: str
    effect: Effect
    kind: Literal["read", "search", "edit", "execute", "other"] = "other"
    """What the Agent Client Protocol calls tools like it."""
    access: AccessType | None = None
    """How it was with the files of a call: for a search those of its result, else its `path`."""
    is_standard: bool = False
    """Whether every agent has it, so that `--allow` takes its name."""
    recalls: bool = False
    """Whether it answers with what was said before, of which nothing is learned anew."""


READ_FILE, RUN_COMMAND = "read_file", "run_command"
REMEMBER, UPDATE_TASKS = "remember", "update_tasks"
OWN_TOOLS = {
    tool.name: tool
    for tool in (
        OwnTool(READ_FILE, "read", "read", "read", is_standard=True),
        OwnTool("list_directory", "read", "search", "list", is_standard=True),
        OwnTool("glob_files", "read", "search", "list", is_standard=True),
        OwnTool("grep_files", "read", "search", "search", is_standard=True),
        OwnTool("create_file", "edit", "edit", "write", is_standard=True),
        OwnTool("write_file", "edit", "edit", "write", is_standard=True),
        OwnTool("edit_file", "edit", "edit", "write", is_standard=True),
        OwnTool(RUN_COMMAND, "command", "execute", is_standard=True),
        OwnTool("read_job", "read"),
        OwnTool("read_skill", "read", "read"),
        OwnTool("wait_for_servers", "read"),
        OwnTool(UPDATE_TASKS, "memory"),
        OwnTool("present_plan", "memory"),
        OwnTool("brain_search", "read", "search", "search"),
        OwnTool("search_memories", "read", "search", recalls=True),
        OwnTool("get_recent_memories", "read", recalls=True),
        OwnTool("recall_result", "read", recalls=True),
        OwnTool(REMEMBER, "memory", recalls=True),
    )
}
EDITING_TOOLS = frozenset(name for name, tool in OWN_TOOLS.items() if tool.effect == "edit")
