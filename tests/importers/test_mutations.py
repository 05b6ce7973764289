"""Files as they may come: whatever was done to some of their lines, the others are read."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from ragmem.importers import AgentName, Tally
from ragmem.importers.importer import AGENTS, Importer, find_files
from ragmem.records import PutTurn
from ragmem.store.sqlite import SQLiteStore
from tests.importers.reading import AUTUMN, BARE, EVENTS, ITEMS, LATEST, NOW, SPRING, Read

FILES: list[tuple[AgentName, Path]] = [
    ("claude-code", SPRING),
    ("claude-code", AUTUMN),
    ("claude-code", LATEST),
    ("codex", BARE),
    ("codex", EVENTS),
    ("codex", ITEMS),
]
MANY = settings(max_examples=2 * settings().max_examples)
FEW = settings(max_examples=settings().max_examples // 2)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(["\ud83c", "\0", "0001-01-01T00:00:00+14:00", "9999-12-31", "C:\\x", "~/x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
noise = (
    st.binary(max_size=60)
    | st.lists(anything, max_size=3).map(lambda value: json.dumps(value).encode())
    | anything.map(lambda value: json.dumps({"type": "gnome", "payload": value}).encode())
).filter(lambda line: b"\n" not in line and not line.strip().startswith(b'{"type":"session'))


def read(name: AgentName, original: Path, lines: Sequence[bytes]) -> Read:
    """The lines as a file of the same name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / original.name
        file.write_bytes(b"\n".join(lines))
        return Read(name, file)


@MANY
@given(chosen=st.sampled_from(FILES), data=st.data())
def test_noise_between_lines_changes_nothing(chosen: tuple[AgentName, Path], data: Any) -> None:
    """Bytes, other JSON and kinds that nobody knows, anywhere but within a line."""
    name, file = chosen
    lines = file.read_bytes().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        # Of what stands before the first line, nothing is known: it may be the beginning.
        lines.insert(data.draw(st.integers(1, len(lines))), data.draw(noise))
    assert read(name, file, lines).told == Read(name, file).told


@MANY
@given(chosen=st.sampled_from(FILES), data=st.data())
def test_changed_records_never_raise_and_cost_no_other_prompt(
    chosen: tuple[AgentName, Path], data: Any
) -> None:
    """Any value of some records may be anything; lines may be cut, or come twice."""
    name, file = chosen
    lines = file.read_bytes().splitlines()
    changed = data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=1, max_size=4))
    for number in changed:
        lines[number] = data.draw(_mutations(lines[number]))
    told = read(name, file, lines)
    for put in told.puts:
        _check(put)
    ids = [put.turn.turn_id for put in told.puts]
    assert len(set(ids)) == len(ids)
    whole = [line for number, line in enumerate(lines) if number not in changed]
    prompts = " ".join(put.turn.user_message for put in told.puts)
    assert [words for words in _prompts(name, whole) if words not in prompts] == []


@FEW
@given(data=st.data())
def test_whatever_comes_can_be_stored(data: Any) -> None:
    """A real store takes it, finds nothing broken, and has nothing to add the second time."""
    name, original = data.draw(st.sampled_from(FILES))
    lines = original.read_bytes().splitlines()
    for number in data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=4)):
        lines[number] = data.draw(_mutations(lines[number]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / original.name
        file.write_bytes(b"\n".join(lines))
        asyncio.run(_stored_twice(name, file, Path(folder)))


async def _stored_twice(name: AgentName, file: Path, home: Path) -> None:
    store = await SQLiteStore.open(home / "memory.db", locks_dir=home / "locks")
    try:
        importer = Importer(store, now=NOW, titles={})
        agent = AGENTS[name]
        [found] = find_files(agent, file).files
        first = await importer.take(agent, found, Tally())
        there = await store.own_turns(await store.spans())
        second = await importer.take(agent, found, Tally())
        assert (second.turns_added, second.turns_changed) == (0, 0)
        assert second.turns_known == first.turns_added == len(there)
        assert await store.own_turns(await store.spans()) == there
        assert await store.check() == []
    finally:
        await store.aclose()


@st.composite
def _mutations(draw: Any, line: bytes) -> bytes:
    kind = draw(st.sampled_from(["value", "value", "value", "cut", "twice", "glued"]))
    if kind == "cut":
        return line[: draw(st.integers(0, len(line)))]
    if kind == "twice":
        return line + b"\n" + line
    if kind == "glued":
        return line[: draw(st.integers(1, len(line)))] + line
    record = json.loads(line)
    for _ in range(draw(st.integers(1, 3))):
        _change(draw, record)
    return json.dumps(record).encode()


def _change(draw: Any, record: dict[str, Any]) -> None:
    """Put anything in the place of one value, at any depth; or take it away."""
    holder: Any = record
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if isinstance(holder[key], dict | list) and holder[key] and draw(st.booleans()):
            holder = holder[key]
            continue
        if draw(st.booleans()):
            holder[key] = draw(anything)
        elif isinstance(holder, dict):
            del holder[key]
        return


def _check(put: PutTurn) -> None:
    """It is what a store is promised: fit to be encoded, with times that have a zone."""
    turn = put.turn
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(put)), PutTurn)
    assert turn.user_message.strip()
    assert turn.status in ("completed", "interrupted", "failed")
    assert turn.finished_at is not None
    assert turn.finished_at >= turn.started_at
    assert [call.order for call in turn.tool_calls] == list(range(len(turn.tool_calls)))
    for call in turn.tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
        assert call.turn_id == turn.turn_id


def _prompts(name: AgentName, lines: Sequence[bytes]) -> list[str]:
    """What the person typed, by the plainest of readings."""
    found = []
    for record in map(json.loads, lines):
        if name == "codex":
            event = record.get("payload", {})
            if event.get("type") == "user_message":
                found.append(event["message"])
        elif record.get("type") == "user" and not record.get("isMeta"):
            content = record["message"]["content"]
            if isinstance(content, str) and not content.startswith(("<", "This session is")):
                found += [] if record["isSidechain"] else [content]
    return found
