"""The chat's own state: status line, window title, settings, jobs and MCP servers."""

import asyncio
import json
import re
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from ragmem import __version__
from ragmem.config import PermissionMode, choices, keys, nearest
from ragmem.config.file import DEFAULT, OWN_FILE, change, notes, settings_held
from ragmem.errors import StoreError, UsageError
from ragmem.listings import folded
from ragmem.redact import redact
from ragmem.repl.choices import THEMES, theme_question
from ragmem.repl.early import sign
from ragmem.repl.output import Gutter, columns, listing, wrap
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import Line, PickQuestion, PickRow
from ragmem.text import clip_to_width, counted, display_width, in_short, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App

MODES: dict[PermissionMode, tuple[str, str, str, str]] = {
    "default": ("", "", "asks before edits and commands", ""),
    "acceptEdits": (
        "warning", "edits allowed", "makes edits without asking, asks before commands", "edits ok"
    ),
    "plan": ("plan", "plan: read-only", "reads only", "plan"),
    "bypassPermissions": (
        "danger", "everything allowed", "never asks", "all allowed"
    ),
}  # fmt: skip
"""Each mode's style, its name in the status line (the default has none), what it does, and its
short name for narrow terminals."""
_VALUE_CHARS, _PREVIEW_MARGIN = 15, 6
_JOB_LINES = 200
"""The last lines of a job's output that `/jobs` shows."""


async def jobs(said: str, chat: ChatSession) -> None:
    """Run `/jobs`, `/jobs 1` and `/jobs stop 1`."""
    held, output = chat.app.jobs, chat.output
    words = said.split()
    if not words:
        if not held.all:
            return output.note("No background jobs in this chat.")
        for job in held.all:
            mark, style = ("●", "bold") if job.is_running else ("✓", "green")
            if not job.is_running and job.exit_code != 0:
                mark, style = ("■", "dim") if job.stop.is_set() else ("✗", "red")
            row = Text.assemble((f"{mark} ", style), visible(job.title), (f"  {job.state}", "dim"))
            output.show(row, "notice")
        if any(job.is_alone for job in held.running):
            output.note(chat.app.sandbox.keeps_ports)
        return output.note("/jobs 1 shows the output of job 1, /jobs stop 1 stops it.")
    number = words[-1]
    found = held.find(int(number)) if number.isdecimal() else None
    if words[:-1] not in ([], ["stop"]) or not number.isdecimal():
        raise UsageError(
            "Unknown job.",
            hint="Usage: /jobs lists them, /jobs 1 shows one, /jobs stop 1 stops it.",
        )
    if found is None:
        raise UsageError(f"No job {one_line(number, 20)}.", hint="/jobs lists them.")
    if words[0] == "stop":
        await held.stop(found)
    else:
        lines = visible(found.tail()).rstrip("\n").split("\n")
        lines = [*["…"] * (len(lines) > _JOB_LINES), *lines[-_JOB_LINES:]]
        output.show(Gutter("\n".join(lines), mark="  "))  # the margin tells it from the chat's own
    output.say(f"{found.title}: {found.state}")


async def status(_: str, chat: ChatSession) -> None:
    """Run `/status`: show model, session, mode, sandbox, store and background work."""
    app = chat.app
    effort = f", effort {chat.agent.effort}" if chat.agent.effort else ""
    name = f"{one_line(chat.called, 80)} · " if chat.is_named else ""
    recorded, stored = await kept(app)
    rows = [
        ("ragmem", __version__),
        ("model", f"{chat.agent.model}{effort}"),
        ("session", f"{name}{chat.short_id}"),
        ("folder", visible(str(app.cwd))),
        ("mode", MODES[chat.options.permission_mode][2]),
        ("sandbox", await sandbox(chat)),
        ("memory", recorded),
        ("store", stored),
        ("embeddings", app.background.embedder_model or "off: search matches words only"),
        ("background", app.background.doing or "idle"),
    ]
    if chat.context_tokens:
        window = f" of {chat.agent.context_window:,}" if chat.agent.context_window else ""
        rows.append(("last request", f"{chat.context_tokens:,}{window} tokens"))
    chat.output.show(columns(rows))


