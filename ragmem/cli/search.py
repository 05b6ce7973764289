"""`ragmem search`: what was said, found by its words and its meaning."""

from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ragmem.cli.choice import choose_session
from ragmem.cli.documents import to_json
from ragmem.cli.hits import HitDocument, hit_document, memory_hit_document
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Continue, Format, Resume, check_session_flags
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import say, typed, write, write_json
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.text import clip_to_width, flowing, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.facts.values import FactHit
    from ragmem.memory.hits import Hit

app = typer.Typer(rich_markup_mode=None, add_completion=False)

ScopeName = Literal["session", "project", "all"]
_NARROWEST = 20


@app.command()
def search(  # noqa: PLR0913 - one parameter a flag
    query: Annotated[
        str, typer.Argument(metavar="QUERY", show_default=False, help="What to look for.")
    ],
    scope: Annotated[
        ScopeName | None,
        typer.Option("--scope", help="Where to look; the project, unless configured."),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", metavar="0,1,2", help="0 for turns, 1 and up for summaries; all by default."
        ),
    ] = None,
    code: Annotated[
        bool,
        typer.Option("--code", help="In the project's files, with the sessions about each find."),
    ] = False,
    no_semantic: Annotated[
        bool, typer.Option("--no-semantic", help="By words alone, not by meaning.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, metavar="N", help="At most so many.")
    ] = 10,
    continue_last: Continue = False,
    resume: Resume = None,
    output: Format = "table",
) -> None:
    """Find what was said and done, by its words and its meaning.

    In this project, unless --scope says otherwise; `session` is the newest one of this
    folder, or that of -r. With --code: find functions, classes and sections by what they
    are called, say and do; of one that QUERY names, which sessions had to do with it and
    what was decided there.
    """
    check_session_flags(continue_last=continue_last, resume=resume, fork=False)
    if code and (scope or levels is not None or continue_last or resume is not None):
        raise UsageError(
            "--code looks into the files of this project: it goes with neither --scope, --levels, "
            "-c nor -r."
        )
    query = typed(query)
    if not query.strip():
        raise UsageError("There is nothing to look for.")
    asked = _Asked(
        text=query,
        scope=scope,
        levels=_levels(levels),
        semantic=not no_semantic,
        limit=limit,
        resume=resume,
        continue_last=continue_last or resume is None,
    )
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            if code:
                from ragmem.cli.code_search import search_code

                await search_code(
                    opened, query, limit=limit, semantic=asked.semantic, output=output
                )
                return EXIT_DONE
            hits, memories = await _search(opened, asked)
            for notice in [*opened.notices(), await opened.background.vectors_notice()]:
                if not notice:
                    continue
                say(f"note: {visible(notice)}\n")
        _print(hits, memories, limit=limit, output=output, floor=opened.memory.floor)
        return EXIT_DONE

    raise typer.Exit(run_async(main))


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    scope: ScopeName | None
    levels: tuple[int, ...]
    semantic: bool
    limit: int
    resume: str | None
    continue_last: bool


async def _search(opened: "App", asked: _Asked) -> "tuple[list[Hit], list[FactHit]]":
    """Turns and summaries, and memories unless levels of the others are asked for."""
    session = None
    if asked.scope == "session" or asked.resume is not None:
        session = await choose_session(
            opened, continue_last=asked.continue_last, resume=asked.resume
        )
    scope = asked.scope or ("session" if session else opened.config.memory.scope)
    session = session or await opened.new_session_here()
    hits = await opened.search(
        asked.text,
        scope=scope,
        session=session,
        levels=asked.levels,
        semantic=asked.semantic,
        max_results=asked.limit,
    )
    if asked.levels:
        return hits, []
    from ragmem.memory.found import search_memories

    memories = await search_memories(
        opened.memory,
        asked.text,
        open_store=opened.store,
        scope=scope,
        session=session,
        semantic=asked.semantic,
        limit=asked.limit,
    )
    return hits, memories


def _print(
    hits: "list[Hit]",
    memories: "list[FactHit]",
    *,
    limit: int,
    output: Literal["table", "json"],
    floor: float | None,
) -> None:
    from ragmem.memory.found import merged, nearest

    if output == "json":
        found = merged(hits, memories, limit)
        write_json(to_json([_document(hit) for hit in found]))
        return
    found, none_close = nearest(hits, memories, floor=floor, limit=limit)
    if not found:
        say("Nothing was found.\n")
        return
    say(f"{none_close}\n" if none_close else "")
    write(hits_text(found, width=get_terminal_size((120, 24)).columns))


def _document(hit: "Hit | FactHit") -> HitDocument:
    from ragmem.memory.hits import Hit

    return hit_document(hit) if isinstance(hit, Hit) else memory_hit_document(hit)


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


def hits_text(hits: "Sequence[Hit | FactHit]", *, width: int) -> str:
    """For people: where each stands, what it says, why it was found."""
    from ragmem.memory.found import memory_facts, memory_rows
    from ragmem.memory.hits import Hit

    now = datetime.now(UTC)
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for hit in hits:
        if isinstance(hit, Hit):
            lines += flowing(hit.facts(now), width)
            lines += [f"  {clip_to_width(visible(said), width - 2)}" for said in hit.quotes()]
        else:
            lines += flowing(memory_facts(hit, now), width)
            lines += memory_rows(hit, width)
        lines.append("")
    return "\n".join(lines)
