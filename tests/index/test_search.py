"""Search over scopes, on a real index of scopes that are made up."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from inline_snapshot import snapshot

from ragmem.index import CodeHit
from tests.index.cuts import Index, function

EAST, NORTH = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)

FILES = {
    "src/auth/service.py": [
        function(
            "AuthService",
            "class AuthService:\n    def validate(self, token): ...",
            docstring="Who may come in.",
            kind="class",
        ),
        function(
            "AuthService.validate",
            "def validate(self, token):\n    return self.lookup(token) is not None",
            docstring="Whether a token has not expired yet.",
            calls=["lookup"],
            kind="method",
            line=5,
        ),
    ],
    "src/auth/store.py": [
        function("lookup", "def lookup(token):\n    return ROWS.get(token)", calls=["get"], line=3),
    ],
    "src/clock.py": [
        function(
            "parse_duration",
            "def parse_duration(text):\n    return float(text[:-1]) * 60",
            docstring="Seconds of a text such as 5m or 2h.",
        ),
        function("parse_date", "def parse_date(text):\n    return text", line=9),
    ],
    "tests/test_clock.py": [
        function(
            "test_durations",
            "def test_durations():\n    assert parse_duration('5m') == 300  # minutes to seconds",
            calls=["parse_duration"],
        )
    ],
    "docs/clock.md": [
        function(
            "Times",
            "# Times\nHow long an answer may wait is written as 5m. See `parse_duration`.",
            kind="section",
            calls=["parse_duration"],
        )
    ],
}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path, FILES)


def only(hits: list[CodeHit], name: str) -> CodeHit:
    return next(hit for hit in hits if hit.qualified_name == name)


def test_nothing_is_found_in_nothing(tmp_path: Path) -> None:
    assert Index(tmp_path).ask("anything") == []


def test_a_hit_says_what_it_is_and_why(index: Index) -> None:
    found = index.ask("AuthService.validate")[0]
    shown = {
        name: getattr(found, name)
        for name in ("kind", "path", "name", "qualified_name", "signature", "docstring")
    }
    assert shown == snapshot(
        {
            "kind": "method",
            "path": "src/auth/service.py",
            "name": "validate",
            "qualified_name": "AuthService.validate",
            "signature": "def validate()",
            "docstring": "Whether a token has not expired yet.",
        }
    )
    assert (found.start_line, found.end_line) == (5, 6)
    assert found.why == snapshot(("name: AuthService.validate",))


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("AuthService.validate", "AuthService.validate"),
        ("why does `validate` say no", "AuthService.validate"),
        ("parse_duration is wrong for hours", "parse_duration"),
        ("what calls parse_date()?", "parse_date"),
        ("AuthService", "AuthService"),
        ("look at src/auth/store.py", "lookup"),
        ("auth/store.py: what is kept there", "lookup"),
        ("whether a token has expired", "AuthService.validate"),
        ("how many seconds is a text like 5m", "parse_duration"),
        ("validate auth tokens", "AuthService.validate"),
    ],
)
def test_what_is_asked_about_comes_first(index: Index, question: str, first: str) -> None:
    assert index.names(question)[0] == first


def test_a_question_in_words_finds_a_function_by_those_that_call_it(index: Index) -> None:
    hits = index.ask("has the token expired yet")
    assert "called by AuthService.validate" in only(hits, "lookup").why


def test_a_question_in_words_finds_a_function_by_what_docs_say(index: Index) -> None:
    hits = index.ask("how long an answer may wait")
    found = only(hits, "parse_duration")
    assert "mentioned in docs/clock.md" in found.why


def test_who_has_the_words_comes_before_those_that_it_calls(tmp_path: Path) -> None:
    """Nothing is lent so much that it comes before the best that has the words itself."""
    validate, *lookup = (
        function("validate", docstring="Checks a token.", calls=["lookup"]),
        function("lookup", docstring="The person of a token.", line=5),
        function("login", docstring="Let a person in by the name.", line=9),
    )
    index = Index(tmp_path, {"src/auth.py": [validate, *lookup]})
    assert index.names("where are tokens checked")[:2] == ["validate", "lookup"]


def test_a_named_class_keeps_its_methods(tmp_path: Path) -> None:
    methods = [f"AuthService.check_{word}" for word in ("token", "name", "age", "role", "key")]
    checks = [
        function(name, "def f(): check", docstring="Check it.", kind="method", line=line)
        for line, name in enumerate(methods, 2)
    ]
    service = function("AuthService", "class AuthService: ...", kind="class")
    others = {f"src/x{n}.py": [function("check", docstring=f"Check {n} things.")] for n in range(9)}
    index = Index(tmp_path, {"src/auth.py": [service, *checks], **others})
    found = index.names("how does AuthService check things")
    assert found[0] == "AuthService"
    assert set(methods) <= set(found)
    assert index.names("how are things checked").count("AuthService") == 0


def test_a_line_comes_first_and_then_its_file(index: Index) -> None:
    hits = index.ask("why does src/clock.py:10 fail")
    assert [hit.qualified_name for hit in hits[:2]] == ["parse_date", "parse_duration"]
    assert [hit.why[0] for hit in hits[:2]] == ["file: src/clock.py:10", "file: src/clock.py"]


def test_a_folder_s_files_come_before_others(tmp_path: Path) -> None:
    """The best of them first, not all of one file, also where it is a large folder."""
    parts = {
        f"lib/store/part_{n}.py": [
            function(f"open_{n}_{m}", docstring="Open a row.", line=m + 1) for m in range(9)
        ]
        for n in range(9)
    }
    zips = function("zip_rows", docstring="Compress rows of a table.")
    compresses = function("compress_rows", docstring="Compress rows of a table.")
    index = Index(tmp_path, {**parts, "lib/store/late.py": [zips], "app.py": [compresses]})
    question = "how are rows of a table compressed"
    assert index.ask(question)[0].path == "app.py"
    hits = index.ask(f"{question} in lib/store/")
    assert hits[0].qualified_name == "zip_rows"
    assert hits[0].why[0] == "folder: lib/store/"
    assert {hit.path for hit in hits[1:]} >= {f"lib/store/part_{n}.py" for n in range(3)}
    assert all(hit.path.startswith("lib/store/") for hit in hits)


def test_words_of_its_name_are_told_apart(index: Index) -> None:
    (hit, *_) = index.ask("When does it Parse a duration of Seconds")
    assert hit.qualified_name == "parse_duration"
    assert hit.why[:2] == ("name: parse, duration", "words: seconds")


def test_a_name_that_many_have_is_lent_nothing(tmp_path: Path) -> None:
    index = Index(tmp_path)
    index.put({f"{n}.py": [function("get", f"def get(): return {n}")] for n in range(4)})
    index.put({"caller.py": [function("expire_tokens", "def expire(): tokens", calls=["get"])]})
    assert index.names("expire tokens") == ["expire_tokens"]


def test_meaning_finds_what_no_word_finds(index: Index) -> None:
    index.embed({"parse_date": EAST, "lookup": NORTH, "parse_duration": NORTH})
    (first, *_) = index.ask("calendar", vector=EAST)
    assert (first.qualified_name, first.why) == ("parse_date", ("meaning",))
    assert first.similarity == pytest.approx(1, abs=0.01)


def test_another_model_s_question_goes_by_words(index: Index) -> None:
    index.embed({"parse_date": EAST})
    assert index.ask("calendar", vector=EAST, model="other") == []


def test_paths_of_the_conversation_gain_a_little(tmp_path: Path) -> None:
    index = Index(tmp_path, {f"{name}/run.py": [function("start_up")] for name in "abc"})
    for near in ("a/run.py", "b/run.py", "c/run.py"):
        found = index.ask("how does it start up", near=[near])[0]
        assert found.path == near
        assert "touched in this conversation" in found.why


def test_a_file_beside_a_good_one_gains_by_its_import(tmp_path: Path) -> None:
    names = {"a.py": "one", "b.py": "two", "main.py": "widget_frame"}
    index = Index(
        tmp_path, {path: [function(n, f"def {n}(): widget")] for path, n in names.items()}
    )
    index.import_file("main.py", "b.py")
    hits = index.ask("widget frame")
    assert [hit.qualified_name for hit in hits] == ["widget_frame", "two", "one"]
    assert ["imported by main.py" in hit.why for hit in hits] == [False, True, False]


def test_a_limit_is_kept(index: Index) -> None:
    assert len(index.ask("parse the text of a token", limit=2)) == 2
    assert index.ask("parse", limit=0) == []


@pytest.mark.parametrize("word", ["issue", "retry", "cache", "taxe", "accounts"])
def test_a_word_and_its_stem_are_told_as_one(tmp_path: Path, word: str) -> None:
    said = function("one", f"def one():\n    return {word!r}  # {word}")
    index = Index(tmp_path, {"a.py": [said]})
    [hit] = index.ask(f"where is the {word} kept")
    assert f"words: {word}" in hit.why


def test_why_shows_nothing_that_steers_a_terminal(tmp_path: Path) -> None:
    index = Index(tmp_path, {"a.py": [function("`x\x1b[2J`", kind="section"), function("y")]})
    for hit in index.ask("`y` and x\x1b[2J y()"):
        assert all(line.isprintable() for line in hit.why)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200) | st.sampled_from(["a.b.c", "::", "`", "../..", "x" * 5000]))
def test_any_question_is_answered(index: Index, text: str) -> None:
    hits = index.ask(text)
    assert len({hit.scope_id for hit in hits}) == len(hits)
