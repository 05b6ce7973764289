"""Assembles a session from an agent's records: turns, tool calls, and the files these touched."""

import json
import os
import re
import shlex
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

from ragmem.ids import derived_id
from ragmem.importers import (
    TEXT_LIMIT,
    AgentName,
    Fields,
    FileFacts,
    FoundFile,
    Tally,
    count,
    decoded_line,
    fields,
    items,
    moment,
    text,
)
from ragmem.memory.turns import with_said
from ragmem.records import AccessType, FileAccess, PutTurn, ToolCall, Turn, TurnStatus, Usage
from ragmem.redact import ends_of, redact
from ragmem.store import fitted
from ragmem.text import clean, one_line

_TOOLS: dict[AccessType, str] = {
    "read": "Read NotebookRead read_file view_image read ReadFile",
    "write": "Edit MultiEdit Write NotebookEdit write_file edit_file write edit replace"
    " search_replace WriteFile StrReplaceFile",
    "list": "LS Glob list_dir list glob list_directory",
    "search": "Grep grep_files grep search_file_content grep_search",
}
_ACCESSES = {name: access for access, names in _TOOLS.items() for name in names.split()}
_PATH_FIELDS = ("file_path", "filePath", "notebook_path", "dir_path", "path", "absolute_path")
_SHELLS = (
    *("Bash", "shell", "local_shell", "shell_command", "exec_command", "container.exec"),
    *("bash", "Shell", "run_shell_command"),
)
_READERS = {"cat", "head", "tail", "nl", "less", "bat", "sed"}
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)
_SHELL_SYNTAX = re.compile(r"[|;&<>$`*?(){}\n\\~!\[\]]")
_MOST = 200
"""Maximum number of files recorded for one call."""
_LONGEST_PATH = 4096


class Touched(msgspec.Struct, frozen=True):
    """A file, by the path given to the tool, and the kind of access."""

    path: str
    access: AccessType


def touched(name: str, arguments: Fields, cwd: str) -> list[Touched]:
    """Return the files named in a call's arguments, relative to its own folder or else `cwd`."""
    folder = text(arguments, "workdir") or text(arguments, "cwd") or cwd
    found: list[Touched] = []
    if name in _ACCESSES:
        path = next(filter(None, (text(arguments, each) for each in _PATH_FIELDS)), "")
        found = [Touched(path, _ACCESSES[name])]
    elif name in _SHELLS:
        script = script_of(arguments)
        found = _patched(script) or [Touched(path, "read") for path in _read(script)]
    elif name in ("apply_patch", "patch"):
        patch = (text(arguments, name) for name in ("input", "patch", "patchText"))
        found = _patched(next(filter(None, patch), ""))
    return listed(found, folder)


def listed(found: Iterable[Touched], folder: str) -> list[Touched]:
    """Return each file once, with its path joined to the folder."""
    whole = (
        Touched(os.path.join(folder, each.path), each.access)
        for each in found
        if each.path.strip() and len(each.path) <= _LONGEST_PATH
    )
    return list(dict.fromkeys(whole))[:_MOST]


def found_by(name: str, answer: Fields) -> list[Touched]:
    """Return the files that a search of Claude Code found, as its structured result lists them."""
    if name not in ("Grep", "Glob"):
        return []
    access: AccessType = "search" if name == "Grep" else "list"
    names = items(fields(answer), "filenames")
    return [Touched(each, access) for each in names if isinstance(each, str)]


def script_of(arguments: Fields) -> str:
    """Return the script that a shell was told to run."""
    for name in ("command", "cmd", "script"):
        words = [word for word in items(arguments, name) if isinstance(word, str)]
        if len(words) == 3 and words[1] in ("-c", "-lc"):
            return words[2]
        if words:
            return words[1] if words[0] == "apply_patch" and len(words) == 2 else shlex.join(words)
        if script := text(arguments, name):
            return script
    return ""


def _patched(patch: str) -> list[Touched]:
    if "*** Begin Patch" not in patch:
        return []
    return [Touched(path, "write") for path in _PATCHED.findall(patch)]


def _read(script: str) -> Sequence[str]:
    """Return the files that a plain command reads; anything more than plain counts as unknown."""
    if len(script) > _LONGEST_PATH or _SHELL_SYNTAX.search(script.strip()):
        return ()
    try:
        words = shlex.split(script)
    except ValueError:
        return ()
    if len(words) < 2 or words[0] not in _READERS:
        return ()
    program, rest = words[0], [word for word in words[1:] if not word.startswith("-")]
    if program == "sed":
        return rest[1:] if "-n" in words and "-i" not in words else ()
    # the number in `head -n 20 FILE` is no file
    return [word for word in rest if not re.fullmatch(r"\+?[0-9]+[a-zA-Z]?", word)]


