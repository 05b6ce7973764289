"""What the code index asks of every Store (see `ragmem.store`), on each implementation.

Where the protocol leaves room, it is decided here:

- A file that was put and not dropped is told, also where it defines no scope. Scopes with one
  first line stay in the order in which they were put; imports too, each once.
- A scope that no file defines goes as soon as no turn has to do with it, for whatever reason.
- Of a scope that was put twice in one file, or referred to twice in one turn, one stays: of the
  references the strongest.
- Turns of any status have to do with code; only completed ones wait for it to be known.
- A turn that was looked at once does not wait again, whatever becomes of it or of the code.
"""

import asyncio
import itertools

import msgspec
import pytest

from ragmem.records import (
    REFERENCE_HOWS,
    SCOPE_KINDS,
    ChangedTogether,
    CodeReference,
    CodeTurn,
    DropCodeFiles,
    PutReferences,
    PutSession,
    PutTurn,
    ScopeQuery,
    Turn,
    TurnsQuery,
    Write,
)
from ragmem.store import Store
from tests.store.code_samples import (
    ALL_SCOPES,
    GARDEN,
    KITCHEN,
    SHED,
    a_scope,
    conversation,
    put,
    refers,
    scopes_there,
    touched,
)
from tests.store.conftest import OpenStore, mostly
from tests.store.samples import (
    START,
    a_session,
    at,
    begun,
    created,
    finished,
    project,
    summed,
    whole_turn,
)
from tests.store.test_contract_memories import archive
from tests.store.test_contract_recall import waiting

replace = msgspec.structs.replace


def joined(project_id: str, into: str) -> list[Write]:
    """Both projects, the one joined to the other."""
    return [project(into), project(project_id, into)]


def drop(*paths: str, project_id: str = GARDEN) -> DropCodeFiles:
    return DropCodeFiles(project_id=project_id, paths=paths)


async def is_whole(store: Store) -> bool:
    return await (await archive(store)).check() == []


# --- files and their scopes ---------------------------------------------------------------


async def test_a_file_is_told_as_it_was_given(store: Store) -> None:
    """Every field of every kind of scope."""
    scopes = [
        a_scope(
            f"s{number}", f"Beet.{kind}", 10 * number + 1, kind=kind, docstring=f"« {kind} » 🌿"
        )
        for number, kind in enumerate(SCOPE_KINDS)
    ]
    bare = a_scope("bare", "", 999, signature="", docstring="", hash="", end_line=10**9)
    write = put(
        "beds/nord — 1.py", *scopes, bare, language="python", hash="abc", imports=("z.py", "a.py")
    )
    await store.apply([write])
    assert await store.code_files(GARDEN) == [write.file]
    assert [each.scope for each in await store.find_scopes(ALL_SCOPES)] == [*scopes, bare]
    assert {each.path for each in await store.find_scopes(ALL_SCOPES)} == {"beds/nord — 1.py"}
    assert await is_whole(store)


async def test_any_text_at_all(store: Store) -> None:
    """File names and names in files are what they are."""
    odd = "a\nb\x1b[31m'\"\\\0\ud83d"
    stored = "a\nb\x1b[31m'\"\\�"
    write = put(
        f"{odd}.py",
        a_scope("odd", odd, signature=odd, docstring=odd, hash=odd),
        imports=(odd, "b"),
        language=odd,
    )
    await store.apply([write])
    (file,) = await store.code_files(GARDEN)
    (scope,) = file.scopes
    assert (file.path, file.language, file.imports) == (f"{stored}.py", stored, (stored, "b"))
    assert scope.qualified_name == scope.signature == scope.docstring == scope.hash == stored
    assert await store.code_files(GARDEN, [f"{odd}.py"]) == [file]
    query = ScopeQuery(name=odd, path=f"{odd}.py")
    assert [each.scope for each in await store.find_scopes(query)] == [scope]
    await store.apply([drop(f"{odd}.py")])
    assert await store.code_files(GARDEN) == []


