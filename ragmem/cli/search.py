"""`ragmem search`, `sessions search` and `sessions similar`: search memory and code."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem import listings
from ragmem.background import leave_to_a_process
from ragmem.cli import command as cli
from ragmem.cli.output import MIN_COLUMNS, Paint, joined, paint_for, print_all, say, typed
from ragmem.config import ScopeName
from ragmem.errors import SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.memory.memories import merged, nearest, search_memories, worth_showing
from ragmem.memory.sessions import about, similar_sessions
from ragmem.records import Session
from ragmem.text import ago, clip_to_width, counted, display_width, flowing, one_line

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index.links import FoundCode
    from ragmem.memory.facts import FactHit
    from ragmem.memory.recall import Hit
    from ragmem.memory.sessions import SimilarSession


def found_sessions(
    found: "Sequence[tuple[Session, Sequence[Hit]]]",
    now: datetime,
    *,
    width: int,
    paint: Paint,
    query: str,
    close: int,
) -> str:
    """Format each session as a paragraph with its hits; the first `close` are close matches."""
    width, light = max(MIN_COLUMNS, width), listings.Light(query)
    rows: list[str] = []
    for place, (session, hits) in enumerate(found):
        rows += [paint((listings.FURTHER, "bold")), ""] if 0 < place == close else []
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        name = clip_to_width(listings.session_name(session), width)
        facts = f"{when} · {short_id(session.session_id)}"
        beside = display_width(f"{name}  {facts}") <= width
        below = flowing(facts.split(" · "), width - 2)
        rows += [paint((name, "bold"), (f"  {facts}" if beside else "", "dim"))]
        rows += [] if beside else [f"  {paint((row, 'dim'))}" for row in below]
        for hit in hits:
            what, _, *rest = hit.facts(now)  # without the session's name, which is above
            rows += [f"  {row}" for row in listings.facts_rows((what, *rest), width - 2, paint)]
            rows += listings.said_rows(hit, "    ", width, paint, light)
        rows.append("")
    return joined(rows[:-1])


def found_code(text: str, paint: Paint, light: listings.Light) -> str:
    """Style a list of code made by `ragmem.listings.code_text`, with the query's words lit."""
    rows = []
    for row in text.splitlines():
        if row == listings.FURTHER:
            rows.append(paint((row, "bold")))
            continue
        name, dot, facts = row.partition(" · ")
        head = row[:1].strip() != ""
        parts = [(name, "bold cyan"), (dot + facts, "dim")] if head else light.parts(row)
        rows.append(paint(*parts))
    return joined(rows)


app = cli.commands()

SCOPE = "kind signature defined sessions memories"
_NOTHING = "No results.\n"


@cli.command(app, cli.app_here)
async def search(  # noqa: PLR0913 - one parameter a flag
    opened: "App",
    query: cli.Query,
    scope: Annotated[
        ScopeName | None,
        cli.option(
            "--scope", "Where to search. Default: the project, unless configured otherwise."
        ),
    ] = None,
    levels: Annotated[
        str | None, cli.option("--levels", "0: turns. 1 and up: summaries. Default: all.", "0,1,2")
    ] = None,
    code: Annotated[
        bool, cli.option("--code", "Search the project's files, and show related sessions.")
    ] = False,
    no_semantic: cli.NoSemantic = False,
    limit: cli.Results = 10,
    newest: cli.OfNewest = False,
    resume: cli.OfSession = None,
    output: cli.Format = "table",
) -> None:
    """Search turns, summaries and memories by words and by meaning.

    Searches this project, unless --scope says otherwise; `--scope session` is the newest session
    of this folder (or the one of -r). With --code, searches functions, classes and sections by
    name, content and meaning, and shows the sessions and decisions related to one that QUERY
    names.
    """
    cli.check_session_flags(continue_last=newest, resume=resume, fork=False)
    if code and (scope or levels is not None or newest or resume is not None):
        raise UsageError(
            "--code searches this project's files; it can't be combined with --scope, --levels, "
            "-c or -r."
        )
    query, levels_wanted = _checked_query(query), _parse_levels(levels)
    if code:
        await _search_code(opened, query, limit=limit, semantic=not no_semantic, output=output)
        return
    session = None
    if scope == "session" or newest or resume is not None:
        session = await cli.choose_session(opened, continue_last=resume is None, resume=resume)
    scope = scope or ("session" if session else opened.config.memory.scope)
    session = session or await opened.start_session()
    semantic = not no_semantic
    hits = await opened.search(
        query,
        scope=scope,
        session=session,
        levels=levels_wanted,
        semantic=semantic,
        max_results=limit,
    )
    memories: list[FactHit] = []
    if not levels_wanted:
        memories = await search_memories(
            opened.memory,
            query,
            open_store=opened.store,
            scope=scope,
            session=session,
            semantic=semantic,
            limit=limit,
        )
    await _say_notices(opened)

    if output == "json":
        found, close, none_close = merged(hits, memories, limit), 0, ""
    else:
        found, close, none_close = nearest(hits, memories, floor=opened.memory.floor, limit=limit)
    say(f"{none_close}\n" if found and none_close else "")
    now, paint = datetime.now(UTC), paint_for(opened.config.ui)
    print_all(
        output,
        found,
        listings.hit_document,
        lambda width: listings.hits_text(
            found, now, width=width, close=close, paint=paint, query=query
        ),
        _NOTHING,
    )


