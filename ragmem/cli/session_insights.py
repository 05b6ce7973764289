"""`ragmem sessions insights`: what the latest sessions were about, and what they leave to do."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ragmem.cli.choice import session_name
from ragmem.cli.documents import SessionDocument, session_document, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Model
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.session_arguments import TextOrJson
from ragmem.cli.streams import say, write, write_json
from ragmem.cli.transfer_progress import progress
from ragmem.errors import EXIT_DONE, EXIT_FAILED, UsageError
from ragmem.ids import short_id
from ragmem.records import Insight, Session
from ragmem.text import ago, counted, hanging, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App
    from ragmem.memory.insights import Look

_NARROWEST = 20
Found = tuple[Session, Insight]


class InsightDocument(SessionDocument, frozen=True, kw_only=True):
    """What was found in a session."""

    main_topic: str
    key_findings: tuple[str, ...]
    action_items: tuple[str, ...]
    created_at: datetime


def insights(
    last: Annotated[
        int, typer.Option("--last", min=1, max=1000, metavar="N", help="The latest so many.")
    ] = 50,
    model: Model = None,
    output: TextOrJson = "text",
) -> None:
    """Look over the latest sessions: what each was about, what was found, what is left to do.

    Asks the model for summaries once for each session, of every folder; one that did
    not go on since is not asked about again.
    """
    config, paths = settings()

    async def main(_: Interruption) -> int:
        from ragmem.memory.insights import look

        failed = 0
        async with open_app(config, paths) as opened:
            seen = await look(await opened.store(), last=last)
            found = list(seen.known)
            if seen.waiting:
                made = await _ask(opened, seen, model or "")
                failed = len(seen.waiting) - len(made)
                found += made
        found.sort(key=lambda each: each[0].last_activity_at, reverse=True)
        if output == "json":
            write_json(to_json([_document(*each) for each in found]))
        elif found:
            write(insights_text(found, datetime.now(UTC), get_terminal_size((120, 24)).columns))
        else:
            say("There is nothing to look over yet.\n" if not failed else "")
        return EXIT_FAILED if failed and not found else EXIT_DONE

    raise typer.Exit(run_async(main))


async def _ask(opened: "App", seen: "Look", model: str) -> list[Found]:
    """One call a session, each stored at once: what was made stays when this is stopped."""
    from ragmem.background import summarizer, summary_model
    from ragmem.memory.insights import insight_into, insight_item
    from ragmem.memory.summaries.attempts import TRIES
    from ragmem.memory.summaries.summarizer import is_too_small

    config, paths = opened.config, opened.paths
    llm = summary_model(config, paths, flag=model)
    if llm is None or is_too_small(llm.info):
        return _unasked(seen, llm.info.name if llm else "")
    asking = summarizer(llm, config.memory.summaries, paths, opened.metrics, opened.store)
    store = await opened.store()
    known = f", {len(seen.known):,} known already" if seen.known else ""
    say(f"Asking {visible(llm.info.name)} about {counted(len(seen.waiting), 'session')}{known}.\n")
    made: list[Found] = []
    why = ""
    try:
        with progress(len(seen.waiting)) as show:
            for session in seen.waiting:
                insight = await insight_into(store, asking, session, opened.memory.record)
                if insight is not None:
                    made.append((session, insight))
                else:
                    given_up = await store.attempts(insight_item(session), least=TRIES)
                    for tried in given_up:
                        why = f"{tried.problem} {tried.model} is not asked again: name another, -m."
                    why = why if given_up else asking.spent(session.session_id).problem or why
                show("reading", 1)
    except asyncio.CancelledError:
        say("Stopped. What was found so far is kept; run it again to go on.\n")
        raise
    finally:
        await llm.aclose()
    if missing := len(seen.waiting) - len(made):
        reason = one_line(why, 300) or "its limits are reached, or the model is too small"
        say(f"Nothing came of {counted(missing, 'session')}: {reason}\n")
    return made


def _unasked(seen: "Look", name: str) -> list[Found]:
    """What is known is shown all the same."""
    problem = f"{name} is too small for this." if name else "There is no model that could be asked."
    hint = "Name one with -m, or set model.summary; `ragmem models` shows them."
    if not seen.known:
        raise UsageError(problem, hint=hint)
    say(f"{counted(len(seen.waiting), 'session')} not looked at: {problem} {hint}\n")
    return []


def insights_text(found: Sequence[Found], now: datetime, width: int) -> str:
    """A session a paragraph: findings with a dash, what is left to do with a box."""
    width = max(_NARROWEST, width)
    lines: list[str] = []
    for session, insight in found:
        when = f"{counted(session.turn_count, 'turn')} · {ago(session.last_activity_at, now)}"
        head = f"{session_name(session)} · {when}"
        lines += hanging(f"{short_id(session.session_id)}  ", head, width)
        lines += hanging("  ", visible(insight.main_topic), width)
        lines += [
            row for each in insight.key_findings for row in hanging("  - ", visible(each), width)
        ]
        lines += [
            row for each in insight.action_items for row in hanging("  ☐ ", visible(each), width)
        ]
        lines.append("")
    return "\n".join(lines)


def _document(session: Session, insight: Insight) -> InsightDocument:
    return InsightDocument(
        **msgspec.structs.asdict(session_document(session)),
        main_topic=insight.main_topic,
        key_findings=insight.key_findings,
        action_items=insight.action_items,
        created_at=insight.created_at,
    )
