"""The project's code beside a memory: what bears on a prompt, references of turns, following."""

import asyncio
import os
import re
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ragmem.agent import Options
from ragmem.app import App
from ragmem.config import (
    CodeConfig,
    Config,
    EmbeddingsConfig,
    LLMConfig,
    MemoryConfig,
    ModelConfig,
    SummariesConfig,
)
from ragmem.embedder import Kind
from ragmem.index import CodeHit, codebase as codebase_module
from ragmem.index.codebase import Codebase, PromptWords, bears, passage_of, rare_words
from ragmem.memory.context.collect import ProjectCode
from ragmem.memory.worker import Worker
from ragmem.records import PutReferences, ScopeQuery, Turn
from ragmem.tools.base import deny_all
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.patience import until
from tests.index.cuts import a_hit

from .conftest import Desk


def a_worker(desk: Desk, codebase: Codebase, *, everywhere: bool | None = True) -> Worker:
    """One that links turns, and makes vectors of code unless `everywhere` is None."""
    chores = [] if everywhere is None else [partial(codebase.catch_up, everywhere=everywhere)]
    return Worker(
        desk.open_store,
        "me",
        embedder=None,
        summarizer=None,
        config=SummariesConfig(enabled=False),
        linker=codebase,
        chores=chores,
    )


async def linked(desk: Desk, codebase: Codebase, turn: Turn) -> dict[str, str]:
    """Link what waits for it; qualified name to how, of the turn's references."""
    assert await a_worker(desk, codebase).drain(90)
    scopes = {f.scope.scope_id: f.scope for f in await desk.store.find_scopes(ScopeQuery())}
    found: list[PutReferences] = await desk.store.get(PutReferences, [turn.turn_id])
    return {scopes[r.scope_id].qualified_name: r.how for each in found for r in each.references}


# --- what bears on a prompt -----------------------------------------------------


def test_a_request_says_in_words_what_a_passage_was_found_by() -> None:
    """As a person is told it, and not as the order was made."""
    hit = a_hit("name: text, parse", "words: token", "meaning", "called by login")
    assert passage_of(hit).why == (
        "found by its name text, parse and its words token and its meaning; called by login"
    )


SMALL_TALK = (
    "hello", "Hi there!", "thanks", "Thanks a lot.", "what's the weather", "ok", "yes please",
    "How are you today?", "Tell me a joke about cats", "bonjour", "What is the capital of Peru?",
)  # fmt: skip
OF_CODE = (
    "What does parse_duration do?", "Look at `login`", "duration text in seconds",
    "In src/clock.py, why 60?",
)  # fmt: skip


async def test_small_talk_gets_no_code_and_what_is_named_does(desk: Desk) -> None:
    async with desk.codebase() as codebase:
        for prompt in (*OF_CODE, *SMALL_TALK):
            found = await codebase.passages(desk.project, prompt)
            assert bool(found.passages) is (prompt in OF_CODE), prompt


@pytest.mark.parametrize(
    ("hit", "does"),
    [
        (a_hit("meaning", similarity=0.41), True),
        (a_hit("meaning", similarity=0.40), False),
        (a_hit("file: a.py"), True),
        (a_hit("name: text"), False),
        (a_hit("words: text"), False),
        (a_hit("words: text, token"), True),
        (a_hit("name: text", "words: token"), True),
        (a_hit("name: text", "words: token", similarity=0.3), True),
        (a_hit("name: text", "words: token", similarity=0.25), False),
        (a_hit("name: text", "words: token", similarity=0.1), False),
        (a_hit("called by login", "touched in this conversation"), False),
    ],
)
def test_what_bears_beyond_doubt(hit: CodeHit, does: bool) -> None:
    assert bears(hit, PromptWords(frozenset({"text", "token", "expired"})), 0.4) is does


@pytest.mark.parametrize(
    ("prompt", "does"),
    [
        ("Why does Text.parse fail?", True),
        ("See `parse`.", True),
        ("Is ragmem.text.Text.parse() right?", True),
        ("Please parse it.", False),
        ("What is `other`?", False),
    ],
)
def test_what_is_called_by_its_name(prompt: str, does: bool) -> None:
    assert bears(a_hit("name: parse", similarity=0.1), PromptWords.of(prompt), 0.4) is does


def test_before_there_are_vectors_a_rare_word_in_a_name_is_enough() -> None:
    """`check_password` for "How is the password verified?"; not a word that many names have."""
    asked = PromptWords(frozenset({"password", "verified"}))
    hit = a_hit("name: password")
    rare = rare_words([hit, *[a_hit("name: get")] * 4])
    assert rare == {"password"}
    assert bears(hit, asked, 0.4, rare)
    assert not bears(a_hit("name: get"), asked, 0.4, rare)
    assert not bears(a_hit("words: password"), asked, 0.4, rare)
    # Another word stands in its name, and of a long question two are no share.
    long = PromptWords(frozenset(f"word{n}" for n in range(20)))
    assert not bears(a_hit("words: password", "name: get"), long, 0.4, rare)
    # With a vector its meaning counts.
    assert not bears(a_hit("name: password", similarity=0.3), asked, 0.4, rare)


