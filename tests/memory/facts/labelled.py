"""Two hundred turns with what is worth keeping of each, and how well that is found.

    python -m tests.memory.facts.labelled                    # the patterns and failures
    python -m tests.memory.facts.labelled openai/gpt-5-nano  # with a model, as configured

A line of `labelled.txt` is a turn: what the person said || the agent's answer || `$ command =>
exit code: output` || kind: words that a right memory holds. The last two may be missing; of 50
something is worth keeping, of 150 nothing. They were written before the patterns were tried on
them, though by the same hand: with other people's words expect less.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ragmem.background import summary_model
from ragmem.config import Config, SummariesConfig, find_paths
from ragmem.ids import new_id
from ragmem.llm.base import LLM
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.facts.words import plain
from ragmem.memory.summaries.summarizer import Summarizer, is_too_small
from ragmem.records import MemoryRecord
from ragmem.store.sqlite import SQLiteStore

from .knowing import EVERYTHING, NOW, Clock, facts_of
from .learning import happened, ran

SET = Path(__file__).with_suffix(".txt")


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, and what is worth keeping of it."""

    user: str
    answer: str
    calls: tuple[dict[str, object], ...] = ()
    kind: str = ""
    """Empty: nothing is."""
    words: str = ""
    """That a right memory holds."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How well it was found."""

    kept: int
    """Memories that came of all turns."""
    right: int
    """Of them those that were worth keeping, as they were."""
    wanted: int
    found: int
    """Of the wanted: turns of which the right memory came."""
    wrong: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()

    @property
    def precision(self) -> float:
        """Of what is kept, how much is worth it."""
        return self.right / self.kept if self.kept else 1.0

    @property
    def recall(self) -> float:
        """Of what is worth keeping, how much is kept."""
        return self.found / self.wanted


def turns() -> list[Labelled]:
    """All of them."""
    return [_turn(line) for line in SET.read_text("utf-8").splitlines()]


def _turn(line: str) -> Labelled:
    user, answer, call, label = [*(part.strip() for part in line.split("||")), "", ""][:4]
    kind, _, words = label.partition(": ")
    calls: tuple[dict[str, object], ...] = ()
    if call:
        command, _, ended = call.removeprefix("$ ").partition(" => ")
        code, _, output = ended.partition(":")
        calls = (ran(command, output.strip(), int(code)),)
    return Labelled(
        user=user.replace("\\n", "\n"),
        answer=answer.replace("\\n", "\n"),
        calls=calls,
        kind=kind,
        words=words,
    )


async def measured(labelled: Sequence[Labelled], folder: Path, llm: LLM | None = None) -> Score:
    """Each turn looked through by itself, in a store of its own project."""
    store = await SQLiteStore.open(folder / "memory.db", locks_dir=folder / "locks")
    facts = facts_of(store, clock=Clock())
    config = SummariesConfig(max_calls_per_session=10, max_cost_usd_per_session=1.0)
    asker = Summarizer(llm, config) if llm is not None else None
    extractor = Extractor(facts, asker, clock=Clock())
    kept, right, found = 0, 0, 0
    wrong: list[str] = []
    missed: list[str] = []
    for turn in labelled:
        told = turn.user, turn.answer, *turn.calls
        recorded = await happened(store, *told, at=NOW, project_id=new_id())
        await extractor.learn(store, recorded)
        made = await store.memories(EVERYTHING)
        good = [m for m in made if _is_right(m, turn)]
        kept, right = kept + len(made), right + len(good)
        found += bool(good)
        wrong += [f"{m.kind}: {m.content} ({turn.user[:60]!r})" for m in made if m not in good]
        if turn.kind and not good:
            missed.append(f"{turn.kind}: {turn.user}")
        await store.forget_memories([m.memory_id for m in made])
    await store.aclose()
    wanted = sum(bool(turn.kind) for turn in labelled)
    return Score(
        kept=kept, right=right, wanted=wanted, found=found, wrong=tuple(wrong), missed=tuple(missed)
    )


def _is_right(memory: MemoryRecord, turn: Labelled) -> bool:
    """A preference may be taken for a rule, and a decision for a fact: the words decide."""
    return bool(turn.kind) and plain(turn.words) in plain(memory.content)


async def _report(model: str) -> None:
    llm = None
    if model:
        config = Config()
        models = msgspec.structs.replace(config.model, summary=model)
        llm = summary_model(msgspec.structs.replace(config, model=models), find_paths())
        if llm is None or is_too_small(llm.info):
            raise SystemExit(f"{model} can't be asked here.")
        await llm.prepare()
    with tempfile.TemporaryDirectory() as folder:
        score = await measured(turns(), Path(folder), llm)
    if llm is not None:
        await llm.aclose()
    told = {
        "model": model or "none",
        "precision": round(score.precision, 3),
        "recall": round(score.recall, 3),
        "kept": score.kept,
        "wrong": score.wrong,
        "missed": dict(Counter(missed.partition(":")[0] for missed in score.missed)),
        "missed_turns": score.missed,
    }
    print(json.dumps(told, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    asyncio.run(_report(sys.argv[1] if len(sys.argv) > 1 else ""))
