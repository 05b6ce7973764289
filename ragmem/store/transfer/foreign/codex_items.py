"""What stands in the records of Codex: the kinds that are known, and what they say."""

import re

import msgspec

from ragmem.records import TurnStatus, Usage
from ragmem.store.transfer.foreign.fields import Fields, count, fields, items, text

REQUEST = "## My request for Codex:"
ADDED = re.compile(
    r"<(?:environment_context|user_instructions|user_shell_command|turn_aborted|skill|skills"
    r"|subagent_notification|permissions|collaboration_mode|model_switch|apps_instructions"
    r"|plugins_instructions|INSTRUCTIONS|ENVIRONMENT_CONTEXT|user_action|hook_prompt)\b"
    r"|# AGENTS\.md instructions"
)
CWD = re.compile(r"<cwd>([^<\n]{1,4096})</cwd>")
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:?) (-?[0-9]{1,10})\b", re.MULTILINE)
_EXIT_WITHIN = 400
"""Characters at the start of an answer among which its exit code stands."""
_ID_IN_NAME = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
KEY_CHARS = 200
CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"}
UNANSWERED = {"web_search_call": "web_search", "image_generation_call": "image_generation"}
ANSWERS = {"function_call_output", "custom_tool_call_output", "tool_search_output"}
RECORDS_LEFT_OUT = {
    "compacted": "summaries of the agent",
    "inter_agent_communication": "messages of subagents",
    "world_state": "context that the agent added",
}
ITEMS_LEFT_OUT = {
    "ghost_snapshot": "snapshots of files",
    "compaction": "summaries of the agent",
    "compaction_summary": "summaries of the agent",
    "context_compaction": "summaries of the agent",
    "additional_tools": "context that the agent added",
    "agent_message": "messages of subagents",
}
EVENTS_LEFT_OUT = {
    "agent_message_delta",
    "agent_reasoning_section_break",
    "agent_reasoning_raw_content",
    "apply_patch_approval_request",
    "background_event",
    "collab_agent_interaction_end",
    "collab_agent_spawn_end",
    "collab_close_end",
    "collab_resume_end",
    "collab_waiting_end",
    "context_compacted",
    "dynamic_tool_call_request",
    "dynamic_tool_call_response",
    "entered_review_mode",
    "exec_approval_request",
    "exec_command_begin",
    "exec_command_end",
    "exited_review_mode",
    "guardian_assessment",
    "image_generation_end",
    "injected_message",
    "mcp_tool_call_begin",
    "mcp_tool_call_end",
    "patch_apply_begin",
    "patch_apply_end",
    "plan_update",
    "session_configured",
    "stream_error",
    "sub_agent_activity",
    "task_started",
    "thread_goal_updated",
    "thread_rolled_back",
    "thread_settings_applied",
    "turn_diff",
    "turn_started",
    "undo_completed",
    "view_image_tool_call",
    "warning",
    "web_search_begin",
    "web_search_end",
}
ENDINGS: dict[str, TurnStatus] = {
    "task_complete": "completed",
    "turn_complete": "completed",
    "turn_aborted": "interrupted",
    "error": "failed",
}
_TOKENS = ("input", "output", "cached_input")


def id_in_name(name: str) -> str:
    """The id of a session, as the name of its file tells it."""
    found = _ID_IN_NAME.search(name)
    return found[0] if found else name


def same(one: str, other: str) -> bool:
    """Whether both are the same words: they are told with and without space around them."""
    return one.split() == other.split()


def typed(words: str) -> str:
    """What the person typed, without what an editor has put before it."""
    _, found, request = words.partition(REQUEST)
    return (request if found else words).strip()


def words_of(item: Fields) -> str:
    """The text of a message, or of an answer in parts."""
    if isinstance(item.get("content"), str):
        return text(item, "content")
    said = []
    for each in map(fields, items(item, "content")):
        kind = text(each, "type")
        said.append(text(each, "text") or ("[image]" if "image" in kind else ""))
    return "\n\n".join(filter(None, said))


def decoded(arguments: str) -> Fields:
    """An object that stands as JSON in a text; an empty one for anything else."""
    try:
        return fields(msgspec.json.decode(arguments))
    except msgspec.DecodeError:
        return {}


def output_of(item: Fields) -> tuple[str, bool]:
    """What a tool has answered, and whether it failed, by any of the forms that were used."""
    given = item.get("output", item.get("tools"))
    failed = fields(given).get("success") is False or fields(given).get("isError") is True
    if isinstance(given, dict):
        given = next((given[k] for k in ("content", "content_items", "output") if k in given), "")
    if isinstance(given, list):
        return words_of({"content": given}), failed
    words = text({"output": given}, "output")
    if words.startswith('{"'):
        told = decoded(words)
        code = fields(told, "metadata").get("exit_code")
        if isinstance(told.get("output"), str):
            return text(told, "output"), failed or (isinstance(code, int) and code != 0)
    ended = _EXIT.search(words[:_EXIT_WITHIN].partition("\nOutput:")[0])
    return words, failed or (ended is not None and int(ended[1]) != 0)


def spent(info: Fields, before: Fields) -> Usage | None:
    """Tokens of one call, as they were told, or as the sums tell them; `before`: the last sums."""
    last, total = fields(info, "last_token_usage"), fields(info, "total_token_usage")
    told = [_more(last, total, before, f"{name}_tokens") for name in _TOKENS]
    if told[0] is None or told[1] is None or not (told[0] or told[1]):
        return None  # Before the first call, sums of nothing are told.
    return Usage(input_tokens=told[0], output_tokens=told[1], cached_tokens=told[2], model_calls=1)


def _more(last: Fields, total: Fields, before: Fields, name: str) -> int | None:
    """Of one call: as it was told, or as the sums tell it."""
    if (told := count(last, name)) is not None:
        return told
    summed = count(total, name)
    return None if summed is None else max(0, summed - (count(before, name) or 0))
