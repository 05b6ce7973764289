"""Deleting a session, with everything derived from it outside the store.

The session goes last, so that a deletion that was interrupted can be run again.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ragmem.config import Paths
from ragmem.errors import RagmemError, SessionNotFound, StoreError
from ragmem.files import forget_prompts, remove_pages, restore_prompts
from ragmem.logs import log_deletion, unlog_deletion
from ragmem.memory.files import preimages_of
from ragmem.memory.recording import TAIL_SUFFIX, RequestLog, Tail
from ragmem.memory.turns import prompts_of, was_said
from ragmem.own_tools import RUN_COMMAND
from ragmem.records import Session, SessionQuery, Span, Turn, as_shown, utc_now
from ragmem.tools.rewind import Preimages

if TYPE_CHECKING:
    from ragmem.store import Archive

_PAGE = 100
_ALL = 2**31 - 1
_LONGEST_TURN = timedelta(days=1)
"""How long after a session's recorded last activity its last turn may still edit files."""
_KEPT_OUTPUT = re.compile(r"command-[0-9a-f-]{36}\.txt")


async def delete_session(
    store: "Archive", session: Session, *, paths: Paths, kind: str
) -> dict[str, int]:
    """Delete a session of a store of this kind, and log it; return counts by kind.

    If the store refuses, or the session is still in it after an error, neither the prompt history
    nor the log says otherwise.
    """
    session_id, history = session.session_id, paths.prompt_history
    preimages = Preimages(paths.data_dir / "preimages")
    preimages.look_through()
    outputs, copies, typed_texts = await _leftovers(store, session, preimages)
    removed, counts, undo = Counter[str](), dict[str, int](), ExitStack()

    def remove_files(gone: dict[str, int]) -> None:
        folder = paths.data_dir / "outputs"
        files = [file for name in sorted(outputs) if (file := folder / name).is_file()]
        try:
            for output in files:
                output.unlink(missing_ok=True)
            removed.update(outputs=len(files), copies=preimages.remove(copies))
            for file in paths.spool_dir.glob(f"*{TAIL_SUFFIX}"):
                Tail(file, str).forget(session_id)
            RequestLog(paths.data_dir).forget(session_id)
            remove_pages(paths)
            prompts = forget_prompts(history, lambda typed: was_said(typed, typed_texts))
        except OSError as error:
            raise RagmemError(
                f"The session was not deleted, because {error.filename or 'a file'} can't "
                f"be changed: {error.strerror or error}.",
                hint="Make it writable, and run this again.",
            ) from None
        gone |= removed
        undo.callback(restore_prompts, history, prompts)
        if not counts:  # A graph does this once more if its transaction failed.
            counts.update(gone)
            what = {"session_id": session_id, "cwd": session.cwd, "store": kind, "deleted": gone}
            line = log_deletion(paths.log_dir, {"at": utc_now(), **what})
            undo.callback(unlog_deletion, paths.log_dir, line)

    try:
        return await store.delete_session(session_id, first=remove_files)
    except Exception as error:
        try:
            await store.session(session_id)
            undo.close()
        except SessionNotFound:
            # A graph's answer was lost, and the deletion was tried once more.
            if counts and isinstance(error, SessionNotFound):
                return counts
        except StoreError:
            pass  # Whether it was deleted is unknown.
        raise


async def _leftovers(
    store: "Archive", session: Session, preimages: Preimages
) -> tuple[set[str], set[str], set[str]]:
    """Return what a session leaves behind: its commands' output files, file copies that no other
    session refers to, and the texts typed in it."""
    outputs: set[str] = set()
    copies: set[str] = set()
    typed: set[str] = set()
    async for turns in _own_turns(store, session):
        copies |= preimages_of(turns)
        for turn in turns:
            prompt, later = prompts_of(turn)
            for words in (as_shown(prompt), *later.values()):
                # What was typed during a turn is joined by blank lines.
                typed |= {words.strip(), *map(str.strip, words.split("\n\n"))}
            for call in turn.tool_calls:
                if call.tool_name == RUN_COMMAND:
                    outputs.update(_KEPT_OUTPUT.findall(call.result))
    return outputs, await _unreferenced(store, session, copies, preimages), typed


async def _unreferenced(
    store: "Archive", session: Session, copies: set[str], preimages: Preimages
) -> set[str]:
    """Return the copies to which no other session refers, in any project."""
    made = {name: at for name in copies if (at := preimages.made_at(name))}
    left = set(made)
    # Sessions that ended before the first copy was made refer to none.
    since = min(made.values(), default=datetime.now(UTC)) - _LONGEST_TURN
    for other in await store.sessions(SessionQuery(limit=_ALL)) if left else ():
        if other.session_id != session.session_id and other.last_activity_at >= since:
            async for turns in _own_turns(store, other):
                left -= preimages_of(turns)
    return left


async def _own_turns(store: "Archive", session: Session) -> AsyncIterator[list[Turn]]:
    """Yield the turns that the session shares with no other, page by page."""
    for first in range((session.forked_at_index or 0) + 1, session.turn_count + 1, _PAGE):
        page = Span(session.session_id, first, min(first + _PAGE - 1, session.turn_count))
        yield [put.turn for put in await store.own_turns([page])]
