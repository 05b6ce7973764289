"""What a person looks for in the code, with its past."""

from ragmem.index.codebase import Codebase
from ragmem.index.database import database_of
from ragmem.index.index import CodeIndex
from ragmem.index.links import FoundCode, find_code
from ragmem.records import CodeReference, PutReferences
from tests.index.trees import held

from .conftest import AUTH, Desk


async def found(desk: Desk, index: CodeIndex, query: str, *, limit: int = 10) -> list[FoundCode]:
    finds = await find_code(index, query, open_store=desk.open_store, limit=limit)
    assert finds.problem == ""
    return list(finds.found)


async def refer(desk: Desk, index: CodeIndex, name: str) -> str:
    """A turn that has edited a scope; its session's id."""
    turn = await desk.turn("Change it.", "Done.")
    ids = [each.scope.scope_id for each in (await index.scopes_named([name]))[name]]
    references = tuple(CodeReference(scope_id=each, how="edited") for each in ids)
    await desk.store.apply([PutReferences(turn_id=turn.turn_id, references=references)])
    return desk.session.session_id


def about(each: FoundCode) -> list[str]:
    return [session.session.session_id for session in each.past.sessions]


async def test_renamed_its_past_is_found_by_the_old_name(desk: Desk, codebase: Codebase) -> None:
    index = desk.index(codebase)
    session = await refer(desk, index, "AuthService.validate")
    (desk.folder / "src" / "auth.py").write_text(AUTH.replace("validate", "check"))
    await desk.indexed(codebase)
    first, *rest = await found(desk, index, "AuthService.check")
    assert (first.hit.qualified_name, first.defined) == ("AuthService.check", True)
    assert about(first) == []
    assert all(each.defined for each in rest)
    first, *_ = await found(desk, index, "validate")
    assert (first.hit.qualified_name, first.defined) == ("AuthService.validate", False)
    assert about(first) == [session]


async def test_what_came_back_is_there_once(desk: Desk, codebase: Codebase) -> None:
    """Also while another process is about to tell the store of it."""
    index = desk.index(codebase)
    await refer(desk, index, "AuthService.validate")
    auth = desk.folder / "src" / "auth.py"
    auth.write_text(AUTH.replace("validate", "check"))
    await desk.indexed(codebase)
    database = database_of(desk.paths.data_dir, desk.project.project_id)
    with held(database, "mirror"):
        auth.write_text(AUTH)
        await index.refresh()
        hits = [each for each in await found(desk, index, "validate") if each.named]
    assert [each.defined for each in hits] == [True]


async def test_what_is_gone_counts_and_comes_after_what_is_there(
    desk: Desk, codebase: Codebase
) -> None:
    """Of one name; no more than were asked for, and before what is only like it."""
    index = desk.index(codebase)
    session = await refer(desk, index, "login")
    (desk.folder / "src" / "auth.py").write_text("def enter():\n    return 'login'\n")
    (desk.folder / "src" / "web.py").write_text("def login(form):\n    return form\n")
    await desk.indexed(codebase)
    first, second, *_ = await found(desk, index, "login")
    assert (first.hit.path, first.defined, about(first)) == ("src/web.py", True, [])
    assert (second.hit.path, second.defined, about(second)) == (
        "src/auth.py", False, [session],
    )  # fmt: skip
    assert len(await found(desk, index, "login", limit=2)) == 2
    assert [each.hit.path for each in await found(desk, index, "login", limit=1)] == ["src/web.py"]
