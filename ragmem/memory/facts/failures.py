"""Failed commands and edits, extracted from the recorded tool calls without a model."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ragmem.ids import short_id
from ragmem.memory.facts import Draft
from ragmem.memory.facts.trust import failed_command
from ragmem.memory.facts.vouching import Source, evidence_of
from ragmem.memory.facts.words import is_instruction
from ragmem.memory.turns import argument, exit_code, has_failed, result_text, was_refused
from ragmem.own_tools import EDITING_TOOLS, RUN_COMMAND, UNREAD
from ragmem.records import MemoryRecord, ToolCall, Turn
from ragmem.redact import redact
from ragmem.text import Regex, clean, one_line, visible

_SUBJECT_CHARS = 200
_REASON_CHARS = 240
_REMINDER = "This failed on"
_MAX_FAILURES = 3
"""The maximum number of failures per turn, of which the last are kept."""
_TTL = "30d"
"""Failures expire, because their causes change."""
_QUERY_PROGRAMS = Regex(
    r"grep|egrep|fgrep|rg|ag|ack|test|\[\[?|diff|cmp|ls|cat|head|tail|find|fd|which|type|command|"
    r"stat|file|wc|pgrep|ps|kill|pkill|sleep|true|false|echo|printf|read|cd|pwd|env|man|help|less|"
    r"more|sed|awk|curl|ping|lsof|ss|netstat|nc|host|dig|nslookup|mountpoint|id|groups"
)
"""Programs whose exit code is an answer, or whose failure means nothing later."""
_WORD = re.compile(
    r"""\|[|&]?|&&|[;\n]|(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s|;&'"\\]|&(?!&)|['"\\])+""", re.DOTALL
)
"""A token of a shell command line: a word with its quotes, or an operator between commands."""
_SEQUENCE_OPERATORS = {";", "||", "\n"}
"""The operators after which only the rest decides the exit code of the line."""
_SHELL = Regex(r"^(?:/\S*/)?(?:ba|da|k|z)?sh: (?:line )?\d+: ")
"""The shell's name and line number before a message, which are useless for a one-line command:
"/bin/sh: 1: "."""
_TELLING = Regex(
    "error|exception|failed|fatal|not found|no such|denied|refused|cannot|can't|unable|missing|"
    "undefined|unknown|invalid|erreur|panic",
    re.IGNORECASE,
)
# "3 failed, 10 passed", "test result: FAILED. 1 passed".
_TALLY = Regex(r"\W*(?:test result: )?(?:FAILED\W+)?\d+ (?:failed|errors?|passed)", re.IGNORECASE)
_TELLS_NOTHING = Regex(
    f"[rR]ead it|{UNREAD}|interrupted|Stopped by the (?:user|person)"
    "|Stopped as ragmem (?:exited|was ended)"
)
"""Errors of calls that were stopped, or first had to read a file."""


def failures(turn: Turn, *, locate: Callable[[str], str], with_mended: bool = False) -> list[Draft]:
    """Return the failures of a turn; those that worked later in it only with `with_mended`."""
    last: dict[str, Draft | None] = {}
    # A refused call does not undo the result of an earlier attempt.
    tried = [(subject_of(call), call) for call in turn.tool_calls if was_tried(call)]
    for place, (subject, call) in enumerate(tried):
        if subject:
            before = last.pop(subject, None)
            instead = _working_variant(subject, tried[place + 1 :]) if has_failed(call) else ""
            last[subject] = _draft(turn, call, subject, locate, instead)
            if with_mended and before is not None and not has_failed(call):
                last[subject] = before
    return [draft for draft in last.values() if draft is not None][-_MAX_FAILURES:]


def succeeded(turn: Turn) -> frozenset[str]:
    """Return the beginnings (see `beginning`) of failures that no longer hold, because the last
    attempt in this turn succeeded."""
    calls = (call for call in turn.tool_calls if call.result and was_tried(call))
    last = {subject_of(call): call for call in calls}
    return frozenset(
        beginning(subject) for subject, call in last.items() if subject and not has_failed(call)
    )


def subject_of(call: ToolCall) -> str:
    """Return a call's command or edit on one line; empty for calls never stored as failures."""
    if call.tool_name == RUN_COMMAND:
        command = clean(argument(call, "command"))
        if _is_query(command):
            return ""
        return one_line(redact(command), _SUBJECT_CHARS).replace("`", "'")
    if call.tool_name in EDITING_TOOLS:
        path = one_line(redact(clean(argument(call, "path"))), _SUBJECT_CHARS).replace("`", "'")
        return f"{call.tool_name} {path}" if path else ""
    return ""