async def sandbox(chat: ChatSession) -> str:
    """Return a description of the sandbox in which commands run."""
    return visible(await asyncio.to_thread(chat.app.sandbox.describe))


async def kept(app: "App") -> tuple[str, str]:
    """Return whether this chat is recorded, and which store is used."""
    try:
        found = await (await app.store()).info()
    except StoreError as error:
        where, recorded = f"unavailable: {error}", "unavailable"
    else:
        why = app.why_away()
        where = f"{found.kind} · {visible(found.location)}"
        recorded = f"unavailable: {visible(why)}" if why else "on"
    return recorded if app.memory.records else "off: nothing in this chat is stored", where


async def servers(_: str, chat: ChatSession) -> None:
    """Run `/mcp`: show the MCP servers with their states and tools."""
    rows = []
    for server in chat.app.servers.all if chat.app.servers else ():
        tools = ", ".join(tool.name for tool in server.tools)
        rows.append((server.name, visible(server.state + (f": {tools}" if tools else ""))))
    if rows:
        return chat.output.show(columns(rows))
    return chat.output.note(
        "No MCP servers configured. To add one, write a table [mcp.servers.NAME] with its "
        "`command` or `url` to the file that `ragmem config path` names."
    )


async def compact(_: str, chat: ChatSession) -> None:
    """Run `/compact`: explain why compacting is not needed."""
    said = (
        "No need to compact: however long the conversation, each request has only its newest "
        "turns and what is relevant of the rest. Nothing is lost: /context shows what is sent, "
        "/search finds everything, /summarize writes a summary now."
    )
    if chat.context_tokens:
        said += f" The last request was {chat.context_tokens:,} tokens."
    chat.output.say(said)


async def settings(said: str, chat: ChatSession) -> None:
    """Run `/config [word]` and `/config key value`; a change takes effect at the next start."""
    if not said:
        return await _choose_settings(chat)
    first, _, value = said.partition(" ")
    if first in keys() and value.strip():
        return _keep_setting(first, value.strip(), chat)
    about, word = notes(), said.casefold()
    told = {key: " ".join((key, about[key], *choices(key))).casefold() for key in keys()}
    begins = re.compile(rf"(?<![^\W_]){re.escape(word)}")  # `vi` should not match `provider`
    found = [key for key in told if begins.search(told[key])]
    found = found or [key for key in told if word in told[key]]
    if not found:
        raise UsageError(f"No setting matches {one_line(said, 60)!r}.", hint=nearest(first))
    for key in found:
        _tell_setting(key, about[key], chat)
    return chat.output.note("/config KEY VALUE changes a setting, /config WORD searches settings.")


def _tell_setting(key: str, about: str, chat: ChatSession) -> None:
    at, usual = _values(chat)[key], _spelled(keys()[key])
    differs = "" if at == usual else f"  (default: {usual})"
    chat.output.show(Text.assemble((key, "bold"), " = ", at, (differs, "dim")), "notice")
    rows = folded("    ", about, chat.output.width)
    chat.output.show(listing("\n".join(rows)), "notice")


def _keep_setting(key: str, value: str, chat: ChatSession) -> None:
    outranked = change(key, value)
    chat.output.say(f"{key} = {value}, from the next start of ragmem.")
    if outranked:
        chat.output.say(outranked, "warning")


async def _choose_settings(chat: ChatSession) -> None:
    """Let the user view and change settings, until they leave the list or have to type a value."""
    about, terminal, picked = notes(), chat.output.terminal, ""
    width = max(1, chat.output.width - _PREVIEW_MARGIN)

    async def preview(key: str) -> list[str]:
        return wrap(" ".join(about[key if key in about else picked].split()), width)

    while True:
        held, now = settings_held(), _values(chat)
        rows = [
            PickRow(
                key=key,
                text=key,
                facts=_held(*held[key], now[key]),
                also=about[key],
                is_current=key == picked,
            )
            for key in keys()
        ]
        question = PickQuestion(title="Settings", rows=rows, preview=preview)
        picked = await terminal.pick(question) or ""
        if not picked:
            return
        if picked == "ui.theme":
            await theme("", chat)
        elif may_be := choices(picked):
            value = _spelled(held[picked][0]).strip('"')
            rows = [PickRow(key=each, text=each, is_current=each == value) for each in may_be]
            question = PickQuestion(title=picked, rows=rows, preview=preview)
            if chosen := await terminal.pick(question):
                _keep_setting(picked, chosen, chat)
        else:
            _tell_setting(picked, about[picked], chat)
            return terminal.put_back(f"/config {picked} ")


