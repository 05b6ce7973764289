"""Sessions of other agents into both stores: once, and what they get later."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmem.errors import StoreRefused, StoreUnavailable
from ragmem.failpoints import arm
from ragmem.importers import AgentName, Outcome, Tally, _zstd, importer as module
from ragmem.importers.importer import AGENTS, Importer, find_files, titles_beside
from ragmem.records import (
    Applied,
    PutTurn,
    Scope,
    SearchQuery,
    SessionQuery,
    Span,
    UpdateSession,
    WeightedTerm,
    Write,
)
from ragmem.store import Archive
from ragmem.store.sqlite import SQLiteStore
from tests.importers.reading import (
    AUTUMN,
    CLAUDE_CODE,
    CODEX,
    EVENTS,
    LATEST,
    NOW,
    SPRING,
    Read,
    answered,
    asked,
    called,
    lines,
    returned,
)
from tests.store.samples import whole_turn

SECRET = "sk-ant-api03-" + "abcdEFGH1234" * 4


async def taken(
    store: "Archive | Heard | None",
    path: Path,
    name: AgentName = "claude-code",
    *,
    now_h: float = 0,
    **options: object,
) -> list[Outcome]:
    """Import all that is under the path, as the command does."""
    agent = AGENTS[name]
    search = find_files(agent, path)
    importer = Importer(
        store,
        now=NOW + timedelta(hours=now_h),
        titles=titles_beside(agent, path, search.files),
        **options,
    )
    return [await importer.take(agent, found, Tally()) for found in search.files]


def states(outcomes: list[Outcome]) -> list[tuple[str, int, int]]:
    """What became of each, and turns that are new or more complete."""
    return [(each.state, each.turns_added, each.turns_changed) for each in outcomes]


def beginning(folder: Path, original: Path, count: int | None = None) -> Path:
    """A file of the same name in another folder, with so many of the lines; None: all."""
    file = folder / original.name
    file.write_bytes(b"".join(original.read_bytes().splitlines(keepends=True)[:count]))
    return file


class Heard:
    """A store of which a test hears each transaction before it is applied, or refuses it."""

    def __init__(self, store: Archive, hears: Callable[[Sequence[Write]], None]) -> None:
        self._store = store
        self._hears = hears

    async def apply(self, writes: Sequence[Write]) -> Applied:
        self._hears(writes)
        return await self._store.apply(writes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def everything(store: Archive) -> list[PutTurn]:
    """All turns, with their calls and accesses."""
    return await store.own_turns(await store.spans())


async def test_all_comes_and_nothing_twice(archive: Archive) -> None:
    """Round trip on both stores: import, import again, the same is there; and nothing is broken."""
    came = await taken(archive, CLAUDE_CODE) + await taken(archive, CODEX, "codex")
    assert sorted(states(came)) == [("new", 1, 0), *[("new", 2, 0)] * 5]
    there = await everything(archive)
    again = await taken(archive, CLAUDE_CODE) + await taken(archive, CODEX, "codex")
    assert states(again) == [("unchanged", 0, 0)] * 6
    assert [each.turns_known for each in again] == [each.turns_added for each in came]
    assert await everything(archive) == there
    assert await archive.check() == []
    [project] = await archive.projects()
    sessions = await archive.sessions(SessionQuery(project_ids=(project.project_id,)))
    assert {session.cwd for session in sessions} == {"/home/ana/garden"}
    titles = {session.title for session in sessions}
    assert titles >= {"Which ferns like shade", "Mondays", "The oldest plant"}
    assert {session.tags for session in sessions} == {("claude-code",), ("codex",)}
    newest = sessions[0]
    assert newest.last_activity_at.isoformat() == "2026-09-24T15:33:06+00:00"
    assert newest.turn_count == 1


PATCH = "*** Begin Patch\n*** Update File: {}\n*** Update File: {}\n"


async def test_what_is_known_is_not_completed_again(small: Archive, tmp_path: Path) -> None:
    """The files of a turn that may go on stand in the log's order, not in the store's."""
    at = {"sessionId": "s", "cwd": "/g", "timestamp": "2026-04-20T11:57:18.000Z"}
    files = {"1": ("z.py", "a.py"), "2": ("y.py", "b.py")}
    edits = [
        called("apply_patch", name, input=PATCH.format(*paths)) for name, paths in files.items()
    ]
    records = [
        asked("Change both", **at),
        answered(edits, uuid="v", **at),
        asked([returned("done", name) for name in files], "w", **at),
    ]
    file = lines(tmp_path / "projects" / "-g" / "s.jsonl", records)
    assert states(await taken(small, file)) == [("new", 1, 0)]
    assert states(await taken(small, file)) == [("unchanged", 0, 0)]


async def test_what_is_stored_is_searched_and_due_like_all_else(small: Archive) -> None:
    """Files, words, work that is pending: as if it had been said here."""
    [outcome] = await taken(small, EVENTS, "codex")
    accesses = await small.file_accesses(outcome.session_id, max_turn_chars=10_000)
    assert {(access.access_type, access.path, access.turn_index) for access in accesses} == {
        ("write", "slugs.md", 1),
        ("write", "beds/north.txt", 1),
        ("read", "beds/north.txt", 1),
    }
    within = Scope(session_ids=(outcome.session_id,))
    hits = await small.search(SearchQuery(scope=within, terms=(WeightedTerm("copper"),)))
    assert [hit.turn_index for hit in hits if hit.text] == [1]
    pending = await small.pending("vectors", limit=10)
    assert [item.session_id for item in pending] == [outcome.session_id]


async def test_a_file_that_grew_brings_only_what_is_new(small: Archive, tmp_path: Path) -> None:
    """The turn that was not complete becomes so, and the next ones follow it."""
    file = beginning(tmp_path, AUTUMN, 8)
    assert states(await taken(small, file)) == [("new", 1, 0)]
    assert states(await taken(small, file)) == [("unchanged", 0, 0)]
    whole = AUTUMN.read_bytes()
    beginning(tmp_path, AUTUMN, 10)
    file.write_bytes(whole[: file.stat().st_size + 50])
    assert states(await taken(small, file)) == [("grown", 0, 1)]
    file.write_bytes(whole)
    assert states(await taken(small, file)) == [("grown", 1, 1)]
    grown = await everything(small)
    assert [put.turn.status for put in grown] == ["completed", "failed"]
    assert [put.turn.turn_index for put in grown] == [1, 2]
    assert await small.check() == []


async def test_a_session_that_went_on_here_keeps_both(small: Archive, tmp_path: Path) -> None:
    """Turns that came later there stand behind those that were said here; a name here stays."""
    [first] = await taken(small, beginning(tmp_path, SPRING, 10))
    named = UpdateSession(session_id=first.session_id, title="Mine", tags=("x",), at=NOW)
    await small.apply([*whole_turn(first.session_id, user="said here", started_at=NOW), named])
    file = beginning(tmp_path, SPRING)
    [grown] = await taken(small, file)
    assert (grown.state, grown.turns_added, grown.title) == ("grown", 1, "Mine")
    turns = await small.turns(first.session_id)
    assert [turn.user_message for turn in turns] == [
        "Which ferns in plants.txt like shade? 🌿",
        "said here",
        "Now write that into notes.md",
    ]
    session = await small.session(first.session_id)
    assert (session.title, session.tags) == ("Mine", ("x",))
    assert states(await taken(small, file)) == [("unchanged", 0, 0)]


async def test_what_was_deleted_here_comes_again(small: Archive) -> None:
    """As new: of what is gone, nothing is known."""
    [first] = await taken(small, SPRING)
    await small.delete_session(first.session_id)
    assert await taken(small, SPRING) == [first]
    assert await small.check() == []


async def test_the_first_prompt_is_the_title_until_there_is_one(
    small: Archive, tmp_path: Path
) -> None:
    """Is taken while nobody has given one here."""
    [outcome] = await taken(small, beginning(tmp_path, LATEST, 10))
    assert outcome.title == "Water the ferns each Monday."
    [outcome] = await taken(small, beginning(tmp_path, LATEST))
    assert (outcome.state, outcome.title) == ("unchanged", "Mondays")
    assert (await small.session(outcome.session_id)).title == "Mondays"


async def test_a_secret_where_a_title_or_an_error_is_cut_is_not_kept_in_part(
    small: Archive, tmp_path: Path
) -> None:
    token, long = "ghp_R4t7Yb2Kq9Lm3Nx8Wz5Vc1Ds6Fg0Hj4Pu7Ea", "x" * 480
    file = lines(
        tmp_path / "one.jsonl",
        [
            asked(f"{long[:100]} {token}"),
            answered([called("Bash", command="x")]),
            asked([returned(f"{long} {token}", is_error=True)], "u2"),
        ],
    )
    [outcome] = await taken(small, file)
    [turn] = await small.turns(outcome.session_id)
    assert (turn.user_message[:99], turn.tool_calls[0].success) == (long[:99], False)
    assert "ghp" not in f"{await small.session(outcome.session_id)} {turn}"


async def test_a_fork_shares_its_parents_turns(small: Archive, tmp_path: Path) -> None:
    """A session that begins with another one's records does not have its turns a second time."""
    begun = beginning(tmp_path, SPRING, 10).read_bytes()
    fork = tmp_path / "fork.jsonl"
    own = b'{"type":"user","uuid":"own","sessionId":"fork","message":{"content":"Or moss?"}}\n'
    fork.write_bytes(begun + own)
    [parent] = await taken(small, beginning(tmp_path, SPRING))
    [forked] = await taken(small, fork)
    assert (forked.state, forked.turns_known, forked.turns_added) == ("new", 1, 1)
    session = await small.session(forked.session_id)
    assert (session.parent_session_id, session.forked_at_index) == (parent.session_id, 1)
    turns = await small.turns(forked.session_id)
    assert [turn.user_message for turn in turns] == [
        "Which ferns in plants.txt like shade? 🌿",
        "Or moss?",
    ]
    more = own.replace(b"own", b"more").replace(b"moss", b"ivy")
    fork.write_bytes(begun + own + more)
    assert states(await taken(small, fork)) == [("grown", 1, 0)]
    assert states(await taken(small, fork)) == [("unchanged", 0, 0)]
    assert await small.check() == []


