"""/rename, /tag, /fork and /rewind."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Group
from rich.text import Text

from ragmem.errors import UsageError
from ragmem.memory.rewinding import FileChange, Rewind, rewind_to
from ragmem.records import Turn
from ragmem.repl.page import Page
from ragmem.repl.talk import Talk
from ragmem.repl.terminal import Question
from ragmem.text import counted, one_line
from ragmem.tools.rewind import Outcome, Preimages, Restored, Restorer
from ragmem.tools.workspace import Workspace

Then = Literal["", "exit", "session"]

SESSION_COMMANDS = {
    "rename": "name this session: /rename name",
    "tag": "tag this session: /tag word, /tag -word takes it away",
    "fork": "go on in a copy of this session: /fork [name]",
    "rewind": "go back to an earlier turn, with the files if you like: /rewind [turn]",
}
_LISTED_TURNS = 20
_OUTCOMES: dict[Outcome, str] = {
    "restored": "restored",
    "removed": "removed",
    "as_before": "is as it was",
    "kept": "left as it is",
    "failed": "not restored",
}
_YES_NO = (("y", "yes"), ("n", "no"))


async def _rename(name: str, talk: Talk, page: Page) -> Then:
    """The person's name for the session."""
    title = " ".join(name.split())
    if not title:
        raise UsageError("Which name?", hint="/rename followed by the new name.")
    await talk.rename(title)
    page.say(f"This session is called {one_line(talk.session.title, 120)} now.")
    return ""


async def _tag(words: str, talk: Talk, page: Page) -> Then:
    """`/tag auth -draft`: one more, one less; alone it shows those there are."""
    given = words.split()
    add = [word for word in given if not word.startswith("-")]
    remove = [word[1:] for word in given if word.startswith("-")]
    if given:
        await talk.tag(add, remove)
    tags = ", ".join(one_line(each, 60) for each in talk.session.tags)
    page.say(f"Tags: {tags or 'none; /tag followed by words gives some'}")
    return ""


async def _fork(name: str, talk: Talk, page: Page) -> Then:
    """Go on in a copy, which shares all turns so far."""
    before = talk.short_id
    await talk.fork(title=name)
    page.say(f"This is a fork; the session that it was made from: /resume {before}")
    return "session"


async def _rewind(number: str, talk: Talk, page: Page) -> Then:
    """Go on in a fork that ends with an earlier turn, on request with the files as they were."""
    if not talk.can_be_resumed:
        raise UsageError("Nothing is stored of this session, so there is nothing to go back to.")
    turns = (await talk.app.memory.load_session(talk.session.session_id)).turns
    last = len(turns)
    chosen = number or await _choose(turns, page)
    if not chosen:
        return ""
    if not chosen.isascii() or not chosen.isdecimal() or int(chosen) > last:
        raise UsageError(
            f"There is no turn {one_line(chosen, 20)} here.", hint=f"0 to {last - 1} can be named."
        )
    if int(chosen) == last:
        page.say(f"Turn {last} is where this session stands.")
        return ""
    back = rewind_to(turns, int(chosen))
    answer = await _about_files(back, page)
    if answer is None:
        page.say("Nothing was changed.")
        return ""
    before = talk.short_id
    await talk.fork(back.turn_index)
    if answer:
        await _restore(back, talk, page)
    for count, what in (
        (back.command_count, "command"),
        (back.other_count, "call of another tool"),
    ):
        if count:
            page.say(f"What {_counted(count, what)} did since is not taken back.")
    page.say(f"The session with all of its turns is still there: /resume {before}")
    return "session"


def _counted(count: int, what: str) -> str:
    first, _, rest = what.partition(" ")
    return f"{counted(count, first)} {rest}".strip()


async def _choose(turns: Sequence[Turn], page: Page) -> str:
    lines = [
        Text(f"{turn.turn_index:>4}  ", style="cyan")
        + Text(one_line(turn.user_message, max(20, page.width - 6)))
        for turn in turns[-_LISTED_TURNS:]
    ]
    page.show(Text("\n").join(lines))
    said = await page.ask(
        Question("Back to the end of which turn? 0 is the beginning; nothing for none:")
    )
    return (said or "").strip()


async def _about_files(back: Rewind, page: Page) -> bool | None:
    """Whether files are to be restored; None: the person thinks better of it all."""
    if not back.changes:
        return False
    files = counted(len(back.changes), "file")
    lines = [f"{files} changed after turn {back.turn_index}:"]
    lines += [f"  {one_line(change.path, 400)}{_what(change)}" for change in back.changes]
    page.show(Text("\n".join(lines)))
    choices = (("y", "yes"), ("n", "no, the conversation only"), ("c", "cancel"))
    match await page.ask(Question("Take the files back too?", choices)):
        case "y":
            return True
        case "n":
            return False
    return None


def _what(change: FileChange) -> str:
    if change.cut_off:
        return " (an edit was cut off)"
    edits = counted(change.edit_count, "edit")
    return f" ({edits}; made then, will be removed)" if change.before is None else f" ({edits})"


async def _restore(back: Rewind, talk: Talk, page: Page) -> None:
    paths = talk.app.paths
    private = (paths.config_dir, paths.data_dir, paths.log_dir)
    folders: tuple[Path, ...] = talk.options.add_dirs
    restorer = Restorer(
        Workspace(talk.app.cwd, folders, private=private), Preimages(paths.data_dir / "preimages")
    )
    asked: set[str] = set()

    async def confirm(path: str, doubt: str) -> bool:
        asked.add(path)
        label = f"{one_line(path, 200)}: {doubt}. Take it back all the same?"
        return await page.ask(Question(label, _YES_NO)) == "y"

    done = await restorer.restore(back.changes, confirm)
    page.show(Group(*(_outcome(each, told=each.path in asked) for each in done)))


def _outcome(done: Restored, *, told: bool) -> Text:
    note = done.note
    if done.outcome in ("restored", "removed") and not told:
        note = ""
    style = "" if done.outcome in ("restored", "removed", "as_before") else "yellow"
    said = f"{one_line(done.path, 400)}: {_OUTCOMES[done.outcome]}"
    return Text(said + (f"; {one_line(note, 400)}" if note else ""), style=style)


SESSION_HANDLERS: dict[str, Callable[[str, Talk, Page], Awaitable[Then]]] = {
    "rename": _rename,
    "tag": _tag,
    "fork": _fork,
    "rewind": _rewind,
}
