"""Session files of other agents: where they lie, and what stands beside them."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ragmem.importers import claude_code, codex, messages, opencode
from ragmem.importers.jsonl import (
    AgentName,
    Fields,
    FoundFile,
    Tally,
    opened,
    records,
    records_of,
)
from ragmem.importers.session_parser import SessionParser

_HEAD_RECORDS = 200
"""Of each file of Claude Code: summaries of other sessions stand at its start."""
_LOGS = (".jsonl", ".jsonl.zst")


class AgentFiles(msgspec.Struct, frozen=True):
    """An agent whose sessions can be imported."""

    label: str
    home: tuple[str, str, str]
    """The variable that says where its home is, where that is otherwise, the folder in it."""
    parser: type[SessionParser]
    takes: Callable[[Path], bool]
    """Whether a file of such a name holds a session."""
    records: Callable[[FoundFile, Tally], Iterator[Fields]] = records_of
    titles_of: Callable[[Fields], tuple[str, str] | None] | None = None

    @property
    def name(self) -> AgentName:
        """As it is named on a command line."""
        return self.parser.agent

    def folder(self, given: Mapping[str, str]) -> Path:
        """Where it keeps its sessions, by the variables of a process."""
        variable, otherwise, within = self.home
        # Where nobody knows the home folder, there is none of that name.
        return Path(os.path.expanduser(given.get(variable) or otherwise), within)


def _is_of_gemini(file: Path) -> bool:
    # What goes on in a new file stands there from its beginning.
    goes_on = file.suffix == ".json" and file.with_suffix(".jsonl").exists()
    return file.name.startswith("session-") and file.suffix in (".json", ".jsonl") and not goes_on


def _is_of_kimi(file: Path) -> bool:
    if file.suffix != ".jsonl" or file.stem.startswith("context_"):
        return False  # A numbered one is what was there before a compaction.
    if file.name == "context.jsonl":
        return not file.with_name("wire.jsonl").exists()
    return file.name == "wire.jsonl" or not file.with_suffix("").exists()


def _is_of_vibe(file: Path) -> bool:
    return file.name == "messages.jsonl" or (
        file.suffix == ".json" and file.name.startswith("session_")
    )


def _is_of_opencode(file: Path) -> bool:
    """A database, or the JSON file of a session where there is none."""
    if file.suffix == ".db":
        return file.name.startswith("opencode")
    return file.suffix == ".json" and file.parent.parent.name == "session"


AGENTS: dict[AgentName, AgentFiles] = {
    agent.name: agent
    for agent in (
        AgentFiles(
            "Claude Code",
            ("CLAUDE_CONFIG_DIR", "~/.claude", "projects"),
            claude_code.ClaudeCodeParser,
            lambda file: file.name.endswith(_LOGS),
            titles_of=claude_code.titles_of,
        ),
        AgentFiles(
            "Codex",
            ("CODEX_HOME", "~/.codex", "sessions"),
            codex.CodexParser,
            lambda file: file.name.startswith("rollout-") and file.name.endswith(_LOGS),
            titles_of=codex.titles_of,
        ),
        AgentFiles(
            "opencode",
            ("XDG_DATA_HOME", "~/.local/share", "opencode"),
            opencode.OpencodeParser,
            _is_of_opencode,
            records=opencode.records_of,
        ),
        AgentFiles(
            "Gemini CLI",
            ("GEMINI_CLI_HOME", "~", ".gemini/tmp"),
            messages.GeminiCliParser,
            _is_of_gemini,
        ),
        AgentFiles(
            "kimi-cli",
            ("KIMI_SHARE_DIR", "~/.kimi", "sessions"),
            messages.KimiCliParser,
            _is_of_kimi,
        ),
        AgentFiles(
            "mistral-vibe",
            ("VIBE_HOME", "~/.vibe", "logs/session"),
            messages.MistralVibeParser,
            _is_of_vibe,
        ),
    )
}
_ASIDE = {"subagents": "folders of subagents", "message": "", "part": "", "snapshot": ""}
"""Folders in which no session lies, and how they are counted; opencode has many files in three."""


class Search(msgspec.Struct, frozen=True):
    """What was found under a path, oldest file first, and what can't be imported, with why."""

    files: list[FoundFile]
    skipped: list[tuple[str, str]]
    tally: Tally