async def test_a_fork_of_codex(small: Archive, tmp_path: Path) -> None:
    """Its first line names the session that it was made of, whose lines follow with new times."""
    await taken(small, EVENTS, "codex")
    first, *rest = EVENTS.read_text().splitlines()
    meta = json.loads(first)
    meta["payload"] |= {"id": "fork", "forked_from_id": meta["payload"]["id"]}
    later = [line.replace("2025-12-28T12", "2026-01-02T08") for line in rest[:23]]
    prompt = {"type": "event_msg", "payload": {"type": "user_message", "message": "Or moss?"}}
    records = [meta, *map(json.loads, [first, *later]), prompt]
    file = lines(tmp_path / "rollout-fork.jsonl", records)
    [forked] = await taken(small, file, "codex")
    assert (forked.turns_known, forked.turns_added) == (1, 1)
    assert (await small.session(forked.session_id)).forked_at_index == 1


async def test_a_fork_whose_parent_is_not_here(small: Archive, tmp_path: Path) -> None:
    """Stands by itself, with all of its turns."""
    file = beginning(tmp_path, SPRING).rename(tmp_path / "fork.jsonl")
    [outcome] = await taken(small, file)
    assert (outcome.state, outcome.turns_added) == ("new", 2)
    assert (await small.session(outcome.session_id)).parent_session_id is None


