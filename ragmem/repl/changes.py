"""What a session changed in files: shown, and taken back, with or without the conversation."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from ragmem.errors import UsageError
from ragmem.memory.files import FileChange, Rewind, rewind_to
from ragmem.records import Turn
from ragmem.repl.choices import turn_question
from ragmem.repl.diffs import ChangeBlock, read_change
from ragmem.repl.output import ChatOutput, clipped
from ragmem.repl.session import ChatSession
from ragmem.repl.terminal import ChatQuestion
from ragmem.text import counted, one_line
from ragmem.tools.base import ToolFailure
from ragmem.tools.content import decode
from ragmem.tools.files import unified_diff
from ragmem.tools.rewind import Outcome, Preimages, Restored, Restorer
from ragmem.tools.workspace import Workspace

if TYPE_CHECKING:
    from ragmem.repl.commands import Then

_LISTED = 20
_YES_NO = (("y", "yes"), ("n", "no"))
_BACK: tuple[Outcome, ...] = ("restored", "removed", "as_before")
_OUTCOMES: dict[Outcome, str] = {
    "restored": "restored",
    "removed": "removed",
    "as_before": "is as it was",
    "kept": "left as it is",
    "failed": "not restored",
}


async def diff(named: str, chat: ChatSession) -> None:
    """Show what this session's edits changed, or in one file: before the first of them, and now."""
    output = chat.output
    back = rewind_to(await _turns(chat), 0)
    changes = [each for each in back.changes if not named or _is_named(each, named)]
    if not changes:
        what = f"has not changed {one_line(named, 200)}" if named else "has changed no file"
        output.note(f"This session {what}.{_by_commands(back)}")
        return
    restorer = _restorer(chat)
    for change in changes:
        try:
            before, now = await restorer.sides(change)
        except ToolFailure as failure:
            output.warn(f"{one_line(change.path, 400)}: {failure}")
            continue
        if before == now:
            output.note(f"{one_line(change.path, 400)} is as it was.")
            continue
        output.show(_block(change, before, now, folds=not named), "tool")
        if now is None:
            output.note("  It is gone since.")
        elif hashlib.sha256(now).hexdigest() != change.after or not change.unbroken:
            output.note("  Others than this session's edits have changed it too.")
    if told := _by_commands(back):
        output.note(told.strip())


def _is_named(change: FileChange, named: str) -> bool:
    return change.path == named or change.path.endswith(f"/{named}")


def _by_commands(back: Rewind) -> str:
    if not back.command_count:
        return ""
    return f" What {counted(back.command_count, 'command')} changed is not known."


def _block(
    change: FileChange, before: bytes | None, now: bytes | None, *, folds: bool
) -> ChangeBlock:
    old, new = (decode(each or b"").text for each in (before, now))
    text, _, _ = unified_diff(old, new, change.path, creates=before is None)
    hint = f"/diff {change.path} shows all"
    return ChangeBlock(read_change(text), folds=folds, hint=hint)


async def undo(_: str, chat: ChatSession) -> None:
    """Take back what the last turn that changed files did to them; the conversation stays.

    It is asked for where other turns came after it. A file that others have changed since is left
    as it is. A second time takes back the turn
    before.
    """
    restorer, output = _restorer(chat), chat.output

    async def never(_: str, __: str) -> bool:
        return False

    turns = await _turns(chat)
    left = [turn for turn in turns if turn.turn_id not in chat.undone]
    for turn in reversed(left):
        back = rewind_to([turn], turn.turn_index - 1)
        if not back.changes:
            continue
        if turn is not left[-1]:
            paths = ", ".join(one_line(change.path, 200) for change in back.changes)
            said = f"Take back what turn {turn.turn_index} of {len(turns)} did to {paths}?"
            if await output.ask(ChatQuestion(said, _YES_NO)) != "y":
                return output.note("Nothing was changed.")
        done = await restorer.restore(back.changes, never)
        if all(each.outcome in _BACK for each in done):
            chat.undone.add(turn.turn_id)
        if all(each.outcome == "as_before" for each in done):
            continue
        output.say(f"Of “{one_line(turn.user_message, 60)}”, turn {turn.turn_index}:")
        output.show(Group(*(_outcome(each, told=True) for each in done)))
        if back.command_count:
            output.note(f"What {counted(back.command_count, 'command')} did is not taken back.")
        return
    output.note("There is nothing to take back: this session's edits are undone, or it made none.")