def find_files(agent: AgentFiles, path: Path) -> Search:
    """Files that may hold sessions; no link is followed. OSError when the path can't be read."""
    search = Search([], [], Tally())
    if not stat.S_ISDIR(os.stat(path).st_mode):
        _take(path, search)
        return search
    for folder, folders, names in os.walk(path, onerror=lambda error: _note(search, error)):
        folders[:] = sorted(name for name in folders if not _is_aside(name, search))
        files = [Path(folder, name) for name in sorted(names)]
        taken = {file for file in files if agent.takes(file)}
        if any(file.suffix == ".db" for file in taken):
            folders.clear()  # What lies below was taken into the database.
        for file in files:
            if file not in taken:
                _leave(agent, file, search)
            elif agent.name == "claude-code" and file.name.startswith("agent-"):
                search.tally.left_out["files of subagents"] += 1
            else:
                _take(file, search)
        for name in [name for name in folders if os.path.islink(os.path.join(folder, name))]:
            search.skipped.append((os.path.join(folder, name), "it is a link"))
    search.files.sort(key=lambda found: (found.changed_at, found.file, found.session))
    return search


def agents_here(given: Mapping[str, str]) -> list[str]:
    """The names of the agents that have kept a session on this machine."""
    return [
        agent.label
        for agent in AGENTS.values()
        if any(
            agent.takes(Path(folder, name))
            for folder, _, names in os.walk(agent.folder(given))
            for name in names
        )
    ]


def _is_aside(name: str, search: Search) -> bool:
    if kind := _ASIDE.get(name):
        search.tally.left_out[kind] += 1
    return name in _ASIDE


def _leave(agent: AgentFiles, file: Path, search: Search) -> None:
    """What has another name than a session's is told: each log, and how many others."""
    if file.name.endswith(_LOGS) and agent.name == "codex":
        why = f"it has not the name of a session; `ragmem import {agent.name} FILE` reads it"
        search.skipped.append((str(file), why))
    elif file.name.endswith(".gz"):
        search.skipped.append((str(file), "it is compressed; unpack it first"))
    else:
        search.tally.left_out["files of other names"] += 1


def titles_beside(agent: AgentFiles, path: Path, files: list[FoundFile]) -> dict[str, str]:
    """What sessions are called, where that does not stand in their own files."""
    titles: dict[str, str] = {}
    if agent.titles_of is None:
        return titles
    if agent.name == "codex":
        for folder in (path, *path.absolute().parents):
            if (index := folder / "session_index.jsonl").is_file():
                titles.update(_titles(agent, index, limit=None))
                break
    else:
        for found in files:
            titles.update(_titles(agent, found.file, limit=_HEAD_RECORDS))
    return titles


def _titles(agent: AgentFiles, file: Path, *, limit: int | None) -> Iterator[tuple[str, str]]:
    try:
        with opened(file) as source:
            for number, record in enumerate(records(source, Tally())):
                if number == limit:
                    return
                if agent.titles_of and (title := agent.titles_of(record)):
                    yield title
    except OSError:
        return  # That it can't be read is told where its turns are read.


def _take(file: Path, search: Search) -> None:
    try:
        found = os.lstat(file)
    except OSError as error:
        _note(search, error)
        return
    if stat.S_ISLNK(found.st_mode):
        search.skipped.append((str(file), "it is a link"))
    elif not stat.S_ISREG(found.st_mode):
        search.skipped.append((str(file), "it is no regular file"))
    elif found.st_size == 0:
        search.skipped.append((str(file), "it is empty"))
    elif file.suffix == ".db":
        try:
            search.files.extend(opencode.sessions_of(file))
        except OSError as error:
            search.skipped.append((str(file), str(error.strerror)))
    else:
        changed_at = datetime.fromtimestamp(found.st_mtime, UTC)
        search.files.append(FoundFile(file, found.st_size, changed_at))


def _note(search: Search, error: OSError) -> None:
    search.skipped.append((str(error.filename), str(error.strerror).lower()))
