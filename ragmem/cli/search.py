"""`ragmem search`, `sessions search` and `sessions similar`: what was said, and code."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from ragmem.cli.command import (
    Continue,
    Format,
    NoSemantic,
    OfSession,
    Query,
    Wide,
    WideScope,
    argument,
    check_session_flags,
    choose_session,
    command,
    commands,
    last_session,
    open_app,
    option,
    say_notices,
)
from ragmem.cli.output import Paint, Part, drawn, joined, print_all, say, typed
from ragmem.errors import SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.listings import (
    FURTHER,
    HIT,
    SESSION,
    Document,
    code_session_documents,
    code_text,
    document,
    hit_document,
    hits_text,
    memory_document,
    session_name,
    table,
)
from ragmem.records import Session
from ragmem.text import (
    ago,
    clip_to_width,
    counted,
    display_width,
    flowing,
    hanging,
    one_line,
    visible,
    without_markdown,
)

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.index.links import FoundCode
    from ragmem.memory import Hit
    from ragmem.memory.facts import FactHit
    from ragmem.memory.recall import SimilarSession
    from ragmem.records import Session


_FOUND_NARROWEST = 20
_ROWS = 3
"""Of a memory."""
_EXCERPT_CHARS = 500
_LOOKED_AT = 20_000
"""Characters of a turn."""
_STEM, _ENDING = 4, 4
"""A word of so many letters is found again with another ending of at most so many."""
_WORD = re.compile(r"\w+")
_LIT = "bold yellow"


class Light:
    """Finds the words of a question in a text, with other endings too."""

    def __init__(self, query: str) -> None:
        from ragmem.terms import guess_language, is_stop_word

        words = {word.casefold() for word in _WORD.findall(query)}
        telling = {word for word in words if not is_stop_word(word, guess_language(query))}
        self._words = sorted(telling or words, key=len, reverse=True)
        # Where words are written without blanks one stands inside of others.
        inside = "|".join(re.escape(word) for word in self._words if not word.isascii())
        wanted = rf"{inside}|(?:(?!{inside})\w)+" if inside else _WORD.pattern
        self._pattern = re.compile(wanted, re.IGNORECASE)

    def parts(self, row: str, style: str = "") -> list[Part]:
        """Return the row in parts, the words lit."""
        parts: list[Part] = []
        end = 0
        for found in self._pattern.finditer(row):
            if self._means(found[0].casefold()):
                parts += [(row[end : found.start()], style), (found[0], _LIT)]
                end = found.end()
        return [*parts, (row[end:], style)]

    def first(self, text: str) -> int:
        """Return where the first of the words stands; 0 where there is none."""
        found = self._pattern.finditer(text)
        return next((each.start() for each in found if self._means(each[0].casefold())), 0)

    def _means(self, word: str) -> bool:
        return any(word == each or _is_form(word, each) for each in self._words)


def _is_form(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short) and len(long) - len(short) <= _ENDING


def excerpt(text: str, light: Light, width: int) -> str:
    """Return a row of what the text says, about the first word that was looked for."""
    said = " ".join(without_markdown(text[:_LOOKED_AT]).split())
    at = light.first(said)
    if display_width(one_line(said[:at], at + 1)) > width // 2:
        start = said.rfind(" ", 0, max(0, at - width // 3)) + 1
        said = f"… {said[start:]}" if start else said
    return clip_to_width(one_line(said, _EXCERPT_CHARS), width)


def found_hits(
    hits: "Sequence[Hit | FactHit]",
    now: datetime,
    *,
    width: int,
    paint: Paint,
    light: Light,
    close: int,
) -> str:
    """Return where each stands, why it was found, and what it says; the first few are close."""
    width = max(_FOUND_NARROWEST, width)
    rows: list[str] = []
    for place, hit in enumerate(hits):
        rows += [paint((FURTHER, "bold")), ""] if 0 < place == close else []
        rows += [*_hit(hit, now, width, paint, light), ""]
    return joined(rows[:-1])


def _hit(hit: "Hit | FactHit", now: datetime, width: int, paint: Paint, light: Light) -> list[str]:
    from ragmem.memory import Hit
    from ragmem.memory.memories import memory_facts

    if isinstance(hit, Hit):
        return [*_facts(hit.facts(now), width, paint), *_said(hit, "  ", width, paint, light)]
    told = without_markdown(hit.memory.content)
    words = hanging("  ", one_line(told, _EXCERPT_CHARS), width)
    words = words if len(words) <= _ROWS else [*words[: _ROWS - 1], f"{words[_ROWS - 1]} …"]
    words += [f"  {one_line(hit.since, _EXCERPT_CHARS)}"] if hit.since else []
    shown = [paint(*light.parts(clip_to_width(row, width))) for row in words]
    return [*_facts(memory_facts(hit, now), width, paint), *shown]


def _facts(facts: Sequence[str], width: int, paint: Paint) -> list[str]:
    """Return what it is, and dim all else that is to be known."""
    first, *rest = flowing(facts, width)
    what, dot, others = first.partition(" · ")
    return [paint((what, "cyan"), (dot + others, "dim")), *(paint((row, "dim")) for row in rest)]


def _said(hit: "Hit", margin: str, width: int, paint: Paint, light: Light) -> list[str]:
    """Return what was asked and answered, or summed up, and what became of it, a row each."""
    said = [("", hit.summary.text)] if hit.summary else []
    if hit.turn:
        said = [("› ", hit.turn.asked), ("", hit.turn.said)]
    said.append(("", hit.since))
    rows = []
    for mark, text in said:
        if text.strip():
            row = excerpt(text, light, width - len(margin + mark))
            rows.append(margin + paint((mark, "dim"), *light.parts(row)))
    return rows


def found_sessions(
    found: "Sequence[tuple[Session, Sequence[Hit]]]",
    now: datetime,
    *,
    width: int,
    paint: Paint,
    light: Light,
    close: int,
) -> str:
    """Return a session a paragraph, what was found in it below; the first few are close."""
    width = max(_FOUND_NARROWEST, width)
    rows: list[str] = []
    for place, (session, hits) in enumerate(found):
        rows += [paint((FURTHER, "bold")), ""] if 0 < place == close else []
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        name = clip_to_width(session_name(session), width)
        facts = f"{when} · {short_id(session.session_id)}"
        beside = display_width(f"{name}  {facts}") <= width
        below = flowing(facts.split(" · "), width - 2)
        rows += [paint((name, "bold"), (f"  {facts}" if beside else "", "dim"))]
        rows += [] if beside else [f"  {paint((row, 'dim'))}" for row in below]
        for hit in hits:
            what, _, *rest = hit.facts(now)  # the session's name stands above
            rows += [f"  {row}" for row in _facts((what, *rest), width - 2, paint)]
            rows += _said(hit, "    ", width, paint, light)
        rows.append("")
    return joined(rows[:-1])


def found_code(text: str, *, paint: Paint, light: Light) -> str:
    """Return a list of code, as `ragmem.listings.code_text` makes it, with the words lit."""
    rows = []
    for row in text.splitlines():
        if row == FURTHER:
            rows.append(paint((row, "bold")))
            continue
        name, dot, facts = row.partition(" · ")
        head = row[:1].strip() != ""
        parts = [(name, "bold cyan"), (dot + facts, "dim")] if head else light.parts(row)
        rows.append(paint(*parts))
    return joined(rows)


app = commands()

ScopeName = Literal["session", "project", "all"]
SCOPE = "kind signature defined sessions memories"
_NARROWEST = 20
_NOTHING = "Nothing was found.\n"


@command(app, open_app)
async def search(  # noqa: PLR0913 - one parameter a flag
    opened: "App",
    query: Query,
    scope: Annotated[
        ScopeName | None, option("--scope", "Where to look; the project, unless configured.")
    ] = None,
    levels: Annotated[
        str | None,
        option("--levels", "0 for turns, 1 and up for summaries; all by default.", "0,1,2"),
    ] = None,
    code: Annotated[
        bool, option("--code", "In the project's files, with the sessions about each find.")
    ] = False,
    no_semantic: NoSemantic = False,
    limit: Annotated[int, option("--limit", "At most so many.", "N", least=1, most=100)] = 10,
    continue_last: Continue = False,
    resume: OfSession = None,
    output: Format = "table",
) -> None:
    """Find what was said and done, by its words and its meaning.

    In this project, unless --scope says otherwise; `session` is the newest one of this
    folder, or that of -r. With --code: find functions, classes and sections by what they
    are called, say and do; of one that QUERY names, which sessions had to do with it and
    what was decided there.
    """
    from ragmem.memory.memories import merged, nearest, search_memories

    check_session_flags(continue_last=continue_last, resume=resume, fork=False)
    if code and (scope or levels is not None or continue_last or resume is not None):
        raise UsageError(
            "--code looks into the files of this project: it goes with neither --scope, --levels, "
            "-c nor -r."
        )
    query, levels_wanted = _wanted(query), _levels(levels)
    if code:
        await _search_code(opened, query, limit=limit, semantic=not no_semantic, output=output)
        return
    session = None
    if scope == "session" or resume is not None:
        session = await choose_session(
            opened, continue_last=continue_last or resume is None, resume=resume
        )
    scope = scope or ("session" if session else opened.config.memory.scope)
    session = session or await opened.new_session_here()
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
    say_notices(opened, await opened.background.vectors_notice())

    if output == "json":
        found, close, none_close = merged(hits, memories, limit), 0, ""
    else:
        found, close, none_close = nearest(hits, memories, floor=opened.memory.floor, limit=limit)
    say(f"{none_close}\n" if found and none_close else "")
    now = datetime.now(UTC)
    print_all(
        output,
        found,
        hit_document,
        drawn(
            opened.config.ui,
            lambda width: hits_text(found, now, width=width, close=close),
            lambda width, paint: found_hits(
                found, now, width=width, paint=paint, light=Light(query), close=close
            ),
        ),
        _NOTHING,
    )


def _wanted(query: str) -> str:
    query = typed(query)
    if not query.strip():
        raise UsageError("There is nothing to look for.", hint="Write what, in words.")
    return query


def _levels(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        raise UsageError(
            f"--levels takes numbers, such as 0,1,2: not {one_line(text, 40)!r}.",
            hint="0 are turns, 1 their summaries, 2 and up the summaries of summaries.",
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


# --- sessions -----------------------------------------------------------------


async def search_sessions(
    opened: "App",
    query: Query,
    scope: WideScope = None,
    no_semantic: NoSemantic = False,
    limit: Annotated[int, option("--limit", "At most so many finds.", "N", least=1, most=100)] = 20,
    output: Format = "table",
) -> None:
    """Find sessions by what was said in them.

    What was found stands below each.
    """
    hits: Sequence[Hit] = await opened.search(
        _wanted(query), scope=_scope(opened, scope), semantic=not no_semantic, max_results=limit
    )
    floor, none_close = opened.memory.floor, ""
    if output != "json":
        from ragmem.memory import close_first, worth_showing

        hits, none_close = worth_showing(hits, floor)
        hits, _ = close_first(hits, floor)
    found = await _by_session(opened, hits)
    close = sum(any(hit.is_close(floor) for hit in own) for _, own in found)
    say_notices(opened, await opened.background.vectors_notice())
    say(f"{none_close}\n" if found and none_close else "")
    now = datetime.now(UTC)
    print_all(
        output,
        found,
        lambda each: document(f"{SESSION} hits", each[0], hits=list(map(hit_document, each[1]))),
        drawn(
            opened.config.ui,
            lambda width: found_text(found, now, width=width, close=close),
            lambda width, paint: found_sessions(
                found, now, width=width, paint=paint, light=Light(typed(query)), close=close
            ),
        ),
        _NOTHING,
    )


async def find_similar(
    opened: "App",
    what: Annotated[
        str | None,
        argument(
            "TEXT|ID", "A text, or a session by its id or name; else the newest of this folder."
        ),
    ] = None,
    scope: WideScope = None,
    limit: Annotated[int, option("--limit", "At most so many.", "N", least=1, most=100)] = 5,
    output: Format = "table",
) -> None:
    """Find sessions like a text or another session.

    Their summaries are compared.
    """
    from ragmem.memory.recall import about, similar_sessions

    if opened.embedder is None or opened.memory.floor is None:
        raise UsageError(
            "Nothing is embedded here, so nothing can be compared.",
            hint="Set memory.enabled and memory.embeddings.enabled to true.",
        )
    store = await opened.store()
    own = await _named(opened, None if what is None else typed(what))
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
        lambda each: document(f"{SESSION} summary similarity", each.session, each),
        lambda width: similar_table(found, datetime.now(UTC), width=width),
        "No session with a summary is like this. `ragmem sessions summarize` makes one; "
        "`sessions search` looks into all turns.\n",
    )


def _scope(opened: "App", scope: Wide | None) -> Wide:
    """As asked; else as configured, where the one session stands for its project."""
    return scope or ("all" if opened.config.memory.scope == "all" else "project")


async def _named(opened: "App", reference: str | None) -> Session | None:
    """The session that is meant; None where it is a text."""
    if reference is None:
        return await last_session(opened)
    if not reference.strip():
        raise UsageError("There is nothing to compare with.", hint="Give a text or a session.")
    try:
        return await opened.resume_session(reference)
    except SessionNotFound:
        return None


async def _by_session(opened: "App", hits: "Sequence[Hit]") -> "list[tuple[Session, list[Hit]]]":
    """Those of the best hits first."""
    grouped: dict[str, list[Hit]] = {}
    for hit in hits:
        grouped.setdefault(hit.session_id, []).append(hit)
    found = []
    for session_id, own in grouped.items():
        try:
            found.append((await opened.memory.find_session(session_id), own))
        except SessionNotFound:  # deleted since it was found
            continue
    return found


def found_text(
    found: "Sequence[tuple[Session, Sequence[Hit]]]", now: datetime, *, width: int, close: int
) -> str:
    """A session a paragraph: what it is, then what was found in it; the first few are close."""
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for place, (session, hits) in enumerate(found):
        lines += [FURTHER, ""] if 0 < place == close else []
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        lines += hanging(
            f"{short_id(session.session_id)}  ", f"{session_name(session)} · {when}", width
        )
        for hit in hits:
            what, _, *rest = hit.facts(now)  # the session's name stands above
            lines += hanging("  ", " · ".join(map(visible, (what, *rest))), width)
            lines += [f"    {clip_to_width(visible(said), width - 4)}" for said in hit.quotes()]
        lines.append("")
    return "\n".join(lines)


def similar_table(found: "Sequence[SimilarSession]", now: datetime, *, width: int) -> str:
    """One line a session, nearest first."""
    rows = [
        (
            short_id(each.uuid),
            f"{each.similarity * 100:.0f}%",
            ago(each.session.last_activity_at, now),
            f"{session_name(each.session)} — {each.session.summary or ''}",
        )
        for each in found
    ]
    return table(("ID", "ALIKE", "LAST ACTIVITY", "TITLE AND SUMMARY"), rows, width=width)


# --- code ---------------------------------------------------------------------


async def _search_code(
    opened: "App", query: str, *, limit: int, semantic: bool, output: Literal["table", "json"]
) -> None:
    from ragmem.cli.files import brought_up_to_date, code_of, vectors_note
    from ragmem.index.links import find_code
    from ragmem.memory import close_first, worth_showing

    code = await code_of(opened)
    refreshed = await brought_up_to_date(code, only_reads=True)
    finds = await find_code(
        code,
        query,
        project_id=code.project.root_id,
        open_store=opened.store if opened.config.memory.enabled else None,
        limit=limit,
        semantic=semantic,
    )
    if refreshed.changed or refreshed.removed:
        await opened.leave_background()
    missing = f"What the memory has of this is not shown. {finds.problem}" if finds.problem else ""
    note = vectors_note(opened, await code.status()) if semantic else ""
    say_notices(opened, missing, note)
    found: Sequence[FoundCode] = finds.found
    none_close, close = "", 0
    if output != "json":
        found, none_close = worth_showing(found, opened.memory.floor)
        found, close = close_first(found, opened.memory.floor)
    say(f"{none_close}\n" if found and none_close else "")

    def listed(width: int) -> str:
        project, now = code.project.path, datetime.now(UTC)
        return code_text(found, now, cwd=opened.cwd, project=project, width=width, close=close)

    print_all(
        output,
        found,
        scope_document,
        drawn(
            opened.config.ui,
            listed,
            lambda width, paint: found_code(listed(width), paint=paint, light=Light(query)),
        ),
        _NOTHING,
    )


def scope_document(found: "FoundCode") -> Document:
    """As JSON; what belongs to conversations alone is null.

    Of what is `defined` in no file any more, path and lines are where it was last.
    """
    hit = found.hit
    return document(
        f"{HIT} {SCOPE}",
        hit,
        type="scope",
        id=hit.scope_id,
        name=hit.qualified_name,
        timestamp=found.past.last_at,
        why="; ".join(hit.why),
        defined=found.defined,
        sessions=code_session_documents(found.past),
        memories=[memory_document(each) for each in found.past.memories],
    )