async def test_secrets_stay_out(small: Archive, tmp_path: Path) -> None:
    """Prompts, answers, thoughts, arguments, results, paths and titles pass the same rules."""
    said = [
        {"type": "thinking", "thinking": SECRET},
        {"type": "text", "text": SECRET},
        called("Read", file_path=f"/home/ana/{SECRET}"),
    ]
    records = [
        {"type": "summary", "summary": f"About {SECRET}", "leafUuid": "u1"},
        asked(f"Use {SECRET}"),
        answered(said),
        asked([returned(SECRET, is_error=False)], "u2"),
        answered(SECRET, "n"),
    ]
    [outcome] = await taken(small, lines(tmp_path / "s.jsonl", records), now_h=24 * 365)
    stored = msgspec.json.encode([await everything(small), await small.sessions(SessionQuery())])
    assert SECRET.encode() not in stored
    assert stored.count(b"[redacted: Anthropic key]") >= 7
    assert outcome.tool_calls_added == 1


async def test_a_dry_run_stores_nothing(small: Archive) -> None:
    """It tells the same as the import that follows, also where there is no store yet."""
    nowhere = await taken(None, CLAUDE_CODE, dry_run=True)
    dry = await taken(small, CLAUDE_CODE, dry_run=True)
    assert await small.spans() == []
    assert await small.projects() == []
    assert nowhere == dry == await taken(small, CLAUDE_CODE)


