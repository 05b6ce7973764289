"""What a text names as code is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmem.index.names import MOST_NAMES, is_named, names_in, said_in


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("run the tests", []),
        ("does `run` run", ["run"]),
        ("call run() now", ["run"]),
        ("what does `validate(token)` do", ["validate"]),
        ("parse_duration and AuthService", ["parse_duration", "AuthService"]),
        ("Auth::renew, Auth#renew, auth->renew", ["Auth.renew", "auth.renew"]),
        ("see `pip install x_y`", ["x_y"]),
        ("ragmem.store.base.Store is it", ["ragmem.store.base.Store"]),
        ("Überprüfung der Größe", []),
        ("größe_prüfen", ["größe_prüfen"]),
        ("Hello. World", []),
        ("e.g. this, i.e. that.And so", []),
        ("HTTPServer and getX", ["HTTPServer", "getX"]),
        ("__init__ of it, _so_ and so", []),
        ("Auth.__init__ and _private", ["Auth.__init__", "_private"]),
        ("all URLs and IDs", []),
        ("$this->token and $scope.get_it", ["this.token", "scope.get_it"]),
        ("run `do-it` or pre-parse_it", ["do-it"]),
        ("version 3.11 of 1_000", []),
        ("look at src/auth_service.py", []),
        ("tests/test_auth.py::test_it fails", ["test_it"]),
        ("", []),
    ],
)
def test_what_looks_like_a_name(text: str, names: list[str]) -> None:
    """Plain words only in backticks or with `()`; a path is no name."""
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("litres", ["litres"]),
        ("Tank.drain", ["Tank.drain"]),
        ("litres?", ["litres"]),
        ("how many litres", []),
        ("how-many", ["how-many"]),
    ],
)
def test_the_only_word_of_a_search_is_a_name(text: str, names: list[str]) -> None:
    """`ragmem search --code litres`; no prompt is read so."""
    assert names_in(text, alone=True) == names


Place = tuple[str, tuple[int, int] | None]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("open app/forms.py", [("app/forms.py", None)]),
        ("open forms.py", [("forms.py", None)]),
        ("./src/a.py and ../b/c.go", [("src/a.py", None), ("b/c.go", None)]),
        ("store/base.py:120 fails", [("store/base.py", (120, 120))]),
        ("base.py:120-140, please", [("base.py", (120, 140))]),
        ("/home/ana/app/auth.py:12:5: error", [("home/ana/app/auth.py", (12, 12))]),
        ('File "app/auth.py", line 7, in f', [("app/auth.py", (7, 7))]),
        ("app/auth.py#L3-L9", [("app/auth.py", (3, 9))]),
        ("auth.py, line 4", [("auth.py", (4, 4))]),
        (r"C:\app\auth.py:12", [("app/auth.py", (12, 12))]),
        ("tests/test_auth.py::test_it", [("tests/test_auth.py", None)]),
        ("what is in ragmem/store/?", [("ragmem/store/", None)]),
        ("what is in `store/`", [("store/", None)]),
        (".github/workflows/ci.yml", [(".github/workflows/ci.yml", None)]),
        ("see https://example.com/app/auth.py", []),
        ("at 12:30, version 1.2.3", []),
        ("a sentence. Another one: 5", []),
    ],
)
def test_what_looks_like_a_place(text: str, places: list[Place]) -> None:
    """Files, lines of them as tools and tracebacks write them, folders."""
    assert [(said.place, said.lines) for said in said_in(text) if said.place] == places


@pytest.mark.parametrize(
    ("asked", "does"),
    [
        ("validate", True),
        ("auth.validate", True),
        ("app.auth.validate", True),
        ("form.validate", False),
        ("valid", False),
        ("auth", False),
    ],
)
def test_whether_a_scope_is_named(asked: str, does: bool) -> None:
    """By its name, with what it is in, and with the module before that."""
    assert is_named("validate", "Auth.validate", {asked}) is does
    assert is_named("validate", "Auth.validate#2", {asked}) is does


def test_what_has_no_name_is_not_named() -> None:
    assert not is_named("", "imports", {"imports", ""})


@pytest.mark.parametrize("text", ["a_b ", "a-", "a/", "`", ".", "a.", "-a", "x", "~$", "/", "a:1 "])
def test_a_long_text_takes_no_time(text: str) -> None:
    """A pasted log, or what would make a pattern try for ever (the test's own limit)."""
    assert len(said_in(text * (1_000_000 // len(text)))) <= MOST_NAMES


def test_a_text_of_many_names() -> None:
    assert len(names_in("a_b " * 1_000_000)) == 1
    assert len(names_in(" ".join(f"a_{n}" for n in range(5_000)))) == MOST_NAMES


@given(st.text(alphabet="ab_A.:/\\#`()~$- 1\n\"',", max_size=80))
def test_any_text_is_read(text: str) -> None:
    """Whatever is written: parts are never empty, and a place or a name is what is said."""
    for said in said_in(text, alone=True):
        assert said.parts or said.place.strip("/.~")
        assert all(said.parts)
        assert not said.place.startswith("/")