async def test_scopes_stand_by_their_first_lines(store: Store) -> None:
    """Those of one line as they were put."""
    lines = [("e", 5), ("a", 1), ("d", 3), ("c", 3), ("b", 2)]
    await store.apply([put("a.py", *(a_scope(name, line=line) for name, line in lines))])
    (file,) = await store.code_files(GARDEN)
    assert [each.scope_id for each in file.scopes] == ["a", "b", "d", "c", "e"]
    await store.apply([put("a.py", a_scope("c", line=3), a_scope("d", line=3))])
    (file,) = await store.code_files(GARDEN)
    assert [each.scope_id for each in file.scopes] == ["c", "d"]


async def test_files_of_a_folder(store: Store) -> None:
    """By path, of this folder alone, all or some."""
    await store.apply(
        [
            *joined(KITCHEN, GARDEN),
            put("b.py", "b"),
            put("a.py", "a"),
            put("B.py", "B"),
            put("a.py", "k", project_id=KITCHEN),
            put("empty.py"),
        ]
    )
    found = await store.code_files(GARDEN)
    assert [file.path for file in found] == ["B.py", "a.py", "b.py", "empty.py"]
    assert [[scope.scope_id for scope in file.scopes] for file in found] == [
        ["B"],
        ["a"],
        ["b"],
        [],
    ]
    assert await store.code_files(GARDEN, ["empty.py", "a.py", "no.py"]) == [found[1], found[3]]
    assert [file.project_id for file in await store.code_files(KITCHEN)] == [KITCHEN]
    assert await store.code_files("project-none") == []
    assert await (await archive(store)).code_projects() == [GARDEN, KITCHEN]
    await store.apply([drop("a.py", project_id=KITCHEN)])
    assert await (await archive(store)).code_projects() == [GARDEN]
    assert await store.code_files(GARDEN) == found


async def test_a_file_put_again_is_replaced(store: Store) -> None:
    """What it says now, and nothing of before."""
    await store.apply([put("a.py", "gone", "stays", imports=("x.py", "y.py"))])
    again = put(
        "a.py",
        a_scope("stays", "renamed", 7, signature="def renamed():", docstring="", hash="other"),
        a_scope("new", line=20),
        language="text",
        hash="second",
        imports=("y.py", "z.py"),
    )
    await store.apply([again])
    assert await store.code_files(GARDEN) == [again.file]
    assert await scopes_there(store) == {"stays": "a.py", "new": "a.py"}
    assert await store.find_scopes(ScopeQuery(name="stays")) == []
    assert (await store.info()).counts["scopes"] == 2
    assert await is_whole(store)


async def test_doubles_are_one(store: Store) -> None:
    await store.apply(
        [put("a.py", a_scope("one", line=1), a_scope("one", line=9), imports=("b",) * 3)]
    )
    (file,) = await store.code_files(GARDEN)
    assert [each.scope_id for each in file.scopes] == ["one"]
    assert file.imports == ("b",)
    assert await is_whole(store)


# --- scopes that leave their file -----------------------------------------------------------


async def test_a_scope_goes_with_its_file(store: Store) -> None:
    """Unless a turn has to do with it; then it is found by its id, where it was last."""
    await store.apply([*conversation("t1", "t2"), put("a.py", "one", "two"), put("b.py", "three")])
    await store.apply([refers("t1", one="read"), refers("t2", three="edited", two="found")])
    await store.apply([put("a.py", "two"), drop("b.py", "never-was.py")])
    assert await scopes_there(store) == {"one": "(a.py)", "two": "a.py", "three": "(b.py)"}
    (file,) = await store.code_files(GARDEN)
    assert (file.path, [each.scope_id for each in file.scopes]) == ("a.py", ["two"])
    (lost,) = await store.find_scopes(ScopeQuery(name="ONE"))
    assert (lost.defined, lost.path, lost.scope) == (False, "a.py", a_scope("one"))
    turns = await store.code_turns(TurnsQuery(scope_ids=("one", "three")))
    assert [turn.turn_id for turn in turns] == ["t2", "t1"]
    await store.apply([drop("a.py")])
    assert await scopes_there(store) == {"one": "(a.py)", "two": "(a.py)", "three": "(b.py)"}
    # And it is defined again.
    await store.apply([put("b.py", "three"), put("c.py", a_scope("one", line=5))])
    assert await scopes_there(store) == {"one": "c.py", "two": "(a.py)", "three": "b.py"}
    assert await store.get(PutReferences, ["t1", "t2"]) == [
        refers("t1", one="read"), refers("t2", three="edited", two="found"),
    ]  # fmt: skip
    assert await is_whole(store)