async def test_those_of_one_folder(small: Archive, tmp_path: Path) -> None:
    """The folder counts that the session was held in."""
    assert {o.state for o in await taken(small, CLAUDE_CODE, only_cwd="/home/ana")} == {
        "other_folder"
    }
    assert {o.state for o in await taken(small, CLAUDE_CODE, only_cwd="/home/ana/garden")} == {
        "new"
    }


async def test_a_refusal_of_the_store_is_told(small: Archive) -> None:
    """A session that somebody writes at the same time costs the others nothing."""
    applied: list[Sequence[Write]] = []

    def refuse_the_first(writes: Sequence[Write]) -> None:
        applied.append(writes)
        if len(applied) == 1:
            raise StoreRefused("Turn 1 has no place here.")

    outcomes = await taken(Heard(small, refuse_the_first), CLAUDE_CODE)
    assert [each.state for each in outcomes] == ["refused", "new", "new"]
    assert outcomes[0].reason == "Turn 1 has no place here."
    assert (outcomes[0].turns_added, outcomes[0].tool_calls_added) == (0, 0)


async def test_a_full_disk_is_no_fault_of_a_file(small: Archive) -> None:
    """It ends there; what had come stays, and once there is room the rest comes."""
    arm("sqlite.commit:enospc@2")
    try:
        with pytest.raises(StoreUnavailable, match="is full"):
            await taken(small, CLAUDE_CODE)
    finally:
        arm("")
    assert len(await small.sessions(SessionQuery())) == 1
    outcomes = await taken(small, CLAUDE_CODE)
    assert sorted(each.state for each in outcomes) == ["new", "new", "unchanged"]
    assert await small.check() == []


async def test_two_imports_at_once_bring_each_session_once(small: Archive, tmp_path: Path) -> None:
    home = tmp_path / "home"
    other = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    await asyncio.gather(*(taken(store, CLAUDE_CODE) for store in (small, other)))
    await other.aclose()
    once = await everything(small)
    assert states(await taken(small, CLAUDE_CODE)) == [("unchanged", 0, 0)] * 3
    assert await everything(small) == once
    assert len({put.turn.turn_id for put in once}) == len(once)
    assert await small.check() == []


async def test_a_file_that_is_gone_or_forbidden_is_told(small: Archive, tmp_path: Path) -> None:
    """Between finding and reading anything may happen to it."""
    agent = AGENTS["codex"]
    importer = Importer(small, now=NOW, titles={})
    file = tmp_path / "rollout-gone.jsonl"
    file.write_bytes(EVENTS.read_bytes())
    [found] = find_files(agent, file).files
    file.unlink()
    gone = await importer.take(agent, found, Tally())
    assert (gone.state, gone.reason) == ("refused", "no such file or directory")
    file.symlink_to(EVENTS)
    link = await importer.take(agent, found, Tally())
    assert link.state == "refused"


