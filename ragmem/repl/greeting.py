"""What a chat says before the first prompt, when it goes to another session, and at its end."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from ragmem import __version__
from ragmem.errors import StoreError, UsageError
from ragmem.records import DEFAULT_TITLE
from ragmem.repl.commands import pick_session, sessions_here
from ragmem.repl.markdown import answer
from ragmem.repl.page import Page
from ragmem.repl.talk import Opening, Talk
from ragmem.text import ago, clip_middle, one_line

if TYPE_CHECKING:
    from ragmem.app import App

_SHOWN_TURNS = 3
_SHOWN_CHARS = 4_000


async def choose_opening(app: "App", opening: Opening, page: Page) -> Opening | None:
    """Let the person choose where `-r` names no session; None when they choose none."""
    if opening.resume != "":
        return opening
    found = await sessions_here(app)
    if not found:
        page.say("There are no sessions in this folder yet: this is a new one.")
        return msgspec.structs.replace(opening, resume=None)
    chosen = await pick_session(found, page)
    return msgspec.structs.replace(opening, resume=chosen) if chosen else None


async def greet(talk: Talk, opening: Opening, page: Page) -> None:
    """Where we are; how to go on with what was last done here; what the app has to say."""
    where = one_line(str(talk.app.cwd), max(20, page.width - 30))
    page.show(Text(f"ragmem {__version__} · {where} · /help", style="dim"))
    notices(talk, page)
    if talk.session.turn_count:
        await show_past(talk, page)
    elif opening.continue_last:
        page.say("There is no session to continue in this folder: this is a new one.")
    elif hint := await _last_session(talk):
        page.say(hint)


async def introduce(talk: Talk, page: Page) -> None:
    """The session that the chat has gone to."""
    notices(talk, page)
    if talk.session.turn_count:
        await show_past(talk, page)
    else:
        page.say("A new session.")


async def _last_session(talk: Talk) -> str:
    try:
        last = await talk.app.continue_session()
    except (StoreError, UsageError):
        return ""
    if last is None:
        return ""
    named = last.last_message if last.title == DEFAULT_TITLE else last.title
    when = ago(last.last_activity_at, datetime.now(UTC))
    return (
        f"The last session here, {when}: “{one_line(named or last.title, 60)}”. "
        "`ragmem chat -c` or /resume goes on with it."
    )


def notices(talk: Talk, page: Page) -> None:
    """What the app wants to have said."""
    for text in talk.app.notices():
        page.say(text)


async def show_past(talk: Talk, page: Page) -> None:
    """The last turns of the session, so that one sees where it stood."""
    session = talk.session
    turns = (await talk.app.memory.load_session(session.session_id)).turns
    earlier = len(turns) - _SHOWN_TURNS
    before = f" {earlier} earlier turns are not shown." if earlier > 0 else ""
    named = "" if session.title == DEFAULT_TITLE else f": {one_line(session.title, 80)}"
    page.say(f"Session {talk.short_id}{named}.{before}")
    for turn in turns[-_SHOWN_TURNS:]:
        page.prompt(clip_middle(turn.user_message, _SHOWN_CHARS))
        if turn.assistant_message.strip():
            page.show(answer(clip_middle(turn.assistant_message, _SHOWN_CHARS)), "text")
        if turn.status in ("interrupted", "failed"):
            page.show(Text(f"  {turn.status}", style="yellow"), "closing")


def farewell(talk: Talk, page: Page) -> None:
    """The command that goes on with this session, if there is anything to go on with."""
    if talk.can_be_resumed:
        page.show(Text(f"Resume with: ragmem chat -r {talk.short_id}", style="dim"))
