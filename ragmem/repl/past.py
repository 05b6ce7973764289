"""A session's past: what was shown in short, opened whole; all of it in a file; what it changed in
files, shown and taken back, with or without the conversation.
"""

import asyncio
import hashlib
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
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
from ragmem.files import replace_private, write_new_private
from ragmem.ids import short_id
from ragmem.memory.files import FileChange, Rewind, rewind_to, without_output
from ragmem.memory.memory import SessionTurns
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
"""From so much on a prompt is shown folded when its session is resumed, or was a paste."""
_PROMPT = "Prompt: "
_PREVIEW_CHARS = 4_000
_ASKED_CHARS = 60
_MOST_BYTES = 4_000_000
_LATEST = TurnQuery(limit=200)
"""What lists begin with; all turns are read where the person asks for them."""


class Shortened(msgspec.Struct, frozen=True):
    """Something that was shown in short."""

    title: str
    what: str
    """How much of it there is, or what kind of thing it is."""
    turn_index: int
    at: datetime
    text: str
    file: Path | None = None
    """Where all of it is, when `text` is cut."""
    is_session: bool = False
    """Whether it is all of a session; `text` is its end then."""


async def expand(said: str, chat: ChatSession) -> None:
    """Open what the person names by its number in the list, or picks from it.

    The list holds this session's, the newest first. UsageError when there is no such number, or
    nothing at all.
    """
    if not chat.app.memory.records:
        raise UsageError("This session is not stored, so nothing can be expanded later.")
    turns: tuple[Turn, ...] = ()
    with suppress(SessionNotFound):  # nothing was asked yet
        turns = (await _conversation(chat, _LATEST)).turns
    found = _shortened(turns, chat)
    if not found:
        raise UsageError("Nothing in this session has been shortened yet.")
    count, first = len(found), turns[0].turn_index if turns else 1

    async def every() -> list[PickRow]:
        if len(found) == count and first > 1:
            older = (await _conversation(chat, TurnQuery(before_index=first))).turns
            found.extend(each for turn in reversed(older) for each in shortened_of(turn))
        return _rows(found)

    question = _question(found, every if first > 1 else None)
    number = said or await chat.output.terminal.pick(question)
    if not number:
        return
    if number.isdecimal() and int(number) > count:
        await every()
    if not (number.isdecimal() and 0 < int(number) <= len(found)):
        raise UsageError(f"No item {number} in the list.", hint="/expand lists them.")
    chosen = found[int(number) - 1]
    conversation = await _conversation(chat) if chosen.is_session else None
    await chat.output.terminal.page(await asyncio.to_thread(_whole, chosen, conversation))


def _shortened(turns: Sequence[Turn], chat: ChatSession) -> list[Shortened]:
    """Return what of the latest turns was shown in short, what memory put in, and the session."""
    now = datetime.now(UTC)
    found = [each for turn in reversed(turns) for each in shortened_of(turn)]
    if chat.recalled:
        last = turns[-1].turn_index if turns else 0
        what, text = counted(len(chat.recalled), "item"), items_text(chat.recalled, now)
        memory = Shortened("What memory added to the last request", what, last, now, text)
        # Its row is below that of the prompt, and above those of the results.
        later = (each.turn_index == last and not each.title.startswith(_PROMPT) for each in found)
        found.insert(sum(later), memory)
    if turns and (last := turns[-1].turn_index) > 1:
        said = turns[-1].assistant_message or turns[-1].asked
        title, count = "All of this session", counted(last, "turn")
        whole = Shortened(title, count, last, turns[-1].timestamp, said, is_session=True)
        # Who has just come back wants to read it; later it is on the screen in part.
        found.insert(len(found) if chat.turn_count else 0, whole)
    return found


def shortened_of(turn: Turn) -> list[Shortened]:
    """Return what of a turn was shown in short, the newest first."""
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
    """Return where all that a command printed is, where that is more than the model was shown."""
    with suppress(ValueError, AttributeError):
        name = json.loads(call.result or "{}").get("output_file")
        return Path(name) if isinstance(name, str) else None
    return None


