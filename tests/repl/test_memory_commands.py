"""`/memory`, `/why`, `/pin`, `/forget`, `#text`: on a real store, and on a pty."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragmem.app import App
from ragmem.config import Config, find_paths
from ragmem.ids import new_id, short_id
from ragmem.listings import hits_text
from ragmem.memory.facts import FactHit, candidate
from ragmem.memory.memories import said_so
from ragmem.memory.recall import Hit
from ragmem.records import Evidence, PutMemory, Turn, utc_now
from tests.cli.test_memory import EVIL, a_memory
from tests.e2e.house import House
from tests.e2e.test_chat_pty import AGO
from tests.fakes.llm_server import Answer
from tests.repl.paper import Chat, chat
from tests.repl.pty_chat import LOADED

__all__ = ["chat"]


# --- what a note is ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "pinned", "text"),
    [
        ("rule", True, "Always run the linter first"),
        ("rule", True, "we NEVER push on a Friday"),
        ("rule", True, "Toujours répondre en français"),
        ("rule", True, "On ne pousse jamais le vendredi"),
        ("rule", True, "Niemals auf main pushen"),
        ("rule", True, "Immer zuerst die Tests starten"),
        ("fact", False, "The gate squeaks"),
        ("fact", False, "Das Tor quietscht immer noch"),
        ("fact", False, "Nevertheless the gate squeaks"),
        ("preference", True, "I prefer tabs over spaces, always"),
        ("preference", True, "I never use emoji in commits"),
        ("preference", False, "Je préfère des réponses courtes"),
        ("preference", False, "Ich mag kurze Funktionen"),
    ],
)
def test_what_kind_a_note_is(kind: str, pinned: bool, text: str) -> None:
    """A rule of the person stands in every request; a preference is known in all projects."""
    draft = said_so(text)
    assert (draft.kind, draft.pinned, draft.trust) == (kind, pinned, "person")
    assert said_so(text, pinned=True).pinned
    memory, _ = candidate(draft, "a project", utc_now())
    assert (memory.scope == "user") is (kind == "preference")


# --- on a store -------------------------------------------------------------------


async def test_a_note_is_remembered_in_one_line(chat: Chat) -> None:
    """Source chat, trust person; known again; a rule is pinned."""
    said = await chat.said("#The gate squeaks when it rains")
    (memory,) = await chat.stored()
    tail = short_id(memory.memory_id)
    assert said == f"· remembered fact {tail}, in this project: The gate squeaks when it rains\n"
    said_of = (memory.source, memory.trust, memory.kind, memory.pinned)
    assert said_of == ("chat", "person", "fact", False)
    assert memory.project_id == chat.session.session.project_id
    assert [each.quote for each in memory.evidence] == ["The gate squeaks when it rains"]
    again = await chat.said("# The gate squeaks when it rains")
    assert again == f"· already known {tail}, in this project: The gate squeaks when it rains\n"
    rule = await chat.said("#never push on a Friday")
    newest = (await chat.stored())[0]
    assert rule == (
        f"· remembered pinned rule {short_id(newest.memory_id)}, in this project: "
        "never push on a Friday\n"
    )
    assert "Nothing to remember." in await chat.said("#")
    assert "Not remembered: it is a greeting" in await chat.said("#thanks!")
    assert len(await chat.stored()) == 2


async def test_memory_lists_and_searches(chat: Chat) -> None:
    """What bears on this project: its own and the person's; those of others are not shown."""
    assert "No memories of this project" in await chat.said("/memory")
    here = chat.session.session.project_id
    await chat.put(
        a_memory("The deploy host is called plum", project_id=here),
        a_memory("I like short answers", kind="preference", pinned=True),
        a_memory("The other project is in Go", project_id="another"),
    )
    shown = await chat.said("/memory")
    assert shown.count(" · told by you · 1 day ago\n  ") == 2
    assert "· preference · pinned · told by you" in shown
    assert "The other project" not in shown
    found = await chat.said("/memory which deploy host is it")
    first, second = found.strip().splitlines()[:2]
    assert "found by" in first
    assert second == "  The deploy host is called plum"
    assert "The other project" not in found


async def test_a_long_list_says_that_there_is_more(chat: Chat) -> None:
    here = chat.session.session.project_id
    await chat.put(*(a_memory(f"Fact number {n}", project_id=here) for n in range(25)))
    shown = await chat.said("/memory")
    assert shown.count("Fact number") == 20
    assert "Showing the newest 20; `ragmem memory list` shows more" in shown


async def test_why_shows_where_it_comes_from(chat: Chat) -> None:
    """The whole chain is that of the command; what the person has confirmed says so."""
    read = Evidence(session_id=new_id(), turn_index=3, path="pom.xml", at=datetime.now(UTC))
    memory = a_memory("The build needs JDK 21", trust="tool", evidence=(read,))
    await chat.put(memory)
    shown = await chat.said(f"/why {short_id(memory.memory_id)}")
    assert "The build needs JDK 21\n" in shown
    assert f"turn 3 of session {short_id(read.session_id)}, which no longer exists\n" in shown
    assert "    file pom.xml\n" in shown
    await chat.said(f"/pin {memory.memory_id}")
    confirmed = await chat.said(f"/why {memory.memory_id}")
    assert "· pinned\n  confirmed by you · " in confirmed
    assert "    file pom.xml\n" in confirmed
    assert ("No request has been sent in this chat yet. Ask something first") in await chat.said(
        "/why"
    )


