"""What the commands of `ragmem memory` do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import PurePosixPath
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal

import msgspec

from ragmem.cli.documents import to_json
from ragmem.cli.memory_values import (
    Change,
    Shown,
    episode_document,
    episodes_table,
    memories_table,
    memory_document,
    page,
    why_document,
)
from ragmem.cli.moving import opened
from ragmem.cli.opening import open_app
from ragmem.cli.streams import say, write, write_json
from ragmem.config import Config, Paths
from ragmem.errors import EXIT_DONE, RagmemError, StoreError, UsageError
from ragmem.ids import short_id
from ragmem.memory.chains import Chain, about, chain_of, summed_up, told
from ragmem.memory.facts.values import Draft, Remembered
from ragmem.memory.hits import others_of
from ragmem.memory.notes import facts_of, forget, forgotten_text, here, said_so, tell
from ragmem.records import EPISODE_KINDS, MemoryKind, MemoryRecord, PutOwner, utc_now
from ragmem.redact import redact
from ragmem.store.memories import MemoryQuery
from ragmem.store.owning import home_owner
from ragmem.text import counted, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App

_LINE_CHARS = 200


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories a person wants to see."""

    kind: MemoryKind | None = None
    subjects: tuple[str, ...] = ()
    scope: Shown | None = None
    everywhere: bool = False
    superseded: bool = False
    expired: bool = False
    limit: int | None = None


@asynccontextmanager
async def opened_facts(config: Config, paths: Paths) -> AsyncIterator["App"]:
    """The App, with its facts: they can be looked at and forgotten where none are kept any more."""
    facts = msgspec.structs.replace(config.memory.facts, enabled=True)
    memory = msgspec.structs.replace(config.memory, facts=facts)
    async with open_app(msgspec.structs.replace(config, memory=memory), paths, patient=True) as app:
        facts_of(app.memory)
        yield app
        say_notices(app)


def say_notices(app: "App") -> None:
    """Tell on stderr what the store has to say."""
    for notice in app.notices():
        say(f"note: {visible(notice)}\n")


async def _project_id(app: "App") -> str:
    return (await here(await app.store(), app.cwd)).project.root_id


async def listed(app: "App", wanted: Listed) -> list[MemoryRecord]:
    """Those that are current, newest first."""
    project_ids: tuple[str, ...] = ()
    if not wanted.everywhere and wanted.scope != "user":
        project_ids = (await _project_id(app),)
    query = MemoryQuery(
        everywhere=wanted.everywhere,
        project_ids=project_ids,
        user_wide=wanted.scope != "project",
        kinds=(wanted.kind,) if wanted.kind else (),
        subjects=wanted.subjects,
        with_superseded=wanted.superseded,
        alive_at=None if wanted.expired else utc_now(),
        limit=wanted.limit,
    )
    return await (await app.store()).memories(query)


async def list_memories(
    config: Config, paths: Paths, wanted: Listed, output: Literal["table", "json"]
) -> int:
    """Print those that a person wants to see; the exit code."""
    async with opened_facts(config, paths) as app:
        found = await listed(app, wanted)
        projects = await _folders(app) if wanted.everywhere else None
        people = await others_of(await app.store())
    if output == "json":
        write_json(to_json([memory_document(memory, people) for memory in found]))
    elif found:
        now = datetime.now(UTC)
        write(memories_table(found, now, width=_columns(), projects=projects, people=people))
    else:
        _say_none(wanted)
    return EXIT_DONE


def _say_none(wanted: Listed) -> None:
    if wanted.kind or wanted.subjects or wanted.scope:
        say("Nothing that is remembered is like that.\n")
        say("`ragmem memory list` shows all of this project and of you.\n")
        return
    say(f"Nothing is remembered {'yet' if wanted.everywhere else 'in this project, or of you'}.\n")
    if not wanted.everywhere:
        say("--all shows what is remembered of every project.\n")
    say('`ragmem memory add "…"` tells it something; in a chat, `#` before a sentence does.\n')


async def _folders(app: "App") -> dict[str, str]:
    projects = await (await app.store()).projects()
    return {
        project.project_id: PurePosixPath(project.path).name or project.path for project in projects
    }


async def list_episodes(
    config: Config,
    paths: Paths,
    *,
    everywhere: bool,
    limit: int,
    output: Literal["table", "json"],
) -> int:
    """Print decisions, preferences and deadlines, newest first; the exit code."""
    async with opened_facts(config, paths) as app:
        query = MemoryQuery(
            everywhere=everywhere,
            project_ids=(await _project_id(app),),
            kinds=EPISODE_KINDS,
            alive_at=utc_now(),
            limit=limit,
        )
        found = await (await app.store()).memories(query)
        people = await others_of(await app.store())
    if output == "json":
        write_json(to_json([episode_document(memory, people) for memory in found]))
    elif found:
        write(episodes_table(found, datetime.now(UTC), width=_columns(), people=people))
    else:
        say("No decision, preference or deadline is remembered here yet.\n")
        say("They are noticed when they are spoken of: “we decided to …”, “by Friday”.\n")
    return EXIT_DONE


async def _found(config: Config, paths: Paths, reference: str) -> tuple[MemoryRecord, Chain]:
    async with opened_facts(config, paths) as app:
        found = await facts_of(app.memory).find(reference)
        chain = await chain_of(found, facts_of(app.memory), await app.store())
    return found, chain


