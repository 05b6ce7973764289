"""What is found of what is known: by words, meaning, subject, other names, or time."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ragmem.embedder.models import OnnxEmbedder
from ragmem.memory.facts import Draft, FactHit, FactQuestion
from ragmem.memory.facts.facts import Facts
from ragmem.memory.facts.ranking import Book, book_of, names_of, search
from ragmem.memory.facts.words import is_generic
from ragmem.records import MemoryRecord
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.store.conftest import OpenStore

from .knowing import HERE, NOW, Alike, Clock, facts_of, told


def texts(hits: Sequence[FactHit]) -> list[str]:
    return [hit.memory.content for hit in hits]


async def found(facts: Facts, text: str, **more: object) -> list[str]:
    return texts(await facts.search(text, project_id=HERE, **more))  # type: ignore[arg-type]


async def test_by_meaning_and_by_words(store: Store) -> None:
    """The nearest first, with its raw cosine; by words with none."""
    embedder = OnnxEmbedder()
    facts = facts_of(store, embedder=embedder)
    for content in (
        "Mickael is going on holiday to Greece",
        "PSG won 3-0",
        "The API listens on port 8000",
    ):
        await told(facts, content)
    hits = await facts.search("When does he travel to the Mediterranean?", project_id=HERE)
    assert texts(hits)[:1] == ["Mickael is going on holiday to Greece"]
    assert hits[0].why == ("its meaning",)
    assert hits[0].similarity is not None
    assert hits[0].similarity > embedder.info.thresholds.fact
    await embedder.aclose()
    [hit] = await facts_of(store).search("Which port?", project_id=HERE)
    assert (hit.memory.content, hit.similarity, hit.why) == (
        "The API listens on port 8000",
        None,
        ("its words",),
    )


@pytest.mark.parametrize(("cosine", "count"), [(0.29, 0), (0.3, 0), (0.31, 1)])
async def test_the_floor_is_strict(store: Store, cosine: float, count: int) -> None:
    """Strictly above `fact`; without a floor the best there is."""
    # In single precision 0.3 is a little more than 0.3.
    embedder = Alike(cosine - 1e-6)
    assert embedder.info.thresholds.fact == 0.3
    facts = facts_of(store, embedder=embedder)
    await told(facts, "Mickael skis in winter")
    assert len(await found(facts, "snowy hobbies")) == count
    assert await found(facts, "snowy hobbies", floor=False) == ["Mickael skis in winter"]


async def test_how_many(facts: Facts) -> None:
    """Five, or as many as are asked for."""
    await facts.settle([Draft(content=f"Bed {n} has roses of sort{n}") for n in range(9)], HERE)
    assert len(await found(facts, "roses")) == 5
    assert len(await found(facts, "roses", limit=7)) == 7
    assert await found(facts, "roses", limit=0) == []


async def test_by_subject(store: Store) -> None:
    """ "Everything about mickael", whatever it says; and nothing else."""
    facts = facts_of(store, embedder=HashEmbedder())
    await told(facts, "Likes skiing a lot", "mickael", "ski")
    await told(facts, "Broke a shoulder in January", "Mickael", "blessure")
    await told(facts, "PSG won 3-0", "psg")
    about = await found(facts, "ports of the server", subjects=("MICKAEL",), limit=50)
    assert sorted(about) == ["Broke a shoulder in January", "Likes skiing a lot"]
    assert await found(facts, "", subjects=("nobody",), limit=50) == []
    hits = await facts.search("what about Mickael's winter?", project_id=HERE)
    assert ["its subject" in hit.why for hit in hits] == [True, True]


async def test_who_has_two_names(facts: Facts) -> None:
    """The question from `dev` finds Greece, and not the football."""
    await told(facts, "dev's real name is Mickael", "dev")
    await told(facts, "Mickael is going on holiday to Greece", "mickael")
    await told(facts, "PSG won 3-0", "psg")
    about = await found(facts, "What do you know about dev?")
    assert about[:2] == ["dev's real name is Mickael", "Mickael is going on holiday to Greece"]
    assert "PSG won 3-0" not in about
    [first, *_] = await facts.search("Where does dev go?", project_id=HERE)
    assert "Mickael" in first.memory.content


async def test_generic_questions(store: Store) -> None:
    """What names nothing is answered with the latest."""
    clock = Clock()
    facts = facts_of(store, embedder=HashEmbedder(), clock=clock)
    for content in ("Ana planted ferns", "Mickael flies to Greece", "PSG won 3-0"):
        await told(facts, content)
        clock.move(minutes=1)
    latest = ["PSG won 3-0", "Mickael flies to Greece"]
    assert await found(facts, "what did we talk about before?", limit=2) == latest
    assert await found(facts, "De quoi avons-nous parlé avant ?", limit=2) == latest
    assert await found(facts_of(store), "hello there", limit=2) == []


FAILURES = {
    "make": "`make docs` failed: exit code 2: No rule to make target 'docs'. Stop.",
    "go": "`go build ./...` failed: exit code 1: main.go:12: undefined: startServer",
    "npm": "`npm test` failed: exit code 1: AssertionError: expected 0 to be 3",
    "src/a.py": "`edit_file ./src/a.py` failed: src/a.py can't be written: permission denied.",
}


@pytest.fixture(params=[True, False], ids=["by-meaning", "by-words"])
async def failing(store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Facts]:
    """A young project of which little else is known than what failed."""
    embedder = OnnxEmbedder() if request.param else None
    facts = facts_of(store, embedder=embedder)
    for subject, content in FAILURES.items():
        await told(facts, content, subject, kind="failure", trust="tool")
    yield facts
    if embedder:
        await embedder.aclose()


@pytest.mark.parametrize(
    "prompt",
    [
        "what happened?", "what do you know about me?", "make the button blue",
        "go on with the next file", "what is the code of conduct here?",
        "please write tests for merge_with", "expected behaviour of groupby?",
        "which rule did we follow for names?", "open a file and read it",
        "set the exit code of the cli",
    ],
)  # fmt: skip
async def test_a_failure_has_no_part_in_what_is_unlike_it(failing: Facts, prompt: str) -> None:
    """An ordinary word of a command or of an output is no likeness, nor is it news of its own."""
    assert await found(failing, prompt) == []


@pytest.mark.parametrize(
    ("prompt", "subject"),
    [
        ("did the docs build?", "make"),
        ("run make docs again", "make"),
        ("can you fix the undefined symbol startServer?", "go"),
        ("npm test", "npm"),
        ("please tidy up the imports in src/a.py and sort them by name", "src/a.py"),
    ],
)
async def test_a_failure_comes_with_its_command(failing: Facts, prompt: str, subject: str) -> None:
    assert FAILURES[subject] in await found(failing, prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "What failed yesterday?",
        "what went wrong last time?",
        "Was ist schiefgegangen?",
        "Qu'est-ce qui a échoué ?",
    ],
)
async def test_who_asks_what_went_wrong_hears_of_the_latest(failing: Facts, prompt: str) -> None:
    await told(failing, "Ana planted ferns")
    assert set(await found(failing, prompt)) == set(FAILURES.values())


async def test_who_asks_of_themselves_hears_of_themselves(facts: Facts) -> None:
    """Where nothing is known of them, the latest."""
    await told(facts, "The pond is frozen")
    assert await found(facts, "Who am I?") == ["The pond is frozen"]
    await told(facts, "The person's name is Ana", scope="user")
    for asked in ("Who am I?", "what do you know about me?", "que sais-tu de moi ?"):
        assert await found(facts, asked) == ["The person's name is Ana"]
    for asked in ("Was weißt du über mich?", "Erinnerst du dich an mich?"):
        assert await found(facts, asked) == ["The person's name is Ana"]
    for asked in ("Tell me what you remember", "Let me know what you remember"):
        assert len(await found(facts, asked)) == 2


@pytest.mark.parametrize(
    ("text", "generic"),
    [
        ("what do you know about me?", True), ("Who am I?", True),
        ("what did we talk about before?", True), ("Do you remember me?", True),
        ("que sais-tu de moi ?", True), ("de quoi avons-nous parlé la dernière fois ?", True),
        ("tell me what you remember", True), ("hello", False), ("ok", False),
        ("fix the tests", False), ("what is the port of the API?", False),
        ("What did we decide about Neo4j?", False),
    ],
)  # fmt: skip
def test_what_is_generic(text: str, generic: bool) -> None:
    """A question whose words have no topic."""
    assert is_generic(text) == generic


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("dev's real name is Mickael", ("dev", "mickael")),
        ("Mickael is also called Mick.", ("mickael", "mick")),
        ("k8s is short for Kubernetes", ("k8s", "kubernetes")),
        ("alias: prod = srv-14", ("prod", "srv-14")),
        ("Neptune is the code name of the billing project", ("neptune", "billing project")),
        ("Neptune is the code name for billing", ("neptune", "billing")),
        ("Le vrai nom de dev est Mickaël", ("dev", "mickael")),
        ("dev s'appelle en fait Mickael", ("dev", "mickael")),
        ("Jean, dit Jeannot", ("jean", "jeannot")),
        ("Ana and Bea are the same person", ("ana", "bea")),
        ("The person's name is Ana", None),
        ("The API listens on port 8000", None),
        ("He is called Bob", None),
    ],
)
def test_names_that_are_one(content: str, names: tuple[str, str] | None) -> None:
    """Aliases are read from facts."""
    assert names_of(content) == names


def book_with(*contents: str) -> Book:
    return book_of(
        [
            MemoryRecord(memory_id=text, content=text, created_at=NOW, updated_at=NOW)
            for text in contents
        ]
    )


def test_other_names_lead_further() -> None:
    """Also by way of a third name."""
    book = book_with("dev is also called mick", "mick is also called Mickael", "Mickael skis")
    assert book.aliases["dev"] == {"mick", "mickael"}
    hits = search(book, FactQuestion("does dev do sports?"), {}, NOW)
    assert "Mickael skis" in texts(hits)


async def test_what_is_over_is_not_found(facts: Facts, clock: Clock) -> None:
    """Neither what was superseded nor what has expired, before any cleanup."""
    await told(facts, "Mickael broke his shoulder", "mickael")
    await told(facts, "Mickael broke his shoulder on 10 January 2026", "mickael")
    await told(facts, "Mickael is ill", "mickael", ttl="1h")
    assert len(await found(facts, "mickael")) == 2
    clock.move(hours=2)
    assert await found(facts, "mickael") == ["Mickael broke his shoulder on 10 January 2026"]
    assert [m.content for m in await facts.recent(project_id=HERE, limit=9)] == [
        "Mickael broke his shoulder on 10 January 2026"
    ]


async def test_projects_are_apart(facts: Facts) -> None:
    """Another project's facts are not found; the person's are."""
    await told(facts, "The API listens on port 8000")
    await told(facts, "I live near the port of Nantes")
    elsewhere = await facts.search("port", project_id="project-kitchen")
    assert texts(elsewhere) == ["I live near the port of Nantes"]
    assert len(await found(facts, "port")) == 2


async def test_who_said_it_counts(facts: Facts, clock: Clock) -> None:
    """Of two alike the person's comes first; else the newer one."""
    await told(facts, "The parser is written in Rust", "parser")
    clock.move(minutes=1)
    await told(facts, "The parser is written in Go", "parser", trust="tool")
    clock.move(minutes=1)
    await told(facts, "The lexer is written in C", "lexer")
    clock.move(minutes=1)
    await told(facts, "The lexer is written in D", "lexer")
    assert await found(facts, "parser", limit=2) == [
        "The parser is written in Rust",
        "The parser is written in Go",
    ]
    assert await found(facts, "lexer", limit=1) == ["The lexer is written in D"]