@pytest.mark.parametrize(
    ("old_first", "at_once", "known"),
    mostly(
        [(True, True, True), (True, False, False), (False, False, True)],
        list(itertools.product([True, False], repeat=3)),
    ),
)
async def test_a_moved_scope_is_one(
    store: Store, old_first: bool, at_once: bool, known: bool
) -> None:
    """Whichever of the two files is put first, and again, and dropped."""
    await store.apply([*conversation("t"), put("old.py", "moved", "stays")])
    if known:
        await store.apply([refers("t", moved="edited")])
    new = put("new.py", a_scope("moved", line=40), "other")
    writes: list[Write] = [put("old.py", "stays"), new]
    if not old_first:
        writes.reverse()
    for _ in range(2):
        for part in [writes] if at_once else [writes[:1], writes[1:]]:
            await store.apply(part)
        assert await scopes_there(store) == {
            "moved": "new.py",
            "stays": "old.py",
            "other": "new.py",
        }
        assert await store.code_files(GARDEN) == [
            replace(new.file, scopes=(a_scope("other"), a_scope("moved", line=40))),
            put("old.py", "stays").file,
        ]
    assert await is_whole(store)
    await store.apply([drop("old.py")])
    assert await scopes_there(store) == {"moved": "new.py", "other": "new.py"}
    expected = [refers("t", moved="edited")] if known else []
    assert await store.get(PutReferences, ["t"]) == expected


async def test_a_scope_moves_to_another_folder(store: Store) -> None:
    """An id is one scope's, in whichever project."""
    await store.apply([put("a.py", "moved")])
    await store.apply([put("b.py", "moved", project_id=KITCHEN)])
    assert [file.scopes for file in await store.code_files(GARDEN)] == [()]
    (found,) = await store.find_scopes(ALL_SCOPES)
    assert (found.project_id, found.path) == (KITCHEN, "b.py")
    await store.apply([drop("a.py")])
    assert await scopes_there(store) == {"moved": "b.py"}
    assert await is_whole(store)


async def test_two_files_change_places(store: Store) -> None:
    """Each has the other's scopes."""
    await store.apply([put("a.py", "one", "two"), put("b.py", "three")])
    await store.apply([put("a.py", "three"), put("b.py", "one", "two")])
    assert await scopes_there(store) == {"one": "b.py", "two": "b.py", "three": "a.py"}
    assert await is_whole(store)


async def test_accesses_outlive_their_file(store: Store) -> None:
    """That it was read is known though it is gone."""
    await store.apply([created("s"), begun("s", "t"), touched("s", "t", "read", "a.py")])
    await store.apply([put("a.py", "one"), drop("a.py")])
    assert (await store.info()).counts["files"] == 1
    query = TurnsQuery(project_ids=(GARDEN,), paths=("a.py",))
    assert [turn.accesses for turn in await store.code_turns(query)] == [("read",)]
    assert [access.path for access in await store.file_accesses("s", max_turn_chars=9**9)] == [
        "a.py"
    ]


# --- references -----------------------------------------------------------------------------


async def test_references_are_replaced(store: Store) -> None:
    """What a turn has to do with code is told all at once."""
    await store.apply([*conversation("t1", "t2"), put("a.py", "one", "two", "three")])
    first = refers("t1", two="edited", three="edited", one="named")
    await store.apply([first, refers("t2", one="found")])
    assert await store.get(PutReferences, ["t2", "t1", "no"]) == [
        refers("t2", one="found"), refers("t1", three="edited", two="edited", one="named"),
    ]  # fmt: skip
    for _ in range(2):
        await store.apply([refers("t1", three="read")])
        assert await store.get(PutReferences, ["t1"]) == [refers("t1", three="read")]
    await store.apply([refers("t1")])
    assert await store.get(PutReferences, ["t1", "t2"]) == [refers("t2", one="found")]
    assert await is_whole(store)


