"""The spool hands on all that the protocol has: made from `Store`, so that nothing is forgotten."""

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ragmem.errors import StoreUnavailable
from ragmem.records import Applied, StoreInfo
from ragmem.store import Store
from ragmem.store.spool import SpooledStore
from ragmem.store.spool.files import from_line, to_lines
from tests.store.code_samples import put, refers
from tests.store.samples import created
from tests.store.test_contract import a_story
from tests.store.test_contract_recall import embedded

METHODS = {
    name: inspect.signature(method)
    for name, method in inspect.getmembers(Store, inspect.isfunction)
    if not name.startswith("_")
}
READS = sorted(METHODS.keys() - {"apply", "heartbeat", "aclose", "store_id"})
"""What is asked of the store and answered, in one call."""


class Recorder:
    """A store that only remembers how it was called, and answers with what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer: Any = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature = METHODS[name]

        async def method(*args: Any, **kwargs: Any) -> Any:
            if name == "store_id":
                return ""  # It is asked for by itself, when the store is opened.
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            self.calls.append((name, {k: v for k, v in bound.arguments.items() if k != "self"}))
            return self.answer

        return method


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def spooled(recorder: Recorder, tmp_path: Path) -> AsyncIterator[SpooledStore]:
    async def open_store() -> Store:
        return recorder  # type: ignore[return-value]

    store = SpooledStore(open_store, tmp_path / "spool")
    yield store
    await store.aclose()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_spool_has_each_method_as_the_protocol_has_it(name: str) -> None:
    assert inspect.signature(getattr(SpooledStore, name)) == METHODS[name]


@pytest.mark.parametrize("name", READS)
async def test_what_is_asked_is_handed_on_and_what_is_answered_comes_back(
    name: str, recorder: Recorder, spooled: SpooledStore, tmp_path: Path
) -> None:
    """While the store is away it fails plainly: nothing is told, leased, or forgotten."""
    info = StoreInfo(kind="k", location="l", version="v", schema_version=1, counts={})
    silent = METHODS[name].return_annotation in (None, "None")
    recorder.answer = {"info": info, "projects": []}.get(name, None if silent else object())
    arguments = {each: f"{each} of the call" for each in METHODS[name].parameters if each != "self"}
    assert await getattr(spooled, name)(**arguments) == recorder.answer
    assert recorder.calls == [(name, arguments)]

    async def away() -> Store:
        raise StoreUnavailable("It is away.")

    store = SpooledStore(away, tmp_path / "another")
    with pytest.raises(StoreUnavailable, match="It is away"):
        await getattr(store, name)(**arguments)
    await store.aclose()


def test_every_kind_of_write_is_a_line_and_read_again() -> None:
    """Vectors are none: they are made again from what is stored."""
    writes = [*a_story(), put("a.py", "one"), refers("t", one="edited")]
    assert [from_line(line) for line in to_lines([*writes, embedded("t")])] == writes


async def test_writes_and_what_they_came_to(recorder: Recorder, spooled: SpooledStore) -> None:
    recorder.answer = Applied({"t": 3})
    writes = (created("s"),)
    assert await spooled.apply(writes) is recorder.answer
    assert recorder.calls == [("apply", {"writes": writes})]


async def test_a_lease_is_renewed_in_a_store_that_answers(
    recorder: Recorder, spooled: SpooledStore
) -> None:
    await spooled.heartbeat("o")
    assert recorder.calls == []
    await spooled.turns("s")
    await spooled.heartbeat("o")
    assert recorder.calls[1:] == [("heartbeat", {"owner_id": "o"})]


async def test_the_store_is_closed_with_the_spool(
    recorder: Recorder, spooled: SpooledStore
) -> None:
    await spooled.turns("s")
    await spooled.aclose()
    assert recorder.calls[1:] == [("aclose", {})]
