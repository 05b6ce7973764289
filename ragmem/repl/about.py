"""What the chat tells of itself: what is going on, the settings, why nothing is compacted."""

import asyncio
import json

from rich.text import Text

from ragmem import __version__
from ragmem.config import keys, nearest
from ragmem.config.file import change, notes
from ragmem.errors import StoreError, UsageError
from ragmem.listings import folded
from ragmem.redact import redact
from ragmem.repl.output import columns, listing
from ragmem.repl.session import ChatSession
from ragmem.text import one_line, visible

_MODES = {
    "default": "asks before edits and commands",
    "acceptEdits": "edits are allowed, commands are asked for",
    "plan": "reads only",
    "bypassPermissions": "everything is allowed",
}


async def status(_: str, chat: ChatSession) -> None:
    """Show what answers, where all is kept, and what goes on."""
    app = chat.app
    effort = f", effort {chat.agent.effort}" if chat.agent.effort else ""
    name = "" if chat.called == chat.short_id else f"{one_line(chat.called, 80)} · "
    rows = [
        ("ragmem", __version__),
        ("model", f"{chat.agent.model}{effort}"),
        ("session", f"{name}{chat.short_id}"),
        ("folder", visible(str(app.cwd))),
        ("mode", _MODES[chat.options.permission_mode]),
        ("sandbox", visible(await asyncio.to_thread(app.sandbox.told))),
        ("memory", "is recorded" if app.memory.records else "nothing of this chat is kept"),
        ("store", await _store(chat)),
        ("vectors", app.background.embedder_model or "off: what is found is found by words"),
        ("background", app.background.doing or "nothing to do"),
    ]
    if chat.context_tokens:
        window = f" of {chat.agent.context_window:,}" if chat.agent.context_window else ""
        rows.append(("last request", f"{chat.context_tokens:,}{window} tokens"))
    chat.output.show(columns(rows))


async def _store(chat: ChatSession) -> str:
    try:
        found = await (await chat.app.store()).info()
    except StoreError as error:
        return f"away: {error}"
    return f"{found.kind} · {visible(found.location)}"


async def servers(_: str, chat: ChatSession) -> None:
    """Show the servers whose tools the agent may use, how each is, and what it has."""
    found = chat.app.servers.all if chat.app.servers else []
    if not found:
        chat.output.note("No servers are configured; docs/agents.md tells how: [mcp.servers.NAME].")
        return
    rows = []
    for server in found:
        tools = ", ".join(tool.name for tool in server.tools)
        rows.append((server.name, visible(server.state + (f": {tools}" if tools else ""))))
    chat.output.show(columns(rows))


async def compact(_: str, chat: ChatSession) -> None:
    """Say why there is nothing to compact."""
    said = (
        "There is nothing to compact: of a conversation of any length the newest turns go with "
        "each prompt, and of the rest what bears on it. Nothing is lost; /context shows what goes, "
        "/search finds the rest, /summarize sums this session up now."
    )
    if chat.context_tokens:
        said += f" The last request had {chat.context_tokens:,} tokens."
    chat.output.say(said)


async def settings(said: str, chat: ChatSession) -> None:
    """Run `/config [word]` and `/config key value`; a change holds from the next start on."""
    first, _, value = said.partition(" ")
    if first in keys() and value.strip():
        outranked = change(first, value.strip())
        chat.output.say(f"{first} = {value.strip()}, from the next start of ragmem on.")
        if outranked:
            chat.output.say(outranked, "warning")
        return
    about, now = notes(), _values(chat)
    word = said.casefold()
    found = [key for key in keys() if word in key.casefold() or word in about[key].casefold()]
    if not found:
        raise UsageError(f"No setting has to do with {one_line(said, 60)!r}.", hint=nearest(first))
    for key in found:
        at = now[key]
        differs = "" if at == _spelled(keys()[key]) else f"  (by default {_spelled(keys()[key])})"
        chat.output.show(Text.assemble((key, "bold"), " = ", at, (differs, "dim")), "notice")
        if word or len(found) == 1:
            rows = folded("    ", about[key], chat.output.width)
            chat.output.show(listing("\n".join(rows)), "notice")
    chat.output.note("/config key value changes one, /config word looks for it and says more.")


def _values(chat: ChatSession) -> dict[str, str]:
    """Each setting as it holds now, by its dotted key."""
    found = {}
    for key in keys():
        value: object = chat.app.config
        for name in key.split("."):
            value = getattr(value, name)
        found[key] = _spelled(value)
    return found


def _spelled(value: object) -> str:
    return visible(redact(json.dumps(value, ensure_ascii=False, default=str)))
