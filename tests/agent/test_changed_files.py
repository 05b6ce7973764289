"""The agent is told once which files others have changed since it read them."""

import hashlib
from pathlib import Path

import msgspec

from ragmem.agent import Agent
from ragmem.messages import Message, TextPart, ToolAnswer
from ragmem.tools.files import ChangedFiles, SeenFiles
from ragmem.tools.workspace import Workspace
from tests.fakes.scripted_llm import Says

from .conftest import Bench, reads

TOLD = "Changed on disk since you read them: a.py."


def watching(agent: Agent, folder: Path, *seen: str) -> None:
    """The agent has read these files as they are now."""
    files = SeenFiles()
    for name in seen:
        files.note(name, hashlib.sha256((folder / name).read_bytes()).hexdigest())
    changed = ChangedFiles(Workspace(folder), files)
    agent._parts = msgspec.structs.replace(agent._parts, changed=changed)


def said(message: Message) -> str:
    """With what tools answered."""
    return "".join(p.text for p in message.parts if isinstance(p, TextPart | ToolAnswer))


async def test_before_the_first_call(bench: Bench) -> None:
    """In the memory block of the next prompt, and not in the one after it."""
    agent, llm = await bench.agent([Says("ok"), Says("ok"), Says("ok")])
    watching(agent, bench.folder, "a.py", "b.py")
    await agent.send("first")
    (bench.folder / "a.py").write_text("other\n")
    assert TOLD in (await agent.context("second")).messages[-1].text
    await agent.send("second")
    await agent.send("third")
    blocks = [request.messages[-1].text for request in llm.requests]
    assert [TOLD in block for block in blocks] == [False, True, False]
    assert "</memory-" in blocks[1].split(TOLD)[1]


async def test_between_two_calls_of_a_turn(bench: Bench) -> None:
    """Behind the answer of the last tool, once; what is stored does not have it."""

    def change(_: object) -> Says:
        (bench.folder / "a.py").write_text("other\n")
        return reads("b.py")

    agent, llm = await bench.agent([change, reads("b.py", "a.py"), Says("done")])
    watching(agent, bench.folder, "a.py")
    reply = await agent.send("go")
    second, third = (request.messages for request in llm.requests[1:])
    assert second[-1].role == "tool"
    assert said(second[-1]).endswith(
        f"[{TOLD} Read them again before you rely on them or edit them.]"
    )
    assert sum(TOLD in said(message) for message in third) == 1
    assert third[: len(second)] == second
    assert all(TOLD not in call.result for call in reply.tool_calls)


async def test_a_model_without_tools_is_not_told(bench: Bench) -> None:
    """It could not read them again."""
    agent, llm = await bench.agent([Says("ok")])
    watching(agent, bench.folder, "a.py")
    agent._parts = msgspec.structs.replace(agent._parts, offers_tools=False)
    (bench.folder / "a.py").write_text("other\n")
    await agent.send("go")
    assert TOLD not in llm.requests[0].messages[-1].text


async def test_a_turn_says_when_it_begins(bench: Bench) -> None:
    """What a turn needs a little later is begun with it."""
    began: list[str] = []
    agent, _ = await bench.agent([reads("a.py"), Says("ok")])
    agent._parts = msgspec.structs.replace(agent._parts, at_start=lambda: began.append("now"))
    await agent.context("go")
    assert began == []
    await agent.send("go")
    assert began == ["now"]