async def test_pinned_ones_and_rules_in_their_order(facts: Facts, clock: Clock) -> None:
    """Oldest first, whatever came later; those of the project and the person's."""
    for content, kind, pinned in (
        ("Answer in French", "rule", False),
        ("The sky is grey today", "fact", False),
        ("Release on Fridays only", "decision", True),
    ):
        await told(facts, content, kind=kind, pinned=pinned)
        clock.move(minutes=1)
    elsewhere = Draft(content="Use spaces there", kind="rule")
    await facts.remember(elsewhere, "project-kitchen")
    assert [m.content for m in await facts.pinned(HERE)] == [
        "Answer in French",
        "Release on Fridays only",
    ]


async def test_writes_elsewhere(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read stands for a moment, not for ever; its own writes are seen at once."""
    first, second = facts_of(await open_store()), facts_of(await open_store())
    assert await found(first, "ferns") == []
    await told(first, "Ana planted ferns")
    assert await found(first, "ferns") == ["Ana planted ferns"]
    await told(second, "Bea cut the ferns")
    monkeypatch.setattr("ragmem.memory.facts.facts.FRESH_S", 0.0)
    assert len(await found(first, "ferns")) == 2
    [memory] = [hit.memory for hit in await second.search("Bea", project_id=HERE)][:1]
    await second.edit(memory, content="Bea cut the hedge")
    assert await found(first, "ferns") == ["Ana planted ferns"]


def test_a_word_is_found_by_how_it_is_written_short() -> None:
    others = [f"Plot {number} has {number} beds" for number in range(8)]
    book = book_with("prod db sits on host db7", *others)
    hits = search(book, FactQuestion("Write the connection string for production."), {}, NOW)
    assert texts(hits) == ["prod db sits on host db7"]


def test_a_word_that_is_shared_by_chance_brings_nothing_up() -> None:
    """The less of the question it has, the nearer it must be."""
    book = book_with(
        "The report of the harbour takes the long road",
        "parse_report wants bytes",
        "Ana reads the report first",
    )
    far = dict.fromkeys(range(3), 0.0)
    near = {**far, 0: 0.19}

    def found(text: str, similarities: dict[int, float]) -> list[str]:
        hits = search(book, FactQuestion(text), similarities, NOW, least=0.3)
        return [hit.memory.content.split()[0] for hit in hits]

    assert found("make a new road", far) == []
    assert found("make a new road", near) == ["The"]
    assert found("make a new road", {}) == ["The"]
    assert found("what does parse_report want for a road", far) == ["parse_report"]