def _question(
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


def _whole(chosen: Shortened, conversation: SessionTurns | None) -> str:
    """Return its text; of a command all that its file still has, of a session all turns."""
    if conversation:
        return visible(markdown(conversation.session, conversation.turns))
    text = chosen.text
    if chosen.file:
        try:
            with chosen.file.open("rb") as file:
                text = plain(file.read(_MOST_BYTES).decode("utf-8", "replace"))
                if file.read(1):
                    text += f"\n\nThe rest is in {chosen.file}."
        except OSError:
            text += f"\n\n{chosen.file} no longer exists; this is what was kept of it."
    head = f"{_title(chosen)}\nturn {chosen.turn_index} · {chosen.what}"
    return visible(f"{head}\n\n{text.rstrip()}\n")


# --- all of it in a file -----------------------------------------------------


async def export(name: str, chat: ChatSession) -> None:
    """Write the session into a file that this user alone can read; by its name in which form.

    What stands there already is replaced only when the person says so.
    """
    if not chat.can_be_resumed:
        raise UsageError("This session is not stored, so there is nothing to export.")
    session_id, folder = chat.session.session_id, chat.app.cwd
    file = _place(folder, name or f"session-{short_id(session_id)}.md")
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
    if not await _written(file, data, chat):
        return chat.output.note("Nothing was written.")
    shown = file.relative_to(folder) if file.is_relative_to(folder) else file
    return chat.output.note(f"{counted(count, 'turn')} in {visible(str(shown))}")


def _place(folder: Path, name: str) -> Path:
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as error:  # `~somebody` who is not there
        raise UsageError(f"Invalid path {visible(name)}: {error}") from None


def _replacing(file: Path) -> ChatQuestion:
    """Return what is asked before a file is replaced; UsageError where it is none."""
    shown = visible(str(file))
    if not file.is_file():
        raise UsageError(f"{shown} exists and is not a file.")
    at = datetime.fromtimestamp(file.stat().st_mtime)
    return ChatQuestion(
        f"{shown} already exists (written {at:%Y-%m-%d %H:%M}). Replace it?", YES_NO
    )


async def _written(file: Path, data: bytes, chat: ChatSession) -> bool:
    """Return whether it was: a file that is there stays unless the person gives it up."""
    try:
        try:
            await asyncio.to_thread(write_new_private, file, data)
        except FileExistsError:
            if await chat.output.terminal.ask(_replacing(file)) != "y":
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


# --- what it changed in files ------------------------------------------------

_BACK: tuple[Outcome, ...] = ("restored", "removed", "as_before")
_OUTCOMES: dict[Outcome, str] = {
    "restored": "restored",
    "removed": "removed",
    "as_before": "restored",
    "kept": "left unchanged",
    "failed": "not restored",
}


async def diff(named: str, chat: ChatSession) -> None:
    """Show what this session's edits changed, or in one file: before the first of them, and now."""
    output = chat.output
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
    restorer = _restorer(chat)
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
        text, _, _ = unified_diff(old, new, change.path, creates=before is None)
        hint = f"/diff {change.path} shows all"
        output.show(ChangeBlock(read_change(text), folds=not named, hint=hint), "tool")
        if now is None:
            output.note("  It no longer exists.")
        elif hashlib.sha256(now).hexdigest() != change.after or not change.unbroken:
            output.note("  It also has changes from outside this session.")
    if back.command_count:
        output.note(_by_commands(back).strip())


def _by_commands(back: Rewind) -> str:
    if not back.command_count:
        return ""
    return f" Changes made by {counted(back.command_count, 'command')} are not shown."


async def undo(_: str, chat: ChatSession) -> None:
    """Take back what the last turn that changed files did to them; the conversation stays.

    It is asked for where other turns came after it. A file that others have changed since is left
    as it is. A second time takes back the turn before; so does the first, where nothing of the last
    one can be taken back.
    """
    restorer, output = _restorer(chat), chat.output

    async def never(_: str, __: str) -> bool:
        return False

    passed, is_said = dict[str, list[str]](), False
    async for turn, back, later in _left(chat):
        if later:
            paths = ", ".join(one_line(change.path, 200) for change in back.changes)
            said = f"Undo what turn {turn.turn_index} of {later} did to {paths}?"
            if await output.terminal.ask(ChatQuestion(said, YES_NO)) != "y":
                return output.note("Nothing was changed.")
        done = await restorer.restore(back.changes, never)
        passed[turn.turn_id] = [each.path for each in done if each.outcome in _BACK]
        if all(each.outcome == "as_before" for each in done):
            continue
        asked = one_line(turn.asked, _ASKED_CHARS)
        if any(passed.values()):
            what = f"what turn {turn.turn_index} (“{asked}”) did to files"
            await chat.record("/undo", UNDO, _told(what, done, passed))
        heading = f"Undo of turn {turn.turn_index}, “{asked}”:"
        _tell(done, output, {each.path for each in done}, heading)
        if back.command_count:
            output.note(f"What {counted(back.command_count, 'command')} did is not undone.")
        if passed[turn.turn_id]:
            return
        is_said = True
    if not is_said:
        output.note("Nothing to undo: this session has no edits, or they are already undone.")


async def _left(chat: ChatSession) -> AsyncGenerator[tuple[Turn, Rewind, int], None]:
    """Yield the turns whose edits stand, the newest first, each with what it did to files.

    Where others came after it that are not taken back either, with how many turns there are.
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
    """What a turn did to files, but for what is taken back already."""
    back = rewind_to([turn], turn.turn_index - 1)
    done = gone.get(turn.turn_id, ())
    changes = tuple(change for change in back.changes if change.path not in done)
    return msgspec.structs.replace(back, changes=changes)


def _told(what: str, done: Sequence[Restored], gone: Mapping[str, Sequence[str]]) -> Json:
    """What is recorded of edits that were taken back: for the model, and by turn and path."""
    became = "; ".join(f"{plain_or_quoted(e.path)}: {_OUTCOMES[e.outcome]}" for e in done)
    return {
        "text": f"The user undid {what}. {became}.",
        "taken_back": {turn_id: list(paths) for turn_id, paths in gone.items() if paths},
    }


async def _turns(chat: ChatSession, query: TurnQuery = ALL_TURNS) -> tuple[Turn, ...]:
    return (await _conversation(chat, query)).turns if chat.can_be_resumed else ()


async def _edits(chat: ChatSession, first: int = 1) -> tuple[Turn, ...]:
    """The turns from one on, without what else than edits their tools answered."""
    if not chat.can_be_resumed:
        return ()
    turns = chat.app.memory.turns_on(chat.session.session_id, first)
    return tuple([without_output(turn) async for turn in turns])


async def rewind(number: str, chat: ChatSession) -> "Then":
    """Go on in a fork that ends before an earlier prompt, which comes back into the draft.

    On request the files are as they were then.
    """
    output = chat.output
    if not chat.can_be_resumed:
        raise UsageError("This session is not stored, so it can't be rewound.")
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
    answer = await _about_files(back, output)
    if answer is None:
        output.say("Nothing was changed.")
        return None
    # With the marks of what was piped: said again, it is not the person's own words either; nor is
    # what a command stands for that is given again.
    before, prompt = chat.short_id, as_typed(turns[0].user_message)
    left = chat.agent
    since = f"turns {chosen} to {last}" if int(chosen) < last else f"turn {chosen}"
    gone_back: Json = {"text": f"The user continued without {since}, in a copy of this session."}
    if not answer:
        # First, so that the fork is the newest session.
        await left.record(REWIND, UNDO, gone_back)
    await chat.fork(back.turn_index)
    told = (
        f"Rewound to before “{one_line(prompt, _ASKED_CHARS)}”. What is shown above of {since} is "
        "no longer part of this conversation."
    )
    output.show(Group(rule(output.width), Gutter(told, mark="  ", words=True)))
    if answer:
        # The session that was left is told of it: whoever resumes it finds the files so.
        done = await _restore(back, chat)
        paths = {each.path for each in done if each.outcome in _BACK}
        gone = {
            turn.turn_id: [each.path for each in _of_turn(turn, {}).changes if each.path in paths]
            for turn in turns
        }
        if any(gone.values()):
            gone_back = _told(f"what {since} did to files", done, gone)
        await left.record(REWIND, UNDO, gone_back)
    await _undo_again(turns, chat)
    if not turns[0].is_undo:
        output.terminal.put_back(prompt)
    calls = ((back.command_count, "command", ""), (back.other_count, "call", " of another tool"))
    for count, what, of in calls:
        if count:
            output.say(f"Not undone: what {counted(count, what)}{of} did since.")
    output.say(f"The session with all its turns is kept: /resume {before}")
    return "session"


async def _undo_again(left: Sequence[Turn], chat: ChatSession) -> None:
    """Tell a fork of what was taken back, where it was said in the turns that were left."""
    ids = {turn.turn_id for turn in left}
    said = taken_back(left).items()
    gone = {turn_id: sorted(each) for turn_id, each in said if turn_id not in ids}
    if gone:
        paths = ", ".join(map(plain_or_quoted, sorted(set().union(*gone.values()))))
        told = {"text": f"The user undid edits of: {paths}.", "taken_back": gone}
        await chat.record("/undo", UNDO, told)


async def _about_files(back: Rewind, output: ChatOutput) -> bool | None:
    """Ask whether files are to be restored; None: the person thinks better of it all."""
    if not back.changes:
        return False
    lines = [f"{counted(len(back.changes), 'file')} changed from turn {back.turn_index + 1} on:"]
    lines += [f"  {one_line(change.path, 400)}{_what(change)}" for change in back.changes]
    output.show(Text("\n".join(lines)))
    choices = (("y", "yes"), ("n", "no, only the conversation"), ("c", "cancel"))
    answer = await output.terminal.ask(ChatQuestion("Undo the file changes too?", choices, "n"))
    return {"y": True, "n": False}.get(answer or "")


def _what(change: FileChange) -> str:
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
    _tell(done, chat.output, asked)
    return done


def _restorer(chat: ChatSession) -> Restorer:
    paths = chat.app.paths
    workspace = Workspace(chat.app.cwd, chat.options.add_dirs, private=paths.own_folders)
    return Restorer(workspace, Preimages(paths.data_dir / "preimages"))


def _tell(
    done: Sequence[Restored], output: ChatOutput, doubtful: Collection[str], heading: str = ""
) -> None:
    """Say what became of each file, below where of those in doubt what stood there is kept."""
    for each in done:
        if each.kept and each.path in doubtful:
            secrets = ", without its secrets," if each.kept.suffix else ""
            said = f"The content of {one_line(each.path, 400)}{secrets} was saved in:"
            output.show(Text(said), "notice")
            output.copyable(str(each.kept))
    if heading:
        output.say(heading)
    for each in done:
        is_back = each.outcome in _BACK
        said = f"{one_line(each.path, 400)}: {_OUTCOMES[each.outcome]}"
        if each.note:
            said += f"; {one_line(each.note, 400)}"
        output.show(Text(said, style="" if is_back else "yellow"), "notice")