def _held(value: object, place: str, now: str) -> tuple[str, str]:
    """Return a setting's current value and its origin, and the value after a restart if different.

    A value that comes from neither the file nor a variable comes from the command line.
    """
    will_be = _spelled(value)
    if place not in (OWN_FILE, DEFAULT):
        place = "environment"
    if now != will_be and place == OWN_FILE:
        now = f"{now} {sign('→', '->')} {will_be}"
    elif now != will_be:
        place = "command line"
    return one_line(now, _VALUE_CHARS), place


async def theme(name: str, chat: ChatSession) -> None:
    """Run `/theme [name]`: switch to a theme at once, and store the choice."""
    output = chat.output
    before = output.colors.name
    if not name:
        name = await output.terminal.pick(theme_question(before, output.choose_theme)) or ""
        output.choose_theme(before)
        if not name:
            return
    chosen = next((each for each in THEMES if each == name), None)
    if chosen is None:
        hint = f"Available themes: {', '.join(THEMES)}."
        raise UsageError(f"Unknown theme: {one_line(name, 40)!r}.", hint=hint)
    outranked = change("ui.theme", chosen)
    shows = output.choose_theme(chosen)
    output.say(f"ui.theme = {chosen}" + ("" if shows else ", from the next start of ragmem."))
    if outranked:
        output.say(outranked, "warning")


def _values(chat: ChatSession) -> dict[str, str]:
    """Return the current value of each setting by its dotted key."""
    found = {}
    for key in keys():
        value: object = chat.app.config
        for name in key.split("."):
            value = getattr(value, name)
        found[key] = _spelled(value)
    return found


def _spelled(value: object) -> str:
    return visible(redact(json.dumps(value, ensure_ascii=False, default=str)))


# --- the status line below the prompt ----------------------------------------

BAR_CELLS = 10
_NAME_CELLS, _SHORT_NAME_CELLS = 30, 12
_BESIDES = 9
"""Pieces of this rank or higher are left out before any piece is shortened."""
_FULL, _NEARLY_FULL = 0.9, 0.75
_CENT, _LEAST_USD = 0.1, 0.001
CYCLE: tuple[PermissionMode, ...] = ("default", "acceptEdits", "plan")
"""The modes that Shift-Tab cycles through, without the one that allows everything."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the status line shows."""

    model: str
    session: str
    """The session's name, or its short id if it has none."""
    is_named: bool = True
    mode: PermissionMode = "default"
    always_count: int = 0
    """How many things the user has always allowed in this session."""
    tokens: int = 0
    """Tokens of the last request and its answer; 0 before the first."""
    window: int | None = None
    """The model's context window, in tokens."""
    cost_usd: float | None = None
    """Cost of the session with its background work; None if a price is unknown."""
    doing: str = ""
    """The current background work."""
    jobs: int = 0
    """Number of commands running in the background."""
    keeps: bool = True
    """Whether the session is stored."""
    sandboxed: bool | None = None
    """Whether commands run in a sandbox; None until that is known."""
    branch: str = ""
    """The folder's Git branch."""


class _Piece(msgspec.Struct, frozen=True):
    """A part of the status line; those with the highest `rank` are left out first."""

    rank: int
    style: str
    text: str
    short: str = ""
    """A shorter form, if there is one."""
    right: bool = False