_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ERROR_LIMIT = 500


def session_id_of(agent: AgentName, foreign_id: str) -> str:
    """Return our id of a session: the same for each import."""
    return derived_id(str(uuid.NAMESPACE_URL), f"ragmem:import/{agent}/{foreign_id}")


class _Message(msgspec.Struct):
    key: str | None
    texts: list[str] = []
    calls: list[str] = []


class TurnBuilder:
    """A turn under construction: one prompt and everything that followed from it."""

    def __init__(self, session_id: str, turn_id: str, prompt: str, at: datetime) -> None:
        self.turn_id = turn_id
        self.prompt = prompt
        self.started_at = at
        self.last_at = at
        self.model: str | None = None
        self.status: TurnStatus | None = None
        """How it ended, if the records say so."""
        self._session_id = session_id
        self._messages: list[_Message] = []
        self._calls: dict[str, ToolCall] = {}
        self._files: dict[str, list[Touched]] = {}
        self._meanwhile: list[tuple[str, str]] = []
        """Further messages that the user typed while the turn ran, each with the call before it."""
        self._answered = False
        self._thoughts: list[str] = []
        self._usage: dict[str, Usage] = {}

    @property
    def is_bare(self) -> bool:
        """Whether the model has not answered in any way yet."""
        return not self._messages

    def add_text(self, key: str | None, words: str, at: datetime) -> None:
        """Add text of the model; `key` identifies its message, where messages have ids."""
        self._message(key, at)
        if words.strip():
            self._messages[-1].texts.append(words.strip())

    def add_user_message(self, words: str) -> None:
        """Add a message that the user typed while the model worked."""
        self._meanwhile.append((words, next(reversed(self._calls), "")))

    def add_reasoning(self, words: str) -> None:
        """Add reasoning of the model."""
        if words.strip():
            self._thoughts.append(words.strip())

    def set_usage(self, key: str, usage: Usage | None) -> None:
        """Set the usage of one model call, if it is known; the last value for a key counts."""
        if usage:
            self._usage[key] = usage

    def add_call(
        self, key: str | None, call_id: str, name: str, arguments: str, files: list[Touched]
    ) -> None:
        """Add a tool call of the model; a known call id changes nothing."""
        if call_id in self._calls:
            return
        self._message(key, self.last_at)
        self._calls[call_id] = ToolCall(
            tool_call_id=derived_id(self.turn_id, call_id),
            turn_id=self.turn_id,
            order=len(self._calls),
            tool_name=_NAME.sub("_", name)[:64] or "tool",
            arguments=arguments,
            result="",
            success=False,
            started_at=self.last_at,
        )
        self._files[call_id] = files
        self._messages[-1].calls.append(call_id)

    def tool_of(self, call_id: str) -> str | None:
        """Return the name of the called tool; None if this turn has no such call."""
        held = self._calls.get(call_id)
        return held.tool_name if held else None

    def add_result(
        self,
        call_id: str,
        words: str,
        at: datetime,
        *,
        failed: bool,
        files: list[Touched] | None = None,
    ) -> bool:
        """Add the result of a tool call; return whether this turn has the call.

        `files` are those named in the result, which is more reliable than the arguments.
        """
        held = self._calls.get(call_id)
        if held is None:
            return False
        self._touch(at)
        words = ends_of(words, TEXT_LIMIT)
        waited = at - held.started_at
        self._calls[call_id] = msgspec.structs.replace(
            held,
            result=msgspec.json.encode({"text": words}).decode(),
            success=not failed,
            error=(one_line(redact(words), _ERROR_LIMIT) or "failed") if failed else None,
            duration_ms=max(0, int(waited.total_seconds() * 1000)),
        )
        if files:
            self._files[call_id] = files
        self._answered = True
        return True

    def build(self, *, over: bool) -> PutTurn:
        """Return the turn, without an index; `over`: no further records can belong to it."""
        for words, call_id in self._meanwhile:
            if held := self._calls.get(call_id):
                self._calls[call_id] = with_said(held, words)
        calls: list[ToolCall] = []
        accesses: dict[str, tuple[FileAccess, ...]] = {}
        iteration, waiting = 0, list[str]()
        for message in self._messages:
            waiting += message.texts
            for call_id in message.calls:
                call = msgspec.structs.replace(
                    self._calls[call_id], iteration=iteration, preamble="\n\n".join(waiting)
                )
                waiting = []  # the first call has what was said before all of them
                calls.append(call)
                if found := _accesses(call, self._files[call_id]):
                    accesses[call.tool_call_id] = found
            iteration += bool(message.calls)
        said = "\n\n".join(waiting)
        turn = Turn(
            turn_id=self.turn_id,
            session_id=self._session_id,
            user_message="\n\n".join([self.prompt, *(words for words, _ in self._meanwhile)]),
            assistant_message=said,
            reasoning=ends_of("\n\n".join(self._thoughts), TEXT_LIMIT) or None,
            status=self._status(said, calls, over=over),
            started_at=self.started_at,
            finished_at=self.last_at,
            model=self.model,
            usage=sum(self._usage.values(), Usage()),
            tool_calls=tuple(calls),
        )
        return PutTurn(turn=fitted(turn), accesses=accesses)

    def _status(self, said: str, calls: list[ToolCall], *, over: bool) -> TurnStatus:
        if self.status in ("failed", "interrupted"):
            return self.status
        # A completed turn is never changed again, so one that may go on is not completed.
        ended = over or self.status == "completed"
        answered = all(call.result for call in calls)
        whole = bool(said) or self.status == "completed"
        return "completed" if ended and answered and whole else "interrupted"

    def _message(self, key: str | None, at: datetime) -> None:
        """Select the message with this key; without keys a new one begins after each result."""
        self._touch(at)
        last = self._messages[-1] if self._messages else None
        if last is None or (last.key != key if key else self._answered):
            self._messages.append(_Message(key))
        self._answered = False
        if self.status == "failed":
            self.status = None  # the agent has tried again, and the turn goes on

    def _touch(self, at: datetime) -> None:
        self.last_at = max(self.last_at, at)


