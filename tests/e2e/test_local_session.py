"""A session of thirty turns about this repository, with the small model that needs nobody else."""

import shutil
from pathlib import Path

import pytest

import ragmem as package
from ragmem.agent import Options
from ragmem.app import App
from ragmem.config import Config, MemoryConfig, ModelConfig, SummariesConfig, find_paths
from ragmem.records import TurnQuery
from ragmem.store import Store
from ragmem.tools.base import deny_all

pytestmark = [pytest.mark.local_model, pytest.mark.campaign]

_LEAST_BYTES = 1_000
SOURCE = Path(package.__file__).parent
_BY_SIZE = sorted((file.stat().st_size, file) for file in SOURCE.rglob("[!_]*.py"))
PATHS = [
    file.relative_to(SOURCE.parent).as_posix() for size, file in _BY_SIZE if size > _LEAST_BYTES
][:10]
"""Short ones, since the model reads little."""
QUESTIONS = (
    "What does {} do?", "Which functions does {} have?", "What does {} import?",
    "Tell me about {} in a few words.", "Explain {}.", "Sum up {} in one sentence.",
)  # fmt: skip
"""More than are needed: to some questions this model says nothing, and those turns failed."""
TURNS = 30


async def files_below(store: Store, session_id: str) -> dict[str, set[str]]:
    """By summary: the files of the turns behind it, as tools recorded them."""
    below: dict[str, set[str]] = {}
    for turn in await store.turns(session_id, TurnQuery(statuses=("completed",))):
        (call,) = turn.tool_calls
        assert (call.tool_name, call.origin, call.success) == ("read_file", "mention", True)
        below[turn.turn_id] = {path for path in PATHS if f'"{path}"' in call.arguments}
        assert len(below[turn.turn_id]) == 1
    for summary in sorted(await store.summaries(session_id), key=lambda s: s.level):
        below[summary.summary_id] = set().union(*(below[name] for name in summary.covers))
    return below


@pytest.mark.timeout(900)
async def test_its_summaries_name_the_right_files(tmp_path: Path) -> None:
    """An L1 for each turn, and an L2."""
    project = tmp_path / "project"
    for path in PATHS:
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE.parent / path, target)
    # The roll-up goes by what was said, and this model says little.
    memory = MemoryConfig(worker="inline", summaries=SummariesConfig(rollup_chars=1_500))
    config = Config(model=ModelConfig(main="local/smollm2"), memory=memory)
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")}).make()
    async with App(config, paths, cwd=project) as app:
        session = await app.start_session()
        agent = await app.agent(session, Options(), deny_all)
        answered = 0
        try:
            for question in QUESTIONS:
                for path in PATHS:
                    if answered < TURNS:
                        reply = await agent.send(question.format(path))
                        answered += reply.finished.subtype == "success"
        finally:
            await agent.aclose()
        await app.leave_background()
        store = await app.store()
        summaries = await store.summaries(session.session_id)
        below = await files_below(store, session.session_id)
        left = await store.count_pending()
    levels = [summary.level for summary in summaries]
    assert answered == levels.count(1) == TURNS
    assert levels.count(2) >= 1
    assert left["vectors"] == 0
    for summary in summaries:
        assert set(summary.files_mentioned) == below[summary.summary_id]
        assert summary.tools_used == ("read_file",)
        assert summary.text.strip()
    counts = {level: levels.count(level) for level in sorted(set(levels))}
    print(f"\n{TURNS} turns with the local model: summaries by level {counts}")
