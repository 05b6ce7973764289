"""The memory as a graph: sessions, turns, files, code, memories and summaries, and their links.

It is read through the Store protocol only, so that both stores show the same. Texts are redacted,
and their control and other invisible characters escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal

import msgspec

from ragmem.memory.recording import SentRequest
from ragmem.memory.turns import has_failed, result_text
from ragmem.records import (
    MemoryQuery,
    MemoryRecord,
    Project,
    PutReferences,
    ScopeQuery,
    Session,
    SessionQuery,
    Summary,
    ToolCall,
    Turn,
    TurnsQuery,
)
from ragmem.redact import redact
from ragmem.store import Store
from ragmem.text import counted, one_line, visible

NodeKind = Literal["session", "turn", "file", "code", "memory", "summary"]
MOST_NODES = 20_000
_SESSIONS = 5_000
"""Limit of the newest sessions that get a node."""
_SCOPES = 100_000
_ALL_TURNS = 10**12
"""Characters: more than any session has."""
_PAGE_CHARS = 8_000_000
"""Limit of all turns' texts together, so that a browser opens the page without delay."""
_LEAST_CHARS, _MOST_CHARS = 400, 12_000
"""Range of the limit of each message; that of a tool's result is a third."""
_LABEL_CHARS = 90
_BATCH = 500
_BEYOND = 4_000
"""Characters beyond the limit that are searched for secrets across it."""
_SEPARATOR = "\n\0\n"
_ACCESSES = {"write": "changed", "read": "read", "search": "found"}


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record, file or piece of code."""

    id: str
    """The kind, `=`, and the record's id or the file's path."""
    kind: NodeKind
    label: str
    """A few words, on one line."""
    at: datetime | None = None
    """When it was said or created."""
    session: str = ""
    """Node id of the session that it belongs to."""
    facts: dict[str, Any] = {}
    """Its other properties by name: texts, numbers, lists."""


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """A link from one node to another."""

    source: str
    target: str
    kind: str
    """`said in`, `read`, `changed`, `found`, `edited`, `named`, `defined in`,
    `remembered`, `decided`, `supersedes`, `summed up in` or `forked from`."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The whole content of a page or an exported file."""

    format: str = "ragmem.graph"
    version: int = 1
    title: str
    """What the graph shows."""
    store: str
    """The kind of the store that it was read from."""
    made_at: datetime
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    left_out: tuple[str, ...] = ()
    """What is left out, in sentences that say how to get it."""
    numbers: tuple[dict[str, Any], ...] = ()
    """Statistics, one mapping per day, oldest first."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a graph should show; conditions combine with AND."""

    title: str
    project: Project | None = None
    """The project to show; None for all."""
    session: Session | None = None
    path: str = ""
    """A file's path in the project: only the turns that touched it."""
    memory: MemoryRecord | None = None
    """A memory: only the turns that it and those it superseded come from."""
    since: datetime | None = None
    most: int = MOST_NODES


async def collect(
    store: Store,
    wanted: Wanted,
    *,
    now: datetime,
    sent: Mapping[str, SentRequest] | None = None,
    numbers: Sequence[dict[str, Any]] = (),
) -> Graph:
    """Read a graph from the store; `sent` are the logged requests by the id of their turn."""
    collecting = _Collecting(store, wanted, sent or {})
    await collecting.read()
    known = collecting.nodes
    return Graph(
        title=_line(wanted.title),
        store=(await store.info()).kind,
        made_at=now,
        nodes=tuple(known.values()),
        edges=tuple(e for e in collecting.edges if e.source in known and e.target in known),
        left_out=tuple(collecting.left_out),
        numbers=tuple(numbers),
    )


