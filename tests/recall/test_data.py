"""The labelled sets for recall are whole, and their questions are questions, not copies."""

import itertools
import json
import re
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*.json"))
KINDS = {"fact", "decision", "why", "when", "error", "identifier", "multi"}
KINDS |= {"paraphrase", "temporal"}
TOOLS = {"read_file", "write_file", "edit_file", "grep_files", "run_command"}
LANGUAGES = {"en": 9, "fr": 3, "de": 1, "es": 1, "it": 1, "mixed": 1}
LONGEST_SHARED_RUN = 6

# Letters of any script and digits, with what holds an identifier, a path or a number together.
_WORD = re.compile(r"\w+(?:[._/:@#-]+\w+)*", re.UNICODE)


def load(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return data


def turns_of(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {turn["id"]: turn for session in data["sessions"] for turn in session["turns"]}


def text_of(turn: dict[str, Any]) -> str:
    parts = [turn["user"], turn["assistant"]]
    for tool in turn["tools"]:
        parts += [*map(str, tool["arguments"].values()), tool["result"]]
    return "\n".join(parts)


def is_identifier(word: str) -> bool:
    inner_capital = re.search(r"[a-z][A-Z]", word) is not None
    return inner_capital or any(not char.isalpha() for char in word)


def words(text: str) -> list[str]:
    return [word if is_identifier(word) else word.casefold() for word in _WORD.findall(text)]


def shared_run(question: str, text: str) -> int:
    """The most plain words in a row that both have; identifiers bridge a run, uncounted."""
    places = defaultdict[str, list[int]](list)
    for at, word in enumerate(words(text)):
        places[word].append(at)
    ends: dict[int, int] = {}
    longest = 0
    for word in words(question):
        weight = 0 if is_identifier(word) else 1
        ends = {at: ends.get(at - 1, 0) + weight for at in places.get(word, ())}
        longest = max(longest, *ends.values(), 0)
    return longest


def shared_share(question: str, text: str) -> float:
    """How much of the question's longer words is said in the text, in the same form."""
    asked = {word for word in words(question) if len(word) > 3}
    return len(asked & set(words(text))) / len(asked) if asked else 0.0


def moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    assert at.tzinfo is not None, text
    return at


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def data(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def test_there_is_enough_in_enough_languages() -> None:
    """At least 300 questions, several languages."""
    every = [load(path) for path in FILES]
    assert sum(len(data["questions"]) for data in every) >= 350
    spoken = Counter(data["language"] for data in every)
    assert all(spoken[language] >= count for language, count in LANGUAGES.items()), spoken
    assert len({data["project"] for data in every}) == len(every)
    ids = [turn for data in every for turn in turns_of(data)]
    assert len(ids) == len(set(ids))
    asked = [question["question"] for data in every for question in data["questions"]]
    assert len(asked) == len(set(asked))


def test_a_file_is_a_project_over_weeks(data: dict[str, Any]) -> None:
    sessions = data["sessions"]
    turns = [turn for session in sessions for turn in session["turns"]]
    assert 4 <= len(sessions) <= 10
    assert 60 <= len(turns) <= 120
    assert len({session["session_id"] for session in sessions}) == len(sessions)
    assert len({turn["id"] for turn in turns}) == len(turns)
    times = [moment(turn["at"]) for turn in turns]
    assert all(before < after for before, after in itertools.pairwise(times))
    assert (times[-1] - times[0]).days >= 14
    for session in sessions:
        assert moment(session["started_at"]) <= moment(session["turns"][0]["at"])


def test_turns_have_both_voices_and_known_tools(data: dict[str, Any]) -> None:
    for turn in turns_of(data).values():
        assert set(turn) == {"id", "at", "user", "assistant", "tools"}
        assert turn["user"].strip(), turn["id"]
        assert turn["assistant"].strip(), turn["id"]
        for tool in turn["tools"]:
            assert set(tool) == {"name", "arguments", "result"}
            assert tool["name"] in TOOLS
            assert tool["arguments"]
            assert tool["result"].strip(), turn["id"]


def test_evidence_exists_and_was_said_before_it_is_asked_for(data: dict[str, Any]) -> None:
    turns = turns_of(data)
    for question in data["questions"]:
        assert set(question) == {"question", "asked_at", "evidence", "kind"}
        assert 1 <= len(question["evidence"]) <= 3
        assert len(set(question["evidence"])) == len(question["evidence"])
        for turn_id in question["evidence"]:
            assert moment(turns[turn_id]["at"]) < moment(question["asked_at"]), question


def test_every_kind_is_asked(data: dict[str, Any]) -> None:
    kinds = Counter(question["kind"] for question in data["questions"])
    assert len(data["questions"]) >= 22
    assert set(kinds) >= KINDS
    assert set(kinds) <= KINDS | {"crosslingual"}
    for question in data["questions"]:
        if question["kind"] == "multi":
            assert len(question["evidence"]) >= 2, question


def test_questions_do_not_copy_their_evidence(data: dict[str, Any]) -> None:
    turns = turns_of(data)
    apart = 0
    for question in data["questions"]:
        said = [text_of(turns[turn_id]) for turn_id in question["evidence"]]
        runs = {text: shared_run(question["question"], text) for text in said}
        assert max(runs.values()) <= LONGEST_SHARED_RUN, question
        apart += max(shared_share(question["question"], text) for text in said) < 0.5
    assert apart >= len(data["questions"]) / 2


def test_a_copied_question_would_be_seen() -> None:
    text = "We set the retry limit of fetch_page to five because the proxy drops connections."
    assert shared_run("what is the retry limit of fetch_page to five because?", text) == 7
    assert shared_run("how often does fetch_page try again?", text) == 0
    assert shared_share("why the retry limit?", text) == 1.0
