"""Which scope is which after an edit."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmem.index import CutScope
from ragmem.index.mirror import ScopeKey, assign, follow, scope_id_of


def _function(name: str, text: str, *, qualified: str = "") -> ScopeKey:
    return ScopeKey("function", name.partition("#")[0], qualified or name, text)


def _free(_: str) -> bool:
    return False


def test_new_ids_are_the_same_for_everybody():
    known = _function("run", "1")
    first = scope_id_of("p", "a.py", known, is_taken=_free)
    assert first == scope_id_of("p", "a.py", known._replace(hash="2"), is_taken=_free)
    others = [
        scope_id_of("q", "a.py", known, is_taken=_free),
        scope_id_of("p", "b.py", known, is_taken=_free),
        scope_id_of("p", "a.py", known._replace(kind="class"), is_taken=_free),
        scope_id_of("p", "a.py", known._replace(qualified_name="A.run"), is_taken=_free),
        scope_id_of("p", "a.py", known, is_taken=lambda found: found == first),
    ]
    assert len({first, *others}) == 6


def _small(name: str, *, qualified: str = "", kind: str = "method") -> ScopeKey:
    return ScopeKey(kind, name, qualified or name, "pass", is_telling=False)


@pytest.mark.parametrize(
    ("docstring", "last", "says"),
    [("", 4, False), ("", 5, True), ("To do.", 2, False), ("What it is for.", 2, True)],
)
def test_what_says_enough(docstring, last, says):
    scope = CutScope(kind="function", name="f", qualified_name="f", hash="1", text="",
                     docstring=docstring, start_line=1, end_line=last)  # fmt: skip
    assert ScopeKey.of(scope).is_telling is says


_AUTH = [
    ScopeKey("class", "Auth", "Auth", "c1"),
    _small("__init__", qualified="Auth.__init__"),
    ScopeKey("method", "check", "Auth.check", "m1"),
]
_BED = [ScopeKey("class", "Bed", "Bed", "c2"), _small("__init__", qualified="Bed.__init__")]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        pytest.param(
            [_function("f", "1"), _function("g", "2")],
            [_function("g", "2"), ScopeKey("class", "f", "f", "1"), _function("f", "9")],
            {0: 1, 2: 0},
            id="name and kind keep an id, whatever happens to the text and wherever it goes",
        ),
        pytest.param([_function("f", "1")], [_function("better", "1")], {0: 0}, id="renamed"),
        pytest.param(
            [_function("one", "1"), _function("two", "1")],
            [_function("first", "1"), _function("second", "1")],
            {0: 0, 1: 1},
            id="of several of the same text the order tells",
        ),
        pytest.param(
            [_function("f", "1"), _small("on_open"), _small("on_close")],
            [_function("f", "1"), _small("start"), _small("end")],
            {0: 0},
            id="two stubs go and two others come: nothing tells which was which",
        ),
        pytest.param(
            [*_AUTH, *_BED],
            [
                *_BED,
                ScopeKey("class", "Guard", "Guard", "c1"),
                _small("__init__", qualified="Guard.__init__"),
                ScopeKey("method", "check", "Guard.check", "m1"),
            ],
            {0: 3, 1: 4, 2: 0, 3: 1, 4: 2},
            id="a renamed class takes its methods along, also those like others",
        ),
        pytest.param(
            _AUTH,
            [
                ScopeKey("class", "Guard", "Guard", "c9"),
                ScopeKey("method", "check", "Guard.check", "m1"),
            ],
            {1: 2},
            id="a class that is renamed and edited is a new one, its methods are the old ones",
        ),
        pytest.param(
            [ScopeKey("class", "Shape", "Shape", "1")],
            [ScopeKey("type", "Shape", "Shape", "2")],
            {0: 0},
            id="a class that becomes a type, as interfaces did when ragmem came to call them so",
        ),
        pytest.param(
            [_function("f", "1"), _function("f#2", "2")],
            [_function("f", "2")],
            {0: 1},
            id="where the first of two of one name goes, the second is not taken for it",
        ),
    ],
)
def test_which_was_which(old, new, kept):
    """Each new scope with the place of the old one that it is; what is left went or came."""
    assert assign(old, new) == kept


def test_scopes_are_followed_into_other_files():
    """By their text; the one of the same name first, a stub only with its name."""
    vanished = [("id-1", _function("f", "1")), ("id-2", _function("g", "1"))]
    fresh = [(10, _function("h", "1")), (11, _function("g", "1")), (12, _function("z", "7"))]
    assert follow(vanished, fresh) == {10: "id-1", 11: "id-2"}
    assert follow([("a", _small("stop"))], [(1, _small("end")), (2, _small("stop"))]) == {2: "a"}
    assert follow([("a", _small("stop"))], [(1, _small("end"))]) == {}


_scopes = st.lists(
    st.builds(
        lambda name, text, kind, is_telling: ScopeKey(kind, name, name, text, is_telling),
        st.sampled_from(string.ascii_lowercase[:5]),
        st.sampled_from("1234"),
        st.sampled_from(["function", "class"]),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda known: (known.kind, known.qualified_name),
)


@given(_scopes, _scopes)
def test_each_scope_is_one_other_at_most(old, new):
    kept = assign(old, new)
    assert len(set(kept.values())) == len(kept)
    assert all(
        {old[place].kind, new[number].kind} <= {"class", "type"}
        or old[place].kind == new[number].kind
        for number, place in kept.items()
    )
    for number, each in enumerate(new):
        if each in old:
            assert old[kept[number]] == each
    followed = follow([(str(n), each) for n, each in enumerate(old)], enumerate(new))
    assert len(set(followed.values())) == len(followed)