async def test_a_file_whose_name_is_no_text_is_a_session_of_its_own(
    small: Archive, tmp_path: Path
) -> None:
    """The record names none."""
    said = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "Where is it?"}}
    for name in (b"\xff.jsonl", b"\xfe.jsonl", b"plain.jsonl"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(json.dumps(said))
    outcomes = await taken(small, tmp_path)
    assert states(outcomes) == [("new", 1, 0)] * 3
    assert len({each.session_id for each in outcomes}) == 3
    assert states(await taken(small, tmp_path)) == [("unchanged", 0, 0)] * 3


async def test_a_session_of_any_size_is_stored_some_turns_at_a_time(
    small: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of them, and no more text, than its limits say; results are clipped."""
    monkeypatch.setattr(module, "_BATCH", 5)
    monkeypatch.setattr(module, "_BATCH_CHARS", 500_000)
    records: list[dict[str, object]] = []
    for n in range(12):
        told = "y" if n < 5 else "y" * 300_000
        records += [
            asked(f"prompt {n}", f"u{n}"),
            answered([called("Bash", f"t{n}", command="x")], f"m{n}"),
            asked([returned(told, f"t{n}")], f"v{n}"),
            answered("done", f"n{n}"),
        ]
    applied: list[int] = []
    store = Heard(small, lambda writes: applied.append(sum(isinstance(w, PutTurn) for w in writes)))
    [outcome] = await taken(store, lines(tmp_path / "long.jsonl", records))
    assert (outcome.turns_added, outcome.tool_calls_added) == (12, 12)
    assert [turns for turns in applied if turns] == [5, 3, 3, 1]
    [put] = await small.own_turns([Span(outcome.session_id, 7, 7)])
    assert put.turn.user_message == "prompt 6"
    assert 190_000 < len(put.turn.tool_calls[0].result) < 210_000


def test_a_session_that_its_agent_has_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read as it is; what is not whole is told, and so is what would read it."""
    file = tmp_path / f"{EVENTS.name}.zst"
    file.write_bytes(_zstd(file).compress(EVENTS.read_bytes()))
    assert [found.file for found in find_files(AGENTS["codex"], tmp_path).files] == [file]
    packed, plain = Read("codex", file), Read("codex", EVENTS)
    assert packed.told == plain.told
    # Before its first record nothing but its name tells whose it is.
    assert packed.facts.foreign_id == plain.facts.foreign_id
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(OSError, match="it is incomplete, or not compressed by zstd"):
        Read("codex", file)
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        OSError, match=r"it is compressed; to read it, install zstd: `.* install .*zstd.*`"
    ):
        Read("codex", file)


def test_finding(tmp_path: Path) -> None:
    """Links, empty and compressed files are told; subagents are counted; others are none."""
    folder = tmp_path / "projects" / "-home-ana"
    (folder / "s1" / "subagents").mkdir(parents=True)
    (folder / "s1.jsonl").write_text("{}\n")
    (folder / "s1" / "subagents" / "agent-1.jsonl").write_text("{}\n")
    (folder / "agent-2.jsonl").write_text("{}\n")
    (folder / "notes.txt").write_text("x")
    (folder / "empty.jsonl").touch()
    (folder / "packed.jsonl.gz").write_bytes(b"x")
    (folder / "link.jsonl").symlink_to(folder / "s1.jsonl")
    (tmp_path / "projects" / "loop").symlink_to(tmp_path)
    search = find_files(AGENTS["claude-code"], tmp_path / "projects")
    assert [found.file.name for found in search.files] == ["s1.jsonl"]
    assert {(Path(file).name, reason) for file, reason in search.skipped} == {
        ("empty.jsonl", "it is empty"),
        ("packed.jsonl.gz", "it is compressed; unpack it first"),
        ("link.jsonl", "it is a link"),
        ("loop", "it is a link"),
    }
    assert dict(search.tally.left_out) == {
        "folders of subagents": 1,
        "files of subagents": 1,
        "files of other names": 1,
    }
    codex = find_files(AGENTS["codex"], tmp_path / "projects")
    assert codex.files == []
    assert "its name is not a session's" in str(codex.skipped)
    with pytest.raises(OSError, match="No such file"):
        find_files(AGENTS["codex"], tmp_path / "nowhere")