async def test_what_is_not_there_is_said_with_what_can_be_typed_in_a_chat(chat: Chat) -> None:
    for command in ("why", "pin", "forget"):
        none = await chat.said(f"/{command} cafe1234")
        assert "not found" in none
        assert "  /memory lists memories.\n" in none
        assert "ragmem memory" not in none
    shown = await chat.said("/resume cafe1234")
    assert "not found" in shown
    assert "  /sessions lists those of this folder, " in shown


async def test_pin_takes_an_id_or_a_text(chat: Chat) -> None:
    """`/pin`; what is pinned is the person's word."""
    memory = a_memory("The port is 5439", project_id=chat.session.session.project_id)
    await chat.put(memory)
    tail = short_id(memory.memory_id)
    assert await chat.said(f"/pin {tail}") == f"· pinned {tail}: The port is 5439\n"
    assert "· remembered pinned fact " in await chat.said("/pin The staging host is pear")
    assert "· remembered pinned rule " in await chat.said("/pin Always answer in French")
    assert "not found" in await chat.said("/pin cafe1234")
    assert "a single word says too little" in await chat.said("/pin feed")
    assert "Nothing to pin." in await chat.said("/pin")
    assert {m.content for m in await chat.stored() if m.pinned} == {
        "The port is 5439",
        "The staging host is pear",
        "Always answer in French",
    }


async def test_forget_asks_first(chat: Chat) -> None:
    """With confirmation, logged; earlier versions go along."""
    old, new = a_memory("The port is 5433"), a_memory("The port is 5439")
    store = await chat.app.store()
    await store.apply([PutMemory(memory=old), PutMemory(memory=new, supersedes=(old.memory_id,))])
    tail = short_id(new.memory_id)
    for refusal in ("n", None):
        said = await chat.said(f"/forget {tail}", refusal)
        assert said.endswith("  The port is 5439\n\nNothing was forgotten.\n")
    assert len(await chat.stored()) == 2
    said = await chat.said(f"/forget {tail}", "y")
    assert chat.paper.asked[-1].label == "Forget it for good? With 1 earlier version."
    assert said.endswith(f"Forgot {tail}, with 1 earlier version.\n")
    assert await chat.stored() == []
    (line,) = (chat.app.paths.log_dir / "deletions.log").read_text().splitlines()
    assert json.loads(line)["memory_id"] == new.memory_id
    assert "There are no memories." in await chat.said("/forget")


async def test_what_is_to_be_forgotten_can_be_named_by_its_words_or_picked(chat: Chat) -> None:
    await chat.put(a_memory("The door code is 4711-zebra"), a_memory("The port is 5439"))
    said = await chat.said("/forget the door code", None)
    assert "   1   The door code is 4711-zebra  fact" in said
    assert "The port is 5439" not in said
    assert len(await chat.stored()) == 2
    # Which looks like an id.
    await chat.said("/forget 4711", "1", "y")
    assert [each.content for each in await chat.stored()] == ["The port is 5439"]
    await chat.said("/forget", "1", "y")
    assert await chat.stored() == []


@pytest.mark.parametrize(
    ("content", "typed"),
    [
        ("The user's name is Ana", "My name is Ana."),
        ("The user's name is Ana", "Je m'appelle Ana, et toi ?"),
        ("The roof must be on by 6 May (2026-05-06)", "Hi. The roof  must be on by 6 May!"),
    ],
)
async def test_what_was_typed_goes_also_where_the_memory_says_it_in_other_words(
    chat: Chat, content: str, typed: str
) -> None:
    """Not what a file held, whoever typed it too, and nothing that is not of it."""
    quotes = ("My name is Ana.", "Je m'appelle Ana", "The roof must be on by 6 May.")
    evidence = tuple(Evidence(quote=quote, at=utc_now()) for quote in quotes)
    read = Evidence(quote="make the garden", path="Makefile", at=utc_now())
    memory = a_memory(content, trust="person", evidence=(*evidence, read))
    await chat.put(memory)
    others = ["Who is Ana?", "make the garden", "The roof is red."]
    history = chat.app.paths.prompt_history
    history.write_text("".join(f"\n# 2026-05-01\n+{each}\n" for each in (typed, *others)))
    await chat.said(f"/forget {memory.memory_id}", "y")
    assert [line[1:] for line in history.read_text().splitlines() if line[:1] == "+"] == others


