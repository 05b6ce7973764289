"""The session's past: `/expand`, `/export`, `/diff`, `/undo` and `/rewind`.

They show shortened items in full, export the session, and show and undo its edits, with or
without the conversation.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from ragmem.administration import Administration
from ragmem.errors import RagmemError, SessionNotFound, UsageError
from ragmem.files import expanded, replace_private, write_new_private
from ragmem.ids import short_id
from ragmem.memory.files import FileChange, Rewind, rewind_to, without_output
from ragmem.memory.memory import SessionTurns
from ragmem.memory.projects import real_folder
from ragmem.memory.turns import result_text, subject_of, taken_back
from ragmem.messages import Json
from ragmem.pages import FORMATS, html, markdown
from ragmem.records import ALL_TURNS, REWIND, UNDO, ToolCall, Turn, TurnQuery, as_typed
from ragmem.repl.choices import latest_of, turn_question, when
from ragmem.repl.diffs import ChangeBlock, read_change
from ragmem.repl.output import ChatOutput, Gutter
from ragmem.repl.recalled import items_text, rule
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import YES_NO, ChatQuestion, PickQuestion, PickRow
from ragmem.text import counted, one_line, plain, plain_or_quoted, visible
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import decode
from ragmem.tools.files import unified_diff
from ragmem.tools.rewind import Outcome, Preimages, Restored, Restorer
from ragmem.tools.workspace import Workspace

if TYPE_CHECKING:
    from ragmem.repl.commands import Then

_LONG_LINES, _LONG_CHARS = 6, 1_000
"""A longer prompt is shown folded if it was pasted, or when its session is resumed."""
_PROMPT = "Prompt: "
_PREVIEW_CHARS = 4_000
_ASKED_CHARS = 60
_MAX_BYTES = 4_000_000
_MOST_DIFFS = 20
"""The most files whose changes `/diff` shows at once; of more, it shows a row each."""
_LATEST = TurnQuery(limit=200)
"""The turns that lists start with; all are read if the user asks for them."""


class Shortened(msgspec.Struct, frozen=True):
    """An item that was shown shortened."""

    title: str
    what: str
    """Its size or kind."""
    turn_index: int
    at: datetime
    text: str
    file: Path | None = None
    """The file with the whole text, if `text` is cut."""
    is_session: bool = False
    """Whether it stands for the whole session; then `text` is the session's end."""


async def expand(said: str, chat: ChatSession) -> None:
    """Run `/expand [number]`: show a shortened item of this session in full.

    Without a number the user picks from a list, newest first. Raises UsageError if there is no
    such number, or if the list is empty.
    """
    if not chat.app.memory.records:
        raise UsageError("This session is not stored, so nothing can be expanded later.")
    turns: tuple[Turn, ...] = ()
    with suppress(SessionNotFound):  # the session has no prompt yet
        turns = await _turns(chat, _LATEST)
    found = _shortened(turns, chat)
    if not found:
        raise UsageError("Nothing in this session has been shortened yet.")
    count, first = len(found), turns[0].turn_index if turns else 1

    async def every() -> list[PickRow]:
        if len(found) == count and first > 1:
            older = await _turns(chat, TurnQuery(before_index=first))
            found.extend(each for turn in reversed(older) for each in shortened_of(turn))
        return _rows(found)

    question = _expand_question(found, every if first > 1 else None)
    number = said or await chat.output.terminal.pick(question)
    if not number:
        return
    if number.isdecimal() and int(number) > count:
        await every()
    if not (number.isdecimal() and 0 < int(number) <= len(found)):
        raise UsageError(f"No item {number} in the list.", hint="/expand lists them.")
    chosen = found[int(number) - 1]
    conversation = await _conversation(chat) if chosen.is_session else None
    await chat.output.terminal.page(await asyncio.to_thread(_full_text, chosen, conversation))


def _shortened(turns: Sequence[Turn], chat: ChatSession) -> list[Shortened]:
    """Return the shortened items of the latest turns, what memory added, and the whole session."""
    now = datetime.now(UTC)
    found = [each for turn in reversed(turns) for each in shortened_of(turn)]
    if chat.recalled:
        last = turns[-1].turn_index if turns else 0
        what, text = counted(len(chat.recalled), "item"), items_text(chat.recalled, now)
        memory = Shortened("What memory added to the last request", what, last, now, text)
        # List it between the last prompt and its results.
        later = (each.turn_index == last and not each.title.startswith(_PROMPT) for each in found)
        found.insert(sum(later), memory)
    if turns and (last := turns[-1].turn_index) > 1:
        said = turns[-1].assistant_message or turns[-1].asked
        title, count = "All of this session", counted(last, "turn")
        whole = Shortened(title, count, last, turns[-1].timestamp, said, is_session=True)
        # Right after resuming, the user probably wants to read the session: list it first.
        found.insert(len(found) if chat.turn_count else 0, whole)
    return found