def toolbar(status: Status, columns: int) -> Line:
    """Return the status line within `columns`: model, session and mode left, usage right.

    Pieces are shortened before one that matters is left out.
    """
    shown = [*_left(status), *_right(status, columns)]
    while True:
        ranked = sorted(shown, key=lambda piece: -piece.rank)
        matters = ranked[0].rank < _BESIDES
        can_give = [piece for piece in ranked if piece.short] if matters else []
        for count in range(len(can_give) + 1):
            row = _row(shown, can_give[:count], columns)
            if _cells(row) <= columns:
                return tuple(row)
        if len(shown) == 1:
            return (("dim", clip_to_width("".join(text for _, text in row), columns)),)
        shown.remove(ranked[0])


def _row(shown: list[_Piece], given: list[_Piece], columns: int) -> list[tuple[str, str]]:
    left: list[tuple[str, str]] = []
    right: list[tuple[str, str]] = []
    for piece in shown:
        side = right if piece.right else left
        if side:
            side.append(("dim", " " if side[-1][1][0] in "▓░" else " · "))
        side.append((piece.style, piece.short if piece in given else piece.text))
    row = [("dim", "  "), *left]
    if right:
        gap = columns - _cells(row) - _cells(right) - 1
        row += [("", " " * max(1 + bool(left), gap)), *right]
    return row


def next_mode(mode: PermissionMode) -> PermissionMode:
    """Return the mode that follows when cycling through the modes."""
    at = CYCLE.index(mode) if mode in CYCLE else -1
    return CYCLE[(at + 1) % len(CYCLE)]


def dollars(cost_usd: float) -> str:
    """Format an amount, with two decimals from 10 cents on, with three below."""
    if 0 < cost_usd < _LEAST_USD:
        return f"<${_LEAST_USD}"
    return f"${cost_usd:.2f}" if cost_usd >= _CENT or not cost_usd else f"${cost_usd:.3f}"


def _left(status: Status) -> list[_Piece]:
    style, mode, _, short = MODES[status.mode]
    model, session, branch = map(visible, (status.model, status.session, status.branch))
    pieces = [
        _Piece(4, "dim", model, model.rpartition("/")[2]),
        _Piece(8 if status.is_named else _BESIDES, "dim", *_names(session)),
        _Piece(0, style, mode, short),
    ]
    if not status.keeps:
        pieces.append(_Piece(3, "warning", "not stored", "not stored"))
    if status.always_count:
        few = f"{status.always_count} always"
        pieces.append(_Piece(3, "warning", f"{status.always_count} allowed always", few))
    if status.jobs:
        pieces.append(_Piece(5, "dim", counted(status.jobs, "job")))
    pieces.append(_Piece(6, "dim", *_names(branch)))
    if status.sandboxed:
        pieces.append(_Piece(_BESIDES + 3, "dim", "sandbox"))
    elif status.sandboxed is not None:
        pieces.append(_Piece(1, "warning", "no sandbox"))
    return [piece for piece in pieces if piece.text]


def _names(name: str) -> tuple[str, str]:
    """Return a name clipped to its normal and to its short length."""
    return clip_to_width(name, _NAME_CELLS), clip_to_width(name, _SHORT_NAME_CELLS)


_WIDE = 60
"""From this width on, the number of tokens is labelled."""


def _right(status: Status, columns: int) -> list[_Piece]:
    told: list[tuple[int, str, str]] = []
    if status.tokens and status.window:
        share = min(1.0, status.tokens / status.window)
        style = "danger" if share >= _FULL else "warning" if share >= _NEARLY_FULL else "dim"
        filled = max(1, round(share * BAR_CELLS))
        bar = "▓" * filled + "░" * (BAR_CELLS - filled)
        told += [(_BESIDES + 1, style, bar), (2, style, f"{share * 100:.0f}%")]
    elif status.tokens:
        of_what = "context " if columns >= _WIDE else ""
        told.append((2, "dim", f"{of_what}{in_short(status.tokens)} tokens"))
    if status.cost_usd:
        told.append((7, "dim", dollars(status.cost_usd)))
    if status.doing:
        told.append((_BESIDES + 2, "dim", f"⟳ {visible(status.doing)}"))
    return [_Piece(*each, right=True) for each in told]


def _cells(row: list[tuple[str, str]]) -> int:
    return sum(display_width(text) for _, text in row)
