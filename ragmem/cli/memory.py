"""`ragmem memory`: show, add, edit, forget, export and import memories."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ragmem.cli import command as cli, output as out, profile
from ragmem.cli.shown import memories_by_day
from ragmem.errors import RagmemError, StoreError, StoreUnavailable, UsageError
from ragmem.ids import short_id
from ragmem.listings import memory_document, page
from ragmem.memory.facts import Draft, Remembered, expiry
from ragmem.memory.memories import (
    Chain,
    about,
    chain_of,
    facts_of,
    forget as forget_memory,
    forgotten_text,
    here,
    said_since,
    said_so,
    summed_up,
    tell,
    told,
    traces_text,
)
from ragmem.memory.projects import registrations
from ragmem.memory.recall import others_of
from ragmem.records import (
    EPISODE_KINDS,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    MemoryScope,
    Profile,
    PutMemory,
    PutOwner,
    PutProfile,
    Write,
    claims_of,
    is_own,
    utc_now,
    wrong_time,
)
from ragmem.redact import redact
from ragmem.text import counted, one_line, visible

if TYPE_CHECKING:
    from ragmem.administration import Administration
    from ragmem.app import App

app = cli.commands("Show, add, edit and forget memories.")
app.add_typer(profile.app, name="profile")

_LINE_CHARS = 200
_BATCH_SIZE = 200
_MAX_CHARS = 10_000
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Shown = Literal["project", "user", "all"]
Reference = Annotated[str, cli.argument("ID", "An id, or the end of one.", cli.memory_ids)]
Everywhere = Annotated[bool, cli.option("--all", "Memories of all projects.")]
Limit = Annotated[int, cli.option("--limit", "Maximum number of memories.", "N", least=1)]
Subjects = Annotated[
    list[str] | None, cli.option("--subject", "What the memory is about. Repeatable.", "S")
]
Ttl = Annotated[
    str | None, cli.option("--ttl", "How long the memory is valid: a number and h, d or w.", "7d")
]
ScopeOption = Annotated[
    MemoryScope | None, cli.option("--scope", "user: for every project; project: for this one.")
]


def subjects_of(given: list[str] | None) -> tuple[str, ...] | None:
    """Return casefolded subjects, None if none are given; raise UsageError if one is empty."""
    if given is None:
        return None
    subjects = tuple(dict.fromkeys(" ".join(out.typed(each).split()).casefold() for each in given))
    if "" in subjects:
        raise UsageError(
            "--subject is empty.",
            hint=("Leave it out, or use `edit --no-subjects` to remove all subjects."),
        )
    return subjects


def ttl_of(text: str | None) -> str | None:
    """Return the duration of `--ttl`; raise UsageError if it is invalid."""
    if text is not None and expiry(text, utc_now())[1]:
        raise UsageError(
            f"--ttl takes a number and h, d or w, or `never`, not {one_line(text, 40)!r}.",
            hint="For example 12h, 7d or 2w. Without --ttl, a memory doesn't expire.",
        )
    return text


# --- the commands -------------------------------------------------------------


@cli.command(app, cli.app_with_facts, "list")
async def list_memories(
    opened: "App",
    kind: Annotated[MemoryKind | None, cli.option("--kind", "Only this kind.")] = None,
    subject: Annotated[
        list[str] | None,
        cli.option("--subject", "Only with this subject. Repeat to match any of several.", "S"),
    ] = None,
    scope: Annotated[
        Shown | None, cli.option("--scope", "Only this project's memories, only your own, or both.")
    ] = None,
    everywhere: Everywhere = False,
    superseded: Annotated[
        bool, cli.option("--with-superseded", "Include memories that have been replaced.")
    ] = False,
    limit: Limit = 50,
    output: cli.Format = "table",
) -> None:
    """List the memories of this project and of yourself, newest first."""
    if everywhere and scope not in (None, "all"):
        raise UsageError("--all and --scope can't be used together.")
    subjects = subjects_of(subject) or ()
    found = await listed(
        opened,
        everywhere=everywhere,
        scope=scope,
        kinds=(kind,) if kind else (),
        subjects=subjects,
        with_superseded=superseded,
        alive_at=utc_now(),
        limit=limit + 1,
    )
    nothing = _empty_message(everywhere=everywhere, narrowed=bool(kind or subjects or scope))
    await _print_memories(opened, found, output, nothing, everywhere=everywhere, limit=limit)


async def _print_memories(
    opened: "App",
    found: list[MemoryRecord],
    output: str,
    nothing: str,
    *,
    everywhere: bool,
    limit: int,
    more: str = "",
) -> None:
    """Print the newest `limit` memories by day, or as JSON (see `memory_document` for `more`)."""
    has_more = len(found) > limit
    found = found[:limit]
    store = await opened.store()
    people, projects = await others_of(store), await _folder_names(opened) if everywhere else None
    since = await said_since(store, found) if output != "json" else {}
    now, paint = datetime.now(UTC), out.paint_for(opened.config.ui)
    out.print_all(
        output,
        found,
        lambda memory: memory_document(memory, people, more),
        lambda width: memories_by_day(
            found, now, width=width, paint=paint, projects=projects, people=people, since=since
        ),
        nothing,
        has_more=has_more,
    )


async def listed(
    opened: "App", *, everywhere: bool, scope: Shown | None = None, **wanted: Any
) -> list[MemoryRecord]:
    """Return memories of this project and the user, or of all projects, newest first.

    `wanted` are further fields of the MemoryQuery.
    """
    of_project = not everywhere and scope != "user"
    query = MemoryQuery(
        everywhere=everywhere,
        project_ids=(await _project_id(opened),) if of_project else (),
        user_wide=scope != "project",
        **wanted,
    )
    return await (await opened.store()).memories(query)


async def _project_id(opened: "App") -> str:
    return (await here(await opened.store(), opened.cwd)).project.root_id


def _empty_message(*, everywhere: bool, narrowed: bool) -> str:
    if narrowed:
        return (
            "No matching memories.\n"
            "`ragmem memory list` shows all memories of this project and of yourself.\n"
        )
    return (
        f"No memories {'yet' if everywhere else 'of this project or of yourself'}.\n"
        + ("" if everywhere else "--all shows the memories of all projects.\n")
        + 'Add one with `ragmem memory add "…"`, or in a chat by starting a line with `#`.\n'
    )


async def _folder_names(opened: "App") -> dict[str, str]:
    projects = await (await opened.store()).projects()
    return {
        project.project_id: PurePosixPath(project.path).name or project.path for project in projects
    }


@cli.command(app, cli.app_with_facts)
async def show(opened: "App", reference: Reference, output: cli.TextFormat = "text") -> None:
    """Show one memory in full."""
    found, chain = await _find_with_chain(opened, reference)
    out.print_one(
        output,
        lambda: memory_document(found, chain.people),
        lambda width: page(about(chain, datetime.now(UTC)), width),
    )


async def _find_with_chain(opened: "App", reference: str) -> tuple[MemoryRecord, Chain]:
    facts = facts_of(opened.memory)
    found = await facts.find(reference)
    return found, await chain_of(found, facts, await opened.store())


@cli.command(app, cli.app_here)
async def add(
    opened: "App",
    content: Annotated[str, cli.argument("CONTENT", "The memory, in a sentence.")],
    subject: Subjects = None,
    kind: Annotated[MemoryKind, cli.option("--kind", "The kind of memory.")] = "fact",
    ttl: Ttl = None,
    scope: ScopeOption = None,
    pin: Annotated[
        bool, cli.option("--pin", "Include it in the system message of every request.")
    ] = False,
) -> cli.Report:
    """Add a memory.

    Without --scope, preferences and facts about yourself apply to every project, everything
    else to this project.
    """
    draft = Draft(
        content=out.words(content),
        kind=kind,
        subjects=subjects_of(subject) or (),
        ttl=ttl_of(ttl),
        scope=scope,
        pinned=pin,
    )
    place = await here(await opened.store(), opened.cwd)
    remembered = await tell(opened.memory, place, draft, "note")
    return partial(_report, remembered)


def _report(remembered: Remembered) -> None:
    memory = remembered.memory
    if memory is None:
        why = remembered.note.removeprefix("Not remembered: ")
        raise UsageError(f"Not remembered: {why or 'nothing to remember'}")
    if remembered.note:
        out.say(f"note: {visible(remembered.note)}\n")
    out.write(_line(memory))
    if remembered.action == "known":
        out.say("Already known.\n")
    for each in remembered.superseded:
        out.say(f"Replaces {_line(each)}")
    if memory.kind == "fact" and said_so(memory.content).kind == "rule":
        out.say(
            "note: stored as a fact, which is recalled only when relevant. To include it in "
            "every request, make it a rule: "
            f"`ragmem memory edit {short_id(memory.memory_id)} --kind rule`.\n"
        )


@cli.command(app, cli.app_with_facts)
async def edit(
    opened: "App",
    reference: Reference,
    content: Annotated[str | None, cli.argument("CONTENT", "The new text.")] = None,
    subject: Annotated[
        list[str] | None, cli.option("--subject", "The new subject. Repeatable.", "S")
    ] = None,
    no_subjects: Annotated[bool, cli.option("--no-subjects", "Remove all subjects.")] = False,
    kind: Annotated[MemoryKind | None, cli.option("--kind", "The new kind.")] = None,
    ttl: Annotated[
        str | None,
        cli.option("--ttl", "How long it is valid from now on, or `never` for no expiry.", "7d"),
    ] = None,
    scope: ScopeOption = None,
) -> cli.Report:
    """Edit a memory; whatever you don't give stays the same."""
    if subject and no_subjects:
        raise UsageError("Use either --subject or --no-subjects.")
    change: dict[str, Any] = {
        "content": None if content is None else out.words(content),
        "subjects": () if no_subjects else subjects_of(subject),
        "kind": kind,
        "ttl": ttl_of(ttl),
        "scope": scope,
    }
    if all(value is None for value in change.values()):
        raise UsageError(
            "Nothing to change.",
            hint="Give the new text, or --kind, --subject, --no-subjects, --ttl or --scope.",
        )
    return await _edit(opened, reference, **change)