class _Collecting:
    def __init__(self, store: Store, wanted: Wanted, sent: Mapping[str, SentRequest]) -> None:
        self._store = store
        self._wanted = wanted
        self._sent = sent
        self._chars = _MOST_CHARS
        self._turns: dict[str, str] = {}
        """Node ids of the turns in the graph, by turn id."""
        self._tops: dict[str, str] = {}
        """Paths of the projects' folders, by project id."""
        self.nodes: dict[str, Node] = {}
        self.edges: dict[Edge, None] = {}
        self.left_out: list[str] = []

    async def read(self) -> None:
        wanted = self._wanted
        self._tops = {each.project_id: each.path for each in await self._store.projects()}
        chosen = await self._chosen_turns()
        sessions = await self._sessions(chosen)
        whole = sum(each.turn_count for each in sessions)
        self._chars = max(_LEAST_CHARS, min(_MOST_CHARS, _PAGE_CHARS // max(1, whole)))
        for session in sessions:
            self._put_session(session)
        left, oldest = [], None
        for session in sessions:
            # A session's turns add nodes of files, code and summaries too.
            if len(self.nodes) + session.turn_count > wanted.most and self._turns:
                left.append(session)
                continue
            await self._read_session(session, chosen)
            oldest = session.last_activity_at
        await self._read_code()
        await self._read_memories()
        self._say_left_out(left, oldest)

    # --- sessions -----------------------------------------------------------------

    async def _chosen_turns(self) -> set[str] | None:
        """Return the ids of the turns that `path` or `memory` selects; None for all."""
        wanted, store = self._wanted, self._store
        if wanted.path and wanted.project:
            projects = (wanted.project.root_id,)
            query = ScopeQuery(project_ids=projects, path=wanted.path, limit=_SCOPES)
            scopes = tuple(found.scope.scope_id for found in await store.find_scopes(query))
            turns = TurnsQuery(
                scope_ids=scopes, project_ids=projects, paths=(wanted.path,), limit=wanted.most
            )
            return {turn.turn_id for turn in await store.code_turns(turns)}
        if wanted.memory:
            known = [wanted.memory, *await store.superseded_by(wanted.memory.memory_id)]
            return {place.turn_id for each in known for place in each.evidence if place.turn_id}
        return None

    async def _sessions(self, chosen: set[str] | None) -> list[Session]:
        wanted, store = self._wanted, self._store
        if wanted.session:
            return [wanted.session]
        if chosen is not None:
            turns = await self._in_batches(partial(store.get, Turn), sorted(chosen))
            ids = dict.fromkeys(turn.session_id for turn in turns)
            found = [await store.session(session_id) for session_id in ids]
            found.sort(key=lambda each: each.last_activity_at, reverse=True)
        else:
            projects = (wanted.project.root_id,) if wanted.project else ()
            found = await store.sessions(SessionQuery(project_ids=projects, limit=_SESSIONS + 1))
        since = wanted.since
        return [each for each in found if since is None or each.last_activity_at >= since]

    def _put_session(self, session: Session) -> None:
        facts = {
            "folder": _line(session.cwd),
            "summary": self._text(session.summary or ""),
            "tags": [_line(tag) for tag in session.tags],
            "status": session.status,
            "turns": session.turn_count,
            "started": session.started_at,
            "uuid": session.session_id,
        }
        name, at = session.session_id, session.last_activity_at
        node_id = self._put("session", name, session.called, facts, at=at)
        if parent := session.parent_session_id:
            self._link(node_id, f"session={parent}", "forked from")

    async def _read_session(self, session: Session, chosen: set[str] | None) -> None:
        """Add a session's turns and summaries; of a fork only its own turns, unless it is alone."""
        alone, since = self._wanted.session is not None, self._wanted.since
        shared = 0 if alone else session.forked_at_index or 0
        accesses = await self._store.file_accesses(session.session_id, max_turn_chars=_ALL_TURNS)
        by_index: dict[int, list[tuple[str, str]]] = {}
        for access in accesses:
            if access.access_type == "list":
                continue  # Listings are of folders or patterns, not of files.
            found = (access.path, _ACCESSES[access.access_type])
            by_index.setdefault(access.turn_index, []).append(found)
        for turn in await self._store.turns(session.session_id):
            if turn.turn_index <= shared or (since and turn.timestamp < since):
                continue
            if chosen is None or turn.turn_id in chosen:
                self._put_turn(session, turn, by_index.get(turn.turn_index, []))
        for summary in await self._store.summaries(session.session_id):
            if chosen is None and (since is None or summary.created_at >= since):
                self._put_summary(session, summary)

    def _put_turn(self, session: Session, turn: Turn, touched: Iterable[tuple[str, str]]) -> None:
        usage = turn.usage
        most, calls = self._chars, turn.tool_calls
        limited = [(turn.asked, most), (turn.assistant_message, most)]
        for call in calls:
            said = (call.arguments, result_text(call), call.error or "")
            limited += [(text, most // 3) for text in said]
        asked, answered, *said_by_calls = _clipped(limited)
        texts = iter(said_by_calls)
        facts: dict[str, Any] = {
            "index": turn.turn_index,
            "status": turn.status,
            "asked": asked,
            "answered": answered,
            "model": _line(turn.model or ""),
            "tokens in": usage.input_tokens,
            "tokens out": usage.output_tokens,
            "cost": usage.cost_usd,
            "calls": [_call(call, *islice(texts, 3)) for call in calls],
            "failed": sum(map(has_failed, turn.tool_calls)) + (turn.status == "failed"),
        }
        if request := self._sent.get(turn.turn_id):
            facts["request"] = request.shown(_line)
        node_id = self._put("turn", turn.turn_id, asked, facts, at=turn.started_at, of=session)
        self._turns[turn.turn_id] = node_id
        for path, how in touched:
            if file := self._file(path, session.project_id):
                self._link(node_id, file, how)

    def _put_summary(self, session: Session, summary: Summary) -> None:
        facts = {
            "level": summary.level,
            "text": self._text(summary.text),
            "turns": summary.turn_count,
            "topics": [_line(each) for each in summary.topics],
            "findings": [self._text(each) for each in summary.key_findings],
            "extractive": summary.extractive,
        }
        name, at = summary.summary_id, summary.created_at
        node_id = self._put("summary", name, summary.text, facts, at=at, of=session)
        below = "turn" if summary.level == 1 else "summary"
        for covered in summary.covers:
            self._link(f"{below}={covered}", node_id, "summed up in")

    # --- files and code --------------------------------------------------------------

    def _file(self, path: str, project_id: str) -> str:
        """Add a file's node, named by its absolute path if projects are mixed; return its id."""
        top = self._tops.get(project_id, "")
        whole = path if path.startswith("/") or self._wanted.project else f"{top}/{path}"
        name = _line(whole, 4_000)
        if len(self.nodes) < self._wanted.most:
            self._put("file", name, whole, {})
        return f"file={name}"

    async def _read_code(self) -> None:
        of_turns = partial(self._store.get, PutReferences)
        found = await self._in_batches(of_turns, list(self._turns))
        references = {ref.scope_id for put in found for ref in put.references}
        if not references:
            return
        projects = (self._wanted.project.root_id,) if self._wanted.project else ()
        query = ScopeQuery(project_ids=projects, limit=_SCOPES)
        for each in await self._store.find_scopes(query):
            scope, full = each.scope, len(self.nodes) >= self._wanted.most
            if scope.scope_id not in references or full:
                continue
            facts = {
                "kind": scope.kind,
                "path": _line(each.path),
                "lines": f"{scope.start_line}–{scope.end_line}",
                "signature": self._text(scope.signature),
                "docstring": self._text(scope.docstring),
                "gone": not each.defined,
            }
            name = scope.qualified_name or scope.name or f"{each.path}:{scope.start_line}"
            node_id = self._put("code", scope.scope_id, name, facts)
            self._link(node_id, self._file(each.path, each.project_id), "defined in")
        for put in found:
            for reference in put.references:
                self._link(self._turns[put.turn_id], f"code={reference.scope_id}", reference.how)

    # --- memories ---------------------------------------------------------------------

    async def _read_memories(self) -> None:
        wanted = self._wanted
        if wanted.memory:
            later = wanted.memory.superseded_by
            known = [
                *(await self._store.get(MemoryRecord, [later]) if later else []),
                wanted.memory,
                *await self._store.superseded_by(wanted.memory.memory_id),
            ]
        else:
            query = MemoryQuery(
                everywhere=wanted.project is None,
                project_ids=(wanted.project.root_id,) if wanted.project else (),
                session_ids=(wanted.session.session_id,) if wanted.session else (),
                with_superseded=True,
            )
            known = await self._store.memories(query)
        whole = wanted.session is None and not wanted.path
        for memory in known:
            near = any(place.turn_id in self._turns for place in memory.evidence)
            fresh = wanted.since is None or memory.updated_at >= wanted.since
            if (near or whole) and fresh and len(self.nodes) < wanted.most:
                self._put_memory(memory)

    def _put_memory(self, memory: MemoryRecord) -> None:
        facts = {
            "kind": memory.kind,
            "content": self._text(memory.content),
            "trust": memory.trust,
            "source": memory.source,
            "scope": memory.scope,
            "subjects": [_line(each) for each in memory.subjects],
            "pinned": memory.pinned,
            "due": memory.at,
            "expires": memory.expires_at,
            "until": memory.valid_until,
            "superseded": memory.superseded_by is not None,
            "evidence": [
                {
                    "turn": self._turns.get(place.turn_id, ""),
                    "quote": self._text(place.quote),
                    "path": _line(place.path),
                    "tool": _line(place.tool_name),
                    "at": place.at,
                }
                for place in memory.evidence
            ],
        }
        name, at = memory.memory_id, memory.created_at
        node_id = self._put("memory", name, memory.content, facts, at=at)
        how = "decided" if memory.kind in ("decision", "rule") else "remembered"
        for place in memory.evidence:
            self._link(f"turn={place.turn_id}", node_id, how)
        if memory.superseded_by:
            self._link(f"memory={memory.superseded_by}", node_id, "supersedes")

    # --- in general -------------------------------------------------------------------

    def _put(
        self,
        kind: NodeKind,
        name: str,
        label: str,
        facts: dict[str, Any],
        *,
        at: datetime | None = None,
        of: Session | None = None,
    ) -> str:
        node_id, session = f"{kind}={name}", f"session={of.session_id}" if of else ""
        label = _line(label[: 4 * _LABEL_CHARS])
        node = Node(id=node_id, kind=kind, label=label, at=at, session=session, facts=facts)
        self.nodes.setdefault(node_id, node)
        if session:
            self._link(node_id, session, "said in")
        return node_id

    def _link(self, source: str, target: str, kind: str) -> None:
        self.edges[Edge(source, target, kind)] = None

    def _text(self, text: str) -> str:
        return _clipped([(text, self._chars)])[0]

    async def _in_batches(self, ask: Any, ids: Sequence[str]) -> list[Any]:
        return [
            found
            for start in range(0, len(ids), _BATCH)
            for found in await ask(ids[start : start + _BATCH])
        ]

    def _say_left_out(self, left: Sequence[Session], oldest: datetime | None) -> None:
        sessions = sum(node.kind == "session" for node in self.nodes.values())
        if left:
            turns = sum(session.turn_count for session in left)
            until = f" (before about {oldest:%Y-%m-%d})" if oldest else ""
            self.left_out.append(
                f"{counted(turns, 'turn')} of {counted(len(left), 'session')}{until}, of which "
                "only the name is shown. `ragmem graph -r ID` shows one of them in full."
            )
        if sessions > _SESSIONS:
            self.left_out.append(
                f"Sessions beyond the newest {_SESSIONS:,}. To show less at once, use -r, --file, "
                "--memory, or --project in another folder."
            )
        if self._wanted.since:
            self.left_out.append(
                f"Everything before {self._wanted.since:%Y-%m-%d}. An earlier --since shows it."
            )
        if self._chars < _MOST_CHARS:
            self.left_out.append(
                f"Text beyond {self._chars:,} characters of each message, and beyond "
                f"{self._chars // 3:,} of a tool's result. `ragmem sessions show ID --results` "
                "prints them in full."
            )


def _call(call: ToolCall, arguments: str, result: str, error: str) -> dict[str, Any]:
    return {
        "tool": _line(call.tool_name),
        "arguments": arguments,
        "result": result,
        "error": error,
        "failed": has_failed(call),
        "ms": call.duration_ms,
    }


@lru_cache(maxsize=10_000)
def _line(text: str, limit: int = _LABEL_CHARS) -> str:
    """Redact a text and put it on one line; cached, since names of tools and files repeat."""
    return one_line(redact(text), limit)


def _clipped(limited: Sequence[tuple[str, int]]) -> list[str]:
    """Redact texts and clip each to its limit, with a note of how many characters follow.

    Up to `_BEYOND` characters after the limit are searched too, for a secret across it. All texts
    are redacted in one go, which takes a tenth of the time, unless a match spans two of them.
    """
    parts = [text[: limit + _BEYOND] for text, limit in limited]
    found = redact(_SEPARATOR.join(parts)).split(_SEPARATOR)
    if len(found) != len(parts):
        found = [redact(text) for text in parts]
    shown = []
    for (text, limit), told in zip(limited, found, strict=True):
        more = len(text) - limit
        end = f"\n… {more:,} more characters" if more > 0 else ""
        shown.append(visible(told[:limit] if more > 0 else told) + end)
    return shown
