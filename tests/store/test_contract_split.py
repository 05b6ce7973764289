"""Projects that are split again after they were joined, on every Store: see `RegisterProject`."""

from ragmem.records import (
    MemoryQuery,
    RegisterProject,
    ScopeQuery,
    SessionQuery,
    TurnsQuery,
    Write,
)
from ragmem.store import Store
from tests.store.code_samples import put, refers, touched
from tests.store.conftest import OpenStore
from tests.store.samples import (
    at,
    begun,
    called,
    created,
    finished,
    project,
    remembered,
    said,
    summed,
    whole_turn,
)
from tests.store.test_contract_memories import archive
from tests.store.test_contract_recall import EAST, MARK, asking, by_words, embedded, found, within

TREE, MAIN = "tree", "main"


def split() -> RegisterProject:
    return project(TREE, TREE, chosen=True)


def started(session_id: str, name: str) -> Write:
    """A session in a folder, by the id that the folder's project has by itself."""
    folder = f"/home/ana/{name}"
    return created(session_id, project_id=name, cwd=folder, project_path=folder)


async def both(store: Store) -> None:
    """A session in each, with a summary, a memory and vectors; then they are joined."""
    await store.apply([project(MAIN), project(TREE)])
    await store.use_embedder(MARK)
    for name in (MAIN, TREE):
        turn, session = f"{name}-1", f"{name}-s"
        await store.apply(
            [
                started(session, name),
                begun(session, turn, "Which roses?"),
                called(session, turn, 0, "a.py", tool_call_id=f"{turn}-c"),
                finished(session, turn, "Old roses."),
                summed(session, turn, summary_id=f"{name}-sum", text="Roses."),
                remembered(f"{name}-m", project_id=name, evidence=(said(session, turn),)),
                remembered(f"{name}-told", project_id=name, subjects=()),
                embedded(turn, EAST),
                embedded(f"{name}-sum", EAST, level=1),
            ]
        )
    await store.apply([project(TREE, MAIN)])


async def more(store: Store) -> None:
    """In each folder a session while they are one."""
    for name in (MAIN, TREE):
        turn, session, folder = f"{name}-2", f"{name}-t", f"/home/ana/{name}"
        await store.apply(
            [
                # Since a process that knows of the join names the one that they are.
                created(session, project_id=MAIN, cwd=folder, project_path=folder),
                begun(session, turn, "More roses?"),
                called(session, turn, 0, "a.py", "b.py", tool_call_id=f"{turn}-c"),
                finished(session, turn, "New roses."),
                summed(session, turn, summary_id=f"{name}-sum2", text="More roses."),
                remembered(f"{name}-m2", project_id=MAIN, evidence=(said(session, turn),)),
                embedded(turn, EAST),
                embedded(f"{name}-sum2", EAST, level=1),
            ]
        )


async def sessions(store: Store, name: str) -> set[str]:
    return {each.session_id for each in await store.sessions(SessionQuery(project_ids=(name,)))}


async def memories(store: Store, name: str) -> set[str]:
    held = await store.memories(MemoryQuery(project_ids=(name,)))
    assert {each.project_id for each in held} <= {name}
    return {each.memory_id for each in held}


async def near(store: Store, name: str) -> set[str]:
    """What is found by vector alone."""
    hits = await found(store, asking(vector=EAST, scope=within(projects=(name,))))
    return {i for i, each in hits.items() if each.similarity is not None}


async def is_whole(store: Store) -> None:
    assert await (await archive(store)).check() == []


def records(name: str) -> set[str]:
    return {f"{name}-1", f"{name}-2", f"{name}-sum", f"{name}-sum2"}