@cli.command(app, cli.app_with_facts)
async def pin(opened: "App", reference: Reference) -> cli.Report:
    """Include a memory in the system message of every request."""
    return await _edit(opened, reference, pinned=True)


@cli.command(app, cli.app_with_facts)
async def unpin(opened: "App", reference: Reference) -> cli.Report:
    """Undo `pin`: recall the memory only when it is relevant."""
    return await _edit(opened, reference, pinned=False)


async def _edit(
    opened: "App", reference: str, *, pinned: bool | None = None, **change: Any
) -> cli.Report:
    facts = facts_of(opened.memory)
    found, project_id = await facts.find(reference), await _project_id(opened)
    changed = await facts.edit(found, pinned=pinned, project_id=project_id, **change)

    def report() -> None:
        out.write(_line(changed))
        if pinned is not None and changed.stands_always:
            rule = " It is a rule." if not changed.pinned else ""
            out.say(f"Included in the system message of every request.{rule}\n")
        elif pinned is not None:
            out.say("Recalled only when relevant.\n")

    return report


@cli.command(app, cli.app_with_facts)
async def forget(opened: "App", reference: Reference, yes: cli.Yes = False) -> cli.Report:
    """Delete a memory for good, with its earlier versions."""
    facts = facts_of(opened.memory)
    found = await facts.find(reference)
    if not yes:
        earlier = len(await facts.history(found))
        out.say(f"{summed_up(found, utc_now())}\n{one_line(found.content, 1_000)}\n")
        if earlier:
            out.say(f"Together with {counted(earlier, 'earlier version')}.\n")
        await cli.confirm("Forget it for good?", "Nothing was forgotten.")
    gone = await forget_memory(facts, found, paths=opened.paths, store=opened.config.store.kind)

    def report() -> None:
        out.write(f"{forgotten_text(found, gone)}\n")
        if traces := traces_text(gone):
            out.say(f"{traces}\n")

    return report