async def test_the_strongest_reference_counts(store: Store) -> None:
    """A turn has one reference to a scope."""
    await store.apply([*conversation("t"), put("a.py", "one")])
    for count in range(1, 5):
        for hows in list(itertools.permutations(REFERENCE_HOWS, count))[::5]:
            references = tuple(CodeReference(scope_id="one", how=how) for how in hows)
            await store.apply([PutReferences(turn_id="t", references=references)])
            [found] = await store.get(PutReferences, ["t"])
            assert [each.how for each in found.references] == [min(hows, key=REFERENCE_HOWS.index)]


async def test_what_is_not_there_is_left_out(store: Store) -> None:
    """No error, nor a half scope or turn."""
    await store.apply([*conversation("t"), put("a.py", "one")])
    await store.apply([refers("t", one="read", gone="edited"), refers("no-turn", one="edited")])
    assert await store.get(PutReferences, ["t", "no-turn"]) == [refers("t", one="read")]
    turns = await store.code_turns(TurnsQuery(scope_ids=("one", "gone", "none")))
    assert [turn.turn_id for turn in turns] == ["t"]
    assert await scopes_there(store) == {"one": "a.py"}
    assert await is_whole(store)


async def test_a_lost_scope_goes_with_its_last_reference(store: Store) -> None:
    """Nothing is kept that nobody can come to."""
    await store.apply([*conversation("t1", "t2"), put("a.py", "one", "two", "three")])
    await store.apply([refers("t1", one="read", two="read"), refers("t2", two="edited")])
    await store.apply([put("a.py", "three")])
    assert set(await scopes_there(store)) == {"one", "two", "three"}
    await store.apply([refers("t1", three="read")])
    assert set(await scopes_there(store)) == {"two", "three"}
    await store.apply([refers("t2")])
    assert set(await scopes_there(store)) == {"three"}
    assert await is_whole(store)


async def test_a_lost_scope_that_is_referred_to_again_stays(store: Store) -> None:
    """While it is replaced a reference is never the last."""
    await store.apply([*conversation("t"), put("a.py", "one"), refers("t", one="read")])
    await store.apply([drop("a.py"), refers("t", one="edited")])
    assert await store.get(PutReferences, ["t"]) == [refers("t", one="edited")]
    assert await scopes_there(store) == {"one": "(a.py)"}


# --- who bears which name -------------------------------------------------------------------

AUTH = [
    a_scope("service", "AuthService", 1, kind="class"),
    a_scope("validate", "AuthService.validate", 2, kind="method"),
    a_scope("again", "AuthService.validate#2", 9, kind="method", name="validate"),
    a_scope("loose", "validate", 30),
]


async def named(store: Store) -> None:
    await store.apply(
        [
            *joined(SHED, GARDEN),
            *conversation("t"),
            put("auth.py", *AUTH),
            put("docs/auth.md", a_scope("head", "Auth.1.2 Straße", 1, kind="section",
                                        name="1.2 Straße")),
            put("blocks.py", a_scope("block", "", 3, kind="block")),
            put("api.py", a_scope("other", "Other.AuthService.validate", 4, kind="method")),
            put("api.py", a_scope("kitchen", "validate"), project_id=KITCHEN),
            put("api.py", a_scope("shed", "validate", 2), project_id=SHED),
            put("old.py", a_scope("lost", "validate")),
            refers("t", lost="read"),
            drop("old.py"),
        ]
    )  # fmt: skip


IN_GARDEN = (GARDEN,)