async def _say_notices(opened: "App") -> None:
    notice = await opened.background.vectors_notice()
    if notice and opened.config.memory.worker == "detached":
        leave_to_a_process(opened.paths)
    cli.say_notices(opened, notice)


def _checked_query(query: str) -> str:
    query = typed(query)
    if not query.strip():
        raise UsageError("The query is empty.", hint="Give one or more words to search for.")
    return query


def _parse_levels(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        raise UsageError(
            f"--levels takes numbers, such as 0,1,2, not {one_line(text, 40)!r}.",
            hint="0 is turns, 1 is their summaries, 2 and up are summaries of summaries.",
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


# --- sessions -----------------------------------------------------------------


async def search_sessions(
    opened: "App",
    query: cli.Query,
    scope: cli.WideScope = None,
    no_semantic: cli.NoSemantic = False,
    limit: cli.Results = 20,
    output: cli.Format = "table",
) -> None:
    """Search sessions, and show what matches in each."""
    query = _checked_query(query)
    hits: Sequence[Hit] = await opened.search(
        query, scope=_scope(opened, scope), semantic=not no_semantic, max_results=limit
    )
    floor, none_close = opened.memory.floor, ""
    if output != "json":
        hits, _, none_close = worth_showing(hits, floor)
    found = await _by_session(opened, hits)
    close = sum(any(hit.is_close(floor) for hit in own) for _, own in found)
    await _say_notices(opened)
    say(f"{none_close}\n" if found and none_close else "")
    now, paint = datetime.now(UTC), paint_for(opened.config.ui)
    print_all(
        output,
        found,
        lambda each: listings.document(
            f"{listings.SESSION} hits", each[0], hits=list(map(listings.hit_document, each[1]))
        ),
        lambda width: found_sessions(
            found, now, width=width, paint=paint, query=query, close=close
        ),
        _NOTHING,
    )


async def find_similar(
    opened: "App",
    what: Annotated[
        str | None,
        cli.argument(
            "TEXT|ID",
            "A text, or a session by id or name. Default: the newest session of this folder.",
        ),
    ] = None,
    scope: cli.WideScope = None,
    limit: cli.Results = 5,
    output: cli.Format = "table",
) -> None:
    """Find sessions similar to a text or to another session."""
    if opened.embedder is None or opened.memory.floor is None:
        raise UsageError(
            "Can't compare: embeddings are turned off.",
            hint="Set memory.enabled and memory.embeddings.enabled to true.",
        )
    store = await opened.store()
    own = await _find_session(opened, None if what is None else typed(what))
    text = await about(store, own) if own else typed(what or "")
    projects: tuple[str, ...] = ()
    if _scope(opened, scope) == "project":
        projects = ((await opened.memory.project_of(opened.cwd)).project.root_id,)
    found = await similar_sessions(
        store,
        opened.embedder,
        text,
        floor=opened.memory.floor,
        limit=limit,
        project_ids=projects,
        without=(own.session_id,) if own else (),
    )
    print_all(
        output,
        found,
        lambda each: listings.document(
            f"{listings.SESSION} summary similarity", each.session, each
        ),
        lambda width: similar_table(found, datetime.now(UTC), width=width),
        "No similar session has a summary. `ragmem sessions summarize` creates one; "
        "`ragmem sessions search` searches all turns.\n",
    )


def _scope(opened: "App", scope: cli.Wide | None) -> cli.Wide:
    """Return the given scope, else the configured one, with `project` instead of `session`."""
    return scope or ("all" if opened.config.memory.scope == "all" else "project")


async def _find_session(opened: "App", reference: str | None) -> Session | None:
    """Return the referenced session, by default the newest; None if the reference is a text."""
    if reference is None:
        return await cli.last_session(opened)
    if not reference.strip():
        raise UsageError("Nothing to compare with.", hint="Give a text or a session.")
    try:
        return await opened.resume_session(reference)
    except SessionNotFound:
        return None


async def _by_session(opened: "App", hits: "Sequence[Hit]") -> "list[tuple[Session, list[Hit]]]":
    """Group hits by session, in the order of each session's best hit."""
    grouped: dict[str, list[Hit]] = {}
    for hit in hits:
        grouped.setdefault(hit.session_id, []).append(hit)
    found = []
    for session_id, own in grouped.items():
        try:
            found.append((await opened.memory.find_session(session_id), own))
        except SessionNotFound:  # deleted since the search
            continue
    return found


def similar_table(found: "Sequence[SimilarSession]", now: datetime, *, width: int) -> str:
    """Format similar sessions, one per line."""
    rows = [
        (
            short_id(each.uuid),
            f"{each.similarity * 100:.0f}%",
            ago(each.session.last_activity_at, now),
            f"{listings.session_name(each.session)} — {each.session.summary or ''}",
        )
        for each in found
    ]
    return listings.table(("ID", "ALIKE", "LAST ACTIVITY", "TITLE AND SUMMARY"), rows, width=width)


# --- code ---------------------------------------------------------------------


async def _search_code(
    opened: "App", query: str, *, limit: int, semantic: bool, output: Literal["table", "json"]
) -> None:
    from ragmem.cli.files import code_of, refresh_index, vectors_note
    from ragmem.index.links import find_code

    code = await code_of(opened)
    refreshed = await refresh_index(code, only_reads=True)
    finds = await find_code(
        code,
        query,
        open_store=opened.store if opened.config.memory.enabled else None,
        limit=limit,
        semantic=semantic,
    )
    if refreshed.changed or refreshed.removed:
        await opened.leave_background()
    missing = f"Sessions and decisions are not shown. {finds.problem}" if finds.problem else ""
    note = vectors_note(opened, await code.status()) if semantic else ""
    cli.say_notices(opened, missing, note)
    found: Sequence[FoundCode] = finds.found
    none_close, close = "", 0
    if output != "json":
        found, close, none_close = worth_showing(found, opened.memory.floor)
    say(f"{none_close}\n" if found and none_close else "")

    def listed(width: int) -> str:
        project, now = code.project.path, datetime.now(UTC)
        return listings.code_text(
            found, now, cwd=opened.cwd, project=project, width=width, close=close
        )

    print_all(
        output,
        found,
        scope_document,
        lambda width: found_code(listed(width), paint_for(opened.config.ui), listings.Light(query)),
        _NOTHING,
    )


def scope_document(found: "FoundCode") -> listings.Document:
    """Return a code hit as a document, in which the fields of conversations are null.

    If it is not `defined` in any file now, path and lines are those where it was last.
    """
    hit = found.hit
    return listings.document(
        f"{listings.HIT} {SCOPE}",
        hit,
        type="scope",
        id=hit.scope_id,
        name=hit.qualified_name,
        timestamp=found.past.last_at,
        why="; ".join(hit.why),
        defined=found.defined,
        sessions=listings.code_session_documents(found.past),
        memories=[listings.memory_document(each) for each in found.past.memories],
    )