@cli.command(app, cli.app_with_facts)
async def why(opened: "App", reference: Reference, output: cli.TextFormat = "text") -> None:
    """Show where a memory comes from and what it replaced."""
    found, chain = await _find_with_chain(opened, reference)
    out.print_one(
        output,
        lambda: memory_document(found, chain.people, "evidence"),
        lambda width: page(told(chain, datetime.now(UTC)), width),
    )


@cli.command(app, cli.app_with_facts)
async def episodes(
    opened: "App", everywhere: Everywhere = False, limit: Limit = 20, output: cli.Format = "table"
) -> None:
    """List decisions, preferences and deadlines, newest first."""
    query = MemoryQuery(
        everywhere=everywhere,
        project_ids=(await _project_id(opened),),
        kinds=EPISODE_KINDS,
        alive_at=utc_now(),
        limit=limit + 1,
    )
    found = await (await opened.store()).memories(query)
    nothing = (
        "No decisions, preferences or deadlines yet.\n"
        "They are picked up from what you say: “we decided to …”, “by Friday”.\n"
    )
    await _print_memories(
        opened, found, output, nothing, everywhere=everywhere, limit=limit, more="occurred_at"
    )


@cli.command(app, cli.home)
async def owner(
    own: "Administration",
    take: Annotated[
        str | None, cli.option("--take", "Take over the owner id of another home of yours.", "ID")
    ] = None,
    name: Annotated[
        str | None, cli.option("--name", "The name that others in the same database see.", "NAME")
    ] = None,
) -> None:
    """Show the owner of this home.

    Its sessions and the memories about you carry the owner's id.
    """
    own.paths.make()
    if take is not None:
        before = ""
        with suppress(StoreUnavailable):
            before = own.owner_id if own.paths.owner_file.exists() else ""
        own.take_owner(take)
        if before not in ("", take):
            out.say(f"The owner was {before}; restore it with `--take {before}`.\n")
    if name is not None:
        name, at = redact(one_line(out.words(name), 40)), utc_now()
        async with own.archive() as store:
            await store.apply([PutOwner(owner=own.owner_id, name=name, at=at)])
    out.write(f"{own.owner_id}\n")  # printed even if its name can't be looked up
    known: dict[str, str] = {}
    try:
        async with own.archive(existing=True) as store:
            known = {each.owner_id: each.name for each in await store.owners()}
    except RagmemError as error:
        if isinstance(error, StoreError):
            out.say(f"note: Can't look up your name: {visible(str(error))}\n")
    if known.get(own.owner_id):
        out.say(f"name: {visible(known[own.owner_id])}\n")