async def test_a_split_gives_back_what_is_of_the_folder(store: Store) -> None:
    """Sessions, turns, summaries and memories, of before they were joined and after, found by words
    and by vectors, on both sides."""
    await both(store)
    await more(store)
    everything = records(MAIN) | records(TREE)
    for name in (MAIN, TREE):
        scope = within(projects=(name,))
        assert await by_words(store, "roses", scope=scope) == everything
        assert await near(store, name) == everything
    await store.apply([split()])
    for name in (MAIN, TREE):
        scope = within(projects=(name,))
        assert await sessions(store, name) == {f"{name}-s", f"{name}-t"}
        assert await by_words(store, "roses", scope=scope) == records(name)
        assert await near(store, name) == records(name)
        assert await memories(store, name) == {f"{name}-m", f"{name}-told", f"{name}-m2"}
        paths = TurnsQuery(paths=("a.py",), project_ids=(name,))
        turns = await store.code_turns(paths)
        assert {each.turn_id for each in turns} == {f"{name}-1", f"{name}-2"}
    assert (await store.info()).counts["files"] == 4
    assert {each.project_id: each.joined_into for each in await store.projects()} == {
        MAIN: None, TREE: TREE,
    }  # fmt: skip
    await is_whole(store)


async def test_a_split_again_changes_nothing(store: Store) -> None:
    await both(store)
    await store.apply([split()])
    before = await sessions(store, TREE)
    await store.apply([split(), split()])
    assert await sessions(store, TREE) == before == {"tree-s"}
    await is_whole(store)


async def test_what_comes_after_a_split_is_of_the_folders_own_project(store: Store) -> None:
    await both(store)
    await store.apply([split(), started("late", TREE), *whole_turn("late", "late-1", "Roses!")])
    await store.apply([remembered("late-m", project_id=TREE), embedded("late-1", EAST)])
    assert await sessions(store, TREE) == {"tree-s", "late"}
    assert await sessions(store, MAIN) == {"main-s"}
    scope = within(projects=(TREE,))
    assert await by_words(store, "roses", scope=scope) == {"tree-1", "tree-sum", "late-1"}
    assert await near(store, TREE) == {"tree-1", "tree-sum", "late-1"}
    assert "late-m" in await memories(store, TREE)
    await is_whole(store)


async def test_only_a_person_joins_again_what_was_split(store: Store) -> None:
    """Who only knows of a worktree does not; nor does who knew of an earlier day split it."""
    await both(store)
    await store.apply([split(), project(TREE, MAIN), project(TREE)])
    assert await sessions(store, TREE) == {"tree-s"}
    await store.apply([project(TREE, MAIN, chosen=True)])
    assert await sessions(store, MAIN) == {"tree-s", "main-s"}
    await store.apply([project(TREE, TREE), project(TREE)])
    assert await sessions(store, MAIN) == {"tree-s", "main-s"}
    scope = within(projects=(MAIN,))
    both_found = {"tree-1", "tree-sum", "main-1", "main-sum"}
    assert await by_words(store, "roses", scope=scope) == await near(store, MAIN) == both_found
    assert await memories(store, MAIN) == {"main-m", "main-told", "tree-m", "tree-told"}
    await is_whole(store)
    await store.apply([split()])
    assert await sessions(store, TREE) == {"tree-s"}
    assert await memories(store, TREE) == {"tree-m", "tree-told"}
    await is_whole(store)


async def test_a_folder_that_was_never_joined_is_kept_apart(store: Store) -> None:
    """So that it is not joined by itself."""
    await store.apply([project(MAIN), project(TREE, TREE), started("a", TREE)])
    await store.apply([project(TREE, MAIN)])
    assert await sessions(store, TREE) == {"a"}
    await store.apply([project(TREE, MAIN, chosen=True)])
    assert await sessions(store, MAIN) == {"a"}


async def test_others_stay_joined(store: Store) -> None:
    """What was joined to the one that is split stays with the one that all were joined to."""
    await both(store)
    await store.apply([project("third"), started("x", "third"), project("third", MAIN)])
    await store.apply([split()])
    assert await sessions(store, MAIN) == {"main-s", "x"}
    assert await sessions(store, TREE) == {"tree-s"}
    # Another may be joined to the one that is its own again, and go along with it.
    await store.apply([project("fourth"), started("y", "fourth"), project("fourth", TREE)])
    await store.apply([project(TREE, MAIN, chosen=True)])
    assert await sessions(store, MAIN) == {"main-s", "x", "y", "tree-s"}
    await store.apply([split()])
    assert await sessions(store, MAIN) == {"main-s", "x", "y"}
    await is_whole(store)


