"""One-shot questions on a large memory, in turn with the same on an empty one."""

import asyncio
import resource
import statistics
from collections.abc import Callable
from pathlib import Path

from benches.content import Content
from benches.places import RAGMEM, clean_environment, open_sqlite
from benches.results import Result, result
from benches.starts import instant_server, timed
from ragmem.embedder.onnx import INFO
from ragmem.records import EmbedderMark

TURNS = 10_000
MOST_OVER_MS = 300.0
_PROMPT = "Where did we settle the retry limit of the importer, number {}?"


def measure_asking(folder: Path, runs: int, turns: int = TURNS) -> list[Result]:
    """`ragmem ask` on an empty memory and on a full one of the same project, in turn.

    No worker follows: it would disturb the next run. Both start as a person's do else.
    """
    full, content = folder / "full", Content(turns, 1, top=str(folder), mark=_mark())
    project = folder / "p0"
    project.mkdir()
    asyncio.run(_fill(full, content))
    with instant_server(folder) as url:
        settings = {
            "RAGMEM_API_BASE": url,
            "RAGMEM_MODEL": "openai/scripted",
            "RAGMEM_API_KEY": "none",
            "RAGMEM_MEMORY__WORKER": "off",
        }

        def ask(home: Path, number: int) -> tuple[float, float]:
            env = clean_environment(home, **settings)
            arguments = [str(RAGMEM), "ask", _PROMPT.format(number)]
            before = _processor_ms()
            return timed(arguments, cwd=project, env=env), _processor_ms() - before

        ways: dict[str, Callable[[int], tuple[float, float]]] = {
            "ask, empty memory": lambda number: ask(folder / f"empty-{number}", number),
            f"ask, {turns:,} turns of this project": lambda number: ask(full, number),
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(runs + 1):
            for name, once in ways.items():
                spent = once(number)
                if number:  # The first round compiles, and warms the disk's cache.
                    samples[name].append(spent)
    found = []
    for place, kind in enumerate(("", ", processor time")):
        base, over = ([spent[place] for spent in each] for each in samples.values())
        # What else runs on the machine makes a start longer, but not its processor time.
        target = None if kind else MOST_OVER_MS
        empty, large = (f"{name}{kind}" for name in ways)
        found += [
            result(empty, base, target=None),
            result(large, over, target=target, base=statistics.median(base)),
        ]
        if not kind:
            pairs = [mine - other for mine, other in zip(over, base, strict=True)]
            found.append(result("the difference of each pair", pairs, target=target))
    return found


def _processor_ms() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (spent.ru_utime + spent.ru_stime) * 1000


def _mark() -> EmbedderMark:
    return EmbedderMark(INFO.model_id, INFO.dimension)


async def _fill(home: Path, content: Content) -> None:
    store = await open_sqlite(home)
    await store.use_embedder(content.mark)
    async for batch in content.writes():
        await store.apply(batch)
    await store.aclose()
