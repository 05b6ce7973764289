"""`ragmem search`: what was said, found by its words and its meaning."""

from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ragmem.cli.choice import choose_session
from ragmem.cli.documents import Document, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Continue, Format, Resume, check_session_flags
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import say, typed, write, write_utf8
from ragmem.cli.table import clip_to_width, display_width
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.text import one_line, visible

if TYPE_CHECKING:
    from ragmem.memory.hits import Hit

app = typer.Typer(rich_markup_mode=None, add_completion=False)

ScopeName = Literal["session", "project", "all"]
_NARROWEST = 30


class HitDocument(Document, frozen=True, kw_only=True):
    """One thing that was found."""

    type: str
    id: str
    session_id: str
    turn_index: int | None
    level: int
    text: str
    path: str | None
    name: str | None
    start_line: int | None
    end_line: int | None
    score: float
    similarity: float | None
    timestamp: datetime
    why: str


@app.command()
def search(
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
    folder, or that of -r.
    """
    check_session_flags(continue_last=continue_last, resume=resume, fork=False)
    query = typed(query)
    if not query.strip():
        raise UsageError("There is nothing to look for.")
    wanted = _levels(levels)
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            session = None
            if scope == "session" or resume is not None:
                session = await choose_session(
                    opened, continue_last=continue_last or resume is None, resume=resume
                )
            hits = await opened.search(
                query,
                scope=scope or ("session" if session else None),
                session=session,
                levels=wanted,
                semantic=not no_semantic,
                max_results=limit,
            )
            for notice in [*opened.notices(), await opened.background.vectors_notice()]:
                if not notice:
                    continue
                say(f"note: {visible(notice)}\n")
        if output == "json":
            write_utf8(to_json([hit_document(hit) for hit in hits]))
        elif hits:
            from ragmem.memory.hits import worth_showing

            shown, none_close = worth_showing(hits, opened.memory.floor)
            say(f"{none_close}\n" if none_close else "")
            write(hits_text(shown, width=get_terminal_size((120, 24)).columns))
        else:
            say("Nothing was found.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


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


def hits_text(hits: "Sequence[Hit]", *, width: int) -> str:
    """For people: where each stands, what it says, why it was found."""
    now = datetime.now(UTC)
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for hit in hits:
        lines += _flow(hit.facts(now), width)
        lines += [f"  {clip_to_width(visible(said), width - 2)}" for said in hit.quotes()]
        lines.append("")
    return "\n".join(lines)


def _flow(parts: list[str], width: int) -> list[str]:
    """As many as fit on a line, the further ones indented below."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
        if lines[-1].strip() and display_width(longer) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] = longer
    return [clip_to_width(visible(line), width) for line in lines]


def hit_document(hit: "Hit") -> HitDocument:
    """As JSON; what belongs to code alone is null."""
    text = ""
    if hit.turn:
        text = f"User: {hit.turn.user_message}\nAssistant: {hit.turn.assistant_message}"
    elif hit.summary:
        text = hit.summary.text
    return HitDocument(
        type=hit.type,
        id=hit.record_id,
        session_id=hit.session_id,
        turn_index=hit.turn.turn_index if hit.turn else None,
        level=hit.level,
        text=text,
        path=None,
        name=None,
        start_line=None,
        end_line=None,
        score=hit.score,
        similarity=hit.similarity,
        timestamp=hit.at,
        why=hit.why,
    )