@cli.command(app, cli.app_with_facts)
async def cleanup(opened: "App") -> None:
    """Delete expired memories. Nothing else is ever deleted by age."""
    count = await facts_of(opened.memory).cleanup()
    out.write(
        f"Deleted {counted(count, 'expired memory')}.\n" if count else "No expired memories.\n"
    )


def _line(memory: MemoryRecord) -> str:
    return f"{short_id(memory.memory_id)}  {one_line(memory.content, _LINE_CHARS)}\n"


# --- files --------------------------------------------------------------------


class MemoriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file of exported memories."""

    format: Literal["ragmem.memories"]
    version: Literal[1]
    memories: tuple[MemoryRecord, ...] = ()
    """Each follows those that it replaced."""
    profile: Profile = Profile()


@cli.command(app, cli.app_with_facts, "export")
async def export_memories(
    opened: "App", file: cli.NewFile = None, everywhere: Everywhere = False
) -> None:
    """Export the memories of this project and of yourself as JSON."""
    found = await listed(opened, everywhere=everywhere, with_superseded=True)
    document = MemoriesDocument(
        format="ragmem.memories",
        version=1,
        memories=tuple(reversed(found)),
        profile=await facts_of(opened.memory).profile(),
    )
    data = out.to_json(document)
    if file is None:
        out.write_json(data)
    else:
        with out.new_file(file) as part:
            part.write_text(data, "utf-8")
        out.say(f"{counted(len(found), 'memory')} in {visible(str(file))}\n")
    if not everywhere:
        out.say(
            "note: only the memories of this project and of yourself; use --all for all projects.\n"
        )


@cli.command(app, cli.app_with_facts, "import")
async def import_memories(opened: "App", file: cli.Exported, yes: cli.Yes = False) -> None:
    """Import memories from a file; those already here stay unchanged.

    Asks first if the file has rules, preferences, pinned memories, or memories for every
    project. Yours keep that status, and so does your profile. Other people's become facts of
    this project.
    """
    document = decoded(out.read_without_secrets(file))
    store, owner = await opened.store(), opened.owner_id
    ids = [memory.memory_id for memory in document.memories]
    stored = {memory.memory_id: memory for memory in await store.get(MemoryRecord, ids)}
    came_early = {
        memory.memory_id
        for memory in document.memories
        if is_own(memory, owner) and memory.is_demoted(stored.get(memory.memory_id))
    }
    known = stored.keys() - came_early
    profile, given = (await store.profile()).values, document.profile
    given_keys = given.values if given.owner and given.owner == owner else {}
    keys = {key: value for key, value in given_keys.items() if key not in profile}
    if left := len(given.values) - len(given_keys):
        out.say(f"Skipped: the profile of another person ({counted(left, 'entry')}).\n")
    claims = claims_of(document.memories, owner, known=known, now=utc_now())
    await cli.confirm_claims(msgspec.structs.replace(claims, profile=keys), yes=yes)
    place = await here(store, opened.cwd)
    project_id = place.project.root_id
    new = [
        memory if is_own(memory, owner) else memory.of_another(memory.project_id or project_id)
        for memory in document.memories
        if memory.memory_id not in known
    ]
    if place.is_new and any(memory.project_id == project_id for memory in new):
        await opened.memory.record(registrations(place.project))
    at = document.profile.updated_at or utc_now()
    writes: list[Write] = [PutMemory(memory=memory) for memory in new]
    writes += [PutProfile(key=key, value=value, at=at) for key, value in keys.items()]
    for start in range(0, len(writes), _BATCH_SIZE):
        await opened.memory.record(writes[start : start + _BATCH_SIZE])
    out.write(f"{counted(len(new), 'memory')}, {counted(len(keys), 'entry')} of the profile\n")
    known_keys = len(given_keys) - len(keys)
    if len(ids) > len(new) or known_keys:
        out.say(
            "Unchanged, because they are already here: "
            f"{counted(len(ids) - len(new), 'memory')}, {counted(known_keys, 'entry')}.\n"
        )
    if pinned := sum(each.stands_always and not each.superseded_by for each in new):
        out.say(
            f"note: {pinned:,} of them are included in every request, as pinned memories or "
            "rules. `ragmem memory list` shows which; `unpin` or `forget` removes them.\n"
        )
    projects = {None, project_id, *(project.project_id for project in await store.projects())}
    if homeless := sum(each.project_id not in projects for each in new):
        out.say(
            f"note: {homeless:,} belong to projects unknown on this machine; "
            "`ragmem memory list --all` shows them.\n"
        )


def decoded(data: bytes) -> MemoriesDocument:
    """Decode exported memories; raise UsageError if the data is not a valid export."""
    try:
        document = msgspec.json.decode(data, type=MemoriesDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"Not a memory export: {error}.",
            hint="`ragmem memory export -o FILE` writes such a file. To import sessions, use "
            "`ragmem sessions import`; for backups, `ragmem store migrate --from`.",
        ) from None
    times = [document.profile.updated_at]
    for memory in document.memories:
        times += [memory.created_at, memory.updated_at, memory.at]
        times += [memory.expires_at, memory.valid_until, *(each.at for each in memory.evidence)]
    wrong = next(filter(None, map(wrong_time, times)), "")
    if not all(_ID.fullmatch(memory.memory_id) for memory in document.memories):
        wrong = "an id is not valid"
    elif not all(0 < len(memory.content.strip()) <= _MAX_CHARS for memory in document.memories):
        wrong = f"one is empty or longer than {_MAX_CHARS:,} characters"
    if wrong:
        raise UsageError(f"Can't import the memories: {wrong}.")
    return document