def shortened_of(turn: Turn) -> list[Shortened]:
    """Return the shortened items of a turn, newest first."""
    found = []
    for call in (each for each in reversed(turn.tool_calls) if each.result):
        text, file = result_text(call), _output_file(call)
        lines = counted(text.rstrip("\n").count("\n") + 1, "line")
        size = "saved in a file" if file else lines
        title = subject_of(call)
        found.append(Shortened(title, size, turn.turn_index, call.started_at, text, file))
    if turn.reasoning and turn.reasoning.strip():
        size = f"{len(turn.reasoning):,} characters"
        found.append(Shortened("Thoughts", size, turn.turn_index, turn.timestamp, turn.reasoning))
    prompt = turn.prompt
    is_long = prompt.count("\n") >= _LONG_LINES or len(prompt) > _LONG_CHARS
    if is_long or prompt != turn.asked:
        size, title = counted(prompt.count("\n") + 1, "line"), one_line(turn.asked, 200)
        found.append(Shortened(f"{_PROMPT}{title}", size, turn.turn_index, turn.timestamp, prompt))
    return found


def _output_file(call: ToolCall) -> Path | None:
    """Return the file with a command's whole output, if the model was shown only a part."""
    with suppress(ValueError, AttributeError):
        name = json.loads(call.result or "{}").get("output_file")
        return Path(name) if isinstance(name, str) else None
    return None


def _expand_question(
    found: Sequence[Shortened], every: Callable[[], Awaitable[Sequence[PickRow]]] | None
) -> PickQuestion:
    async def end(key: str) -> list[str]:
        text = found[int(key) - 1].text[-_PREVIEW_CHARS:]
        return [line for line in text.split("\n") if line.strip()][-2:]

    rows = _rows(found)
    return PickQuestion(title="Open", rows=rows, lists=latest_of(rows, every), preview=end)


def _rows(found: Sequence[Shortened]) -> list[PickRow]:
    now = datetime.now(UTC)
    return [
        PickRow(
            key=str(at),
            text=_title(each),
            facts=(each.what, f"turn {each.turn_index}", when(each.at, now)),
        )
        for at, each in enumerate(found, 1)
    ]


def _title(each: Shortened) -> str:
    return one_line(each.title, 400)


def _full_text(chosen: Shortened, conversation: SessionTurns | None) -> str:
    """Return an item's whole text: a command's from its file, a session's from all turns."""
    if conversation:
        return visible(markdown(conversation.session, conversation.turns))
    text = chosen.text
    if chosen.file:
        try:
            with chosen.file.open("rb") as file:
                text = plain(file.read(_MAX_BYTES).decode("utf-8", "replace"))
                if file.read(1):
                    text += f"\n\nThe rest is in {chosen.file}."
        except OSError:
            text += f"\n\n{chosen.file} no longer exists; this is what was kept of it."
    head = f"{_title(chosen)}\nturn {chosen.turn_index} · {chosen.what}"
    return visible(f"{head}\n\n{text.rstrip()}\n")


# --- export ------------------------------------------------------------------


async def export(name: str, chat: ChatSession) -> None:
    """Run `/export [file]`: write the session to a private file, in the format of its suffix.

    An existing file is replaced only if the user agrees.
    """
    chat.require_turns("there is nothing to export")
    session_id, folder = chat.session.session_id, chat.app.cwd
    file = folder / expanded(name or f"session-{short_id(session_id)}.md")
    form = FORMATS.get(file.suffix.lower())
    if form is None:
        raise UsageError(
            f"Can't tell the format of {visible(file.name)}.",
            hint="The name must end with .md, .json or .html.",
        )
    if form == "json":
        document, data = await Administration(chat.app.config, chat.app.paths).export(session_id)
        count = len(document.turns)
    else:
        whole, page = await _conversation(chat), html if form == "html" else markdown
        data = await asyncio.to_thread(lambda: page(whole.session, whole.turns).encode())
        count = len(whole.turns)
    if not await _write_export(file, data, chat):
        return chat.output.note("Nothing was written.")
    shown = file.relative_to(folder) if file.is_relative_to(folder) else file
    return chat.output.note(f"{counted(count, 'turn')} in {visible(str(shown))}")


