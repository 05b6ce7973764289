"""Session files of other agents: where they lie, and what stands beside them."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ragmem.importers import claude_code, codex
from ragmem.importers.jsonl import AgentName, Fields, FoundFile, Tally, opened, records
from ragmem.importers.session_parser import SessionParser

_HEAD_RECORDS = 200
"""Of each file of Claude Code: summaries of other sessions stand at its start."""
_COMPRESSED = re.compile(r"\.jsonl\.(?:zst|gz)$")


class AgentFiles(msgspec.Struct, frozen=True):
    """An agent whose sessions can be imported."""

    name: AgentName
    label: str
    parser: Callable[..., SessionParser]
    titles_of: Callable[[Fields], tuple[str, str] | None]


AGENTS: dict[AgentName, AgentFiles] = {
    "claude-code": AgentFiles(
        "claude-code", "Claude Code", claude_code.ClaudeCodeParser, claude_code.titles_of
    ),
    "codex": AgentFiles("codex", "Codex", codex.CodexParser, codex.titles_of),
}


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
        folders.sort()
        if "subagents" in folders:
            folders.remove("subagents")
            search.tally.left_out["folders of subagents"] += 1
        for name in sorted(names):
            file = Path(folder, name)
            if _COMPRESSED.search(name):
                search.skipped.append((str(file), "it is compressed; unpack it first"))
            elif not name.endswith(".jsonl"):
                continue
            elif agent.name == "claude-code" and name.startswith("agent-"):
                search.tally.left_out["files of subagents"] += 1
            elif agent.name == "claude-code" or name.startswith("rollout-"):
                _take(file, search)
        for name in [name for name in folders if os.path.islink(os.path.join(folder, name))]:
            search.skipped.append((os.path.join(folder, name), "it is a link"))
    search.files.sort(key=lambda found: (found.changed_at, found.file))
    return search


def titles_beside(agent: AgentFiles, path: Path, files: list[FoundFile]) -> dict[str, str]:
    """What sessions are called, where that does not stand in their own files."""
    titles: dict[str, str] = {}
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
                if title := agent.titles_of(record):
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
    else:
        changed_at = datetime.fromtimestamp(found.st_mtime, UTC)
        search.files.append(FoundFile(file, found.st_size, changed_at))


def _note(search: Search, error: OSError) -> None:
    search.skipped.append((str(error.filename), str(error.strerror).lower()))
