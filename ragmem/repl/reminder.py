"""Once, at the start of a session: that there were sessions like it."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

from ragmem.errors import RagmemError
from ragmem.events import ContextBuilt, Event, MessageFinished, TextDelta
from ragmem.ids import short_id
from ragmem.memory.similar import SimilarSession, similar_sessions
from ragmem.records import DEFAULT_TITLE
from ragmem.repl.page import Page
from ragmem.repl.talk import Talk
from ragmem.text import ago, counted, one_line

_MOST = 3
_EMBEDDED_NOW = 4
_TITLE_CHARS = 40


class Reminder:
    """Looks for them while the model thinks, and tells between two pieces of its answer.

    The question's vector is at hand by then: recall has just made it. What is not found
    before the answer is whole stays unsaid, and so does every failure.
    """

    def __init__(self, talk: Talk, page: Page, prompt: str) -> None:
        self._talk = talk
        self._page = page
        self._prompt = prompt
        self._speaking = False
        self._line = ""
        self._looking: asyncio.Task[None] | None = None
        begins = not talk.turn_count and not talk.session.turn_count
        self._wanted = begins and talk.app.memory.records and talk.app.embedder is not None

    def see(self, event: Event) -> None:
        """Follow the turn."""
        match event:
            case ContextBuilt() if self._wanted:
                self._wanted = False
                self._looking = asyncio.create_task(self._look())
            case TextDelta():
                self._speaking = True
            case MessageFinished():
                self._speaking = False
                self._tell()

    def close(self) -> None:
        """The turn is over."""
        if self._looking:
            self._looking.cancel()

    async def _look(self) -> None:
        with suppress(RagmemError):
            found = await like_this(self._talk, self._prompt)
            if found:
                self._line = reminder_line(found)
                self._tell()

    def _tell(self) -> None:
        if self._line and not self._speaking:
            line, self._line = self._line, ""
            self._page.say(line)


async def like_this(talk: Talk, prompt: str) -> list[SimilarSession]:
    """Past sessions of the project (of all, where recall goes so far) that are like a prompt."""
    app = talk.app
    if app.embedder is None or app.memory.floor is None:
        return []
    everywhere = app.config.memory.scope == "all"
    return await similar_sessions(
        await app.store(),
        app.embedder,
        prompt,
        floor=app.memory.floor,
        limit=_MOST,
        project_ids=() if everywhere else (talk.session.project_id,),
        without=(talk.session.session_id,),
        embedded_now=_EMBEDDED_NOW,
    )


def reminder_line(found: list[SimilarSession]) -> str:
    """As it is shown, nearest first."""
    now = datetime.now(UTC)
    named = []
    for each in found:
        session = each.session
        title = session.title if session.title != DEFAULT_TITLE else session.last_message or ""
        when = ago(session.last_activity_at, now)
        named.append(f"{one_line(title, _TITLE_CHARS)} ({short_id(session.session_id)}, {when})")
    how_many = counted(len(found), "session")
    return f"You had {how_many} like this one: {'; '.join(named)}. /resume goes on with one."
