"""What `ragmem memory export` and `import` do."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.keeping import read_without_secrets
from ragmem.cli.memory_acts import Listed, listed, opened_facts
from ragmem.cli.new_file import new_file
from ragmem.cli.streams import say, write, write_json
from ragmem.config import Config, Paths
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.memory.notes import facts_of
from ragmem.records import MemoryRecord, Profile, PutMemory, PutProfile, Write, utc_now
from ragmem.store.transfer.document import encoded
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.app import App

_BATCH = 200
_MOST_CHARS = 10_000
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class MemoriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beyond the conversations."""

    format: Literal["ragmem.memories"]
    version: Literal[1]
    memories: tuple[MemoryRecord, ...] = ()
    """One stands after those that it took the place of."""
    profile: Profile = Profile()


class _Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a document."""

    memories: int
    known: int
    """Left as they are, by their ids."""
    keys: int
    known_keys: int
    pinned: int
    homeless: int
    """Of projects that this store does not know."""


async def export(config: Config, paths: Paths, file: Path | None, *, everywhere: bool) -> int:
    """Write memories, those that others took the place of too, and the profile; the exit code."""
    async with opened_facts(config, paths) as app:
        found = await listed(app, Listed(everywhere=everywhere, superseded=True, expired=True))
        profile = await facts_of(app.memory).profile()
    document = MemoriesDocument(
        format="ragmem.memories", version=1, memories=tuple(reversed(found)), profile=profile
    )
    data = encoded(document)
    if file is None:
        write_json(data.decode())
    else:
        with new_file(file) as part:
            part.write_bytes(data)
        say(f"{counted(len(found), 'memory')} in {visible(str(file))}\n")
    if not everywhere:
        say("note: these are this project's and yours; --all takes those of every project.\n")
    return EXIT_DONE


async def import_file(config: Config, paths: Paths, file: Path) -> int:
    """Store memories and a profile from a file; the exit code."""
    document = decoded(read_without_secrets(file))
    async with opened_facts(config, paths) as app:
        imported = await _store(app, document)
    write(
        f"{counted(imported.memories, 'memory')}, "
        f"{counted(imported.keys, 'entry')} of the profile\n"
    )
    if imported.known or imported.known_keys:
        say(
            f"Left as they are, since they are here already: {counted(imported.known, 'memory')}, "
            f"{counted(imported.known_keys, 'entry')}.\n"
        )
    if imported.pinned:
        say(
            f"note: {imported.pinned:,} of them stand in every request, pinned or as rules: "
            "`ragmem memory list` shows which; `unpin` and `forget` take them out.\n"
        )
    if imported.homeless:
        say(
            f"note: {imported.homeless:,} belong to projects that are not known here: "
            "`ragmem memory list --all` shows them.\n"
        )
    return EXIT_DONE


def decoded(data: bytes) -> MemoriesDocument:
    """From a file; UsageError for what is none of ours, or not whole."""
    try:
        document = msgspec.json.decode(data, type=MemoriesDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"These are no memories that ragmem has exported: {error}.",
            hint="`ragmem memory export -o FILE` writes such a file.",
        ) from None
    _check(document)
    return document


def _check(document: MemoriesDocument) -> None:
    wrong = ""
    if any(at.tzinfo is None for at in _times(document)):
        wrong = "a time has no time zone"
    elif not all(_ID.fullmatch(memory.memory_id) for memory in document.memories):
        wrong = "an id is none that ragmem makes"
    elif not all(0 < len(memory.content.strip()) <= _MOST_CHARS for memory in document.memories):
        wrong = f"one is empty, or longer than {_MOST_CHARS:,} characters"
    if wrong:
        raise UsageError(f"The memories can't be imported: {wrong}.")


def _times(document: MemoriesDocument) -> list[datetime]:
    times = [document.profile.updated_at]
    for memory in document.memories:
        times += [memory.created_at, memory.updated_at, memory.at]
        times += [memory.expires_at, memory.valid_until]
        times += [each.at for each in memory.evidence]
    return [at for at in times if at is not None]


async def _store(app: "App", document: MemoriesDocument) -> _Imported:
    store = await app.store()
    ids = [memory.memory_id for memory in document.memories]
    known = {memory.memory_id for memory in await store.memories_by_id(ids)}
    new = [memory for memory in document.memories if memory.memory_id not in known]
    await _write(app, [PutMemory(memory=memory) for memory in new])
    profile = (await store.profile()).values
    keys = {key: value for key, value in document.profile.values.items() if key not in profile}
    at = document.profile.updated_at or utc_now()
    await _write(app, [PutProfile(key=key, value=value, at=at) for key, value in keys.items()])
    projects = {project.project_id for project in await store.projects()}
    return _Imported(
        memories=len(new),
        known=len(ids) - len(new),
        keys=len(keys),
        known_keys=len(document.profile.values) - len(keys),
        pinned=sum(m.stands_always and not m.superseded_by for m in new),
        homeless=sum(m.project_id is not None and m.project_id not in projects for m in new),
    )


async def _write(app: "App", writes: Sequence[Write]) -> None:
    for start in range(0, len(writes), _BATCH):
        await app.memory.record(writes[start : start + _BATCH])