def _accesses(call: ToolCall, files: list[Touched]) -> tuple[FileAccess, ...]:
    if not call.success:
        return ()  # a failed call touched nothing
    return tuple(
        FileAccess(
            path=each.path,
            tool_name=call.tool_name,
            access_type=each.access,
            accessed_at=call.started_at,
            order=call.order,
        )
        for each in listed(files, "")
    )


def words_of(item: Fields, name: str = "content") -> str:
    """Return the text of a message or a result, which may consist of parts."""
    if isinstance(item.get(name), str):
        return text(item, name)
    said = []
    for each in map(fields, items(item, name)):
        is_image = "image" in text(each, "type") or "inlineData" in each
        said.append(text(each, "text") or ("[image]" if is_image else ""))
    return "\n\n".join(filter(None, said))


def decoded(arguments: str) -> Fields:
    """Decode a JSON object from a text; an empty one for anything else."""
    return fields(decoded_line(arguments.encode("utf-8", "replace")))


def arguments_json(value: object) -> str:
    """Encode arguments so that they can be stored and replayed: as a JSON object, in any case."""
    if isinstance(value, str):
        parsed = decoded_line(value.encode("utf-8", "replace"))
        value = parsed if isinstance(parsed, dict) else {"input": value} if value.strip() else {}
    if not isinstance(value, dict):
        value = {} if value is None else {"input": value}
    try:
        return msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, RecursionError):
        pass
    try:
        # lone surrogates, infinite numbers
        return clean(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):
        return "{}"


def tokens(given: Fields, fresh: Sequence[str], out: Sequence[str], cached: str) -> Usage | None:
    """Return the usage of one call from its fields; None if the first field of a sum is missing."""
    if count(given, fresh[0]) is None or count(given, out[0]) is None:
        return None
    went_in, came = (sum(count(given, name) or 0 for name in names) for names in (fresh, out))
    return Usage(
        input_tokens=went_in,
        output_tokens=came,
        cached_tokens=count(given, cached) or 0,
        model_calls=1,
    )


_SETTLED_S = 3600
"""After this long without a record, nothing more is expected of the last turn."""
TITLE_LIMIT = 120
_KEY_CHARS = 200