SCOPE_QUERIES: list[tuple[ScopeQuery, list[str]]] = [
    (ScopeQuery(name="AuthService"), ["service"]),
    (ScopeQuery(name="authSERVICE"), ["service"]),
    (ScopeQuery(name="Auth"), []),
    (ScopeQuery(name="Service"), []),
    (ScopeQuery(name="AuthService.validate"), ["other", "validate"]),
    (ScopeQuery(name="Service.validate"), []),
    (ScopeQuery(name="other.authservice.VALIDATE"), ["other"]),
    (ScopeQuery(name=".validate"), []),
    (ScopeQuery(name="validate#2"), ["again"]),
    (ScopeQuery(name="AuthService.validate#2"), ["again"]),
    (ScopeQuery(name="1.2 STRASSE"), ["head"]),
    (ScopeQuery(name="Auth.1.2 Straße"), ["head"]),
    (ScopeQuery(name="2 Straße"), ["head"]),
    (ScopeQuery(name="Stra%"), []),
    (
        ScopeQuery(name="validate"),
        ["kitchen", "shed", "other", "validate", "again", "loose", "lost"],
    ),
    (
        ScopeQuery(name="validate", project_ids=IN_GARDEN),
        ["shed", "other", "validate", "again", "loose", "lost"],
    ),
    (
        ScopeQuery(name="validate", project_ids=(SHED,)),
        ["shed", "other", "validate", "again", "loose", "lost"],
    ),
    (ScopeQuery(name="validate", project_ids=(KITCHEN,)), ["kitchen"]),
    (ScopeQuery(name="validate", project_ids=("none",)), []),
    (
        ScopeQuery(name="validate", project_ids=IN_GARDEN, path="auth.py"),
        ["validate", "again", "loose"],
    ),
    (ScopeQuery(name="validate", project_ids=IN_GARDEN, path="old.py"), ["lost"]),
    (ScopeQuery(project_ids=IN_GARDEN, path="api.py"), ["shed", "other"]),
    (ScopeQuery(path="auth.py", limit=2), ["service", "validate"]),
    (ScopeQuery(path="auth.py", limit=0), []),
    (ScopeQuery(path="blocks.py"), ["block"]),
    (ScopeQuery(name="validate", defined=False, limit=1), ["lost"]),
    (ScopeQuery(name="validate", defined=False, project_ids=(KITCHEN,)), []),
    (
        ScopeQuery(name="validate", defined=True, project_ids=IN_GARDEN),
        ["shed", "other", "validate", "again", "loose"],
    ),
    (ScopeQuery(defined=False), ["lost"]),
    (ScopeQuery(path="old.py", defined=True), []),
    (
        ScopeQuery(),
        ["kitchen", "shed", "other", "service", "validate", "again", "loose", "block", "head",
         "lost"],
    ),
]  # fmt: skip


async def test_scopes_by_name(store: Store) -> None:
    """By name, by its last parts, in a project and what is joined with it."""
    await named(store)
    for query, expected in SCOPE_QUERIES:
        found = await store.find_scopes(query)
        assert [each.scope.scope_id for each in found] == expected
        assert [each.scope.scope_id for each in found if not each.defined] == [
            each for each in expected if each == "lost"
        ]


# --- which turns ----------------------------------------------------------------------------


async def turns(store: Store) -> None:
    """Two sessions and a fork that edit, read and name; one of another project."""
    await store.apply([put("a.py", "one", "two"), put("b.py", "three")])
    for name, session, minute, project_id in (
        ("t1", "s", 1, GARDEN),
        ("t2", "s", 2, GARDEN),
        ("r1", "r", 3, GARDEN),
        ("k1", "k", 4, KITCHEN),
    ):
        await store.apply(
            [
                created(session, project_id=project_id),
                begun(session, name, started_at=at(minute)),
                touched(session, name, "read", "a.py"),
            ]
        )
    await store.apply(
        [
            touched("s", "t1", "write", "a.py", "b.py"),
            touched("s", "t1", "list", "a.py"),
            finished("s", "t1"),
            refers("t1", one="edited", two="read", three="found"),
            finished("s", "t2", status="failed"),
            refers("t2", one="named"),
            refers("r1", two="named", three="edited"),
            created("f", parent_session_id="s", forked_at_index=1),
            *whole_turn("f", "f2", started_at=at(9)),
            refers("f2", one="read"),
        ]
    )