def test_of_a_long_question_more_words_are_needed() -> None:
    words = [f"word{n}" for n in range(20)]
    asked = PromptWords(frozenset(words))
    assert not bears(a_hit("words: text, token"), asked, None)
    assert bears(a_hit("words: " + ", ".join(words[:6])), asked, None)


async def test_switched_off_and_only_read(desk: Desk) -> None:
    """Code.enabled = false; --ephemeral reads what is there and writes nothing."""
    ask = "What does parse_duration do?"
    async with desk.codebase(config={"enabled": False}) as codebase:
        assert codebase.index_of(desk.project) is None
        assert not codebase.has(desk.folder)
        assert await codebase.search(desk.project, ask, 5) == []
    async with desk.codebase(writes=False) as codebase:
        assert await codebase.passages(desk.project, ask) == ProjectCode()
        assert not list(desk.paths.data_dir.glob("code/*.sqlite"))
    for writes in (True, False):
        async with desk.codebase(writes=writes) as codebase:
            assert (await codebase.passages(desk.project, ask)).passages


async def test_files_and_the_vector_are_waited_for_at_the_same_time(desk: Desk) -> None:
    """Where both take too long, the search by words has as long again."""
    embedder = HashEmbedder()
    async with desk.codebase(config={"wait_s": 2.0}, embedder=embedder) as codebase:
        index = await desk.indexed(codebase)
        assert await index.embed()
        embedder.delay_s = 60
        endless = asyncio.create_task(asyncio.Event().wait())
        codebase._refreshing[desk.project.project_id] = endless
        began = time.monotonic()
        found = await codebase.passages(desk.project, "What does parse_duration do?")
        assert found.passages
        assert time.monotonic() - began < 3.9


async def test_a_search_that_takes_too_long_holds_no_prompt_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left out of the request, and that is said with what lets it take longer.

    While the project is looked at for the first time, that is the cause, and it is said.
    """

    async def endless(*_: object, **__: object) -> list[CodeHit]:
        await asyncio.Event().wait()
        return []

    asked = (desk.project, "What does parse_duration do?")
    async with desk.codebase(config={"wait_s": 0.1}) as codebase, asyncio.timeout(60):
        monkeypatch.setattr(codebase, "_search_here", endless)
        first = await codebase.passages(*asked)
        assert first.left_out.startswith("The project's code is being indexed for the first time:")
        assert first.files_so_far == 0
        await desk.indexed(codebase)
        late = await codebase.passages(*asked)
        assert re.search(r"longer than 0\.25 s .* code\.wait_s", late.left_out)
        assert late.files_so_far is None


async def test_looking_alone_tells_the_store_nothing(desk: Desk) -> None:
    async with desk.codebase() as codebase:
        assert await codebase.search(desk.project, "parse_duration", 5)
    assert await desk.store.projects() == []


# --- what turns have to do with it ------------------------------------------------


async def test_references_of_a_turn(desk: Desk) -> None:
    async with desk.codebase() as codebase:
        codebase.begin(desk.project)
        turn = await desk.turn(
            "Make `parse_duration` strict.",
            "Done; `lookup` stays.",
            ("read_file", {"path": "src/auth.py", "offset": 16, "limit": 3}),
            ("grep_files", {"pattern": "has not expired"}),
            ("read_file", {"path": "src/clock.py"}),
            ("edit_file", {"path": "src/clock.py", "old": "* 60", "new": "* 60.0"}),
            ("create_file", {"path": "src/new.py", "content": "def fresh():\n    return 1\n"}),
        )
        assert await linked(desk, codebase, turn) == {
            "parse_duration": "edited",
            "fresh": "edited",
            "login": "read",
            "AuthService.validate": "found",
            "AuthService.lookup": "named",
        }
        assert await desk.store.pending("references", limit=9) == []


async def test_a_turn_without_code_is_done_too(desk: Desk, codebase: Codebase) -> None:
    turn = await desk.turn("hello", "hi")
    assert [p.record_id for p in await desk.store.pending("references", limit=9)] == [turn.turn_id]
    assert await linked(desk, codebase, turn) == {}
    assert await desk.store.pending("references", limit=9) == []


async def test_a_project_that_grows_while_it_is_embedded_gets_all_of_its_vectors(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files come faster, at first, than vectors are made for them."""
    monkeypatch.setattr(codebase_module, "_EMBEDDED_S", 0.0)
    embedder = HashEmbedder()
    embed = embedder.embed

    async def growing(texts: Sequence[str], kind: Kind = "passage") -> NDArray[np.float32]:
        made = await embed(texts, kind)
        if (call := embedder.spent.calls) <= 3:
            for number in range(50):
                name = f"grown_{call}_{number}"
                file = desk.folder / "src" / f"{name}.py"
                file.write_text(f"def {name}():\n    return {number}\n")
            await index.refresh()
        return made

    monkeypatch.setattr(embedder, "embed", growing)
    await desk.turn("hello", "hi")
    async with desk.codebase(embedder=embedder) as codebase:
        index = desk.index(codebase)
        await index.refresh()
        while await codebase.catch_up(desk.store):
            pass
        assert embedder.spent.calls > 3
        assert (await index.status()).without_vectors == 0


