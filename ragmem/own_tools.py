"""The table of the agent's own tools, for all decisions that depend on a tool's name.

Other tools belong to MCP servers or imported sessions, and the effects of their calls are unknown.
"""

from typing import Literal

import msgspec

from ragmem.records import AccessType

Effect = Literal["read", "edit", "command", "memory"]
"""What a call changes: nothing, files, anything (a command), or the memory."""


class OwnTool(msgspec.Struct, frozen=True):
    """The properties of one of the agent's own tools."""

    name: str
    effect: Effect
    kind: Literal["read", "search", "edit", "execute", "other"] = "other"
    """The kind of tool in the Agent Client Protocol."""
    access: AccessType | None = None
    """The access to a call's files: for a search those in its result, else its `path`."""
    is_standard: bool = False
    """Whether every agent has it, so that `--allow` takes its name."""
    recalls: bool = False
    """Whether it returns parts of earlier conversations, from which nothing is learned again."""


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
UNREAD = "has not been read in this session"
"""Says of a file that an edit of it failed because it has to be read first."""
