"""What the chat tells of itself: what is going on, the settings, why nothing is compacted."""

import asyncio
import json
from collections.abc import Sequence

from rich.text import Text

from ragmem import __version__
from ragmem.config import keys, nearest
from ragmem.config.file import change, change_list, notes
from ragmem.errors import ConfigError, StoreError, UsageError
from ragmem.listings import folded
from ragmem.redact import redact
from ragmem.repl.output import columns, listing
from ragmem.repl.session import ChatSession
from ragmem.text import one_line, visible
from ragmem.tools.patterns import read_rule

_MODES = {
    "default": "asks before edits and commands",
    "acceptEdits": "edits are allowed, commands are asked for",
    "plan": "reads only",
    "bypassPermissions": "everything is allowed",
}


async def jobs(said: str, chat: ChatSession) -> None:
    """Run `/jobs`, `/jobs 1` and `/jobs stop 1`."""
    held, output = chat.app.jobs, chat.output
    words = said.split()
    if not words:
        if not held.all:
            return output.note("Nothing was started in the background in this chat.")
        for job in held.all:
            mark, style = ("●", "bold") if job.is_running else ("✓", "green")
            if not job.is_running and job.exit_code != 0:
                mark, style = "✗", "red"
            row = Text.assemble((f"{mark} ", style), visible(job.title), (f"  {job.state}", "dim"))
            output.show(row, "notice")
        if any(job.is_alone for job in held.running):
            output.note(chat.app.sandbox.keeps_ports)
        return output.note("/jobs 1 shows what the first wrote, /jobs stop 1 ends it.")
    number = words[-1]
    found = held.find(int(number)) if number.isdecimal() else None
    if found is None or words[:-1] not in ([], ["stop"]):
        raise UsageError("Which job?", hint="/jobs lists them, /jobs 1 shows one, /jobs stop 1.")
    if words[0] == "stop":
        await held.stop(found)
    else:
        output.show(Text(visible(found.tail()).rstrip("\n")))
    output.say(f"{found.title}: {found.state}")


_VERBS = ("allow", "deny", "session", "remove")
_HOW = (
    "/permissions allow run_command(git status*) asks no more for that, in every folder; deny "
    "instead never lets it be done, session allows it here alone, remove takes a rule back."
)


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
        ("sandbox", await _sandbox(chat)),
        ("memory", "is recorded" if app.memory.records else "nothing of this chat is kept"),
        ("store", await _store(chat)),
        ("vectors", app.background.embedder_model or "off: what is found is found by words"),
        ("background", app.background.doing or "nothing to do"),
    ]
    if chat.context_tokens:
        window = f" of {chat.agent.context_window:,}" if chat.agent.context_window else ""
        rows.append(("last request", f"{chat.context_tokens:,}{window} tokens"))
    chat.output.show(columns(rows))


async def _sandbox(chat: ChatSession) -> str:
    return visible(await asyncio.to_thread(chat.app.sandbox.told))


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


async def permissions(said: str, chat: ChatSession) -> None:
    """Run `/permissions`, and with `allow`, `deny`, `session` or `remove` and a rule change it."""
    verb, _, text = said.partition(" ")
    rules, text = chat.agent.rules, text.strip()
    if not verb:
        return await _show_rules(chat)
    if verb not in _VERBS or not text:
        raise UsageError("What about it?", hint=_HOW)
    if verb == "remove":
        return _remove(text, chat)
    rule = read_rule(text)
    if rule.tool not in chat.agent.tool_names:
        names = ", ".join(chat.agent.tool_names)
        raise UsageError(f"There is no tool {one_line(rule.tool, 40)!r}.", hint=f"There is {names}")
    if verb == "session":
        rules.flags.append(text)
        chat.output.say(f"Allowed in this session: {text}")
    elif verb == "deny":
        rules.deny[:] = change_list("permissions.deny", add=[text])
        chat.output.say(f"Denied from now on, in every folder: {text}")
    else:
        keep_rules([text], chat)


def keep_rules(given: Sequence[str], chat: ChatSession) -> None:
    """Allow what they say for good, or for this session where the settings can't be written."""
    try:
        chat.agent.rules.allow[:] = change_list("permissions.allow", add=given)
    except ConfigError as error:
        chat.agent.rules.flags += given
        chat.output.say(f"{error} It is allowed in this session alone.", "warning")
    else:
        chat.output.say(f"Allowed from now on, in every folder: {', '.join(given)}")
        chat.output.note(f"/permissions remove {given[0]} takes it back.")


def _remove(text: str, chat: ChatSession) -> None:
    rules = chat.agent.rules
    if text not in (*rules.allow, *rules.deny, *rules.flags):
        raise UsageError(
            f"There is no rule {one_line(text, 80)!r}.", hint="/permissions lists them."
        )
    for key, held in (("permissions.allow", rules.allow), ("permissions.deny", rules.deny)):
        if text in held:
            held[:] = change_list(key, remove=[text])
    rules.flags[:] = [each for each in rules.flags if each != text]
    chat.output.say(f"No rule any more: {text}")


async def _show_rules(chat: ChatSession) -> None:
    rules = chat.agent.rules
    rows = [("mode", _MODES[chat.options.permission_mode]), ("sandbox", await _sandbox(chat))]
    for label, held in (
        ("allowed for good", rules.allow),
        ("denied for good", rules.deny),
        ("in this session", [*rules.flags, *_said_always(chat)]),
    ):
        rows += [(label if not i else "", visible(each)) for i, each in enumerate(held)]
    chat.output.show(columns(rows))
    chat.output.note(_HOW)


def _said_always(chat: ChatSession) -> list[str]:
    """Return what "always" was said to, in the words of the question."""
    held = chat.agent.rules.remembered.items()
    return [f"{label}: {one_line(exact, 100)}" for (_, exact), label in held]


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