def _replace_question(file: Path) -> ChatQuestion:
    """Return the question before a file is replaced; raise UsageError if it is not a file."""
    shown = visible(str(file))
    if not file.is_file():
        raise UsageError(f"{shown} exists and is not a file.")
    at = datetime.fromtimestamp(file.stat().st_mtime)
    return ChatQuestion(
        f"{shown} already exists (written {at:%Y-%m-%d %H:%M}). Replace it?", YES_NO
    )


async def _write_export(file: Path, data: bytes, chat: ChatSession) -> bool:
    """Write a file, asking before it replaces one; return whether it was written."""
    try:
        try:
            await asyncio.to_thread(write_new_private, file, data)
        except FileExistsError:
            if await chat.output.terminal.ask(_replace_question(file)) != "y":
                return False
            await asyncio.to_thread(replace_private, file, data, sync=True)
    except OSError as error:
        raise RagmemError(
            f"Can't write {visible(str(file))}: {error.strerror or error}.",
            hint="Choose another name: /export NAME",
        ) from None
    return True


async def _conversation(chat: ChatSession, query: TurnQuery = ALL_TURNS) -> SessionTurns:
    return await chat.app.memory.load_session(chat.session.session_id, query)


async def _turns(chat: ChatSession, query: TurnQuery = ALL_TURNS) -> tuple[Turn, ...]:
    return (await _conversation(chat, query)).turns


# --- changes to files --------------------------------------------------------

_UNKNOWN = "This session is not stored, so its edits are not known."
_UNDONE: tuple[Outcome, ...] = ("restored", "removed", "as_before")
_OUTCOMES: dict[Outcome, str] = {
    "restored": "restored",
    "removed": "removed",
    "as_before": "restored",
    "kept": "left unchanged",
    "failed": "not restored",
}


async def diff(named: str, chat: ChatSession) -> None:
    """Run `/diff [file]`: compare files as they were before this session's edits with now.

    Of many files it shows only the numbers of lines.
    """
    output = chat.output
    if not chat.app.memory.records:
        raise UsageError(_UNKNOWN)
    turns = await _edits(chat)
    back = rewind_to(turns, 0)
    changes = [
        each
        for each in back.changes
        if not named or each.path == named or each.path.endswith(f"/{named}")
    ]
    if not changes:
        what = f"has not changed {one_line(named, 200)}" if named else "has changed no files"
        undone = ", except for undone edits" if taken_back(turns) else ""
        output.note(f"This session {what}{undone}.{_by_commands(back)}")
        return
    restorer, is_short = _restorer(chat), not named and len(changes) > _MOST_DIFFS
    for change in changes:
        try:
            before, now = await restorer.sides(change)
        except ToolFailure as failure:
            output.warn(f"{one_line(change.path, 400)}: {failure}")
            continue
        if before == now:
            output.note(f"{one_line(change.path, 400)} has no changes.")
            continue
        old, new = (decode(each or b"").text for each in (before, now))
        found = read_change(unified_diff(old, new, change.path, creates=before is None)[0])
        note = ""
        if now is None:
            note = "It no longer exists."
        elif hashlib.sha256(now).hexdigest() != change.after or not change.unbroken:
            note = "It also has changes from outside this session."
        if is_short:
            row = " · ".join(filter(None, (f"{found.path}  {found.tally}", note)))
            output.show(Gutter(row, mark="● "), "tool")
            continue
        hint = f"/diff {change.path} shows all"
        output.show(ChangeBlock(found, folds=not named, hint=hint), "tool")
        if note:
            output.note(f"  {note}")
    if is_short:
        output.note(f"{len(changes):,} files. /diff FILE shows the changes of one.")
    if back.command_count:
        output.note(_by_commands(back).strip())


def _by_commands(back: Rewind) -> str:
    if not back.command_count:
        return ""
    return f" Changes made by {counted(back.command_count, 'command')} are not shown."