def code_turn(turn_id: str, minute: int, *hows: str, **more: object) -> CodeTurn:
    index = int(turn_id[-1])
    session = "s" if turn_id.startswith("t") else turn_id[0]
    fields: dict[str, object] = {"session_id": session, "turn_index": index, "at": at(minute)}
    return CodeTurn(turn_id=turn_id, hows=hows, **fields | more)  # type: ignore[arg-type]


async def test_turns_by_scope(store: Store) -> None:
    """Newest first, each once, with what it has to do with what is asked."""
    await turns(store)
    query = TurnsQuery(scope_ids=("one", "two", "none"))
    assert await store.code_turns(query) == [
        code_turn("f2", 9, "read"),
        code_turn("r1", 3, "named"),
        code_turn("t2", 2, "named"),
        code_turn("t1", 1, "edited", "read"),
    ]
    assert await store.code_turns(replace(query, limit=2)) == [
        code_turn("f2", 9, "read"), code_turn("r1", 3, "named"),
    ]  # fmt: skip
    assert await store.code_turns(replace(query, limit=0)) == []
    assert await store.code_turns(TurnsQuery()) == []
    assert await store.code_turns(TurnsQuery(scope_ids=("none",))) == []


async def test_turns_by_file(store: Store) -> None:
    """Of the project's sessions alone; by scope and file together."""
    await turns(store)
    query = TurnsQuery(project_ids=(GARDEN,), paths=("a.py", "b.py"))
    assert await store.code_turns(query) == [
        code_turn("r1", 3, accesses=("read",)),
        code_turn("t2", 2, accesses=("read",)),
        code_turn("t1", 1, accesses=("list", "read", "write")),
    ]
    both = replace(query, paths=("b.py",), scope_ids=("three", "one"))
    assert await store.code_turns(both) == [
        code_turn("f2", 9, "read"),
        code_turn("r1", 3, "edited"),
        code_turn("t2", 2, "named"),
        code_turn("t1", 1, "edited", "found", accesses=("write",)),
    ]
    kitchen = TurnsQuery(project_ids=(KITCHEN,), paths=("a.py",))
    assert await store.code_turns(kitchen) == [code_turn("k1", 4, accesses=("read",))]
    assert await store.code_turns(replace(kitchen, paths=("A.py",))) == []
    await store.apply(joined(KITCHEN, GARDEN))
    for project_id in (GARDEN, KITCHEN):
        found = await store.code_turns(TurnsQuery(project_ids=(project_id,), paths=("a.py",)))
        assert [turn.turn_id for turn in found] == ["k1", "r1", "t2", "t1"]


async def wrote(store: Store, session_id: str, turn_id: str, minute: int, *paths: str) -> None:
    await store.apply(
        [
            created(session_id, project_id=KITCHEN if session_id == "k" else GARDEN),
            begun(session_id, turn_id, started_at=at(minute)),
            touched(session_id, turn_id, "write", *paths[:1]),
            touched(session_id, turn_id, "write", *paths),
            touched(session_id, turn_id, "read", "read.py"),
        ]
    )


