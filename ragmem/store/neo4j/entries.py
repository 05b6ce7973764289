"""Search entries: a node next to each turn and summary, with its terms.

Each term is in an entry twice: prefixed with the project, so that its frequency is that of the
project, and with the prefix of any turn (or summary), for searches beyond a project. Both are in
one full-text index; the prefixes can't be mistaken for terms (see `ragmem.terms`).
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence

from ragmem.records import Summary, ToolCall, Turn, utc_now
from ragmem.store.neo4j.gateway import Row, Transaction, named_statements
from ragmem.store.neo4j.shapes import Properties, salvaged
from ragmem.text import clean

STATEMENTS = named_statements("recall.cypher")
TURNS, SUMMARIES = "t", "s"


def mark(kind: str, project_id: str | None = None) -> str:
    """Return the prefix of terms of a project's turns or summaries; without a project, of all."""
    return f"{kind}{'' if project_id is None else _short_hash(project_id)}|"


def session_mark(kind: str, session_id: str) -> str:
    """Return a word that is in all entries of a session's turns or summaries, and in no others."""
    return f"{kind}={_short_hash(session_id)}"


def level_mark(level: int) -> str:
    """Return a word that is in all entries of summaries of a level, and in no others."""
    return f"l={level}"


def _short_hash(text: str) -> str:
    return hashlib.blake2b(clean(text).encode(), digest_size=6).hexdigest()


def entry(
    record_id: str, session_id: str, project_id: str, terms: Sequence[str], *, level: int = 0
) -> Properties:
    """Return the properties of an entry."""
    from ragmem.terms import TERMS_VERSION

    kind = SUMMARIES if level else TURNS
    anywhere, here = mark(kind), mark(kind, project_id)
    marks = [session_mark(kind, session_id), *([level_mark(level)] if level else [])]
    text = " ".join([*marks, *(anywhere + term for term in terms), *(here + t for t in terms)])
    return {"recordId": record_id, "termsVersion": TERMS_VERSION, **_of_project(project_id, text)}


def of_another_project(row: Row, project_id: str) -> Properties:
    """Return the properties of an entry moved to this project; `row`: its id, project, terms."""
    text = str(row["terms"])
    for kind in (SUMMARIES, TURNS):
        text = text.replace(f" {mark(kind, row['projectId'])}", f" {mark(kind, project_id)}")
    return {"recordId": row["recordId"], **_of_project(project_id, text)}


def _of_project(project_id: str, text: str) -> Properties:
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return {"projectId": project_id, "terms": text, "termsHash": digest}


def summary_entry(summary: Summary, project_id: str) -> Properties:
    """Return the entry of a summary."""
    from ragmem.terms import summary_terms

    return entry(
        summary.summary_id,
        summary.session_id,
        project_id,
        summary_terms(summary),
        level=summary.level,
    )


# --- in the transaction -----------------------------------------------------------


async def write_summaries(
    tx: Transaction, summaries: Sequence[Summary], projects: Mapping[str, str]
) -> None:
    """Write entries of summaries; `projects` are by session.

    Vectors of entries whose text has changed are dropped.
    """
    entries = [summary_entry(each, projects[each.session_id]) for each in summaries]
    await _drop_outdated(tx, entries)
    await tx.run(STATEMENTS["write_summary_entries"], entries=entries)


async def index_turns(tx: Transaction, ids: Sequence[str], *, keep_vectors: bool = False) -> None:
    """Write the entries of those of these turns that have ended, and mark their pending work."""
    entries = await turn_entries(tx, ids)
    if not keep_vectors:
        await _drop_outdated(tx, entries)
    await tx.run(STATEMENTS["write_turn_entries"], entries=entries)


async def index_summaries(tx: Transaction, ids: Sequence[str]) -> None:
    """Write the entries of summaries, and mark their pending work; vectors are kept."""
    entries = await summary_entries(tx, ids)
    await tx.run(STATEMENTS["write_summary_entries"], entries=entries)
    await tx.run(STATEMENTS["note_what_waits"], ids=ids)
    sessions = await tx.found(STATEMENTS["sessions_of_summaries"], ids=ids)
    await tx.run(STATEMENTS["note_roll_ups"], ids=sessions)


async def turn_terms(turn: Turn) -> list[str]:
    """Return the terms that a turn is found by."""
    from ragmem import terms

    # Longer turns would block everything else that runs in this process.
    if turn.char_count + 1000 * len(turn.tool_calls) < 10_000:
        return terms.turn_terms(turn)
    return await asyncio.to_thread(terms.turn_terms, turn)


async def turn_entries(tx: Transaction, ids: Sequence[str]) -> list[Properties]:
    """Return the entries that the ended ones among these turns should have."""
    found = await tx.found(STATEMENTS["turn_sources"], ids=ids)
    return [
        entry(row["uuid"], row["sessionId"], row["projectId"], await turn_terms(_turn_source(row)))
        for row in found
    ]


async def summary_entries(tx: Transaction, ids: Sequence[str]) -> list[Properties]:
    """Return the entries that these summaries should have."""
    found = await tx.found(STATEMENTS["summary_sources"], ids=ids)
    at = utc_now()
    return [
        summary_entry(
            salvaged(Summary, row | {"level": row["level"] or 1}, at, covers=()), row["projectId"]
        )
        for row in found
    ]


def _turn_source(row: Row) -> Turn:
    """Return the parts of a turn that its terms are made from."""
    at = utc_now()
    calls = (
        salvaged(ToolCall, call, at, turn_id=row["uuid"], order=order)
        for order, call in enumerate(row["calls"])
    )
    return salvaged(Turn, row, at, tool_calls=tuple(calls))


async def _drop_outdated(tx: Transaction, entries: Sequence[Properties]) -> None:
    """Drop the vectors of entries with other words, which are pending then; caches are invalid."""
    changed = await tx.found(
        STATEMENTS["entries_that_changed"],
        entries=[{name: each[name] for name in ("recordId", "termsHash")} for each in entries],
    )
    if changed:
        await tx.run(STATEMENTS["lock_vectors"])
        await tx.run(STATEMENTS["drop_vectors"], ids=changed)
        await tx.run(STATEMENTS["count_epoch"])


async def lock_vectors(tx: Transaction) -> tuple[str | None, int, int]:
    """Lock the vectors until the end; return their embedder, dimension and last sequence number."""
    await tx.run(STATEMENTS["lock_vectors"])
    [row] = await tx.run(STATEMENTS["state_of_vectors"])
    return row["embedder"], row["dimension"] or 0, row["sequence"]
