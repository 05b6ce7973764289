"""`brain_search`: the project's code and the memory, asked together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

from ragmem.errors import RagmemError
from ragmem.index.values import CodeHit
from ragmem.memory.context.code import OUTSIDE, is_outside
from ragmem.memory.facts.values import FactHit
from ragmem.memory.hits import Hit
from ragmem.memory.memory import Memory
from ragmem.memory.recall import Question, ScopeName, scope_of
from ragmem.messages import Json
from ragmem.records import Session, utc_now
from ragmem.text import counted, line_range, one_line, visible
from ragmem.tools.base import Effect, ToolFailure, ToolOutput
from ragmem.tools.memory import fact_entry, hit_entry

T = TypeVar("T")

FindHits = Callable[[str, int], Awaitable[Sequence[CodeHit]]]
"""The scopes that bear on a text, at most so many, best first."""

_MOST = 30
_RANKED = 60
"""Reciprocal rank fusion: what stands first in one list is not drowned by another."""
_SHOWN_LINES = 8
_LINE_CHARS = 160


class BrainSearchParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of brain_search."""

    query: Annotated[
        str,
        msgspec.Meta(
            description="Names and words of it, or a question.", min_length=1, max_length=2_000
        ),
    ]
    limit: Annotated[int, msgspec.Meta(description="At most so many hits.", ge=1, le=_MOST)] = 10


class _Entry(msgspec.Struct, frozen=True):
    score: float
    text: str
    code: CodeHit | None = None


class BrainSearch:
    """Looks through the scopes of the project's files, and through what was said and learned."""

    name = "brain_search"
    description = (
        "Search the project's code (functions, classes, sections) and the memory together, by "
        "names and by meaning: each hit with its file, lines and why."
    )
    effect: Effect = "read"
    Params: type[msgspec.Struct] = BrainSearchParams

    def __init__(
        self,
        find: FindHits,
        memory: Memory | None,
        session: Session,
        scope: ScopeName,
        *,
        show: Callable[[str], str],
    ) -> None:
        """`show` writes a path of the project as the agent does; no `memory`: code alone."""
        self._find = find
        self._memory = memory
        self._session = session
        self._scope: ScopeName = scope
        self._show = show

    def title(self, params: BrainSearchParams) -> str:
        """What is looked for."""
        return params.query

    async def run(self, params: BrainSearchParams) -> ToolOutput:
        """Code and memory in one list, each hit labelled; best first."""
        code, facts, said = await asyncio.gather(
            _tried(self._find(params.query, params.limit)),
            _tried(self._facts(params)),
            _tried(self._said(params)),
        )
        problems = [each for each in (code, facts, said) if isinstance(each, str)]
        if len(problems) == 3:
            raise ToolFailure(f"Nothing could be searched: {problems[0]} Use grep_files.")
        now = utc_now().astimezone()
        entries = [
            *_ranked(code, self._code_entry),
            *_ranked(facts, lambda hit: f"[memory] {fact_entry(hit, now).removeprefix('- ')}"),
            *_ranked(said, lambda hit: self._said_entry(hit, params.query, now)),
        ]
        entries = sorted(entries, key=lambda entry: -entry.score)[: params.limit]
        hits = [entry.code for entry in entries if entry.code]
        text = "\n\n".join(entry.text for entry in entries)
        notes = [f"[{problem}]" for problem in problems]
        if not text:
            notes.insert(0, "Nothing bears on this. Try other words, or grep_files for exact text.")
        return ToolOutput(
            text="\n\n".join(filter(None, [text, *notes])),
            display=f"{counted(len(hits), 'scope')}, "
            f"{counted(len(entries) - len(hits), 'hit')} in the memory",
            data={"files": [self._file(hit) for hit in hits]},
        )

    async def _facts(self, params: BrainSearchParams) -> list[FactHit]:
        if self._memory is None or self._memory.facts is None:
            return []
        return await self._memory.facts.search(
            params.query, project_id=self._session.project_id, limit=params.limit
        )

    async def _said(self, params: BrainSearchParams) -> list[Hit]:
        if self._memory is None:
            return []
        session, running = self._session, self._memory.running_turn(self._session.session_id)
        hits = await self._memory.search(
            Question(
                text=params.query,
                scope=scope_of(session, self._scope),
                session_id=session.session_id,
                max_results=params.limit,
                min_similarity=self._memory.floor,
            )
        )
        # The turn in flight is no memory.
        own = running.turn_id if running else ""
        return [hit for hit in hits if hit.record_id != own]

    def _code_entry(self, hit: CodeHit) -> str:
        path = self._show(hit.path)
        lines = hit.text.split("\n")
        name = f" {hit.kind} {hit.qualified_name}" if hit.qualified_name else ""
        why = "; ".join(hit.why)
        place = f"{path}:{line_range(hit.start_line, hit.end_line)}"
        head = one_line(f"[code] {place}{name} — {why}", 400)
        if is_outside(path):
            head += f" ({OUTSIDE})"
        rows = [
            f"{number:>6}\t{_clipped(visible(line))}"
            for number, line in enumerate(lines[:_SHOWN_LINES], hit.start_line)
        ]
        more = len(lines) - _SHOWN_LINES
        return "\n".join([head, *rows, *([f"     … {more:,} more lines"] if more > 0 else [])])

    def _said_entry(self, hit: Hit, query: str, now: datetime) -> str:
        entry = hit_entry(hit, query, self._session.session_id, now)
        return f"[memory] {entry.removeprefix('- ')}"

    def _file(self, hit: CodeHit) -> dict[str, Json]:
        """What the accessed files and the turn's references are told by."""
        lines: list[Json] = [hit.start_line, hit.end_line]
        return {"path": self._show(hit.path), "scope_id": hit.scope_id, "lines": lines}


def _ranked(found: Sequence[T] | str, entry: Callable[[T], str]) -> list[_Entry]:
    """Entries by their place in their own list: scores of different kinds don't compare."""
    return [
        _Entry(1 / (_RANKED + place), entry(hit), hit if isinstance(hit, CodeHit) else None)
        for place, hit in enumerate(() if isinstance(found, str) else found)
    ]


async def _tried(work: Awaitable[Sequence[T]]) -> Sequence[T] | str:
    """What is found, or in words why nothing could be."""
    try:
        return await work
    except RagmemError as error:
        return str(error)


def _clipped(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"