async def test_the_index_of_a_folder_that_is_gone_for_a_month_is_removed(desk: Desk) -> None:
    """Not before: it may be on a drive that comes back."""
    await desk.turn("hello", "hi")
    async with desk.codebase() as codebase:
        await desk.indexed(codebase)
    desk.folder.rename(desk.folder.with_name("away"))
    folder = desk.paths.data_dir / "code"
    another = folder / "another.sqlite"
    another.touch()
    [database] = {*folder.glob("*.sqlite")} - {another}
    for days, remains in ((29, True), (31, False)):
        then = time.time() - days * 86_400
        os.utime(database, (then, then))
        async with desk.codebase() as codebase:
            assert not await codebase.catch_up(desk.store)
        assert database.exists() is remains
    assert list(folder.iterdir()) == [another]


async def test_what_changed_last_gets_its_vectors_first(desk: Desk) -> None:
    embedder = HashEmbedder()
    for age, name in enumerate(["new", "old", "older"]):
        file = desk.folder / "src" / f"a_{name}.py"
        file.write_text(f"def the_{name}_one():\n    return 1\n")
        os.utime(file, (2_000_000_000 - 100 * age,) * 2)
    async with desk.codebase(embedder=embedder) as codebase:
        index = desk.index(codebase)
        await index.refresh()
        assert await index.embed()
    names = [re.search("the_(old|new|older)_one", text) for _, text in embedder.seen]
    assert list(dict.fromkeys(found[1] for found in names if found)) == ["new", "old", "older"]


# --- following --------------------------------------------------------------------


async def test_code_that_must_not_be_read_is_neither_found_nor_shown(
    desk: Desk, codebase: Codebase
) -> None:
    asked = "What does parse_duration do?"
    free = desk.code(codebase)
    (path,) = {passage.path for passage in (await free.passages(asked)).passages}
    assert await free.search(asked, 5)
    denied = desk.code(codebase, f"read_file({path})")
    assert (await denied.passages(asked)).passages == ()
    assert path not in {hit.path for hit in await denied.search(asked, 5)}


async def test_what_watched_has_ended_and_is_begun_again(
    desk: Desk, tmp_path: Path, quick_watch: None
) -> None:
    async with desk.codebase(embedder=HashEmbedder()) as codebase:
        at_hand = desk.code(codebase)
        codebase.keep_current()
        assert await codebase.search(desk.project, "parse_duration", 5)
        # What a search has looked at gets its vectors too.
        (desk.folder / "soon.py").write_text("def come_in_soon():\n    return 1\n")
        assert (await codebase.search(desk.project, "come_in_soon", 1))[0].path == "soon.py"
        while (await desk.index(codebase).status()).without_vectors:
            await asyncio.sleep(0.05)
        desk.folder.rename(tmp_path / "away")
        await asyncio.wait(codebase._watching.values())
        (tmp_path / "away").rename(desk.folder)
        (desk.folder / "late.py").write_text("def come_in_late():\n    return 1\n")

        async def found() -> bool:
            at_hand.begin()
            hits = await codebase.search(desk.project, "come_in_late", 5)
            return any(hit.name == "come_in_late" for hit in hits)

        await until(found)


async def test_the_app_of_a_chat_follows_what_its_agents_work_in(
    desk: Desk, quick_watch: None
) -> None:
    """`start_background` keeps the code of the session's project current, and that it is indexed is
    told; one index a process, the same for commands and agents.
    """
    config = Config(
        model=ModelConfig(main="openai/scripted"),
        llm=LLMConfig(api_base="http://127.0.0.1:9/v1"),
        memory=MemoryConfig(worker="off", embeddings=EmbeddingsConfig(enabled=False)),
        code=CodeConfig(wait_s=30.0),
    )
    async with App(config, desk.paths, cwd=desk.folder) as app:
        agent = await app.agent(await app.start_session(), Options(), deny_all)
        index = await app.code()
        assert index is not None
        assert not await index.exists()
        app.start_background()
        assert app.background.doing == "indexing"
        assert "def login" in (await agent.context("What does `login` do?")).text()
        assert app.background.doing == ""
        assert await app.code() is index
        await asyncio.sleep(0.5)
        (desk.folder / "late.py").write_text("def come_in_late():\n    return 1\n")

        async def found() -> bool:
            return any(hit.name == "come_in_late" for hit in await index.search("come_in_late"))

        await until(found)
    assert list((desk.paths.data_dir / "code").iterdir())