async def _turns(chat: ChatSession) -> tuple[Turn, ...]:
    if not chat.can_be_resumed:
        return ()
    return (await chat.app.memory.load_session(chat.session.session_id)).turns


async def rewind(number: str, chat: ChatSession) -> "Then":
    """Go on in a fork that ends with an earlier turn, on request with the files as they were."""
    output = chat.output
    if not chat.can_be_resumed:
        raise UsageError("Nothing is stored of this session, so there is nothing to go back to.")
    turns = (await chat.app.memory.load_session(chat.session.session_id)).turns
    last = len(turns)
    chosen = number or await _choose(turns, output)
    if not chosen:
        return None
    if not chosen.isascii() or not chosen.isdecimal() or int(chosen) > last:
        raise UsageError(
            f"There is no turn {one_line(chosen, 20)} here.", hint=f"0 to {last - 1} can be named."
        )
    if int(chosen) == last:
        output.say(f"Turn {last} is where this session stands.")
        return None
    back = rewind_to(turns, int(chosen))
    answer = await _about_files(back, output)
    if answer is None:
        output.say("Nothing was changed.")
        return None
    before = chat.short_id
    await chat.fork(back.turn_index)
    if answer:
        await _restore(back, chat)
    if output.picks:  # what is to be said otherwise is most likely what was said next
        output.put_back(turns[back.turn_index].user_message)
    calls = ((back.command_count, "command", ""), (back.other_count, "call", " of another tool"))
    for count, what, of in calls:
        if count:
            output.say(f"What {counted(count, what)}{of} did since is not taken back.")
    output.say(f"The session with all of its turns is still there: /resume {before}")
    return "session"


async def _choose(turns: Sequence[Turn], output: ChatOutput) -> str:
    if output.picks:
        return await output.pick(turn_question(turns)) or ""
    rows = ((f"{turn.turn_index:>4}  ", one_line(turn.user_message, 1_000)) for turn in turns)
    shown = [clipped((number, "cyan"), (said, "")) for number, said in rows]
    output.show(Group(*shown[-_LISTED:]))
    said = await output.ask(
        ChatQuestion("Back to the end of which turn? 0 is the beginning; nothing for none:")
    )
    return (said or "").strip()


async def _about_files(back: Rewind, output: ChatOutput) -> bool | None:
    """Ask whether files are to be restored; None: the person thinks better of it all."""
    if not back.changes:
        return False
    lines = [f"{counted(len(back.changes), 'file')} changed after turn {back.turn_index}:"]
    lines += [f"  {one_line(change.path, 400)}{_what(change)}" for change in back.changes]
    output.show(Text("\n".join(lines)))
    choices = (("y", "yes"), ("n", "no, the conversation only"), ("c", "cancel"))
    answer = await output.ask(ChatQuestion("Take the files back too?", choices))
    return {"y": True, "n": False}.get(answer or "")


def _what(change: FileChange) -> str:
    if change.cut_off:
        return " (an edit was cut off)"
    edits = counted(change.edit_count, "edit")
    return f" ({edits}; made then, will be removed)" if change.before is None else f" ({edits})"


async def _restore(back: Rewind, chat: ChatSession) -> None:
    asked: set[str] = set()

    async def confirm(path: str, doubt: str) -> bool:
        asked.add(path)
        label = f"{one_line(path, 200)}: {doubt}. Take it back all the same?"
        return await chat.output.ask(ChatQuestion(label, _YES_NO)) == "y"

    done = await _restorer(chat).restore(back.changes, confirm)
    chat.output.show(Group(*(_outcome(each, told=each.path in asked) for each in done)))


def _restorer(chat: ChatSession) -> Restorer:
    paths = chat.app.paths
    workspace = Workspace(chat.app.cwd, chat.options.add_dirs, private=paths.own_folders)
    return Restorer(workspace, Preimages(paths.data_dir / "preimages"))


def _outcome(done: Restored, *, told: bool) -> Text:
    is_back = done.outcome in ("restored", "removed")
    said = f"{one_line(done.path, 400)}: {_OUTCOMES[done.outcome]}"
    if done.note and (told or not is_back):
        said += f"; {one_line(done.note, 400)}"
    return Text(said, style="" if is_back or done.outcome == "as_before" else "yellow")
