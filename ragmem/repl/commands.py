"""Slash commands."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ragmem.errors import RagmemError, SessionNotFound
from ragmem.ids import short_id
from ragmem.memory.context import Context
from ragmem.memory.hits import Hit, worth_showing
from ragmem.memory.projects import folder_name
from ragmem.records import DEFAULT_TITLE, AccessType, FileAccess, Session, Usage
from ragmem.repl.page import Page
from ragmem.repl.render import failure, spent
from ragmem.repl.talk import Talk
from ragmem.repl.terminal import Question
from ragmem.store.base import SessionQuery
from ragmem.text import ago, bar, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App

Then = Literal["", "exit", "session"]
"""What the chat is to do after a command."""

COMMANDS = {
    "help": "what can be typed here",
    "new": "start a new session",
    "sessions": "sessions of this folder",
    "resume": "go on in another session: /resume [id or name]",
    "files": "files this session has touched",
    "search": "what was said and done before: /search text",
    "summarize": "sum this session up now",
    "context": "what is sent with a prompt: /context [prompt]",
    "model": "which model answers: /model [provider/model]",
    "cost": "tokens and money spent",
    "exit": "leave",
}
_KEYS = (
    ("@path", "names a file; Tab completes"),
    ("Alt-Enter, \\ Enter", "adds a line"),
    ("Ctrl-R, Up", "earlier prompts"),
    ("Esc", "stops the answer, keeps what came"),
    ("Ctrl-C", "stops, then clears, then (twice) leaves"),
    ("Ctrl-D", "leaves"),
)
_GROUPS: tuple[tuple[AccessType, str], ...] = (
    ("write", "Modified"),
    ("read", "Read"),
    ("search", "Searched"),
    ("list", "Listed"),
)
_LISTED = 20
_BAR = 10


def is_command(text: str) -> bool:
    """Whether a prompt is a slash command; a path such as `/etc/hosts` is none."""
    head = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and "/" not in head[1:]


async def run_command(line: str, talk: Talk, page: Page) -> Then:
    """Run one and show its answer; mistakes become text."""
    name, *rest = line[1:].split(maxsplit=1) or [""]
    handler = _HANDLERS.get(name.lower())
    if handler is None:
        close = get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
        hint = f"Did you mean /{close[0]}?" if close else "/help lists them."
        page.show(failure(f"There is no command /{one_line(name, 40)}.", hint, page.width))
        return ""
    try:
        return await handler("".join(rest).strip(), talk, page)
    except RagmemError as error:
        page.show(failure(str(error), error.hint, page.width))
        return ""


async def pick_session(found: list[Session], page: Page, *, current: str = "") -> str | None:
    """Let the person choose one; None when they don't."""
    page.show(session_list(found, page.width, current=current))
    said = await page.ask(Question("Which one? A number or an id; nothing for none:"))
    said = (said or "").strip()
    if said.isdecimal() and 1 <= int(said) <= len(found):
        return found[int(said) - 1].session_id
    return said or None


async def sessions_here(app: "App") -> list[Session]:
    """Those of the folder, newest first."""
    return await app.memory.sessions(SessionQuery(cwd=folder_name(app.cwd), limit=_LISTED))


# --- the commands -------------------------------------------------------------


async def _help(_: str, __: Talk, page: Page) -> Then:
    rows = [(f"/{name}", text) for name, text in COMMANDS.items()]
    page.show(Group(_columns(rows), Text(), _columns(_KEYS)))
    return ""


async def _new(_: str, talk: Talk, __: Page) -> Then:
    await talk.new()
    return "session"


async def _exit(_: str, __: Talk, ___: Page) -> Then:
    return "exit"


async def _sessions(_: str, talk: Talk, page: Page) -> Then:
    found = await sessions_here(talk.app)
    page.show(
        session_list(found, page.width, current=talk.session.session_id)
        if found
        else Text("There are no sessions in this folder yet.", style="dim")
    )
    return ""


async def _resume(reference: str, talk: Talk, page: Page) -> Then:
    if not reference:
        found = await sessions_here(talk.app)
        if not found:
            page.show(Text("There are no sessions in this folder yet.", style="dim"))
            return ""
        chosen = await pick_session(found, page, current=talk.session.session_id)
        if chosen is None:
            return ""
        reference = chosen
    await talk.resume(reference)
    return "session"


async def _files(_: str, talk: Talk, page: Page) -> Then:
    try:
        found = await talk.app.memory.recently_accessed_files(talk.session.session_id)
    except SessionNotFound:
        found = []
    page.show(
        file_list(found) if found else Text("This session has touched no files yet.", style="dim")
    )
    return ""


async def _context(prompt: str, talk: Talk, page: Page) -> Then:
    page.show(context_list(await talk.agent.context(prompt), page.width))
    return ""


