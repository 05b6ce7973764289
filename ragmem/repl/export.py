"""`/export`: this session in a file, as Markdown, JSON or one page of HTML."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ragmem.errors import RagmemError, UsageError
from ragmem.files import replace_private, write_new_private
from ragmem.ids import short_id
from ragmem.repl.terminal import ChatQuestion
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.repl.session import ChatSession

_FORMATS = {".md": "md", ".markdown": "md", ".txt": "md", ".json": "json", ".html": "html"}
_FORMATS[".htm"] = "html"
_YES_NO = (("y", "yes"), ("n", "no"))


async def export(name: str, chat: "ChatSession") -> None:
    """Write the session into a file that this user alone can read; by its name in which form.

    What stands there already is replaced only when the person says so.
    """
    if not chat.can_be_resumed:
        raise UsageError("Nothing is stored of this session, so there is nothing to export.")
    session_id = chat.session.session_id
    file = _place(chat.app.cwd, name or f"session-{short_id(session_id)}.md")
    form = _FORMATS.get(file.suffix.lower())
    if form is None:
        raise UsageError(
            f"What form {visible(file.name)} is to have is not known.",
            hint="Its name ends with .md, .json or .html.",
        )
    conversation = await chat.app.memory.load_session(session_id)
    if form == "json":
        data = await _json(chat, session_id)
    else:
        from ragmem.pages import html, markdown

        page = html if form == "html" else markdown
        data = await asyncio.to_thread(
            lambda: page(conversation.session, conversation.turns).encode()
        )
    if await _written(file, data, chat):
        turns = counted(len(conversation.turns), "turn")
        chat.output.note(f"{turns} in {visible(str(file))}")
    else:
        chat.output.note("Nothing was written.")


def _place(folder: Path, name: str) -> Path:
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as error:  # `~somebody` who is not there
        raise UsageError(f"{visible(name)} is no path: {error}") from None


def _question(file: Path) -> ChatQuestion:
    """Return what is asked before a file is replaced; UsageError where it is none."""
    shown = visible(str(file))
    if not file.is_file():
        raise UsageError(f"{shown} is there already, and is no file.")
    at = datetime.fromtimestamp(file.stat().st_mtime)
    return ChatQuestion(f"{shown} is there, of {at:%Y-%m-%d %H:%M}. Replace it?", _YES_NO)


async def _json(chat: "ChatSession", session_id: str) -> bytes:
    from ragmem.administration import Administration

    _, data = await Administration(chat.app.config, chat.app.paths).export(session_id)
    return data


async def _written(file: Path, data: bytes, chat: "ChatSession") -> bool:
    """Return whether it was: a file that is there stays unless the person gives it up."""
    try:
        try:
            await asyncio.to_thread(write_new_private, file, data)
        except FileExistsError:
            if await chat.output.ask(_question(file)) != "y":
                return False
            await asyncio.to_thread(replace_private, file, data, sync=True)
    except OSError as error:
        raise RagmemError(
            f"{visible(str(file))} could not be written: {error.strerror or error}.",
            hint="/export followed by another name.",
        ) from None
    return True