async def test_files_that_change_together(store: Store) -> None:
    """Counted by turn; what changes everything tells nothing."""
    await wrote(store, "s", "t1", 1, "a.py", "test_a.py", "b.py")
    await wrote(store, "s", "t2", 2, "a.py", "test_a.py")
    await wrote(store, "r", "t3", 3, "test_a.py", "a.py")
    await wrote(store, "r", "t4", 4, "a.py", "c.py")
    await wrote(store, "r", "t5", 5, "b.py", "c.py")
    await wrote(store, "k", "k1", 6, "a.py", "kitchen.py")
    await wrote(store, "r", "t6", 7, "a.py", *(f"{number}.py" for number in range(50)))
    test = ChangedTogether(path="test_a.py", turn_count=3, session_count=2, last_at=at(3))
    late = ChangedTogether(path="c.py", turn_count=1, session_count=1, last_at=at(4))
    early = replace(late, path="b.py", last_at=at(1))
    assert await store.changed_with([GARDEN], "a.py") == [test, late, early]
    assert await store.changed_with([GARDEN], "a.py", limit=1) == [test]
    assert await store.changed_with([GARDEN], "a.py", limit=0) == []
    assert await store.changed_with([GARDEN], "read.py") == []
    assert await store.changed_with([GARDEN], "none.py") == []
    kitchen = replace(late, path="kitchen.py", last_at=at(6))
    assert await store.changed_with([KITCHEN], "a.py") == [kitchen]
    await store.apply(joined(KITCHEN, GARDEN))
    assert await store.changed_with([KITCHEN], "a.py") == [test, kitchen, late, early]
    # Fifty files are still few.
    await wrote(store, "r", "t7", 8, "x.py", *(f"{number}.py" for number in range(49)))
    assert len(await store.changed_with([GARDEN], "x.py", limit=99)) == 49


# --- what is to be done ---------------------------------------------------------------------


async def test_turns_wait_to_be_linked(store: Store) -> None:
    """Completed ones of a project with code, newest first, until that is done once."""
    await store.apply(conversation("t1", "t2", "t3", "t4"))
    await store.apply(conversation("k1", session_id="k", project_id=KITCHEN))
    await store.apply([begun("s", "running", started_at=at(8))])
    await store.apply(
        [begun("s", "failed", started_at=at(9)), finished("s", "failed", "", "failed")]
    )
    await store.apply([summed("s", "t1", "t2")])
    assert await store.pending("references", limit=9) == []
    await store.apply([put("a.py", "one")])
    assert await waiting(store, "references") == ["t4", "t3", "t2", "t1"]
    (first,) = await store.pending("references", limit=1)
    assert (first.session_id, first.record_id, first.level) == ("s", "t4", 0)
    assert (await store.count_pending())["references"] == 4
    await store.apply([refers("t4", one="read"), refers("t2")])
    assert await waiting(store, "references") == ["t3", "t1"]
    await store.apply([refers("no-turn", one="read"), refers("failed", one="read")])
    assert await waiting(store, "references") == ["t3", "t1"]
    await store.apply([finished("s", "t4", "said again"), finished("s", "running")])
    assert await waiting(store, "references") == ["running", "t3", "t1"]
    await store.apply([drop("a.py")])
    assert await waiting(store, "references") == []
    assert (await store.count_pending())["references"] == 0
    await store.apply([put("b.py", "two", project_id=KITCHEN)])
    assert await waiting(store, "references") == ["k1"]
    assert await is_whole(store)


async def test_a_fork_waits_with_its_own_turns(store: Store) -> None:
    """What it shares waits with the session that it was forked from."""
    await store.apply([*conversation("t1", "t2"), *conversation("r1", session_id="r")])
    await store.apply([created("f", parent_session_id="s", forked_at_index=1)])
    await store.apply([*whole_turn("f", "f2", started_at=at(9)), put("a.py", "one")])
    assert await waiting(store, "references", session_id="s") == ["t2", "t1"]
    assert await waiting(store, "references", session_id="f") == ["f2"]


async def test_turns_of_joined_projects_wait(store: Store) -> None:
    """Wherever of them the code is, the turns of all; also of those that were before."""
    await store.apply(conversation("t1"))
    await store.apply(conversation("k1", session_id="k", project_id=KITCHEN))
    await store.apply(conversation("h1", session_id="h", project_id=SHED))
    await store.apply([put("a.py", "one", project_id=KITCHEN), *joined(KITCHEN, GARDEN)])
    assert sorted(await waiting(store, "references")) == ["k1", "t1"]
    await store.apply(joined(SHED, KITCHEN))
    assert sorted(await waiting(store, "references")) == ["h1", "k1", "t1"]
    await store.apply([created("k2", project_id=KITCHEN), *whole_turn("k2", "k3")])
    assert sorted(await waiting(store, "references")) == ["h1", "k1", "k3", "t1"]