async def undo(_: str, chat: ChatSession) -> None:
    """Run `/undo`: undo the edits of the last turn that made any, keeping the conversation.

    Confirmation is required if other turns followed it. A file changed by others since is left as
    it is. Run again, or if nothing of that turn can be undone, it undoes the turn before.
    """
    restorer, output = _restorer(chat), chat.output
    if not chat.app.memory.records:
        raise UsageError(_UNKNOWN)

    async def never(_: str, __: str) -> bool:
        return False

    passed, is_said = dict[str, list[str]](), False
    async for turn, back, later in _undoable_turns(chat):
        if later:
            paths = ", ".join(one_line(change.path, 200) for change in back.changes)
            said = f"Undo what turn {turn.turn_index} of {later} did to {paths}?"
            if await output.terminal.ask(ChatQuestion(said, YES_NO)) != "y":
                return output.note("Nothing was changed.")
        done = await restorer.restore(back.changes, never)
        passed[turn.turn_id] = [each.path for each in done if each.outcome in _UNDONE]
        if all(each.outcome == "as_before" for each in done):
            continue
        asked = one_line(turn.asked, _ASKED_CHARS)
        if any(passed.values()):
            what = f"what turn {turn.turn_index} (“{asked}”) did to files"
            await chat.record("/undo", UNDO, _undo_record(what, done, passed))
        heading = f"Undo of turn {turn.turn_index}, “{asked}”:"
        _report(done, output, {each.path for each in done}, heading)
        if back.command_count:
            output.note(f"What {counted(back.command_count, 'command')} did is not undone.")
        if passed[turn.turn_id]:
            return
        is_said = True
    if not is_said:
        output.note("Nothing to undo: this session has no edits, or they are already undone.")


async def _undoable_turns(chat: ChatSession) -> AsyncGenerator[tuple[Turn, Rewind, int], None]:
    """Yield the turns whose edits are not undone, newest first, each with its changes to files.

    The third item is the last turn's number if turns that are not undone followed, else 0.
    """
    if not chat.can_be_resumed:
        return
    gone: dict[str, set[str]] = {}
    last = newest = 0
    async for turn in chat.app.memory.turns_back(chat.session.session_id):
        last = last or turn.turn_index
        for turn_id, paths in taken_back([turn]).items():
            gone.setdefault(turn_id, set()).update(paths)
        back = _of_turn(turn, gone)
        if turn.is_undo or not (back.changes or turn.turn_id not in gone):
            continue
        newest = newest or turn.turn_index
        if back.changes:
            yield turn, back, last if turn.turn_index < newest else 0


def _of_turn(turn: Turn, gone: Mapping[str, Collection[str]]) -> Rewind:
    """Return a turn's changes to files, without those already undone."""
    back = rewind_to([turn], turn.turn_index - 1)
    done = gone.get(turn.turn_id, ())
    changes = tuple(change for change in back.changes if change.path not in done)
    return msgspec.structs.replace(back, changes=changes)


def _undo_record(what: str, done: Sequence[Restored], gone: Mapping[str, Sequence[str]]) -> Json:
    """Return the record of undone edits: a text for the model, and the paths by turn."""
    became = "; ".join(f"{plain_or_quoted(e.path)}: {_OUTCOMES[e.outcome]}" for e in done)
    return {
        "text": f"The user undid {what}. {became}.",
        "taken_back": {turn_id: list(paths) for turn_id, paths in gone.items() if paths},
    }


async def _edits(chat: ChatSession, first: int = 1) -> tuple[Turn, ...]:
    """Return the turns from `first` on, without the results of tools other than edits."""
    if not chat.can_be_resumed:
        return ()
    turns = chat.app.memory.turns_on(chat.session.session_id, first)
    return tuple([without_output(turn) async for turn in turns])


async def rewind(number: str, chat: ChatSession) -> "Then":
    """Run `/rewind [turn]`: continue in a fork that ends before a prompt, now in the input again.

    The user is asked whether to restore the files too.
    """
    output = chat.output
    chat.require_turns("it can't be rewound")
    turns = await _turns(chat, TurnQuery(limit=1) if number else _LATEST)
    last = turns[-1].turn_index if turns else 0
    read_all = partial(_turns, chat) if last > len(turns) else None
    chosen = number or await output.terminal.pick(turn_question(turns, read_all))
    if not chosen:
        return None
    if not chosen.isascii() or not chosen.isdecimal() or not 0 < int(chosen) <= last:
        hint = f"This session has {counted(last, 'turn')}; /rewind lists them."
        raise UsageError(f"No turn {one_line(chosen, 20)} in this session.", hint=hint)
    turns = await _edits(chat, int(chosen))
    back = rewind_to(turns, int(chosen) - 1)
    answer = await _ask_about_files(back, output)
    if answer is None:
        output.say("Nothing was changed.")
        return None
    # Keep the marks of piped text and of commands: sent again, they are no more the user's own
    # words than before.
    before, prompt = chat.short_id, as_typed(turns[0].user_message)
    left = chat.agent
    since = f"turns {chosen} to {last}" if int(chosen) < last else f"turn {chosen}"
    gone_back: Json = {"text": f"The user continued without {since}, in a copy of this session."}
    if not answer:
        # Record this before forking, so that the fork is the newest session.
        await left.record(REWIND, UNDO, gone_back)
    await chat.fork(back.turn_index)
    told = (
        f"Rewound to before “{one_line(prompt, _ASKED_CHARS)}”. What is shown above of {since} is "
        "no longer part of this conversation."
    )
    output.show(Group(rule(output.width), Gutter(told, mark="  ", words=True)))
    if answer:
        # Record it in the session left behind: whoever resumes that finds the files restored.
        done = await _restore(back, chat)
        paths = {each.path for each in done if each.outcome in _UNDONE}
        gone = {
            turn.turn_id: [each.path for each in _of_turn(turn, {}).changes if each.path in paths]
            for turn in turns
        }
        if any(gone.values()):
            gone_back = _undo_record(f"what {since} did to files", done, gone)
        await left.record(REWIND, UNDO, gone_back)
    await _copy_undo_records(turns, chat)
    if not turns[0].is_undo:
        output.terminal.put_back(prompt)
    calls = ((back.command_count, "command", ""), (back.other_count, "call", " of another tool"))
    for count, what, of in calls:
        if count:
            output.say(f"Not undone: what {counted(count, what)}{of} did since.")
    output.say(f"The session with all its turns is kept: /resume {before}")
    return "session"