@pytest.mark.parametrize("columns", [60, 200])
async def test_nothing_stored_steers_the_terminal(chat: Chat, columns: int) -> None:
    """And each row keeps within the width."""
    chat.paper.columns = columns
    evidence = Evidence(
        session_id=new_id(), tool_name=EVIL, path=EVIL, quote=EVIL * 9, at=datetime.now(UTC)
    )
    memory = a_memory(f"A fact {EVIL} " * 20, subjects=(EVIL,), trust="tool", evidence=(evidence,))
    await chat.put(memory)
    for line in (
        "/memory",
        "/memory fact",
        f"/why {memory.memory_id}",
        f"/forget {memory.memory_id}",
        f"/pin {memory.memory_id}",
        f"#{EVIL} is what it says",
    ):
        shown = await chat.said(line, "n")
        assert all(char.isprintable() or char == "\n" for char in shown), line
        assert max(map(len, shown.splitlines())) <= columns, line


async def test_nothing_is_written_with_ephemeral(tmp_path: Path) -> None:
    """`--ephemeral` writes neither session nor memory; that is said."""
    paths = find_paths({"RAGMEM_HOME": str(tmp_path / "home")})
    async with App(Config(), paths, cwd=tmp_path, ephemeral=True) as app:
        chat = await Chat.begun(app)
        for line in ("#The gate squeaks", "/memory", "/pin The gate squeaks"):
            assert "--ephemeral" in await chat.said(line)
        assert await chat.stored() == []


# --- on a pty ---------------------------------------------------------------------


def test_a_chat_remembers_and_forgets(house: House) -> None:
    """Typed in the real chat; the agent is asked nothing."""
    with house.chat("chat", ready=LOADED) as chat:
        chat.send("#the gate squeaks when it rains\r")
        chat.wait_for(
            r"^· remembered fact [0-9a-f]{8}, in this project: the gate squeaks when it rains"
        )
        tail = chat.text.partition("remembered fact ")[2][:8]
        chat.send("/mem\t\r")
        chat.wait_for(
            rf"^Memory {tail} · fact · told by you · {AGO}\n  the gate squeaks when it rains"
        )
        chat.send(f"/why {tail}\r", prints=r"^Where it comes from\n.*told by you directly")
        chat.send(f"/forget {tail}\r", shows=r"Forget it for good\?")
        chat.send("y", prints=rf"^Forgot {tail}\.")
        chat.leave()
    assert house.server.requests == []
    assert house.sessions() == []
    assert "squeaks" not in left_in(house)
    assert "/forget" in left_in(house)


def test_what_was_typed_in_a_session_goes_with_it(house: House) -> None:
    house.server.extend(Answer("Noted."), Answer("Noted."))
    for prompt in ("what is with the gate?", "and the pear?"):
        with house.chat("chat", "--yolo", ready=LOADED) as chat:
            chat.send(f"{prompt}\r", ends=r"^Noted\.$")
            if "gate" in prompt:
                chat.send("! echo 'the gate'\r", prints=r"^ +✓ \d")
            chat.leave()
    gone = next(s for s in house.sessions() if s["turns"][0]["user_message"].endswith("gate?"))
    house.ok("sessions", "delete", gone["session_id"], "--yes")
    assert "the gate" not in left_in(house)
    assert "the pear" in left_in(house)


def left_in(house: House) -> str:
    """All that is in the files of ragmem's home."""
    files = (file for file in house.home.rglob("*") if file.is_file())
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in files)


@pytest.mark.parametrize("width", [42, 100])
def test_what_a_memory_says_takes_a_few_lines(width: int) -> None:
    """On a narrow terminal too it can be read; at most three lines of each."""
    short = a_memory("Always write tests with pytest, never unittest, and keep them fast")
    long = a_memory("Plants " + "need shade and water " * 30)
    found = [FactHit(memory=each, score=0) for each in (short, long)]
    lines = hits_text(found, datetime.now(UTC), width=width).strip().splitlines()
    assert all(len(line) <= width for line in lines)
    said = " ".join(line.strip() for line in lines if line.startswith("  "))
    assert "Always write tests with pytest, never unittest, and keep them fast" in said
    assert said.endswith("…")
    plants = [n for n, line in enumerate(lines) if "Plants need" in line]
    assert len(lines) - plants[0] == 3


def test_what_was_said_is_shown_without_the_marks_of_markdown() -> None:
    """But for the one before what a person said."""
    turn = Turn(
        turn_id="t",
        session_id="s",
        turn_index=1,
        user_message="# How many?",
        assistant_message="It has **three** `functions`.",
        started_at=datetime.now(UTC),
    )
    hit = Hit(type="turn", turn=turn, score=1, session_id="s", at=turn.started_at)
    shown = hits_text([hit], datetime.now(UTC), width=60).splitlines()
    assert shown[-2:] == ["  > How many?", "  It has three functions."]


async def test_search_finds_what_the_command_finds(chat: Chat) -> None:
    """A memory comes first where it is nearer than any turn, with who said it."""
    here = chat.session.session.project_id
    await chat.put(
        a_memory("the deploy key rotates on Mondays", project_id=here),
        a_memory("the deploy key of another house", project_id="elsewhere"),
    )
    shown = (await chat.said("/search deploy key")).strip().splitlines()
    assert shown[0].startswith("Memory ")
    assert shown[1].strip() == "the deploy key rotates on Mondays"
    assert len(shown) == 2
    assert (await chat.said("/search qzxwv")).strip() == "No results."
