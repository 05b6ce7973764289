"""`/permissions`: show, add, move and remove permission rules in the chat."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from ragmem.config.file import change_rules
from ragmem.errors import RagmemError, UsageError
from ragmem.repl.about import MODES, sandbox
from ragmem.repl.output import columns
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import ChatQuestion, PickQuestion, PickRow
from ragmem.text import one_line
from ragmem.tools.permissions import OUTSIDE, read_rule

Kind = Literal["allow", "deny"]
PLACES = {"s": "in this session", "p": "in this project", "e": "in every folder"}
"""Where a rule applies, by the key that selects it."""
_KINDS: dict[Kind, str] = {"allow": "allowed", "deny": "denied"}
_VERBS: dict[str, tuple[Kind, str]] = {
    "allow": ("allow", "e"),
    "project": ("allow", "p"),
    "session": ("allow", "s"),
    "deny": ("deny", "e"),
}
_HOW = (
    "/permissions allow run_command(git status*) stops asking for it, in every folder. "
    "`project` allows it in this project, `session` in this session, `deny` always denies "
    "it, `remove` removes the rule."
)


class _Entry(msgspec.Struct, frozen=True):
    """A rule in effect, or something that the user has always allowed."""

    kind: Kind
    place: str
    text: str
    said_to: tuple[str, str] | None = None
    """What was always allowed, as a key of `PermissionRules.remembered`; None for a rule."""


async def permissions(said: str, chat: ChatSession) -> None:
    """Run `/permissions`, or with `allow`, `project`, `session`, `deny` or `remove` and a rule."""
    verb, _, text = said.partition(" ")
    text = text.strip()
    if not verb:
        rows = [("mode", MODES[chat.options.permission_mode][2]), ("sandbox", await sandbox(chat))]
        chat.output.show(columns(rows))
        return await _choose(chat)
    if verb not in (*_VERBS, "remove"):
        raise UsageError(f"Unknown: /permissions {one_line(verb, 40)!r}.", hint=_HOW)
    if not text:
        raise UsageError("No rule given.", hint=_HOW)
    if verb != "remove":
        keep_rules([_checked(text, chat)], chat, *_VERBS[verb])
        return None
    held = [each for each in _entries(chat) if each.text == text and each.said_to is None]
    if not held:
        raise UsageError(f"No rule {one_line(text, 80)!r}.", hint="/permissions lists the rules.")
    for each in held:
        _remove(each, chat)
    return chat.output.say(f"Rule removed: {text}")


def keep_rules(given: Sequence[str], chat: ChatSession, kind: Kind, place: str) -> str:
    """Put rules into effect, and return the key of the place where they apply.

    Rules of this session are not stored; neither is an allowed one that can't be stored.
    """
    told = ", ".join(given)
    try:
        _change(chat, kind, place, add=given)
    except RagmemError as error:
        if kind == "deny":
            raise
        _change(chat, kind, "s", add=given)
        chat.output.say(f"{error} It is allowed in this session only.", "warning")
        return "s"
    since = "" if place == "s" else " from now on,"
    chat.output.say(f"{_KINDS[kind].capitalize()}{since} {PLACES[place]}: {told}")
    if place != "s":
        chat.output.note(f"/permissions remove {given[0]} undoes it.")
    return place


def _checked(text: str, chat: ChatSession) -> str:
    """Return a valid rule stripped; raise UsageError if its tool does not exist."""
    rule = read_rule(text)
    known = (*chat.agent.tool_names, OUTSIDE)
    if rule.tool not in known:
        names = ", ".join(known)
        raise UsageError(f"No tool {one_line(rule.tool, 40)!r}.", hint=f"Available tools: {names}")
    return text.strip()


def _lists(chat: ChatSession) -> dict[tuple[Kind, str], list[str]]:
    """Return the lists of rules in effect, by kind and place."""
    rules = chat.agent.rules
    return {
        ("allow", "e"): rules.allow,
        ("allow", "p"): rules.allow_here,
        ("allow", "s"): rules.flags,
        ("deny", "e"): rules.deny,
        ("deny", "p"): rules.deny_here,
    }


def _change(
    chat: ChatSession, kind: Kind, place: str, *, add: Sequence[str] = (), remove: str = ""
) -> None:
    held = _lists(chat)[kind, place]
    if place == "s":
        kept = [each for each in held if each != remove]
        held[:] = [*kept, *(each for each in add if each not in kept)]
    else:
        project = chat.app.rules_folder if place == "p" else ""
        held[:] = change_rules(kind, project=project, add=add, remove=[remove])


def _entries(chat: ChatSession) -> list[_Entry]:
    rules = [_Entry(*at, text) for at, held in _lists(chat).items() for text in held]
    always = (
        _Entry("allow", "s", f"{label}: {one_line(what[1], 100)}", what)
        for what, label in chat.agent.rules.remembered.items()
    )
    return [*rules, *always]


def _remove(entry: _Entry, chat: ChatSession) -> None:
    if entry.said_to is None:
        _change(chat, entry.kind, entry.place, remove=entry.text)
    else:
        chat.agent.rules.remembered.pop(entry.said_to, None)


# --- the list to choose from ----------------------------------------------------

_NEW: dict[Kind, str] = {
    "allow": "Allow something without asking …",
    "deny": "Deny something, always …",
}
_WHICH = "Rule, such as run_command(git status*), edit_file(src/**) or run_command:"


async def _choose(chat: ChatSession) -> None:
    """Let the user add, remove and move rules, until they leave the list."""
    while True:
        entries = _entries(chat)
        rows = [
            PickRow(key=str(at), text=each.text, facts=(_KINDS[each.kind], PLACES[each.place]))
            for at, each in enumerate(entries)
        ]
        rows += [PickRow(key=kind, text=text) for kind, text in _NEW.items()]
        picked = await chat.output.terminal.pick(PickQuestion(title="Permissions", rows=rows))
        if picked is None:
            return
        if kind := next((each for each in _NEW if each == picked), None):
            await _add(kind, chat)
        else:
            await _put_elsewhere(entries[int(picked)], chat)


async def _add(kind: Kind, chat: ChatSession) -> None:
    text = await chat.output.terminal.ask(ChatQuestion(_WHICH)) or ""
    if not text.strip():
        return
    rule = _checked(text, chat)
    places = tuple(each for each in PLACES.items() if kind == "allow" or each[0] != "s")
    label = f"Where is {one_line(rule, 80)} {_KINDS[kind]}?"
    if place := await chat.output.terminal.ask(ChatQuestion(label, places)):
        keep_rules([rule], chat, kind, place)


async def _put_elsewhere(entry: _Entry, chat: ChatSession) -> None:
    """Ask whether to remove a rule or to move it to another place."""
    others = [
        (key, word)
        for key, word in PLACES.items()
        if entry.said_to is None and key != entry.place and (key != "s" or entry.kind == "allow")
    ]
    label = f"{one_line(entry.text, 80)} is {_KINDS[entry.kind]} {PLACES[entry.place]}."
    answer = await chat.output.terminal.ask(ChatQuestion(label, (("r", "remove it"), *others)))
    if answer is None:
        return
    if answer == "r":
        _remove(entry, chat)
        chat.output.say(f"Rule removed: {one_line(entry.text, 100)}")
    # Add it there before removing it here, so that a denial stays in effect throughout.
    elif keep_rules([entry.text], chat, entry.kind, answer) != entry.place:
        _remove(entry, chat)
