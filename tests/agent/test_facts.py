"""What an agent knows, is told to keep, and keeps: in its requests, its events and its store."""

import asyncio
from typing import Any

import pytest

from ragmem.agent import Agent, announce
from ragmem.config import ContextConfig, FactsConfig, MemoryConfig
from ragmem.errors import ContextTooLong, StoreUnavailable
from ragmem.events import ContextBuilt, MemoryWritten, TextDelta, ToolFinished
from ragmem.llm.base import Request
from ragmem.memory.facts import Draft
from ragmem.memory.memory import Memory
from ragmem.records import MemoryRecord, MemorySource
from tests.fakes.scripted_llm import Says

from .conftest import Bench, Events, asked, calls


def remembers(content: str, **arguments: object) -> Says:
    told = {"subjects": [], "reason": "it matters", **arguments}
    return calls("remember", content=content, **told)


async def knows(
    bench: Bench, content: str, *, memory: Memory | None = None, **fields: Any
) -> MemoryRecord:
    """What a memory holds of the project from now on."""
    facts, project_id = (memory or bench.memory).facts, (await bench.session()).project_id
    assert facts
    record = (await facts.remember(Draft(content=content, **fields), project_id)).memory
    assert record
    return record


async def everything(bench: Bench) -> list[MemoryRecord]:
    assert bench.memory.facts
    session = await bench.session()
    return await bench.memory.facts.recent(project_id=session.project_id, limit=99)


def system_of(request: Request) -> str:
    return request.messages[0].text


# --- writes are visible ------------------------------------------------------------


async def test_each_write_is_an_event(bench: Bench) -> None:
    """Right behind the tool that made it; none where nothing was written."""
    agent, llm = await bench.agent(
        [
            remembers("Mickael likes skiing", subjects=["Mickael", "ski"]),
            remembers("Mickael likes skiing"),
            remembers("thanks"),
            Says("Noted."),
        ]
    )
    events = await asked(agent, "I told you what I like.")
    (written,) = events.of(MemoryWritten)
    (memory,) = await everything(bench)
    kept = {"kind": "fact", "content": "Mickael likes skiing", "id": memory.memory_id}
    assert written == MemoryWritten(action="added", **kept)
    at = events.index(written)
    assert isinstance(events[at - 1], ToolFinished)
    assert len(llm.requests) == 4
    # The evidence is the turn and the call, as they are stored.
    (evidence,) = [e for e in memory.evidence if e.tool_call_id][:1]
    (turn,) = await bench.store.turns(evidence.session_id)
    assert evidence.turn_id == turn.turn_id
    assert evidence.tool_call_id == turn.tool_calls[0].tool_call_id


@pytest.mark.parametrize("prompt", ["What does Mickael like?", "I am mickael"])
async def test_the_search_before_the_prompt_stays(bench: Bench, prompt: str) -> None:
    """What bears on a prompt is there unasked, and told as recalled."""
    memory = await knows(bench, "Mickael likes skiing")
    agent, llm = await bench.agent([Says("You like skiing!")])
    events = await asked(agent, prompt)
    (context,) = events.of(ContextBuilt)
    (recalled,) = [r for r in context.recalled if r.section == "Remembered Facts"]
    assert recalled.id == memory.memory_id
    assert recalled.score is not None
    assert "its words" in recalled.why
    assert "] Mickael likes skiing" in llm.requests[0].messages[-1].text
    assert "Mickael likes skiing" not in system_of(llm.requests[0])


# --- pinned rules ------------------------------------------------------------------


async def test_a_rule_of_turn_1_stands_in_turn_10_and_after_a_resume(bench: Bench) -> None:
    """To the byte, whatever is dropped from the context in between."""
    rule = "Never push to main without asking"
    answers = (Says(f"Answer {i}. " + "words " * 900) for i in range(2, 11))
    agent, llm = await bench.agent(
        [remembers(rule), Says("I won't."), *answers],
        config=MemoryConfig(context=ContextConfig(max_chars=16_000)),
    )
    await asked(agent, f"Mind this. {rule}")
    for i in range(2, 11):
        await asked(agent, f"And what about point {i}, {'with all its parts, ' * 8}of ours?")
    systems = {system_of(request) for request in llm.requests[2:]}
    assert len(llm.requests) == 11
    (system,) = systems
    assert system.endswith(f"\n- {rule}")
    # Without the rule nothing else in it differs.
    assert system_of(llm.requests[0]) == system[: system.rindex("\n\nThe user's rules")]
    last = llm.requests[-1].messages
    assert all(rule not in message.text for message in last[1:])
    # Another process goes on with the session.
    memory = bench.new_memory()
    session = (await memory.load_session(agent.session.session_id)).session
    resumed, other = await bench.agent([Says("Hello again.")], session=session, memory=memory)
    await asked(resumed, "Hello")
    assert system_of(other.requests[0]) == system
    await memory.aclose()


async def test_rules_outlive_a_request_that_was_too_long(bench: Bench) -> None:
    """Half the room for all else, and the system message as it was."""
    for name in ("alpha", "beta", "gamma", "delta"):
        await knows(bench, f"Never touch {name}: " + f"{name} breaks. " * 60, kind="rule")
    agent, llm = await bench.agent([Says("w " * 15_000), ContextTooLong("too long"), Says("so")])
    await asked(agent, "one?")
    events = await asked(agent, "two?")
    _, long, short = llm.requests
    assert sum(m.char_count for m in short.messages) < sum(m.char_count for m in long.messages)
    assert system_of(short) == system_of(long)
    assert system_of(short).count("\n- Never touch ") == 4
    assert events.end.result == "so"


