"""Slash commands (listed in `COMMANDS`), `#text` and `!command` of the chat."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Literal, get_args

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from ragmem.config import Effort, how_to_set
from ragmem.errors import MemoryNotFound, RagmemError, SessionNotFound, UsageError
from ragmem.ids import short_id
from ragmem.index.links import find_code
from ragmem.listings import code_text, files_table, hits_text, page, sessions_table
from ragmem.memory.facts import Draft, FactHit, Remembered
from ragmem.memory.facts.facts import Facts
from ragmem.memory.memories import (
    chain_of,
    facts_of,
    forget,
    forgotten_text,
    here,
    nearest,
    said_so,
    search_memories,
    tell,
    told,
    traces_text,
    worth_showing,
)
from ragmem.messages import of_command, prompt
from ragmem.records import WITHOUT_CALLS, MemoryRecord, Usage
from ragmem.repl.about import compact, jobs, servers, settings, status, theme
from ragmem.repl.choices import is_at_hand, memory_question, model_question, session_question
from ragmem.repl.output import (
    ChatOutput,
    Gutter,
    clipped,
    columns,
    failure,
    listing,
    memory_row,
    spent,
)
from ragmem.repl.past import diff, expand, export, rewind, undo
from ragmem.repl.permissions import permissions
from ragmem.repl.recalled import items_text, picture, whole
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import YES_NO, ChatQuestion
from ragmem.statistics import stats_of, stats_parts, stats_text
from ragmem.text import counted, one_line, visible
from ragmem.tools.bash import Parsed, TooMuch, parse, run_by


class Ask(msgspec.Struct, frozen=True):
    """The prompt to which a command expands."""

    prompt: str


Then = Literal["exit", "session"] | Ask | None
"""What the chat does after a command: exit, introduce a session, ask the agent, or nothing."""
Handler = Callable[[str, ChatSession], Awaitable[Then]]

_KEYS = (
    ("@path", "mentions a file; Tab completes"),
    ("#text", "saves a memory; with always or never, a rule"),
    ("!command", "runs a command; its output goes to the agent with your next prompt"),
    ("!!command", "runs a command that needs the whole terminal (automatic for vim etc.)"),
    ("Enter", "sends; while the agent works, at its next step"),
    ("Alt-Enter, \\ Enter", "inserts a line break"),
    ("Ctrl-R, Up", "earlier prompts; Up also edits a queued one"),
    ("Shift-Tab", "switches the mode: ask, allow edits, or plan (read-only)"),
    ("Ctrl-O", "expands what was shortened: results, reasoning, long prompts"),
    ("Ctrl-G", "edits the prompt in $VISUAL or $EDITOR"),
    ("Esc", "stops the answer and keeps what has arrived; twice: rewinds to a prompt"),
    ("Ctrl-C", "stops; then clears the prompt; then, pressed twice, leaves"),
    ("Ctrl-D", "leaves"),
)
_NOTE = re.compile(r"#(?![#!\d])[^\n]*")
_FULL_SCREEN = {
    "vi", "vim", "nvim", "view", "vimdiff", "nano", "pico", "micro", "emacs", "hx", "helix", "kak",
    "joe", "mcedit", "less", "more", "most", "man", "info", "top", "htop", "btop", "atop", "iotop",
    "watch", "tmux", "screen", "zellij", "mc", "ranger", "nnn", "lf", "yazi", "ncdu", "tig",
    "lazygit", "gitui", "lazydocker", "k9s", "fzf", "gdb", "lldb", "visudo", "passwd", "sudo",
    "doas", "su",
}  # fmt: skip
"""Programs that use the whole terminal, or ask for a password there."""
_INTERACTIVE = {
    **dict.fromkeys(("ssh", "psql", "mysql", "sqlite3", "ipython"), 2),
    **dict.fromkeys(("bash", "sh", "zsh", "fish", "python", "python3", "node", "irb"), 1),
}
"""Programs that are interactive if their command has at most this many words."""
_NUMBER = re.compile(r"\d{1,3}")
_MEMORY_ID = re.compile(r"[0-9a-f-]{4,36}")
_LISTED, _MAX_HITS, _MAX_MEMORIES = 20, 10, 8
_MAX_PICKED = 1_000
"""Maximum number of memories in the list to pick from, which typing filters."""
_REMEMBERED_CHARS = 400
_ALIASES = {"exit": "/exit", "quit": "/exit", "/quit": "/exit", "?": "/help", "help": "/help"}
"""Inputs that stand for a slash command if nothing else was typed."""


def is_note(text: str) -> bool:
    """Return whether a prompt is a `#text` to be remembered.

    Not if it has several lines (a page with a heading), starts with `#!`, `##` or a number such as
    `#12` (an issue), or has a leading space, which sends it to the agent.
    """
    return _NOTE.fullmatch(text.rstrip()) is not None


def is_own_command(text: str) -> bool:
    """Return whether a prompt is a `!command`, without a leading space, and no Markdown image."""
    return text.startswith("!") and not text.startswith("![")


def is_command(text: str) -> bool:
    """Return whether a prompt is a slash command or `#text`, not a path such as `/etc/hosts`."""
    if is_note(text) or text.strip() in _ALIASES:
        return True
    head = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and "/" not in head[1:]


def is_prompt(text: str) -> bool:
    """Return whether a text is for the agent: no `!command`, slash command or `#text`."""
    return not is_own_command(text) and not is_command(text)


def only_reads(text: str) -> bool:
    """Return whether a prompt is a read-only slash command."""
    head = text.split(maxsplit=1)[:1]
    return is_command(text) and bool(head) and head[0][1:].lower() in _READ_ONLY


def needs_terminal(text: str) -> bool:
    """Return whether a `!command` needs the terminal: `!!command`, or a program such as vim."""
    if text.startswith("!!"):
        return True
    with suppress(TooMuch):
        each_alone = (Parsed((found,), is_clear=True) for found in parse(text[1:]).commands)
        commands = [each.words for alone in each_alone for each in run_by(alone)]
        return any(w[0] in _FULL_SCREEN or len(w) <= _INTERACTIVE.get(w[0], 0) for w in commands)
    return False


def own_command(text: str) -> str:
    """Return the command line to run; raise UsageError if it is empty or has several lines."""
    command = text[2 if text.startswith("!!") else 1 :].strip()
    if not command:
        raise UsageError("No command given.", hint="Usage: !COMMAND")
    if "\n" in command:
        # Text pasted after a `!` must not run line by line.
        hint = (
            "Join lines with && or ;. To send the text to the agent instead, start it with a space."
        )
        raise UsageError("A command must be a single line; nothing was run.", hint=hint)
    return command


async def run_command(line: str, chat: ChatSession) -> Then:
    """Run a slash command or a `#text`, and show its output or its error."""
    line = _ALIASES.get(line.strip(), line)
    name, *rest = line[1:].split(maxsplit=1) or [""]
    said = "".join(rest).strip()
    handler = _remember if is_note(line) else _HANDLERS.get(name.lower())
    if is_note(line):
        said = line.strip()[1:].strip()
    elif handler is None and name not in chat.commands:
        begun = [each for each in (*COMMANDS, *chat.commands) if each.startswith(name.lower())]
        if len(begun) == 1 and len(name) > 1:
            return await run_command(f"/{begun[0]} {said}", chat)
    try:
        if handler is not None:
            return await handler(said, chat)
        if own := chat.commands.get(name):
            return Ask(own.prompt(said))
        close = get_close_matches(name.lower(), [*COMMANDS, *chat.commands], n=1)
        hint = f"Did you mean /{close[0]}?" if close else "/help lists all commands."
        raise UsageError(f"Unknown command: /{one_line(name, 40)}.", hint=hint)
    except RagmemError as error:
        chat.output.show(failure(str(error), error.hint))
        return None


# --- the chat and its sessions ------------------------------------------------


async def _help(_: str, chat: ChatSession) -> None:
    own = {name: each.description for name, each in chat.commands.items()}
    rows = [(f"/{name}", text) for name, text in {**COMMANDS, **own, **COMMANDS}.items()]
    chat.output.show(Group(columns(rows), Text(), columns(_KEYS)))


async def _exit(_: str, __: ChatSession) -> Then:
    return "exit"


async def _new(_: str, chat: ChatSession) -> Then:
    await chat.new()
    return "session"


async def _clear(_: str, chat: ChatSession) -> Then:
    before = chat.short_id if chat.can_be_resumed else ""
    await chat.new()
    chat.output.clear()
    if before:
        chat.output.note(f"The previous session is kept: /resume {before}")
    return "session"


async def _plan(text: str, chat: ChatSession) -> Then:
    chat.use_mode("plan")
    if text:
        return Ask(text)
    chat.output.say(
        "Plan mode: the agent only reads, and ends with a plan for you to approve. Shift-Tab "
        "leaves it."
    )
    return None


async def _init(more: str, _: ChatSession) -> Then:
    return Ask(f"{of_command(prompt('init'), '/init')}\n\n{more}".rstrip())


async def _sessions(_: str, chat: ChatSession) -> None:
    found, output = await chat.app.sessions_here(_LISTED), chat.output
    if not found:
        return output.note("No sessions in this folder yet.")
    current, now = chat.session.session_id, datetime.now(UTC)
    output.show(listing(sessions_table(found, now, width=output.width, current=current)))
    if len(found) == _LISTED:
        all_of_them = "`ragmem sessions list` shows more; /resume searches as you type."
        output.note(f"Showing the newest {_LISTED}; {all_of_them}")
    return None


async def _resume(reference: str, chat: ChatSession) -> Then:
    current = chat.session.session_id
    if not reference:
        question = session_question(chat.app, current=current)
        reference = await chat.output.terminal.pick(question) or current
    if reference == current:
        return None
    try:
        await chat.resume(reference)
    except SessionNotFound as error:
        hint = "/sessions lists those of this folder, `ragmem sessions list --all` all sessions."
        raise SessionNotFound(str(error), hint=hint) from None
    return "session"


async def _rename(name: str, chat: ChatSession) -> None:
    title = " ".join(name.split())
    if not title:
        raise UsageError("No name given.", hint="Usage: /rename NAME")
    await chat.rename(title)
    chat.output.say(f"This session is now called {one_line(chat.session.title, 120)}.")


async def _tag(words: str, chat: ChatSession) -> None:
    """Run `/tag auth -draft`: add and remove tags, then show the current ones."""
    given = words.split()
    if given:
        add = [word for word in given if not word.startswith("-")]
        await chat.tag(add, [word[1:] for word in given if word.startswith("-")])
    tags = ", ".join(one_line(each, 60) for each in chat.session.tags)
    chat.output.say(f"Tags: {tags or 'none; add some with /tag WORD'}.")


async def _fork(name: str, chat: ChatSession) -> Then:
    """Run `/fork [name]`: continue in a copy that shares all turns so far."""
    before = chat.short_id
    await chat.fork(title=name)
    chat.output.say(f"This is a copy. To return to the original session: /resume {before}")
    return "session"


async def _files(text: str, chat: ChatSession) -> None:
    if text:
        hint = "`ragmem files PATH` on the command line shows more about a file."
        raise UsageError("/files lists the files of this session.", hint=hint)
    try:
        found = await chat.app.memory.accessed_files(chat.session.session_id)
    except SessionNotFound:
        found = []
    if not found:
        return chat.output.note("This session has touched no files yet.")
    table = files_table(found, datetime.now(UTC), width=chat.output.width)
    return chat.output.show(listing(table))


async def _context(text: str, chat: ChatSession) -> None:
    """Run `/context [all] [prompt]`."""
    lists = text.split(" ", 1)[0] == "all"
    asked = text.removeprefix("all").strip() if lists else text
    context = await chat.agent.context(asked)
    window, width = chat.agent.context_window, chat.output.width
    chat.output.show(picture(context, width=width, window=window, items=lists))
    if chat.recalled is None and not asked:
        chat.output.note(f"{_NOTHING_SENT} This is included with every prompt; {_SHOWS_BEFORE}.")


async def _summarize(_: str, chat: ChatSession) -> None:
    said = await chat.app.background.summarize(chat.session, model=chat.options.model)
    chat.output.show(Text(visible(said)))
    if problem := chat.app.background.problem:
        chat.output.note(
            f"Excerpted from the turns, because no model summarized them ({visible(problem)})"
        )


async def _model(name: str, chat: ChatSession) -> None:
    is_typed = bool(name)
    if not name:
        question = model_question(chat.app, current=chat.agent.model)
        picked = await chat.output.terminal.pick(question)
        if picked is None:
            return
        name = "" if picked == chat.agent.model else picked
    if name:
        await chat.go_on_with(model=name)
    hint = "" if name else "  (change with /model PROVIDER/MODEL; `ragmem models` lists them)"
    if is_typed and not await is_at_hand(chat.app, chat.agent.model):
        hint = "  (ragmem does not know this model; the next prompt shows whether it exists)"
    chat.output.show(Text(one_line(chat.agent.model, 200)) + Text(hint, style="dim"))


async def _effort(level: str, chat: ChatSession) -> None:
    levels = get_args(Effort)
    if level and level not in levels:
        raise UsageError(
            f"Unknown effort: {level!r}.", hint=f"Available levels: {', '.join(levels)}."
        )
    if level:
        await chat.go_on_with(effort=level)
    hint = "" if level else f"  (change with /effort {'|'.join(levels)})"
    told = chat.agent.effort or "provider's default"
    chat.output.show(Text(told) + Text(hint, style="dim"))


async def _cost(_: str, chat: ChatSession) -> None:
    rows = [("this chat", spent(chat.spent))]
    if chat.session.turn_count:
        whole = Usage()
        async for turn in chat.app.memory.turns_back(chat.session.session_id, WITHOUT_CALLS):
            whole += turn.usage
        rows.append(("whole session", spent(whole)))
    if (beside := chat.app.background.spent(chat.session.session_id)).model_calls:
        rows.append(("background", spent(beside)))
    if chat.spent.model_calls and chat.spent.cost_usd is None:
        rows.append(("", "this model's price is not known"))
    chat.output.show(columns(rows))


async def _stats(_: str, chat: ChatSession) -> None:
    days = chat.app.usage.days(own=True)
    today, width = datetime.now().astimezone().date(), chat.output.width
    text = stats_text(await stats_of(chat.app, days), width=width, today=today, days=days)
    chat.output.show(Group(*(clipped(*parts) for parts in stats_parts(text))))


# --- searching ----------------------------------------------------------------


async def _search(text: str, chat: ChatSession) -> None:
    first, _, rest = text.partition(" ")
    if not text or text == "--code":
        raise UsageError("Nothing to search for.", hint="Usage: /search TEXT")
    if first == "--code":
        return await _search_code(rest.strip(), chat)
    app, output = chat.app, chat.output
    hits = await app.search(text, session=chat.session, max_results=_MAX_HITS)
    memories = await search_memories(
        app.memory,
        text,
        open_store=app.store,
        scope=app.config.memory.scope,
        session=chat.session,
        limit=_MAX_HITS,
    )
    found, close, none_close = nearest(hits, memories, floor=app.memory.floor, limit=_MAX_HITS)
    if none_close:
        output.note(none_close)
    if not found:
        return output.note("No results.")
    return output.show(
        listing(hits_text(found, datetime.now(UTC), width=output.width, close=close))
    )


async def _search_code(text: str, chat: ChatSession) -> None:
    app, output = chat.app, chat.output
    code = await app.code()
    if code is None:
        raise UsageError("The code index is turned off.", hint=how_to_set("code.enabled", "true"))
    known = app.store if app.config.memory.enabled else None
    finds = await find_code(code, text, open_store=known)
    if finds.problem:
        output.say(f"Sessions and decisions are not shown. {finds.problem}")
    if not finds.found:
        is_there = await code.exists()
        return output.note("No results." if is_there else "This project is not indexed yet.")
    shown, _, none_close = worth_showing(finds.found, app.memory.floor)
    if none_close:
        output.note(none_close)
    now, top = datetime.now(UTC), code.project.path
    text = code_text(shown, now, cwd=app.cwd, project=top, width=output.width)
    return output.show(listing(text))


# --- memories -----------------------------------------------------------------


async def _remember(text: str, chat: ChatSession) -> None:
    if not text:
        raise UsageError("Nothing to remember.", hint="Usage: # and a sentence")
    await _remember_draft(said_so(text), chat)


async def _remember_draft(draft: Draft, chat: ChatSession) -> None:
    app = chat.app
    place = await here(await app.store(), app.cwd)
    project_id = chat.session.project_id
    remembered = await tell(app.memory, place, draft, "chat", project_id=project_id)
    chat.output.show(remembered_text(remembered), "notice")


def remembered_text(remembered: Remembered) -> RenderableType:
    """Return a row with the result of remembering something."""
    memory = remembered.memory
    if memory is None:
        return memory_row(remembered.note)
    pinned = "pinned " * memory.pinned
    where = "in all projects" if memory.scope == "user" else "in this project"
    tail, anew = short_id(memory.memory_id), " anew" * (remembered.action == "updated")
    head = f"remembered {pinned}{memory.kind} {tail}{anew}"
    if remembered.action == "known":
        head = f"already known {tail}"
    note = f" ({remembered.note})" if remembered.note else ""
    told = one_line(f"{head}, {where}: {memory.content}{note}", _REMEMBERED_CHARS)
    return Gutter(told, mark="· ", style="dim", words=True)


async def _memory(text: str, chat: ChatSession) -> None:
    facts, output = facts_of(chat.app.memory), chat.output
    project_id = chat.session.project_id
    if text:
        found = await facts.search(text, project_id=project_id, limit=_MAX_MEMORIES)
        none = "No matching memories."
    else:
        recent = await facts.recent(project_id=project_id, limit=_LISTED)
        found = [FactHit(memory=memory, score=0) for memory in recent]
        none = "No memories of this project or of you. Start a line with # to add one."
    if not found:
        return output.note(none)
    output.show(_hits_list(found, output))
    if not text and len(found) == _LISTED:
        output.note(
            f"Showing the newest {_LISTED}; `ragmem memory list` shows more, /memory TEXT searches."
        )


def _hits_list(found: Sequence[FactHit], output: ChatOutput) -> RenderableType:
    return listing(hits_text(found, datetime.now(UTC), width=output.width))


_NOTHING_SENT = "No request has been sent in this chat yet."
_SHOWS_BEFORE = "/context PROMPT shows what memory would add"


async def _why(reference: str, chat: ChatSession) -> None:
    now, output = datetime.now(UTC), chat.output
    if not reference:
        return _why_last(now, chat)
    if _NUMBER.fullmatch(reference):
        items = chat.recalled or ()
        if not 0 < int(reference) <= len(items):
            raise UsageError(f"No item {reference} in the list.", hint="/why shows it.")
        lines = await whole(items[int(reference) - 1], chat.app, now)
        return output.show(listing(page(lines, output.width)))
    facts = facts_of(chat.app.memory)
    chain = await chain_of(await _find_memory(facts, reference), facts, await chat.app.store())
    output.show(listing(page(told(chain, now), output.width)))


def _why_last(now: datetime, chat: ChatSession) -> None:
    if chat.recalled is None:
        raise UsageError(
            f"{_NOTHING_SENT} Ask something first; then /why shows what memory added.",
            hint=f"{_SHOWS_BEFORE}. /why ID shows where a memory comes from (/memory lists ids).",
        )
    if chat.without_code:
        chat.output.note(chat.without_code)
    if not chat.recalled:
        return chat.output.note("Memory added nothing to the last request.")
    chat.output.show(listing(items_text(chat.recalled, now, chat.output.width)))
    chat.output.note("/why NUMBER shows one in full.")


async def _find_memory(facts: Facts, reference: str) -> MemoryRecord:
    try:
        return await facts.find(reference)
    except MemoryNotFound as error:
        raise MemoryNotFound(str(error), hint="/memory lists memories.") from None


async def _pin(said: str, chat: ChatSession) -> None:
    if not said:
        raise UsageError("Nothing to pin.", hint="Usage: /pin ID, or /pin TEXT")
    facts = facts_of(chat.app.memory)
    try:
        memory = await _find_memory(facts, said) if _MEMORY_ID.fullmatch(said) else None
    except MemoryNotFound:
        if not said.isalpha():
            raise
        memory = None  # a word that looks like an id
    if memory is None:
        return await _remember_draft(said_so(said, pinned=True), chat)
    memory = await facts.edit(memory, pinned=True)
    chat.output.show(memory_row(f"pinned {short_id(memory.memory_id)}: {memory.content}"), "notice")


async def _pick_memory(said: str, chat: ChatSession) -> MemoryRecord | None:
    """Return the memory with an id, or the one the user picks from those that match, or from all.

    Returns None if the user picks none. Raises UsageError if there is none to pick from.
    """
    facts, project_id = facts_of(chat.app.memory), chat.session.project_id
    if said:
        limit = _MAX_MEMORIES
        hits = await facts.search(said, project_id=project_id, limit=limit)
        found = [hit.memory for hit in hits]
        if _MEMORY_ID.fullmatch(said):
            try:
                return await _find_memory(facts, said)
            except MemoryNotFound:  # a word or number may look like an id
                found = [each for each in found if said in each.content.casefold()]
                if not found:
                    raise
    else:
        found = list(await facts.recent(project_id=project_id, limit=_MAX_PICKED))
    if not found:
        why = "No matching memories." if said else "There are no memories."
        raise UsageError(why, hint="/memory lists memories.")
    key = await chat.output.terminal.pick(memory_question(found))
    return await _find_memory(facts, key) if key else None


async def _forget(reference: str, chat: ChatSession) -> None:
    app, output = chat.app, chat.output
    facts = facts_of(app.memory)
    memory = await _pick_memory(reference, chat)
    if memory is None:
        return None
    earlier = len(await facts.history(memory))
    output.show(_hits_list([FactHit(memory=memory, score=0)], output))
    with_them = f" With {counted(earlier, 'earlier version')}." if earlier else ""
    if await output.terminal.ask(ChatQuestion(f"Forget it for good?{with_them}", YES_NO)) != "y":
        return output.note("Nothing was forgotten.")
    gone = await forget(facts, memory, paths=app.paths, store=app.config.store.kind)
    return output.note(f"{forgotten_text(memory, gone)} {traces_text(gone)}".rstrip())


_COMMANDS: tuple[tuple[str, str, Handler], ...] = (
    ("help", "show commands and keys", _help),
    ("new", "start a new session", _new),
    ("sessions", "list the sessions of this folder", _sessions),
    ("resume", "switch to another session: /resume [id or name]", _resume),
    ("rename", "name this session: /rename name", _rename),
    ("tag", "add or remove tags of this session: /tag [word] [-word]", _tag),
    ("fork", "continue in a copy of this session: /fork [name]", _fork),
    ("rewind", "rewind to before a prompt, optionally with the files: /rewind [turn]", rewind),
    ("files", "list the files that this session touched", _files),
    (
        "search",
        "search earlier sessions, with --code the project's files: /search [--code] text",
        _search,
    ),
    ("export", "export this session as .md, .json or .html: /export [file]", export),
    ("summarize", "summarize this session now", _summarize),
    ("expand", "expand what was shortened: results, reasoning, long prompts", expand),
    ("context", "show what is sent with a prompt: /context [all] [prompt]", _context),
    ("memory", "list or search memories of this project: /memory [text]", _memory),
    ("why", "show what memory added to the last request: /why [number or id]", _why),
    ("pin", "include a text or memory in every request: /pin text or id", _pin),
    ("forget", "delete a memory for good: /forget [id or words]", _forget),
    ("model", "show or change the model: /model [provider/model]", _model),
    ("effort", "how much the model thinks: /effort [none|low|medium|high]", _effort),
    ("cost", "show tokens and cost", _cost),
    ("usage", "same as /cost", _cost),
    ("stats", "usage statistics of all sessions: size, speed, results, cost", _stats),
    ("diff", "show what this session changed: /diff [file]", diff),
    ("undo", "undo the file edits of the last turn that made any", undo),
    ("clear", "start a new session on a clear screen; the old one is kept", _clear),
    ("compact", "not needed here; says why", compact),
    ("mcp", "list the MCP servers and their tools", servers),
    ("status", "show model, session, mode, sandbox, memory and store", status),
    ("config", "show or change settings: /config [word], /config key value", settings),
    ("theme", "choose the chat's colours: /theme [auto|light|dark|plain]", theme),
    ("plan", "only read, then propose a plan to approve: /plan [what to do]", _plan),
    ("jobs", "list background jobs: /jobs [number], /jobs stop number", jobs),
    (
        "permissions",
        "list or change permissions: /permissions [allow|project|session|deny|remove rule]",
        permissions,
    ),
    ("init", "have the agent write AGENTS.md: /init [words]", _init),
    # Last, so that no prefix shared with another command means `exit`.
    ("exit", "leave", _exit),
)
COMMANDS = {name: text for name, text, _ in _COMMANDS}
"""The descriptions of the slash commands, by name."""
_HANDLERS = {name: handler for name, _, handler in _COMMANDS}
_READ_ONLY = {
    "help", "cost", "usage", "context", "why", "memory", "search", "files", "sessions", "status",
    "mcp", "diff", "compact", "expand", "stats",
}  # fmt: skip
"""Read-only commands, which don't wait for a running turn."""