async def show_one(
    config: Config, paths: Paths, reference: str, output: Literal["text", "json"]
) -> int:
    """Print one whole; the exit code."""
    found, chain = await _found(config, paths, reference)
    if output == "json":
        write_json(to_json(memory_document(found, chain.people)))
    else:
        write(page(about(chain, datetime.now(UTC)), _columns()))
    return EXIT_DONE


async def tell_why(
    config: Config, paths: Paths, reference: str, output: Literal["text", "json"]
) -> int:
    """Print where one comes from; the exit code."""
    found, chain = await _found(config, paths, reference)
    if output == "json":
        write_json(to_json(why_document(found, chain.people)))
    else:
        write(page(told(chain, datetime.now(UTC)), _columns()))
    return EXIT_DONE


async def add_one(config: Config, paths: Paths, change: Change) -> int:
    """Remember what a person writes; the exit code."""
    draft = Draft(
        content=change.content or "",
        kind=change.kind or "fact",
        subjects=change.subjects or (),
        ttl=change.ttl,
        scope=change.scope,
        pinned=bool(change.pinned),
    )
    async with open_app(config, paths, patient=True) as app:
        place = await here(await app.store(), app.cwd)
        remembered = await tell(app.memory, place, draft, "note")
        say_notices(app)
    return _report(remembered)


def _report(remembered: Remembered) -> int:
    memory = remembered.memory
    if memory is None:
        why = remembered.note.removeprefix("Not remembered: ")
        raise UsageError(f"It was not kept: {why or 'there is nothing to remember'}")
    if remembered.note:
        say(f"note: {visible(remembered.note)}\n")
    write(_line(memory))
    if remembered.action == "known":
        say("It was known already.\n")
    for each in remembered.superseded:
        say(f"It takes the place of {_line(each)}")
    if memory.kind == "fact" and said_so(memory.content).kind == "rule":
        say(
            "note: it is kept as a fact, told where it bears on the question. As a rule it stands "
            f"in every request: `ragmem memory edit {short_id(memory.memory_id)} --kind rule`.\n"
        )
    return EXIT_DONE


async def edit_one(config: Config, paths: Paths, reference: str, change: Change) -> int:
    """Change what a person says of one; the exit code."""
    async with opened_facts(config, paths) as app:
        facts = facts_of(app.memory)
        found = await facts.find(reference)
        changed = await facts.edit(
            found,
            content=change.content,
            subjects=change.subjects,
            kind=change.kind,
            ttl=change.ttl,
            pinned=change.pinned,
            scope=change.scope,
            project_id=await _project_id(app),
        )
    write(_line(changed))
    if change.pinned is not None and changed.stands_always:
        rule = " It is a rule." if not changed.pinned else ""
        say(f"It stands in the system message of every request.{rule}\n")
    elif change.pinned is not None:
        say("It is told only where it bears on the question.\n")
    return EXIT_DONE


async def forget_one(config: Config, paths: Paths, reference: str, *, confirmed: bool) -> int:
    """Forget one with its earlier versions, and log that; the exit code."""
    async with opened_facts(config, paths) as app:
        facts = facts_of(app.memory)
        found = await facts.find(reference)
        if not confirmed:
            from ragmem.cli.moving import confirm

            earlier = len(await facts.history(found))
            people = await others_of(await app.store())
            say(f"{summed_up(found, utc_now(), people)}\n{one_line(found.content, 1_000)}\n")
            if earlier:
                say(f"With {counted(earlier, 'earlier version')} of it.\n")
            await confirm("Forget it for ever?", "Nothing was forgotten.")
        store = config.store.kind
        count = await forget(facts, found, log_dir=paths.log_dir, store=store)
    write(f"{forgotten_text(found, count)}\n")
    return EXIT_DONE


async def clean_up(config: Config, paths: Paths) -> int:
    """Remove those past their time; the exit code."""
    async with opened_facts(config, paths) as app:
        count = await facts_of(app.memory).cleanup()
    past = "that was past its" if count == 1 else "that were past their"
    write(f"Removed {counted(count, 'memory')} {past} time.\n" if count else "Nothing to remove.\n")
    return EXIT_DONE


async def show_owner(config: Config, paths: Paths, name: str | None) -> int:
    """Print whose home it is, after giving them a name if there is one; the exit code."""
    owner_id = home_owner(paths)
    if name is None:
        write(f"{owner_id}\n")  # Whatever the store says.
    try:
        async with opened(config.store.kind, config, paths, existing=name is None) as store:
            if name is not None:
                put = PutOwner(owner=owner_id, name=redact(one_line(name, 40)), at=utc_now())
                await store.apply([put])
            known = {each.owner_id: each.name for each in await store.owners()}
    except RagmemError as error:
        if name is not None:
            raise
        known = {}
        if isinstance(error, StoreError):
            say(f"note: What you are called is not known: {visible(str(error))}\n")
    if name is not None:
        write(f"{owner_id}\n")
    if known.get(owner_id):
        say(f"called {visible(known[owner_id])}\n")
    return EXIT_DONE


def _line(memory: MemoryRecord) -> str:
    return f"{short_id(memory.memory_id)}  {one_line(memory.content, _LINE_CHARS)}\n"


def _columns() -> int:
    return get_terminal_size((120, 24)).columns
