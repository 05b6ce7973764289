"""`ragmem search --code`: what the project's files define, found by words and by meaning."""

from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal

from ragmem.cli.code_documents import (
    CodeSessionDocument,
    decided_documents,
    session_documents,
)
from ragmem.cli.documents import to_json
from ragmem.cli.hits import HitDocument
from ragmem.cli.index import brought_up_to_date, code_of, vectors_note
from ragmem.cli.memory_values import MemoryDocument
from ragmem.cli.streams import say, write, write_json
from ragmem.index.lookup import FoundCode, find_code
from ragmem.memory.hits import worth_showing
from ragmem.repl.code_listings import code_text
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.app import App


class ScopeDocument(HitDocument, frozen=True, kw_only=True):
    """A piece of code that was found, with what the memory has of it."""

    kind: str
    signature: str
    defined: bool
    """False: it is in no file any more; `path` and lines are where it was last."""
    sessions: tuple[CodeSessionDocument, ...]
    memories: tuple[MemoryDocument, ...]


async def search_code(
    opened: "App", query: str, *, limit: int, semantic: bool, output: Literal["table", "json"]
) -> None:
    """Print what was found."""
    code = await code_of(opened)
    refreshed = await brought_up_to_date(code, only_reads=True)
    finds = await find_code(
        code,
        query,
        project_id=code.project.root_id,
        open_store=opened.store if opened.config.memory.enabled else None,
        limit=limit,
        semantic=semantic,
    )
    if refreshed.changed or refreshed.removed:
        await opened.leave_background()
    missing = f"What the memory has of this is not shown. {finds.problem}" if finds.problem else ""
    note = vectors_note(opened, await code.status()) if semantic else ""
    for notice in filter(None, [missing, *opened.notices(), note]):
        say(f"note: {visible(notice)}\n")
    if output == "json":
        write_json(to_json([scope_document(each) for each in finds.found]))
    elif finds.found:
        shown, none_close = worth_showing(finds.found, opened.memory.floor)
        say(f"{none_close}\n" if none_close else "")
        width = get_terminal_size((120, 24)).columns
        now = datetime.now(UTC)
        write(code_text(shown, now, cwd=opened.cwd, project=code.project.path, width=width))
    else:
        say("Nothing was found.\n")


def scope_document(found: FoundCode) -> ScopeDocument:
    """As JSON; what belongs to conversations alone is null."""
    hit = found.hit
    return ScopeDocument(
        type="scope",
        id=hit.scope_id,
        session_id=None,
        turn_index=None,
        level=None,
        text=hit.text,
        path=hit.path,
        name=hit.qualified_name,
        start_line=hit.start_line,
        end_line=hit.end_line,
        score=hit.score,
        similarity=hit.similarity,
        timestamp=found.past.last_at,
        why="; ".join(hit.why),
        kind=hit.kind,
        signature=hit.signature,
        defined=found.defined,
        sessions=session_documents(found.past),
        memories=decided_documents(found.past),
    )