async def _search(text: str, talk: Talk, page: Page) -> Then:
    if not text:
        page.show(failure("Search for what?", "/search followed by words.", page.width))
        return ""
    found = await talk.app.search(text, session=talk.session)
    if not found:
        page.show(Text("Nothing was found.", style="dim"))
        return ""
    shown, none_close = worth_showing(found, talk.app.memory.floor)
    if none_close:
        page.show(Text(none_close, style="dim"))
    page.show(hit_list(shown))
    return ""


async def _summarize(_: str, talk: Talk, page: Page) -> Then:
    said = await talk.app.background.summarize(talk.session, model=talk.options.model)
    page.show(Text(visible(said)))
    return ""


async def _model(name: str, talk: Talk, page: Page) -> Then:
    if name:
        await talk.use_model(name)
    hint = "" if name else "  (/model provider/model changes it; `ragmem models` lists them)"
    page.show(Text(one_line(talk.agent.model, 200)) + Text(hint, style="dim"))
    return ""


async def _cost(_: str, talk: Talk, page: Page) -> Then:
    rows = [("this chat", spent(talk.spent))]
    if talk.session.turn_count:
        turns = (await talk.app.memory.load_session(talk.session.session_id)).turns
        whole = Usage()
        for turn in turns:
            whole += turn.usage
        rows.append(("whole session", spent(whole)))
    if talk.spent.model_calls and talk.spent.cost_usd is None:
        rows.append(("", "the price of this model is not known"))
    page.show(_columns(rows))
    return ""


_HANDLERS: dict[str, Callable[[str, Talk, Page], Awaitable[Then]]] = {
    "help": _help,
    "new": _new,
    "sessions": _sessions,
    "resume": _resume,
    "files": _files,
    "search": _search,
    "summarize": _summarize,
    "context": _context,
    "model": _model,
    "cost": _cost,
    "exit": _exit,
}


# --- how their answers look ---------------------------------------------------


def _columns(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for left, right in rows:
        table.add_row(Text(left), Text(right))
    return table


def session_list(found: Sequence[Session], width: int, *, current: str = "") -> RenderableType:
    """Numbered, two lines each: what it was about, and when."""
    lines: list[Text] = []
    now = datetime.now(UTC)
    for number, session in enumerate(found, 1):
        mark = "●" if session.session_id == current else " "
        about = session.title
        if about == DEFAULT_TITLE and session.last_message:
            about = session.last_message
        head = f"{number:>3} {mark} "
        lines.append(
            Text(head, style="cyan") + Text(one_line(about, max(8, width - len(head))), "bold")
        )
        turns = f"{session.turn_count} turn{'s' * (session.turn_count != 1)}"
        when = ago(session.last_activity_at, now)
        lines.append(Text(f"      {short_id(session.session_id)} · {turns} · {when}", style="dim"))
    return Text("\n").join(lines)


def file_list(found: Sequence[FileAccess]) -> RenderableType:
    """Grouped by what was done with them."""
    rows = [
        (title if first else "", f"{one_line(file.path, 500)} (turn {file.turn_index})")
        for access, title in _GROUPS
        for first, file in _firsts([f for f in found if f.access_type == access])
    ]
    return _columns(rows)


def _firsts(files: list[FileAccess]) -> list[tuple[bool, FileAccess]]:
    return [(i == 0, file) for i, file in enumerate(files)]


def hit_list(found: Sequence[Hit]) -> RenderableType:
    """Where each stands and why it was found, and below it what it says, clipped to the line."""
    lines: list[Text] = []
    now = datetime.now(UTC)
    for hit in found:
        lines.append(Text(" · ".join(map(visible, hit.facts(now))), style="cyan"))
        lines += [
            Text(f"  {said}", style="dim", no_wrap=True, overflow="ellipsis")
            for said in hit.quotes()
        ]
    return Group(*lines)


def context_list(context: Context, width: int) -> RenderableType:
    """What would be sent: sections with their budgets, what is in them and what was left out."""
    lines = []
    for section in context.sections:
        of = f" of {section.budget:,}" if section.budget else ""
        out = f", {section.dropped} left out" if section.dropped else ""
        name = one_line(section.name, 60)
        size = f"  {section.chars:,}{of} characters{out}"
        if section.budget:
            size += f"  {bar(section.chars, section.budget, _BAR)}"
        lines.append(Text(name, style="bold") + Text(size))
        for item in section.items:
            said = item.label + (f" ({item.why})" if item.why else "")
            said = one_line(said, max(20, width - 11))
            lines.append(Text(f"{item.chars:>9,}  {said}", style="dim"))
    count = len(context.messages)
    total = f"{count} message{'s' * (count != 1)}, about {context.tokens:,} tokens"
    lines.append(Text(f"{total}; room for {context.max_chars:,} characters", style="dim"))
    if context.fallback:
        lines.append(Text("The store could not answer: pruned history.", style="yellow"))
    return Group(*lines)
