"""What the commands of `ragmem memory` take and print."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
import typer

from ragmem.cli.documents import Document
from ragmem.cli.streams import typed
from ragmem.cli.table import folded, table
from ragmem.errors import UsageError
from ragmem.ids import short_id
from ragmem.memory.chains import NOBODY, Line, day, marks
from ragmem.memory.facts.ttl import expiry
from ragmem.records import MemoryKind, MemoryRecord, MemoryScope, Profile, utc_now
from ragmem.text import ago, clip_to_width, one_line

Kind = MemoryKind
ScopeName = MemoryScope
Shown = Literal["project", "user", "all"]
TextFormat = Annotated[Literal["text", "json"], typer.Option("--format", help="How to print it.")]

_ROOMY, _WIDE = 80, 100


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of a memory; None where they say nothing."""

    content: str | None = None
    subjects: tuple[str, ...] | None = None
    kind: MemoryKind | None = None
    ttl: str | None = None
    pinned: bool | None = None
    scope: MemoryScope | None = None


def words(text: str | None) -> str | None:
    """A text of the command line, as it was typed; UsageError for an empty one."""
    if text is None:
        return None
    if not (said := typed(text).strip()):
        raise UsageError("The text is empty.")
    return said


def subjects_of(given: list[str] | None) -> tuple[str, ...] | None:
    """Flat tags, casefolded; None where none are given."""
    if given is None:
        return None
    subjects = tuple(dict.fromkeys(" ".join(typed(each).split()).casefold() for each in given))
    if "" in subjects:
        raise UsageError(
            "--subject is empty.", hint="Leave it out; `edit --no-subjects` takes them away."
        )
    return subjects


def ttl_of(text: str | None) -> str | None:
    """A duration; UsageError for what is none: here a person can say it again."""
    if text is not None and expiry(text, utc_now())[1]:
        raise UsageError(
            f"--ttl takes a number and h, d or w, or never: not {one_line(text, 40)!r}.",
            hint="For example 12h, 7d or 2w. Without it a memory lasts.",
        )
    return text


# --- JSON ---------------------------------------------------------------------


class MemoryDocument(Document, frozen=True, kw_only=True):
    """A memory in a list."""

    id: str
    kind: str
    content: str
    subjects: tuple[str, ...]
    trust: str
    scope: str
    pinned: bool
    created_at: datetime
    expires_at: datetime | None
    superseded_by: str | None
    said_by: str | None
    """Name of another person, who has made it known; null for one's own."""


class EvidenceDocument(Document, frozen=True, kw_only=True):
    """One place where a memory comes from; null is what there is none of."""

    session_id: str | None
    turn_index: int | None
    tool_name: str | None
    path: str | None


class WhyDocument(MemoryDocument, frozen=True, kw_only=True):
    """A memory with where it comes from."""

    evidence: tuple[EvidenceDocument, ...]


class EpisodeDocument(MemoryDocument, frozen=True, kw_only=True):
    """A memory that is a notable moment."""

    occurred_at: datetime
    """When it happened or is due; where that is not known, when it was said."""


class ProfileDocument(Document, frozen=True, kw_only=True):
    """What the person has said of themselves."""

    values: dict[str, str]
    updated_at: datetime | None


def memory_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> MemoryDocument:
    """A memory in a list; `people` are others, by id."""
    return MemoryDocument(
        id=memory.memory_id,
        kind=memory.kind,
        content=memory.content,
        subjects=memory.subjects,
        trust=memory.trust,
        scope=memory.scope,
        pinned=memory.pinned,
        created_at=memory.created_at,
        expires_at=memory.expires_at,
        superseded_by=memory.superseded_by,
        said_by=people.get(memory.owner),
    )


def why_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> WhyDocument:
    """A memory with where it comes from."""
    evidence = tuple(
        EvidenceDocument(
            session_id=each.session_id or None,
            turn_index=each.turn_index or None,
            tool_name=each.tool_name or None,
            path=each.path or None,
        )
        for each in memory.evidence
    )
    return WhyDocument(**msgspec.structs.asdict(memory_document(memory, people)), evidence=evidence)


def episode_document(memory: MemoryRecord, people: Mapping[str, str] = NOBODY) -> EpisodeDocument:
    """A notable moment."""
    return EpisodeDocument(
        **msgspec.structs.asdict(memory_document(memory, people)),
        occurred_at=memory.at or memory.created_at,
    )


def profile_document(profile: Profile) -> ProfileDocument:
    """What the person has said of themselves."""
    return ProfileDocument(values=profile.values, updated_at=profile.updated_at)


# --- for people ---------------------------------------------------------------


def memories_table(
    memories: Sequence[MemoryRecord],
    now: datetime,
    *,
    width: int,
    people: Mapping[str, str] = NOBODY,
    projects: Mapping[str, str] | None = None,
) -> str:
    """One line each; the less telling columns only where there is room for them.

    With `projects`, the names of folders by the project's id, each says which is its own; with
    `people`, those of others by id, who has made it known.
    """
    roomy = width >= _ROOMY
    noted = [", ".join(marks(memory, now)) for memory in memories]
    columns: list[tuple[str, list[str]]] = [
        ("ID", [short_id(memory.memory_id) for memory in memories]),
        ("KIND", [memory.kind for memory in memories]),
    ]
    if width >= _WIDE:
        columns.append(("WHEN", [ago(memory.created_at, now) for memory in memories]))
    if width >= _WIDE or people:
        columns.append(("FROM", [_from(memory, people) for memory in memories]))
    if projects is not None:
        names = [_project(memory, projects) for memory in memories]
        columns.append(("PROJECT", [clip_to_width(name, 16 if roomy else 10) for name in names]))
    elif width >= _WIDE:
        columns.append(("SCOPE", [memory.scope for memory in memories]))
    if any(noted):
        columns.append(("NOTE", [clip_to_width(note, 24 if roomy else 14) for note in noted]))
    columns.append(("MEMORY", [memory.content for memory in memories]))
    header = [name for name, _ in columns]
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    return table(header, rows, width=width)


def episodes_table(
    memories: Sequence[MemoryRecord],
    now: datetime,
    *,
    width: int,
    people: Mapping[str, str] = NOBODY,
) -> str:
    """One line each: when it was said, in a shared store by whom, what kind it is, when it is
    due.
    """
    rows = [
        (
            short_id(memory.memory_id),
            ago(memory.created_at, now),
            *((_from(memory, people),) if people else ()),
            memory.kind,
            day(memory.at) if memory.at else "-",
            memory.content,
        )
        for memory in memories
    ]
    who = ("FROM",) if people else ()
    return table(("ID", "SAID", *who, "KIND", "DATE", "EPISODE"), rows, width=width)


def page(lines: Sequence[Line], width: int) -> str:
    """Lines between words, each row behind its line's margin."""
    rows = [row for indent, text in lines for row in folded(" " * indent, text, width)]
    return "\n".join(rows) + "\n"


_WHO = {"person": "you", "model": "model", "tool": "tool"}


def _from(memory: MemoryRecord, people: Mapping[str, str]) -> str:
    who = _WHO[memory.trust]
    other = clip_to_width(people.get(memory.owner, ""), 16)
    return other if other and memory.trust == "person" else who


def _project(memory: MemoryRecord, projects: Mapping[str, str]) -> str:
    if memory.project_id is None:
        return "-"
    return one_line(projects.get(memory.project_id, "?"), 40)
