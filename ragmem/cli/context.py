"""`ragmem context`: exactly what would be sent with a prompt, and why."""

from typing import TYPE_CHECKING, Annotated

from ragmem.cli.command import (
    Continue,
    Model,
    Resume,
    TextFormat,
    argument,
    check_session_flags,
    choose_session,
    command,
    commands,
    open_app,
    option,
)
from ragmem.cli.output import columns, say, to_json, typed, write, write_json
from ragmem.errors import UsageError
from ragmem.listings import Document, document, table, text_block, tool_result_block, tool_use_block
from ragmem.memory.context import Context, Strategy
from ragmem.messages import ImagePart, Json, Part, TextPart, ToolAnswer, ToolUse
from ragmem.text import bar, visible
from ragmem.tools.base import deny_all

if TYPE_CHECKING:
    from ragmem.app import App

app = commands()

_BAR = 10
_WIDTH = 140


@command(app, open_app)
async def context(
    opened: "App",
    prompt: Annotated[str, argument("PROMPT", "The prompt.")],
    continue_last: Continue = False,
    resume: Resume = None,
    strategy: Annotated[
        Strategy,
        option("--strategy", "recent: the latest turns; relevant: what bears on it; hybrid: both."),
    ] = "hybrid",
    model: Model = None,
    output: TextFormat = "text",
) -> None:
    """Show exactly what `ask` would send, with budgets and reasons.

    Nothing is sent and nothing is stored.
    """
    check_session_flags(continue_last=continue_last, resume=resume, fork=False)
    prompt = typed(prompt)
    if not prompt.strip():
        raise UsageError("The prompt is empty.")

    from ragmem.app import Options

    session = await choose_session(opened, continue_last=continue_last, resume=resume)
    agent = await opened.agent(session, Options(model=model or ""), deny_all)
    try:
        built = await agent.context(prompt, strategy=strategy)
    finally:
        await agent.aclose()
    if output == "json":
        write_json(to_json(context_document(session.session_id, built)))
    else:
        say(budgets_table(built, width=columns(_WIDTH)) + "\n")
        write(visible(built.text()) + "\n")


def budgets_table(built: Context, *, width: int = _WIDTH) -> str:
    """Sections with their sizes, budgets and what was left out."""
    rows = []
    for section in built.sections:
        budget = f"{section.budget:,}" if section.budget else "-"
        whys = dict.fromkeys(item.why for item in section.items)
        rows.append(
            (
                section.name,
                f"{section.chars:,}",
                budget,
                bar(section.chars, section.budget, _BAR) if section.budget else "",
                str(len(section.items)),
                str(section.dropped),
                "; ".join(whys),
            )
        )
    total = sum(section.chars for section in built.sections)
    full = bar(total, built.max_chars, _BAR)
    rows.append(
        ("total", f"{total:,}", f"{built.max_chars:,}", full, "", "", f"~{built.tokens:,} tokens")
    )
    head = ("SECTION", "CHARS", "BUDGET", "FILLED", "ITEMS", "DROPPED", "WHY")
    note = "The store could not answer: pruned history stands in.\n" if built.fallback else ""
    return note + table(head, rows, width=width)


def context_document(session_id: str, built: Context) -> Document:
    """The request as one document; messages as the blocks that providers share."""
    return document(
        "session_id max_chars tokens fallback sections messages",
        built,
        session_id=session_id,
        sections=[
            document(
                "name chars budget items dropped",
                section,
                items=[
                    document("id label chars score why", item, id=item.record_id or None)
                    for item in section.items
                ],
            )
            for section in built.sections
        ],
        messages=[
            {"role": message.role, "content": [_block(part) for part in message.parts]}
            for message in built.messages
        ],
    )


def _block(part: Part) -> dict[str, Json]:
    match part:
        case TextPart(text):
            return text_block(text)
        case ImagePart(media_type):
            return {"type": "image", "media_type": media_type, "bytes": len(part.data)}
        case ToolUse(tool_use_id, name, arguments):
            return tool_use_block(tool_use_id, name, arguments)
        case ToolAnswer(tool_use_id, text, is_error):
            return tool_result_block(tool_use_id, text, is_error=is_error)
