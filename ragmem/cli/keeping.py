"""What `ragmem sessions export`, `import` and `delete` do."""

import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from ragmem.cli.choice import last_session, resumed, session_name
from ragmem.cli.moving import confirm, opened
from ragmem.cli.new_file import new_file
from ragmem.cli.opening import open_app
from ragmem.cli.streams import say, write, write_json, write_utf8
from ragmem.config import Config, Paths, environment
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.ids import short_id
from ragmem.logs import log_deletion
from ragmem.memory.rewinding import preimages_of
from ragmem.memory.tail import SUFFIX, Tail
from ragmem.records import Session, Turn
from ragmem.redact import know, redact, secrets_among
from ragmem.store.base import Archive, Span
from ragmem.store.transfer.document import decoded, document_of, encoded, import_document
from ragmem.store.transfer.markdown import markdown
from ragmem.text import counted, visible
from ragmem.tools.rewind import Preimages

_KEPT_OUTPUT = re.compile(r"command-[0-9a-f-]{36}\.txt")
_PAGE = 100
_LONGEST_TURN = timedelta(days=1)
"""A turn's edits are made after the time that stands for the session's last activity."""


class _Deletion(msgspec.Struct, frozen=True):
    """A line of the log: nothing goes without one."""

    at: datetime
    session_id: str
    cwd: str
    store: str
    deleted: dict[str, int]


async def export(
    config: Config,
    paths: Paths,
    reference: str | None,
    file: Path | None,
    form: Literal["json", "md"],
) -> int:
    """Write a session to a new file or to stdout; the exit code."""
    session = await _found(config, paths, reference)
    async with opened(config.store.kind, config, paths, existing=True) as store:
        document = await document_of(store, session.session_id)
    data = encoded(document) if form == "json" else markdown(document).encode()
    if file is None:
        (write_json if form == "json" else write_utf8)(data.decode())
        return EXIT_DONE
    with new_file(file) as part:
        part.write_bytes(data)
    say(f"{short_id(session.session_id)}: {len(document.turns):,} turns in {visible(str(file))}\n")
    return EXIT_DONE


async def import_file(config: Config, paths: Paths, file: Path, *, as_new: bool) -> int:
    """Store a session from a file; the exit code."""
    document = decoded(read_without_secrets(file))
    async with opened(config.store.kind, config, paths) as store:
        session = await import_document(store, document, as_new=as_new)
    write(
        f"{short_id(session.session_id)}  {session_name(session)} ({session.turn_count:,} turns)\n"
    )
    if known := document.memories:
        always = sum(memory.stands_always for memory in known)
        told = f", {always:,} of them for every prompt" if always else ""
        say(f"With {counted(len(known), 'memory')}{told}: `ragmem memory list` shows them.\n")
    say(f"`ragmem chat -r {short_id(session.session_id)}` goes on with it.\n")
    return EXIT_DONE


async def delete(config: Config, paths: Paths, reference: str, *, confirmed: bool) -> int:
    """Delete a session and log it; the exit code."""
    session = await _found(config, paths, reference)
    if not confirmed:
        say(
            f"{short_id(session.session_id)}  {session_name(session)}\n"
            f"{session.turn_count:,} turns, in {visible(session.cwd)}\n"
        )
        await confirm("Delete it for ever?", "Nothing was deleted.")
    async with opened(config.store.kind, config, paths, existing=True) as store:
        outputs, copies = await _outputs_and_copies(store, session, paths)
        gone = await store.delete_session(session.session_id)
    for output in outputs:
        output.unlink(missing_ok=True)
    preimages = Preimages(paths.data_dir / "preimages")
    copies_gone = preimages.remove(copies)
    deletion = _Deletion(
        datetime.now(UTC),
        session.session_id,
        session.cwd,
        config.store.kind,
        gone | {"outputs": len(outputs), "copies": copies_gone},
    )
    log_deletion(paths.log_dir, deletion)
    for file in paths.spool_dir.glob(f"*{SUFFIX}"):
        Tail(file, str).forget(session.session_id)
    known = f", {counted(gone['memories'], 'memory')}" if gone["memories"] else ""
    if copies_gone:
        known += f", {counted(copies_gone, 'copy')} of files from before an edit"
    write(f"Deleted {short_id(session.session_id)}: {gone['turns']:,} turns{known}.\n")
    if gone.get("traces"):
        say(
            "Parts of its text may still be in the file: another process reads it, or the disk "
            "has no room to write it anew. The next `ragmem sessions delete` clears them.\n"
        )
    preimages.look_through()
    return EXIT_DONE


async def _found(config: Config, paths: Paths, reference: str | None) -> Session:
    async with open_app(config, paths) as app:
        return await (last_session(app) if reference is None else resumed(app, reference))


def read_without_secrets(file: Path) -> bytes:
    """What comes in by a file is stored like what is said: known keys are left out."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    know(secrets_among(environment()))
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


async def _outputs_and_copies(
    store: Archive, session: Session, paths: Paths
) -> tuple[list[Path], set[str]]:
    """Files with long outputs of the session's own commands; copies that no other one names."""
    outputs: set[str] = set()
    copies: set[str] = set()
    first = (session.forked_at_index or 0) + 1 if session.parent_session_id else 1
    async for turns in _pages(store, Span(session.session_id, first, session.turn_count)):
        copies |= preimages_of(turns)
        for turn in turns:
            for call in turn.tool_calls:
                if call.tool_name == "run_command":
                    outputs.update(_KEPT_OUTPUT.findall(call.result))
    folder = paths.data_dir / "outputs"
    files = [folder / name for name in sorted(outputs) if (folder / name).is_file()]
    preimages = Preimages(paths.data_dir / "preimages")
    return files, await _named_by_none(store, session, copies, preimages)


async def _named_by_none(
    store: Archive, session: Session, copies: set[str], preimages: Preimages
) -> set[str]:
    """Those of the copies that no other session names, in whatever project it is."""
    made = {name: at for name in copies if (at := preimages.made_at(name))}
    left = set(made)
    # What was over before the first of them was made names none.
    since = min(made.values(), default=datetime.now(UTC)) - _LONGEST_TURN
    others = [span for span in await store.spans() if span.session_id != session.session_id]
    for start in range(0, len(others), _PAGE):
        spans = {span.session_id: span for span in others[start : start + _PAGE]}
        for other in await store.sessions_by_id(list(spans)):
            if left and other.last_activity_at >= since:
                async for turns in _pages(store, spans[other.session_id]):
                    left -= preimages_of(turns)
    return left


async def _pages(store: Archive, span: Span) -> AsyncIterator[list[Turn]]:
    for first in range(span.first, span.last + 1, _PAGE):
        page = Span(span.session_id, first, min(first + _PAGE - 1, span.last))
        yield [put.turn for put in await store.own_turns([page])]