def _is_query(command: str) -> bool:
    """Whether the command line may get its exit code from a program in `_QUERY_PROGRAMS`."""
    programs = [""]
    for word in _WORD.findall(command):
        if word in _SEQUENCE_OPERATORS:
            programs = [""]
        elif word == "&&":
            programs.append("")
        elif word in ("|", "|&"):
            programs[-1] = ""
        elif not programs[-1] and ("=" not in word or word.startswith("=")):
            programs[-1] = word
    return any(not program or _QUERY_PROGRAMS.fullmatch(program) for program in programs)


def failed_before(command: str, memories: Iterable[MemoryRecord], cwd: Path) -> MemoryRecord | None:
    """Return the known failure of this command; white space and a `cd` to `cwd` are ignored."""
    wanted = _same_command(command, cwd)
    # A clipped command may have had a different end.
    if not wanted or len(wanted) >= _SUBJECT_CHARS - 1:
        return None
    for memory in memories:
        failed = failed_command(memory) if memory.kind == "failure" else None
        if failed and _same_command(failed.removeprefix("`"), cwd) == wanted:
            return memory
    return None


def reminder(memory: MemoryRecord) -> str:
    """Return the line shown for a failure before the same command is tried again."""
    day = (memory.at or memory.created_at).astimezone().date().isoformat()
    why = memory.content.partition("` failed")[2].strip(" :.") or "no reason was kept"
    return (
        f"{_REMINDER} {day}: {one_line(visible(why), _REASON_CHARS)}; see memory "
        f"{short_id(memory.memory_id)}."
    )


def _same_command(command: str, cwd: Path) -> str:
    """Return a command in the form in which it is compared, without a leading `cd` to `cwd`."""
    line = " ".join(redact(clean(command)).replace("`", "'").split())
    for here in (".", "./", str(cwd), f"{cwd}/", f"'{cwd}'", f'"{cwd}"'):
        for mark in (" && ", "; ", ";"):
            line = line.removeprefix(f"cd {here}{mark}")
    return line


def beginning(subject: str) -> str:
    """Return the beginning of a failure's content, which identifies the failure."""
    return f"`{subject}` failed"


def was_tried(call: ToolCall) -> bool:
    """Whether something is learned from a call: it was neither refused nor stopped by the user."""
    return call.success or not (was_refused(call) or _TELLS_NOTHING.search(call.error or ""))


def _working_variant(subject: str, later: Iterable[tuple[str, ToolCall]]) -> str:
    """Return the first later command that is a variant of the failed one and succeeded; or "".

    A variant has the same program and all words that are not options, possibly extended.
    """
    words = subject.split()
    for other, call in later:
        same = other.split()[:1] == words[:1] and call.tool_name == RUN_COMMAND
        if same and call.result and not has_failed(call):
            # A different word makes it a different command; options may be added or removed.
            named = [word for word in words if not word.startswith("-")]
            if all(any(o.startswith(word) for o in other.split()) for word in named):
                return other
    return ""


def _draft(
    turn: Turn, call: ToolCall, subject: str, locate: Callable[[str], str], instead: str
) -> Draft | None:
    if not has_failed(call):
        return None
    reason = _reason(call)
    then = "; later it worked" if instead == subject else f"; `{instead}` worked"
    return Draft(
        content=f"{beginning(subject)}: {reason}{then if instead else ''}",
        kind="failure",
        subjects=_subjects(call, subject, locate),
        trust="tool",
        scope="project",
        ttl=_TTL,
        at=call.started_at,
        evidence=(evidence_of(turn, Source("tool", f"{subject}: {reason}", call), locate=locate),),
    )


def _subjects(call: ToolCall, subject: str, locate: Callable[[str], str]) -> tuple[str, ...]:
    if call.tool_name == RUN_COMMAND:
        return (subject.split()[0].rpartition("/")[2],)
    return (locate(argument(call, "path")),)


def _reason(call: ToolCall) -> str:
    """Return the exit code and the most informative line of the output.

    A line of a command's output that gives an instruction is left out: it may be an injection.
    """
    text = call.error or result_text(call) if not call.success else result_text(call)
    code = exit_code(call)
    head = f"exit code {code}" if code is not None else ""
    lines = [one_line(redact(clean(line)), _REASON_CHARS) for line in text.split("\n")[-400:]]
    lines = [line for line in lines if line and not line.startswith(("Exit code ", _REMINDER))]
    lines = [_SHELL.sub("", line) for line in lines]
    telling = [line for line in lines if _TELLING.search(line)]
    # The last line of a program's output is the most informative; of a tool's error, the first.
    chosen = (telling or lines)[-1:] if call.tool_name == RUN_COMMAND else lines[:1]
    if chosen and _TALLY.match(chosen[0]):
        # The number of failed tests says less than their names.
        chosen = [line for line in telling if not _TALLY.match(line)][-1:] + chosen
    safe = [line for line in chosen if call.tool_name != RUN_COMMAND or not is_instruction(line)]
    return ": ".join(filter(None, [head, *safe])) or "no reason was given"