class SessionParser(ABC):
    """Base of the parsers of one file, with what is known of its session and the current turn."""

    agent: ClassVar[AgentName]

    def __init__(
        self, found: FoundFile, tally: Tally, *, now: datetime, titles: Mapping[str, str]
    ) -> None:
        """`titles` are those found elsewhere, by the key that the agent uses there."""
        self.facts = FileFacts(foreign_id="", last_at=found.changed_at)
        self.tally = tally
        self.now = now
        self.turn: TurnBuilder | None = None
        self._titles = titles
        self._unnamed = 0
        self._is_beginning = True
        """Whether no prompt has been read yet."""
        self.identify(found.session or found.file.stem)
        self.start(found)

    def start(self, found: FoundFile) -> None:  # noqa: B027 - not every agent tells any
        """Set what is known of a session before its records are read."""

    @abstractmethod
    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Process one record; yield the turns that it completes, without their indexes."""

    def finish(self) -> Iterator[PutTurn]:
        """End the last turn with the file; it is complete if nothing more is expected of it."""
        yield from self.end(over=self.is_quiet)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has been written for so long that nothing more is expected."""
        return (self.now - self.facts.last_at).total_seconds() > _SETTLED_S

    def end(self, *, over: bool) -> Iterator[PutTurn]:
        """End the current turn, if there is one; `over`: no further records can belong to it."""
        turn, self.turn = self.turn, None
        if turn is not None:
            self.facts.first_prompt = self.facts.first_prompt or turn.prompt
            yield turn.build(over=over)

    def identify(self, foreign_id: str) -> None:
        """Set the session's foreign id, if it is known; to be called before its first turn."""
        if foreign_id:
            self.facts.foreign_id = foreign_id
            self._session_id = session_id_of(self.agent, foreign_id)
            self._keys: Counter[str] = Counter()

    def begin(
        self, words: str, at: datetime, key: str = "", *, prefix: str = ""
    ) -> Iterator[PutTurn]:
        """End the current turn, and begin one.

        `key` is the prompt's id in the file, or else its beginning is used, after the prefix.
        """
        yield from self.end(over=True)
        self._is_beginning = False
        key = key or prefix + words[:_KEY_CHARS]
        self._keys[key] += 1
        # The second turn with the same key gets another id.
        own = key if self._keys[key] == 1 else f"{key}#{self._keys[key]}"
        turn_id = derived_id(self._session_id, own)
        self.turn = TurnBuilder(self._session_id, turn_id, words, at)

    def call(self, key: str | None, call_id: str, name: str, given: object, at: datetime) -> str:
        """Add a tool call to the current turn; return the call's id."""
        call_id = call_id or self.next_name()
        if turn := self.turn:
            arguments = arguments_json(given)
            files = touched(name, decoded(arguments), self.facts.cwd)
            turn.add_text(key, "", at)
            turn.add_call(key, call_id, name, arguments, files)
        return call_id

    def answer(
        self,
        call_id: str,
        words: str,
        at: datetime,
        *,
        failed: bool = False,
        files: list[Touched] | None = None,
    ) -> None:
        """Add the result of a tool call."""
        turn = self.turn
        if not turn or not turn.add_result(call_id, words, at, failed=failed, files=files):
            self.leave_out("answers to unknown calls")

    def answered(self) -> TurnBuilder | None:
        """Return the turn that the model answers; None, and counted, without a prompt."""
        if self.turn is None:
            self.leave_out("answers without a prompt")
        return self.turn

    def complete(self) -> None:
        """Mark the current turn as completed, unless the file has said how it ended."""
        if self.turn and self.turn.status is None and not self.turn.is_bare:
            self.turn.status = "completed"

    def entitle(self, title: str) -> None:
        """Set the session's title."""
        self.facts.title = one_line(redact(title), TITLE_LIMIT) or self.facts.title

    def time(self, record: Fields) -> tuple[datetime, bool]:
        """Return the time of a record, and whether it is the record's own."""
        facts = self.facts
        at = moment(record.get("timestamp"), self.now)
        if at is None:
            return facts.last_at, False
        if facts.started_at is None:
            facts.started_at = facts.last_at = at
        facts.last_at = max(facts.last_at, at)
        return at, True

    def next_name(self) -> str:
        """Return a key for what has none of its own."""
        self._unnamed += 1
        return f"unnamed {self._unnamed}"

    def leave_out(self, what: str) -> None:
        """Count something that is no part of the conversation."""
        self.tally.left_out[what] += 1

    def count_unknown(self, where: str, kind: str) -> None:
        """Count a record of an unknown kind."""
        self.tally.unknown[f"{where} {one_line(kind, 60) or '(none)'}".strip()] += 1