async def test_a_folder_that_had_moved_takes_its_sessions_along(store: Store) -> None:
    """Of before it was joined, though they bear the path that it had then."""
    await both(store)
    await store.apply([project(TREE, path="/moved")])
    await store.apply([project(TREE, TREE, path="/moved", chosen=True)])
    assert await sessions(store, TREE) == {"tree-s"}
    await is_whole(store)


async def test_memories_of_both_stay_with_the_other(store: Store) -> None:
    """As do those that were told while both were one. One whose place was taken by a memory of the
    other side has that of the next on its own side, or is current again."""
    await both(store)
    await more(store)
    evidence = (said("tree-t", "tree-2"), said("main-t", "main-2"))
    await store.apply(
        [
            remembered("of-both", project_id=MAIN, evidence=evidence),
            remembered("told-then", project_id=MAIN),
            remembered("a", project_id=TREE, created_at=at(10)),
            remembered("b", project_id=MAIN, created_at=at(11), supersedes=("a", "main-m")),
            remembered("c", project_id=MAIN, created_at=at(12), supersedes=("b",),
                       evidence=(said("tree-t", "tree-2"),)),
            remembered("tree-m", project_id=MAIN, pinned=True,
                       evidence=(said("tree-s", "tree-1"),)),
        ]
    )  # fmt: skip
    await store.apply([split()])
    assert await memories(store, TREE) == {"tree-m", "tree-told", "tree-m2", "c"}
    assert await memories(store, MAIN) == {"main-told", "main-m2", "of-both", "told-then", "b"}
    held = await store.memories(MemoryQuery(everywhere=True, with_superseded=True))
    assert {each.memory_id: each.superseded_by for each in held if each.superseded_by} == {
        "a": "c", "main-m": "b",
    }  # fmt: skip
    assert {each.memory_id for each in held if each.valid_until} == {"a", "main-m"}
    assert {each.memory_id for each in await store.superseded_by("c")} == {"a"}
    await is_whole(store)


async def test_turns_have_to_do_with_the_code_of_their_own_folder(store: Store) -> None:
    """What had to do with code of the other folder is looked through again."""
    await both(store)
    await store.apply([put("a.py", "here", project_id=TREE), put("a.py", "there", project_id=MAIN)])
    await store.apply(
        [refers("tree-1", there="named", here="read"), refers("main-1", there="read")]
    )
    await store.apply([split()])
    for scope, turns in (("here", set()), ("there", {"main-1"})):
        found_there = await store.code_turns(TurnsQuery(scope_ids=(scope,)))
        assert {each.turn_id for each in found_there} == turns
    assert [each.record_id for each in await store.pending("references", limit=9)] == ["tree-1"]
    for name in (TREE, MAIN):
        [scope_found] = await store.find_scopes(ScopeQuery(project_ids=(name,), limit=9))
        assert scope_found.project_id == name
    await is_whole(store)


async def test_what_goes_on_in_a_split_session_is_its_projects(store: Store) -> None:
    """A turn that ran while its session was split ends there, files and words."""
    await both(store)
    await more(store)
    await store.apply([begun("tree-t", "tree-3", "Even more roses?", started_at=at(30))])
    await store.apply([split(), touched("tree-t", "tree-3", "write", "c.py")])
    await store.apply([finished("tree-t", "tree-3", "Enough roses.", finished_at=at(31))])
    scope = within(projects=(TREE,))
    assert "tree-3" in await by_words(store, "roses", scope=scope)
    assert "tree-3" not in await by_words(store, "roses", scope=within(projects=(MAIN,)))
    turns = await store.code_turns(TurnsQuery(paths=("c.py",), project_ids=(TREE,)))
    assert [each.turn_id for each in turns] == ["tree-3"]
    await is_whole(store)


async def test_who_has_searched_before_finds_what_is_there_now(open_store: OpenStore) -> None:
    """Other processes that hold vectors in memory, from before the split."""
    store, others = await open_store(), {name: await open_store() for name in (MAIN, TREE)}
    await both(store)
    await more(store)
    for name, other in others.items():
        assert await near(other, name) == records(MAIN) | records(TREE)
    await store.apply([split()])
    for name, other in others.items():
        assert await near(other, name) == records(name)
