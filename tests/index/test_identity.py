"""Which scope is which after an edit."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmem.index.identity import Known, assign, follow, is_telling, scope_id_of


def _function(name: str, text: str, *, qualified: str = "") -> Known:
    return Known("function", name.partition("#")[0], qualified or name, text)


def _free(_: str) -> bool:
    return False


def test_new_ids_are_the_same_for_everybody():
    """Two processes and machines agree; a taken id gives the next."""
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


def test_name_and_kind_keep_an_id():
    """Whatever happens to the text, and wherever in the file it goes."""
    old = [_function("f", "1"), _function("g", "2")]
    new = [_function("g", "2"), Known("class", "f", "f", "1"), _function("f", "9")]
    assert assign(old, new) == ({0: 1, 2: 0}, [], [1])


def test_renamed_scopes_are_known_by_their_text():
    """The same text under another name."""
    assert assign([_function("f", "1")], [_function("better", "1")]) == ({0: 0}, [], [])


def _small(name: str, *, qualified: str = "", kind: str = "method") -> Known:
    """A one-liner that many share."""
    return Known(kind, name, qualified or name, "pass", is_telling=False)


@pytest.mark.parametrize(
    ("docstring", "last", "says"),
    [("", 4, False), ("", 5, True), ("To do.", 2, False), ("What it is for.", 2, True)],
)
def test_what_says_enough(docstring, last, says):
    """Five lines, or a sentence: no stub has them by chance."""
    assert is_telling(docstring, 1, last) is says


def test_renamed_with_several_of_the_same_text():
    """The nearest name first, then in their order."""
    old = [_function("first_copy", "1"), _function("parse_minutes", "1"), _function("zap", "1")]
    new = [_function("read", "1"), _function("parse_hours", "1"), _function("copy_first", "1")]
    assert assign(old, new) == ({0: 2, 1: 1, 2: 0}, [], [])


def test_what_says_little_is_not_taken_for_another():
    """Two stubs go and two others come: nothing tells which was which, or that any was."""
    old = [_function("f", "1"), _small("on_open"), _small("on_close"), _function("g", "2")]
    new = [_function("f", "1"), _small("start"), _small("end"), _function("g", "2")]
    assert assign(old, new) == ({0: 0, 3: 3}, [1, 2], [1, 2])
    vanished, fresh = [("a", old[1]), ("b", old[2])], [(1, new[1]), (2, new[2])]
    assert dict(follow(vanished, fresh)) == {}
    assert dict(follow(vanished[:1], fresh[:1])) == {}


def test_what_says_little_is_followed_in_its_place():
    """One stub is another between the same neighbours; elsewhere it is none of it."""
    old = [_function("f", "1"), _small("on_open"), _function("g", "2"), _function("h", "3")]
    new = [_function("f", "1"), _small("start"), _function("g", "2"), _function("h", "3")]
    assert assign(old, new).kept == {0: 0, 1: 1, 2: 2, 3: 3}
    elsewhere = [new[0], new[2], new[1], _function("i", "5"), new[3]]
    assert assign(old, elsewhere) == ({0: 0, 1: 2, 4: 3}, [1], [2, 3])


def test_what_says_little_is_followed_to_a_name_like_its_own():
    """`on_open`, `on_opened`: whatever else goes and comes."""
    old = [_function("f", "1"), _small("on_open"), _small("stop")]
    new = [_small("begin"), _small("on_opened"), _function("f", "1")]
    assert assign(old, new) == ({1: 1, 2: 0}, [2], [0])


def test_a_renamed_class_takes_its_methods_along():
    """Also those that were edited, and those that are like each other."""
    old = [
        Known("class", "Auth", "Auth", "c1"),
        _small("__init__", qualified="Auth.__init__"),
        Known("method", "check", "Auth.check", "m1"),
        Known("class", "Bed", "Bed", "c2"),
        _small("__init__", qualified="Bed.__init__"),
    ]
    new = [
        Known("class", "Bed", "Bed", "c2"),
        _small("__init__", qualified="Bed.__init__"),
        Known("class", "Guard", "Guard", "c1"),
        _small("__init__", qualified="Guard.__init__"),
        Known("method", "check", "Guard.check", "m9"),
    ]
    assert assign(old, new) == ({0: 3, 1: 4, 2: 0, 3: 1, 4: 2}, [], [])


def test_a_renamed_and_edited_class_is_known_by_its_methods():
    """Its text is another one; most of what is in it was in that class before."""
    old = [
        Known("class", "Auth", "Auth", "c1"),
        Known("method", "check", "Auth.check", "m1"),
        Known("method", "lookup", "Auth.lookup", "m2"),
        Known("method", "drop", "Auth.drop", "m3"),
        Known("class", "Bed", "Bed", "c2"),
    ]
    new = [
        Known("class", "Guard", "Guard", "c9"),
        Known("method", "check", "Guard.check", "m1"),
        Known("method", "find", "Guard.find", "m2"),
        Known("method", "drop", "Guard.drop", "m9"),
    ]
    assert assign(old, new) == ({0: 0, 1: 1, 2: 2, 3: 3}, [4], [])
    other = [
        new[0],
        new[1],
        *(_function(f"f{n}", f"{n}", qualified=f"Guard.f{n}") for n in range(3)),
    ]
    assert assign(old, other).kept == {1: 1}


def test_a_class_that_becomes_a_type_stays_what_it_is():
    """As interfaces did when ragmem came to call them types."""
    old, new = [Known("class", "Shape", "Shape", "1")], [Known("type", "Shape", "Shape", "2")]
    assert assign(old, new) == ({0: 0}, [], [])


def test_scopes_are_followed_and_renamed():
    """Moved to another file under another name; the nearest name first."""
    vanished = [("id-1", _function("parse_hours", "1")), ("id-2", _function("parse_days", "1"))]
    fresh = [(10, _function("read_days", "1")), (11, _function("read_hours", "1"))]
    assert dict(follow(vanished, fresh)) == {10: "id-2", 11: "id-1"}


def test_many_of_the_same_text_take_no_time():
    """A file of thousands of copies goes, and comes under other names."""
    old = [_function(f"copy_{n}", "1") for n in range(3_000)]
    new = [_function(f"twin_{n}", "1") for n in range(3_000)]
    started = time.process_time()
    assert assign(old, new).kept == {n: n for n in range(3_000)}
    assert time.process_time() - started < 3


def test_many_texts_that_several_share_take_no_time():
    """A folder of generated code that is renamed; a file is filed within seconds."""
    names = [f"{'of_a_long_name_' * 5}{n}" for n in range(20)]

    def scopes(side: str) -> list[Known]:
        return [
            Known("function", f"{side}_{name}", f"{side}_{name}_{text}", f"text {text}")
            for text in range(100)
            for name in names
        ]

    old, new = scopes("old"), scopes("new")
    started = time.process_time()
    assigned = assign(old, new)
    followed = dict(follow(((str(n), each) for n, each in enumerate(old)), enumerate(new)))
    assert time.process_time() - started < 20
    assert assigned.kept == {n: n for n in range(2000)}
    assert followed == {n: str(n) for n in range(2000)}


def test_of_several_of_one_name_each_is_known_by_its_text():
    """Where the first of two goes, the second is not taken for it."""
    old = [_function("f", "1"), _function("f#2", "2")]
    assert assign(old, [_function("f", "2")]) == ({0: 1}, [0], [])


def test_moved_into_another_class_and_edited():
    """A name that only one has before and after."""
    old = [_function("run", "1", qualified="A.run"), _function("stop", "2", qualified="A.stop")]
    new = [_function("run", "3", qualified="B.run")]
    assert assign(old, new) == ({0: 0}, [1], [])


def test_scopes_are_followed_into_other_files():
    """A moved scope is followed by its hash; the one of the same name first."""
    vanished = [("id-1", _function("f", "1")), ("id-2", _function("g", "1"))]
    fresh = [(10, _function("h", "1")), (11, _function("g", "1")), (12, _function("z", "7"))]
    assert dict(follow(vanished, fresh)) == {10: "id-1", 11: "id-2"}


_scopes = st.lists(
    st.builds(
        lambda name, text, kind, is_telling: Known(kind, name, name, text, is_telling),
        st.sampled_from(string.ascii_lowercase[:5]),
        st.sampled_from("1234"),
        st.sampled_from(["function", "class"]),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda known: (known.kind, known.qualified_name),
)


@given(_scopes, _scopes)
def test_nothing_is_lost_or_told_twice(old, new):
    """Each old scope is kept or vanished, each new one kept or fresh."""
    kept, vanished, fresh = assign(old, new)
    assert sorted([*kept.values(), *vanished]) == list(range(len(old)))
    assert sorted([*kept, *fresh]) == list(range(len(new)))
    assert all(old[place].kind == new[number].kind for number, place in kept.items())
    names = {(each.kind, each.qualified_name): n for n, each in enumerate(old)}
    for number, each in enumerate(new):
        if (each.kind, each.qualified_name) in names and each in old:
            assert old[kept[number]] == each
    followed = dict(follow([(str(n), old[n]) for n in vanished], [(n, new[n]) for n in fresh]))
    assert len(set(followed.values())) == len(followed)
