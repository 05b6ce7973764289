"""`ragmem sessions search` and `similar`: sessions found by what was said in them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ragmem.cli.choice import last_session, session_name
from ragmem.cli.documents import SessionDocument, session_document, to_json
from ragmem.cli.hits import HitDocument, hit_document
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Format
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.session_arguments import Wide, WideScope
from ragmem.cli.streams import say, typed, write, write_json
from ragmem.cli.table import table
from ragmem.errors import EXIT_DONE, SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.records import Session
from ragmem.text import ago, clip_to_width, counted, hanging, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.config import Config
    from ragmem.memory.hits import Hit
    from ragmem.memory.similar import SimilarSession

_NARROWEST = 20


class FoundSessionDocument(SessionDocument, frozen=True, kw_only=True):
    """A session in which something was found, best first."""

    hits: tuple[HitDocument, ...]


class SimilarDocument(SessionDocument, frozen=True, kw_only=True):
    """A session that is like what was asked."""

    summary: str | None
    similarity: float


def search(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", show_default=False, help="What to look for.")
    ],
    scope: WideScope = None,
    no_semantic: Annotated[
        bool, typer.Option("--no-semantic", help="By words alone, not by meaning.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, metavar="N", help="At most so many finds.")
    ] = 20,
    output: Format = "table",
) -> None:
    """Find sessions by what was said in them; what was found stands below each."""
    wanted = typed(query)
    if not wanted.strip():
        raise UsageError("There is nothing to look for.")
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            hits = await opened.search(
                wanted,
                scope=_scope(config, scope),
                semantic=not no_semantic,
                max_results=limit,
            )
            shown, none_close = (hits, "") if output == "json" else _worth(opened, hits)
            found = await _by_session(opened, shown)
            for notice in [*opened.notices(), await opened.background.vectors_notice()]:
                if notice:
                    say(f"note: {visible(notice)}\n")
        if output == "json":
            write_json(to_json([_found_document(session, own) for session, own in found]))
        elif found:
            say(f"{none_close}\n" if none_close else "")
            write(found_text(found, datetime.now(UTC), width=get_terminal_size((120, 24)).columns))
        else:
            say("Nothing was found.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def similar(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT|ID",
            help="A text, or a session by its id or name; else the newest of this folder.",
            show_default=False,
        ),
    ] = None,
    scope: WideScope = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, metavar="N", help="At most so many.")
    ] = 5,
    output: Format = "table",
) -> None:
    """Find past sessions like a text or another session, by their summaries."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        from ragmem.memory.similar import about, similar_sessions

        async with open_app(config, paths) as opened:
            if opened.embedder is None or opened.memory.floor is None:
                raise UsageError(
                    "Nothing is embedded here, so nothing can be compared.",
                    hint="Set memory.enabled and memory.embeddings.enabled to true.",
                )
            store = await opened.store()
            own = await _named(opened, None if what is None else typed(what))
            text = await about(store, own) if own else typed(what or "")
            projects: tuple[str, ...] = ()
            if _scope(config, scope) == "project":
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
        if output == "json":
            write_json(to_json([_similar_document(each) for each in found]))
        elif found:
            write(similar_table(found, datetime.now(UTC)))
        else:
            say(
                "No session with a summary is like this. `ragmem sessions summarize` makes one; "
                "`sessions search` looks into all turns.\n"
            )
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def _worth(opened: "App", hits: "list[Hit]") -> "tuple[Sequence[Hit], str]":
    from ragmem.memory.hits import worth_showing

    return worth_showing(hits, opened.memory.floor)


def _scope(config: "Config", scope: Wide | None) -> Wide:
    """As asked; else as configured, where the one session stands for its project."""
    return scope or ("all" if config.memory.scope == "all" else "project")


async def _named(opened: "App", reference: str | None) -> Session | None:
    """The session that is meant; None where it is a text."""
    if reference is None:
        return await last_session(opened)
    if not reference.strip():
        raise UsageError("There is nothing to compare with.")
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
    found: "Sequence[tuple[Session, Sequence[Hit]]]", now: datetime, *, width: int
) -> str:
    """A session a paragraph: what it is, then what was found in it."""
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for session, hits in found:
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


def similar_table(found: "Sequence[SimilarSession]", now: datetime) -> str:
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
    width = get_terminal_size((120, 24)).columns
    return table(("ID", "ALIKE", "LAST ACTIVITY", "TITLE AND SUMMARY"), rows, width=width)


def _found_document(session: Session, hits: "Sequence[Hit]") -> FoundSessionDocument:
    return FoundSessionDocument(
        **msgspec.structs.asdict(session_document(session)),
        hits=tuple(hit_document(hit) for hit in hits),
    )


def _similar_document(found: "SimilarSession") -> SimilarDocument:
    return SimilarDocument(
        **msgspec.structs.asdict(session_document(found.session)),
        summary=found.session.summary,
        similarity=found.similarity,
    )