async def test_a_turn_that_was_put_waits(store: Store) -> None:
    """Moved or imported, nothing is known of it; put again it waits no more."""
    turn = Turn(
        turn_id="t", session_id="s", turn_index=1, user_message="Why?", status="completed",
        started_at=START, finished_at=at(1),
    )  # fmt: skip
    running = replace(turn, turn_id="u", turn_index=2, status="running", finished_at=None)
    await store.apply([put("a.py", "one"), PutSession(session=a_session("s")), PutTurn(turn=turn)])
    await store.apply([PutTurn(turn=running)])
    assert await waiting(store, "references") == ["t"]
    await store.apply([refers("t"), PutTurn(turn=turn)])
    assert await waiting(store, "references") == []
    await store.apply([PutTurn(turn=replace(running, status="completed", finished_at=at(2)))])
    assert await waiting(store, "references") == ["u"]


# --- sessions that are deleted ----------------------------------------------------------------


async def test_what_a_deleted_session_had_to_do_with(store: Store) -> None:
    """Its references go, and lost scopes that only it knew."""
    await store.apply([*conversation("t1", "t2"), *conversation("r1", session_id="r")])
    await store.apply([put("a.py", "one", "two", "three"), put("b.py", "four")])
    await store.apply(
        [refers("t1", one="read", two="edited"), refers("r1", two="named", four="read")]
    )
    await store.apply([refers("t2", three="named", one="found"), put("a.py", "three")])
    inner = await archive(store)
    went = await inner.delete_session("s")
    assert went["turns"] == 2
    assert await scopes_there(store) == {"two": "(a.py)", "three": "a.py", "four": "b.py"}
    left = await store.get(PutReferences, ["t1", "t2", "r1"])
    assert left == [refers("r1", four="read", two="named")]
    assert await waiting(store, "references") == []
    await inner.delete_session("r")
    assert await scopes_there(store) == {"three": "a.py", "four": "b.py"}
    assert await is_whole(store)


async def test_a_fork_keeps_what_it_has_to_do_with(store: Store) -> None:
    """Shared turns are the parent's; its own go with it."""
    await store.apply([*conversation("t1"), put("a.py", "one", "two")])
    await store.apply(
        [created("f", parent_session_id="s", forked_at_index=1), *whole_turn("f", "f2")]
    )
    await store.apply([refers("t1", one="read"), refers("f2", two="read"), drop("a.py")])
    await (await archive(store)).delete_session("f")
    assert await scopes_there(store) == {"one": "(a.py)"}
    assert await store.get(PutReferences, ["t1", "f2"]) == [refers("t1", one="read")]
    assert await is_whole(store)


# --- transactions -----------------------------------------------------------------------------


TURNS = ("t1", "t2", "t3")


async def test_many_at_once(open_store: OpenStore) -> None:
    """Two processes index and link at once, a scope going to and fro between their files."""
    stores = [await open_store(), await open_store()]
    await stores[0].apply([*conversation(*(f"t{n}" for n in range(4))), put("0.py", "ball")])

    async def work(number: int) -> None:
        store = stores[number % 2]
        for step in range(3):
            await store.apply([put(f"{number}.py", "ball", f"own{number}", hash=str(step))])
            await store.apply([refers(f"t{number}", ball="read", **{f"own{number}": "edited"})])

    await asyncio.gather(*map(work, range(4)))
    there = await scopes_there(stores[0])
    path = there.pop("ball")
    assert there == {f"own{number}": f"{number}.py" for number in range(4)}
    assert path in there.values()
    found = await stores[1].get(PutReferences, [f"t{number}" for number in range(4)])
    assert found == [
        refers(f"t{number}", **{f"own{number}": "edited"}, ball="read") for number in range(4)
    ]
    assert await is_whole(stores[0])


async def test_info_counts_scopes(store: Store) -> None:
    """Those that no file defines too."""
    await store.apply([*conversation("t"), put("a.py", "one", "two"), refers("t", one="read")])
    assert (await store.info()).counts["scopes"] == 2
    await store.apply([drop("a.py")])
    assert (await store.info()).counts["scopes"] == 1
