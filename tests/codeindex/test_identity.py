"""Which scope is which after an edit."""

import string

from hypothesis import given
from hypothesis import strategies as st

from ragmem.codeindex.identity import Known, assign, follow, scope_id_of


def _function(name: str, text: str, *, qualified: str = "") -> Known:
    return Known("function", name.partition("#")[0], qualified or name, text)


def _free(_: str) -> bool:
    return False


def test_new_ids_are_the_same_for_everybody():
    """Issue 7: two processes and machines agree; a taken id gives the next."""
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
    """Issue 7: whatever happens to the text, and wherever in the file it goes."""
    old = [_function("f", "1"), _function("g", "2")]
    new = [_function("g", "2"), Known("class", "f", "f", "1"), _function("f", "9")]
    assert assign(old, new) == ({0: 1, 2: 0}, [], [1])


def test_renamed_scopes_are_known_by_their_text():
    """Issue 7: the same text under another name."""
    assert assign([_function("f", "1")], [_function("better", "1")]) == ({0: 0}, [], [])


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
    """Issue 7: a moved scope is followed by its hash; the one of the same name first."""
    vanished = [("id-1", _function("f", "1")), ("id-2", _function("g", "1"))]
    fresh = [(10, _function("h", "1")), (11, _function("g", "1")), (12, _function("z", "7"))]
    assert dict(follow(vanished, fresh)) == {10: "id-1", 11: "id-2"}


_scopes = st.lists(
    st.builds(
        lambda name, text, kind: Known(kind, name, name, text),
        st.sampled_from(string.ascii_lowercase[:5]),
        st.sampled_from("1234"),
        st.sampled_from(["function", "class"]),
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
