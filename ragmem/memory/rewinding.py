"""What a session's edits after some turn were, so that its files can be taken back to it.

Read from the recorded calls alone: each edit tells the SHA-256 of what it wrote, and of
what stood there before (its pre-image; none where it made the file).
"""

import json
import posixpath
from collections.abc import Iterable

import msgspec

from ragmem.records import ToolCall, Turn

_EDITS = ("create_file", "write_file", "edit_file")
_COMMAND = "run_command"
_HARMLESS = frozenset(
    {
        "read_file",
        "list_directory",
        "glob_files",
        "grep_files",
        "recall_result",
        "search_memories",
        "get_recent_memories",
        "remember",
        "brain_search",
    }
)
_NOT_RUN = ("nothing was done", "not executed", "nothing was executed")
"""In the answer of a call that had no effect."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """All that the session's edits did to one file since a turn."""

    path: str
    """As the results record it: relative to the folder of the session, or absolute."""
    before: str | None
    """Pre-image of the first of these edits; None: the file was not there."""
    after: str
    """SHA-256 of what the last one wrote."""
    edit_count: int = 1
    first_turn: int = 0
    unbroken: bool = True
    """Whether each edit found what the one before it had written: if not, others wrote too."""
    cut_off: bool = False
    """The first edit was cut off: whether it was made is not known, nor what stood there before."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """What going back to a turn is about."""

    turn_index: int
    changes: tuple[FileChange, ...] = ()
    """A file each, those that were changed first come first."""
    command_count: int = 0
    """Commands that ran since: nothing is known of what they changed."""
    other_count: int = 0
    """Calls of other tools, and of other agents' (imported sessions): neither of these."""


class _Edit(msgspec.Struct, frozen=True):
    path: str
    before: str | None
    after: str


def rewind_to(turns: Iterable[Turn], turn_index: int) -> Rewind:
    """What happened to files after the turn of this index, in the session's order."""
    changes: dict[str, FileChange] = {}
    commands = others = 0
    for turn in turns:
        if turn.turn_index <= turn_index:
            continue
        for call in turn.tool_calls:
            if call.tool_name in _HARMLESS or _was_not_run(call):
                continue
            if call.tool_name == _COMMAND:
                commands += 1
            elif call.tool_name not in _EDITS or (call.success and call.result and not _edit(call)):
                others += 1
            else:
                _note(changes, call, turn.turn_index)
    return Rewind(
        turn_index=turn_index,
        changes=tuple(changes.values()),
        command_count=commands,
        other_count=others,
    )


def preimages_of(turns: Iterable[Turn]) -> set[str]:
    """Names of the copies of files that were taken before their edits."""
    calls = (call for turn in turns for call in turn.tool_calls if call.tool_name in _EDITS)
    return {name for call in calls if (name := _field(call.result, "preimage"))}


def _was_not_run(call: ToolCall) -> bool:
    said = (_field(call.result, "text") or call.error or "").casefold()
    return bool(call.result) and not call.success and any(words in said for words in _NOT_RUN)


def _note(changes: dict[str, FileChange], call: ToolCall, turn_index: int) -> None:
    edit = _edit(call)
    known = changes.get(edit.path) if edit else None
    if edit is None:
        path = None if call.result else _field(call.arguments, "path")
        # After an edit that is known, the file itself tells whether this one was made.
        if path and (path := posixpath.normpath(path)) not in changes:
            changes[path] = FileChange(
                path=path, before=None, after="", first_turn=turn_index, cut_off=True
            )
    elif known is None:
        changes[edit.path] = FileChange(
            path=edit.path, before=edit.before, after=edit.after, first_turn=turn_index
        )
    else:
        changes[edit.path] = msgspec.structs.replace(
            known,
            after=edit.after,
            edit_count=known.edit_count + 1,
            unbroken=known.unbroken and known.after == (edit.before or ""),
        )


def _edit(call: ToolCall) -> _Edit | None:
    """A finished edit; None for one that failed, and so left the file as it was."""
    if not call.success or not call.result:
        return None
    path, after = _field(call.result, "path"), _field(call.result, "sha256")
    if path is None or after is None:
        return None
    return _Edit(path, _field(call.result, "preimage"), after)


def _field(text: str, name: str) -> str | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None
