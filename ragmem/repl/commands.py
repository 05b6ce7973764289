"""Slash commands."""

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from rich.console import Group
from rich.text import Text

from ragmem.config import how_to_set
from ragmem.errors import RagmemError, SessionNotFound, UsageError
from ragmem.index.lookup import find_code
from ragmem.memory.found import nearest, search_memories
from ragmem.memory.hits import worth_showing
from ragmem.records import Session, Usage
from ragmem.repl.listings import (
    code_list,
    columns,
    context_list,
    file_list,
    hit_list,
    session_list,
)
from ragmem.repl.memory_commands import (
    MEMORY_COMMANDS,
    MEMORY_HANDLERS,
    NOTE_KEY,
    is_note,
    remember,
)
from ragmem.repl.own_commands import COMMAND_KEY
from ragmem.repl.page import Page
from ragmem.repl.render import failure, spent
from ragmem.repl.session_commands import SESSION_COMMANDS, SESSION_HANDLERS
from ragmem.repl.talk import Talk
from ragmem.repl.terminal import Question
from ragmem.text import one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App

Then = Literal["", "exit", "session"]
"""What the chat is to do after a command."""

COMMANDS = {
    "help": "what can be typed here",
    "new": "start a new session",
    "sessions": "sessions of this folder",
    "resume": "go on in another session: /resume [id or name]",
    **SESSION_COMMANDS,
    "files": "files this session has touched",
    "search": "what was said and done before: /search text; in the files: /search --code text",
    "summarize": "sum this session up now",
    "context": "what is sent with a prompt: /context [prompt]",
    **MEMORY_COMMANDS,
    "model": "which model answers: /model [provider/model]",
    "cost": "tokens and money spent",
    "exit": "leave",
}
_KEYS = (
    ("@path", "names a file; Tab completes"),
    NOTE_KEY,
    COMMAND_KEY,
    ("Alt-Enter, \\ Enter", "adds a line"),
    ("Ctrl-R, Up", "earlier prompts"),
    ("Esc", "stops the answer, keeps what came"),
    ("Ctrl-C", "stops, then clears, then (twice) leaves"),
    ("Ctrl-D", "leaves"),
)
_LISTED = 20
_FOUND = 10


def is_command(text: str) -> bool:
    """Whether a prompt is a slash command or a `#text`; a path such as `/etc/hosts` is none."""
    if is_note(text):
        return True
    head = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and "/" not in head[1:]


async def run_command(line: str, talk: Talk, page: Page) -> Then:
    """Run one and show its answer; mistakes become text."""
    name, *rest = line[1:].split(maxsplit=1) or [""]
    handler = _HANDLERS.get(name.lower())
    if is_note(line):
        handler, rest = remember, [line]
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
    return await app.sessions_here(_LISTED)


# --- the commands -------------------------------------------------------------


async def _help(_: str, __: Talk, page: Page) -> Then:
    rows = [(f"/{name}", text) for name, text in COMMANDS.items()]
    page.show(Group(columns(rows), Text(), columns(_KEYS)))
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
    try:
        await talk.resume(reference)
    except SessionNotFound as error:
        hint = "/sessions lists those of this folder, `ragmem sessions list --all` every one."
        raise SessionNotFound(str(error), hint=hint) from None
    return "session"


async def _files(text: str, talk: Talk, page: Page) -> Then:
    if text:
        hint = "What is known of one, `ragmem files PATH` tells at the command line."
        page.show(failure("/files lists those of this session.", hint, page.width))
        return ""
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
    first, _, rest = text.partition(" ")
    if first == "--code" and rest.strip():
        return await _search_code(rest.strip(), talk, page)
    if not text or first == "--code":
        page.show(failure("Search for what?", "/search followed by words.", page.width))
        return ""
    memory = talk.app.memory
    hits = await talk.app.search(text, session=talk.session, max_results=_FOUND)
    memories = await search_memories(
        memory,
        text,
        open_store=talk.app.store,
        scope=talk.app.config.memory.scope,
        session=talk.session,
        limit=_FOUND,
    )
    found, none_close = nearest(hits, memories, floor=memory.floor, limit=_FOUND)
    if none_close:
        page.show(Text(none_close, style="dim"))
    page.show(hit_list(found, page.width) if found else Text("Nothing was found.", style="dim"))
    return ""


async def _search_code(text: str, talk: Talk, page: Page) -> Then:
    app = talk.app
    code = await app.code()
    if code is None:
        raise UsageError("The code index is switched off.", hint=how_to_set("code.enabled", "true"))
    finds = await find_code(
        code,
        text,
        project_id=code.project.root_id,
        open_store=app.store if app.config.memory.enabled else None,
    )
    if finds.problem:
        page.say(f"What the memory has of this is not shown. {finds.problem}")
    if finds.found:
        shown, none_close = worth_showing(finds.found, app.memory.floor)
        if none_close:
            page.show(Text(none_close, style="dim"))
        top = code.project.path
        page.show(code_list(shown, cwd=app.cwd, project=top, width=page.width))
        return ""
    is_there = await code.exists()
    said = "Nothing was found." if is_there else "Nothing of this project is indexed yet."
    page.show(Text(said, style="dim"))
    return ""


async def _summarize(_: str, talk: Talk, page: Page) -> Then:
    said = await talk.app.background.summarize(talk.session, model=talk.options.model)
    page.show(Text(visible(said)))
    return ""


async def _model(name: str, talk: Talk, page: Page) -> Then:
    if name:
        await talk.use_model(name)
        if doubt := await talk.app.doubts_model(name):
            page.say(doubt, "warning")
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
    if (beside := talk.app.background.spent(talk.session.session_id)).model_calls:
        rows.append(("background", spent(beside)))
    if talk.spent.model_calls and talk.spent.cost_usd is None:
        rows.append(("", "the price of this model is not known"))
    page.show(columns(rows))
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
    **SESSION_HANDLERS,
    **MEMORY_HANDLERS,
    "model": _model,
    "cost": _cost,
    "exit": _exit,
}
