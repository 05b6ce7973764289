"""Which sessions had to do with code, and what was decided there, on each store."""

import pytest

from ragmem.memory.files import CodePast, inside_of, past_of_file, past_of_scopes
from ragmem.records import (
    CodeFile,
    CodeReference,
    CodeScope,
    FileAccess,
    PutCodeFile,
    PutReferences,
    ReferenceHow,
    ScopeKind,
    Write,
)
from ragmem.store import Store
from tests.store.samples import at, begun, called, created, finished, remembered, said

GARDEN = "project-garden"
AUTH = "src/auth.py"


def scope(scope_id: str, whole: str, kind: ScopeKind = "function", line: int = 1) -> CodeScope:
    return CodeScope(
        scope_id=scope_id,
        kind=kind,
        name=whole.rpartition(".")[2],
        qualified_name=whole,
        start_line=line,
        end_line=line + 4,
        hash=f"hash-{scope_id}",
    )


AUTH_FILE = PutCodeFile(
    file=CodeFile(
        project_id=GARDEN,
        path=AUTH,
        language="python",
        hash="1",
        scopes=(
            scope("service", "AuthService", "class"),
            scope("validate", "AuthService.validate", "method", 3),
            scope("login", "login", line=20),
        ),
    )
)


def turn(
    session_id: str, turn_id: str, minute: int, *accessed: tuple[str, str], **hows: ReferenceHow
) -> list[Write]:
    """A turn at that minute that accessed these files, and has to do with these scopes."""
    call = called(session_id, turn_id, started_at=at(minute))
    accesses = tuple(
        FileAccess(path=path, tool_name="x", access_type=how, accessed_at=at(minute))  # type: ignore[arg-type]
        for path, how in accessed
    )
    references = tuple(CodeReference(scope_id=name, how=how) for name, how in hows.items())
    return [
        begun(session_id, turn_id, started_at=at(minute)),
        type(call)(session_id=session_id, call=call.call, accesses=accesses),
        finished(session_id, turn_id, finished_at=at(minute + 1)),
        PutReferences(turn_id=turn_id, references=references),
    ]


@pytest.fixture
async def asked(store: Store) -> Store:
    """Two sessions about AuthService, one that only met it, and decisions in each."""
    await store.apply([created("old", title="Login"), created("new", title="Tokens")])
    await store.apply([created("met", title="Search"), AUTH_FILE])
    await store.apply(turn("old", "o1", 1, (AUTH, "read"), validate="read", login="named"))
    await store.apply(turn("new", "n1", 10, (AUTH, "write"), validate="edited"))
    await store.apply(turn("new", "n2", 20, service="named"))
    await store.apply(turn("met", "m1", 30, (AUTH, "search"), validate="found"))
    await store.apply(
        [
            remembered("d-old", "Tokens end.", kind="decision", evidence=(said("old", "o1"),)),
            remembered("d-met", "No maize.", kind="decision", evidence=(said("met", "m1"),)),
            remembered("f-new", "Tokens are short.", kind="fact", evidence=(said("new", "n1"),)),
            remembered(
                "r-new", "Never log tokens.", kind="rule", created_at=at(12),
                evidence=(said("new", "n1"),),
            ),
            remembered(
                "d-in", "Written there.", kind="decision", created_at=at(13),
                evidence=(said("elsewhere", "e1", path=AUTH),),
            ),
            remembered(
                "d-other", "Of others.", kind="decision", project_id="other",
                evidence=(said("new", "n1"),),
            ),
        ]
    )  # fmt: skip
    return store


def told(past: CodePast) -> tuple[list[tuple[str, tuple[str, ...], int]], list[str]]:
    """Sessions with how and how often, and what was decided."""
    sessions = [(each.session.title, each.hows, each.turn_count) for each in past.sessions]
    return sessions, [memory.memory_id for memory in past.memories]


async def test_which_sessions_had_to_do_with_a_function(asked: Store) -> None:
    """Each session once, newest first, with how, and what was decided there; a decision
    of a turn that merely met it in a search, or of another project, is not about it."""
    pasts = await past_of_scopes(
        asked, GARDEN, {"validate": ["validate"], "login": ["login"], "none": ["unknown"]}
    )
    assert set(pasts) == {"validate", "login"}
    assert told(pasts["validate"]) == (
        [("Search", ("found",), 1), ("Tokens", ("edited",), 1), ("Login", ("read",), 1)],
        ["r-new", "d-old"],
    )
    assert (pasts["validate"].session_count, pasts["validate"].last_at) == (3, at(30))
    assert told(pasts["login"]) == ([("Login", ("named",), 1)], ["d-old"])


async def test_what_was_done_with_its_methods_was_done_with_a_class(asked: Store) -> None:
    """`AuthService` is discussed where its methods are."""
    inside = await inside_of(asked, GARDEN, AUTH, "AuthService")
    assert inside == ["validate"]
    [past] = (await past_of_scopes(asked, GARDEN, {"it": ["service", *inside]})).values()
    assert told(past)[0] == [
        ("Search", ("found",), 1),
        ("Tokens", ("edited", "named"), 2),
        ("Login", ("read",), 1),
    ]


async def test_which_sessions_touched_a_file(asked: Store) -> None:
    """By its accesses and by what it defines; what stood in it was decided there."""
    past = await past_of_file(asked, GARDEN, AUTH)
    assert told(past) == (
        [
            ("Search", ("found",), 1),
            ("Tokens", ("edited", "changed", "named"), 2),
            ("Login", ("read", "named"), 1),
        ],
        ["d-in", "r-new", "d-old"],
    )
    assert await past_of_file(asked, GARDEN, "src/none.py") == CodePast()


async def test_the_newest_of_many_are_told(asked: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmem.memory.files._SESSIONS", 1)
    [past] = (await past_of_scopes(asked, GARDEN, {"it": ["validate"]})).values()
    assert [each.session.title for each in past.sessions] == ["Search"]
    assert past.session_count == 3


async def test_a_command_that_failed_is_told_of_a_file_that_it_names(asked: Store) -> None:
    """Others of the same turn have nothing to do with it."""
    here = {"kind": "failure", "evidence": (said("new", "n1"),)}
    await asked.apply(
        [
            remembered("x-other", "`make seeds` failed: no such target.", **here),
            remembered("x-ending", "`python oauth.py` failed: no module jwt.", **here),
            remembered("x-test", "`python auth.py.old` failed: no module jwt.", **here),
            remembered("x-named", "`python auth.py` failed: no module jwt.", **here),
            remembered("x-whole", "`python src/auth.py` failed: no module jwt.", **here),
        ]
    )
    decided = told(await past_of_file(asked, GARDEN, AUTH))[1]
    assert {each for each in decided if each.startswith("x-")} == {"x-named", "x-whole"}
