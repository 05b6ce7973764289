"""What the model sees when a user is back on another day: probes over stories of several days.

The baseline ("peer") gets the same probes: the project's last turns and the best by BM25, as plain
text.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from benches.context import empty
from benches.growth import Place, in_child
from benches.memories import opened_with_embedder
from benches.tables import aligned
from ragmem.records import SearchQuery, SessionQuery, Turn, TurnQuery, WeightedTerm
from ragmem.store import Archive
from ragmem.terms import query_terms
from tests.fakes.neo4j import ask
from tests.recall.stories import DAYS, Outcome, Probe, Story, Teller, outcome_of, stories

HALVES = ("open", "kept")
TARGET_HELD, TARGET_JUNK = 0.95, 0.5
_PEER_LAST, _PEER_FOUND = 3, 5


class NextDay(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of remembering shows the model, over one half of the stories."""

    name: str
    half: str
    outcomes: tuple[Outcome, ...]

    @property
    def held(self) -> float:
        """Return the share of the required items that are shown."""
        return sum(o.held for o in self.outcomes) / max(1, sum(o.wanted for o in self.outcomes))

    @property
    def junk(self) -> float:
        """Return the number of irrelevant recalled items per request."""
        return sum(len(o.junk) for o in self.outcomes) / max(1, len(self.outcomes))


class NextDays(msgspec.Struct, frozen=True, tag="next-day"):
    """The results of one run."""

    measured: list[NextDay] = []

    @property
    def kept(self) -> bool:
        """Whether the product meets the targets on the held-out half."""
        own = [one for one in self.measured if one.half == "kept" and one.name != "peer"]
        return all(
            one.held >= TARGET_HELD
            and one.junk <= TARGET_JUNK
            and not any(each.stale for each in one.outcomes)
            for one in own
        )


def measure_next_day(folder: Path, kinds: Sequence[str]) -> Iterator[NextDays]:
    """Measure each store, with and without extraction by a small model, and the baseline."""
    halves = [half for half in HALVES if any(stories(DAYS / half))]
    for kind in kinds:
        with _places(folder, kind) as fresh:
            for half in halves:
                for learns in (True, False):
                    name = f"{kind}, {'with' if learns else 'without'} a small model"
                    found = _told(folder, fresh, half, learns=learns, peer=False)
                    yield NextDays([NextDay(name=name, half=half, outcomes=found)])
    with _places(folder, "sqlite") as fresh:
        for half in halves:
            found = _told(folder, fresh, half, learns=False, peer=True)
            yield NextDays([NextDay(name="peer", half=half, outcomes=found)])


Fresh = Callable[[], AbstractContextManager[Place]]
"""Provides an empty memory."""


@contextmanager
def _places(folder: Path, kind: str) -> Iterator[Fresh]:
    """Yield a provider of empty memories; a Neo4j is started once, and emptied for each story."""
    if kind != "neo4j":
        yield lambda: empty(folder / "next-day", kind)
        return
    with empty(folder / "next-day", kind) as place:

        @contextmanager
        def emptied() -> Iterator[Place]:
            assert place.connection is not None
            asyncio.run(ask(place.connection, "MATCH (n) DETACH DELETE n"))
            yield place

        yield emptied


def _told(
    folder: Path, fresh: Fresh, half: str, *, learns: bool, peer: bool
) -> tuple[Outcome, ...]:
    found: list[Outcome] = []
    for story in stories(DAYS / half):
        with fresh() as place:
            found += in_child(_ask, place, story, folder / story.name, learns, peer)
    return tuple(found)


async def _ask(place: Place, story: Story, folder: Path, learns: bool, peer: bool) -> list[Outcome]:
    async with opened_with_embedder(place) as (store, embedder):
        teller = Teller(story, store, embedder, folder)
        await teller.tell(learns=learns)
        if peer:
            return [await _peer(story, store, probe) for probe in story.probes]
        return [await teller.ask(probe) for probe in story.probes]


async def _peer(story: Story, store: Archive, probe: Probe) -> Outcome:
    """Return what the baseline shows: the newest session's last turns, and the best by words."""
    sessions = await store.sessions(SessionQuery(limit=50))
    here = [each for each in sessions if Path(each.cwd).name == probe.project]
    turns = []
    if here:
        turns = await store.turns(here[0].session_id, TurnQuery(limit=_PEER_LAST))
    wanted = tuple(WeightedTerm(term.term, term.weight) for term in query_terms(probe.prompt))
    found = await store.search(SearchQuery(terms=wanted, limit=_PEER_FOUND, levels=(0,)))
    best = sorted(found, key=lambda each: -each.text)[:_PEER_FOUND]
    turns += await store.get(Turn, [each.record_id for each in best if each.text > 0])
    items = {t.turn_id: f"{t.user_message}\n{t.assistant_message}" for t in turns}
    labels = {name: re.sub(r"\s+", " ", text)[:80] for name, text in items.items()}
    return outcome_of(
        story, probe, "\n".join(items.values()), [(labels[n], items[n]) for n in items]
    )


def next_day_table(found: NextDays) -> str:
    """Return a row per way and half, then what was missing in the half that is not held out."""
    rows = [["", "probes", "held", "stale", "junk", "characters"]]
    for one in found.measured:
        count = len(one.outcomes)
        rows.append(
            [
                f"{one.half}: {one.name}",
                str(count),
                f"{one.held:.1%}",
                str(sum(len(each.stale) for each in one.outcomes)),
                f"{one.junk:.2f}",
                f"{sum(each.chars for each in one.outcomes) / max(1, count):,.0f}",
            ]
        )
    lines = [aligned(rows), ""]
    for one in found.measured:
        if one.half == "open" and one.name != "peer":
            lines.append(one.name)
            for each in one.outcomes:
                if each.missing or each.stale or each.junk:
                    lines.append(f"  {each.story}: {each.prompt}")
                    lines += [f"    missing {what}" for what in each.missing]
                    lines += [f"    stale   {what}" for what in each.stale]
                    lines += [f"    junk    {what}" for what in each.junk]
    return "\n".join(lines)