async def test_a_rule_outlives_a_store_that_is_away(bench: Bench) -> None:
    """Nothing that shortens a context can lose it."""
    await knows(bench, "Never push to main", kind="rule")
    agent, llm = await bench.agent([Says("one"), Says("two")])
    await asked(agent, "one?")
    await bench.store.aclose()
    events = await asked(agent, "two?")
    (built,) = events.of(ContextBuilt)
    assert built.fallback
    assert system_of(llm.requests[1]) == system_of(llm.requests[0])
    assert "Never push to main" in system_of(llm.requests[1])


async def test_a_slow_store_costs_no_rule(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request has the rules, when the store answers at the second time of asking."""
    facts = bench.memory.facts
    assert facts
    rule = await knows(bench, "Never push to main", kind="rule")
    whole, failed = facts.pinned, list[str]()

    async def once_away(project_id: str) -> object:
        if not failed:
            failed.append(project_id)
            raise StoreUnavailable("It is being opened.", hint="")
        return await whole(project_id)

    monkeypatch.setattr(facts, "pinned", once_away)
    agent, llm = await bench.agent([Says("so")])
    await asked(agent, "one?")
    assert failed == [rule.project_id]
    assert system_of(llm.requests[0]).endswith("- Never push to main")


async def test_an_unpinned_one_leaves(bench: Bench) -> None:
    """Pinned and unpinned by the user; the rest of the message stays."""
    facts = bench.memory.facts
    assert facts
    memory = await knows(bench, "The code name is Ibex")
    agent, llm = await bench.agent([Says("1"), Says("2"), Says("3")])
    await asked(agent, "one?")
    pinned = await facts.edit(memory, pinned=True)
    await asked(agent, "two?")
    await facts.edit(pinned, pinned=False)
    await asked(agent, "three?")
    first, second, third = map(system_of, llm.requests)
    assert first == third != second
    assert second.startswith(first)
    assert "- The code name is Ibex" in second


# --- what nobody asked for ---------------------------------------------------------


async def test_switched_off(bench: Bench) -> None:
    """memory.facts.enabled = false: neither tools nor sections nor a word about them."""
    await knows(bench, "Be brief", pinned=True)
    await knows(bench, "Mickael likes skiing")
    for off in (MemoryConfig(facts=FactsConfig(enabled=False)), MemoryConfig(enabled=False)):
        memory = bench.new_memory(off)
        agent, llm = await bench.agent([Says("so")], memory=memory)
        await asked(agent, "What does Mickael like?")
        request = llm.requests[0]
        facts = {"search_memories", "get_recent_memories", "remember"}
        assert not facts & {spec.name for spec in request.tools}
        assert "search_memories" not in system_of(request)
        assert "Be brief" not in system_of(request)
        assert "skiing" not in request.messages[-1].text
        await memory.aclose()


async def test_without_a_trace(bench: Bench) -> None:
    """`--ephemeral`: what is known is told, and a rule holds; nothing can be added."""
    await knows(bench, "Be brief", pinned=True)
    await knows(bench, "Mickael likes skiing")
    before = await everything(bench)
    memory = bench.new_memory(records=False)
    agent, llm = await bench.agent([remembers("The port is 5439"), Says("so")], memory=memory)
    events = await asked(agent, "What does Mickael like?")
    assert "- Be brief" in system_of(llm.requests[0])
    assert "Mickael likes skiing" in llm.requests[0].messages[-1].text
    assert "There is no tool 'remember'" in str(llm.requests[1].messages[-1].parts[0])
    assert "remember" not in [spec.name for spec in llm.requests[0].tools]
    assert not events.of(MemoryWritten)
    assert await everything(bench) == before
    await memory.aclose()


async def test_an_answer_comes_without_facts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in it, there are no facts and no error."""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    for name in ("search", "pinned", "profile"):
        monkeypatch.setattr(bench.memory.facts, name, broken)
    agent, _ = await bench.agent([Says("so")])
    events = await asked(agent, "What does Mickael like?")
    assert events.end.result == "so"


async def test_what_the_background_learns_is_shown_too(bench: Bench) -> None:
    """Among the events of the answer that is being made; between two, as a notice."""
    agents: list[Agent] = []
    lines: list[str] = []
    memory = bench.new_memory(on_written=lambda done: lines.extend(announce(done, agents)))
    gate = asyncio.Event()
    agent, _ = await bench.agent([Says("So be it.", gate=gate)], memory=memory)
    agents.append(agent)

    async def learn(content: str, source: MemorySource = "conversation") -> None:
        await knows(bench, content, memory=memory, kind="decision", source=source)

    await learn("We decided to use JWT")
    assert [line.split(": ")[1] for line in lines] == ["We decided to use JWT"]
    events = Events()
    async for event in agent.ask("And now?"):
        if isinstance(event, TextDelta) and not gate.is_set():
            await learn("We decided to drop cookies")
            # What a tool or the person wrote is shown where that was done.
            await learn("The office is closed on Mondays", "chat")
            gate.set()
        events.append(event)
    (written,) = events.of(MemoryWritten)
    assert (written.kind, written.content) == ("decision", "We decided to drop cookies")
    assert events.end
    await learn("We decided to keep the footer")
    assert len(lines) == 2
    assert lines[1].startswith("remembered decision ")
    # One that a judge let take another's place.
    named = {each.content: each for each in await everything(bench)}
    assert memory.facts
    first, later = named["We decided to use JWT"], named["We decided to drop cookies"]
    assert await memory.facts.supersede(later, first)
    assert lines[2].endswith(" anew: We decided to drop cookies")