async def _copy_undo_records(left: Sequence[Turn], chat: ChatSession) -> None:
    """Record in a fork the undone edits that were recorded only in the turns left behind."""
    ids = {turn.turn_id for turn in left}
    said = taken_back(left).items()
    gone = {turn_id: sorted(each) for turn_id, each in said if turn_id not in ids}
    if gone:
        paths = ", ".join(map(plain_or_quoted, sorted(set().union(*gone.values()))))
        told = {"text": f"The user undid edits of: {paths}.", "taken_back": gone}
        await chat.record("/undo", UNDO, told)


async def _ask_about_files(back: Rewind, output: ChatOutput) -> bool | None:
    """Ask whether to restore files; return None if the user cancels the rewind."""
    if not back.changes:
        return False
    lines = [f"{counted(len(back.changes), 'file')} changed from turn {back.turn_index + 1} on:"]
    lines += [f"  {one_line(change.path, 400)}{_change_note(change)}" for change in back.changes]
    output.show(Text("\n".join(lines)))
    choices = (("y", "yes"), ("n", "no, only the conversation"), ("c", "cancel"))
    answer = await output.terminal.ask(ChatQuestion("Undo the file changes too?", choices, "n"))
    return {"y": True, "n": False}.get(answer or "")


def _change_note(change: FileChange) -> str:
    if change.cut_off:
        return " (interrupted while writing)"
    edits = counted(change.edit_count, "edit")
    return f" ({edits}; created since, will be removed)" if change.before is None else f" ({edits})"


async def _restore(back: Rewind, chat: ChatSession) -> list[Restored]:
    asked: set[str] = set()

    async def confirm(path: str, doubt: str) -> bool:
        asked.add(path)
        label = f"{one_line(path, 200)}: {doubt}. Undo it anyway?"
        return await chat.output.terminal.ask(ChatQuestion(label, YES_NO)) == "y"

    done = await _restorer(chat).restore(back.changes, confirm)
    _report(done, chat.output, asked)
    return done


def _restorer(chat: ChatSession) -> Restorer:
    paths, folder = chat.app.paths, real_folder(chat.session.cwd, chat.app.cwd)
    if not os.path.isdir(folder):  # It was moved, and the chat is where it is now.
        folder = chat.app.cwd
    folders = (chat.app.cwd, *chat.options.add_dirs)
    workspace = Workspace(folder, folders, private=paths.own_folders)
    return Restorer(workspace, Preimages(chat.app.work_dir / "preimages"))


def _report(
    done: Sequence[Restored], output: ChatOutput, doubtful: Collection[str], heading: str = ""
) -> None:
    """Report each file's outcome, and where the content of doubtful files was saved before."""
    if heading:
        output.say(heading)
    for each in done:
        is_back = each.outcome in _UNDONE
        said = f"{one_line(each.path, 400)}: {_OUTCOMES[each.outcome]}"
        if each.note:
            said += f"; {one_line(each.note, 400)}"
        output.show(Text(said, style="" if is_back else "yellow"), "notice")
        if each.kept and each.path in doubtful:
            secrets = ", without its secrets," if each.kept.suffix else ""
            said = f"Its content before that{secrets} was saved in:"
            output.show(Text(said, style="dim"), "notice")
            output.copyable(str(each.kept))
