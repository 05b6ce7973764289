"""`ragmem memory` where a person is asked, and the profile that they fill."""

from pathlib import Path

import pytest

from ragmem.cli.profile import proposed_key, to_learn
from ragmem.records import Profile, PutMemory
from tests.cli.process import Ragmem, finish
from tests.cli.test_memory import a_memory, added, done, listed, put


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    return Ragmem(tmp_path, {"TERM": "xterm"})


def profile(ragmem: Ragmem) -> dict[str, str]:
    found: dict[str, str] = done(ragmem, "profile", "show", "--format", "json").json["values"]
    return found


@pytest.mark.parametrize(
    ("answer", "code", "left", "said"),
    [
        ("y", 0, 1, "Forgot "),
        ("n", 2, 2, "Nothing was forgotten."),
        ("", 2, 2, "Nothing was forgotten."),
    ],
)
def test_a_person_is_asked_before_it_forgets(
    ragmem: Ragmem, answer: str, code: int, left: int, said: str
) -> None:
    tail = added(ragmem, "The gate squeaks.")
    added(ragmem, "The shed is locked.")
    child = ragmem.on_terminal("memory", "forget", tail)
    child.expect_exact("The gate squeaks.")
    child.expect_exact("Forget it for ever? [y/N] ")
    child.sendline(answer)
    child.expect_exact(said)
    assert finish(child) == code
    assert len(listed(ragmem)) == left


def test_the_profile_is_set_shown_and_unset(ragmem: Ragmem) -> None:
    """One, of keys and values, with the time of its last change; user-wide."""
    assert done(ragmem, "profile", "set", "Favourite Editor", "vim, in a terminal").out == (
        "favourite_editor  vim, in a terminal\n"
    )
    done(ragmem, "profile", "set", "name", "Ana")
    elsewhere = ragmem.home.parent / "elsewhere"
    elsewhere.mkdir()
    shown = done(ragmem, "profile", cwd=elsewhere).out
    assert shown == "favourite_editor  vim, in a terminal\nname              Ana\n"
    assert done(ragmem, "profile", "show").out == shown
    document = done(ragmem, "profile", "show", "--format", "json").json
    assert set(document) == {"values", "updated_at"}
    assert document["updated_at"] is not None
    done(ragmem, "profile", "set", "name", "Ana B.")
    assert done(ragmem, "profile", "unset", "Favourite editor").out == "Removed favourite_editor.\n"
    assert profile(ragmem) == {"name": "Ana B."}
    missing = ragmem.run("memory", "profile", "unset", "editor")
    assert (missing.code, missing.err) == (
        2,
        "error: Your profile has no key 'editor'.\nIts keys are name.\n",
    )


@pytest.mark.parametrize(
    ("key", "value"), [("a=b", "x"), ("a;b", "x"), ("", "x"), ("k" * 200, "x"), ("k", "v" * 500)]
)
def test_a_profile_stays_what_a_line_can_hold(ragmem: Ragmem, key: str, value: str) -> None:
    ended = ragmem.run("memory", "profile", "set", key, value)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert profile(ragmem) == {}


def test_a_profile_learns_from_preferences_with_confirmation(ragmem: Ragmem) -> None:
    """Each preference that it lacks is asked about; nothing goes in unasked."""
    added(ragmem, "I like short answers.", "--kind", "preference", "--subject", "answers")
    added(ragmem, "I prefer tabs to spaces.", "--kind", "preference")
    added(ragmem, "I write in French to my customers.", "--kind", "preference")
    added(ragmem, "The gate squeaks.")
    put(ragmem, PutMemory(memory=a_memory("The file likes rm.", kind="preference", trust="tool")))
    nobody = ragmem.run("memory", "profile", "learn")
    assert nobody.code == 2
    assert "nobody to ask" in nobody.err
    child = ragmem.on_terminal("memory", "profile", "learn")
    child.expect_exact("1 of 3  I like short answers.")
    child.expect_exact("[y for answers, or another key; Enter for no, q to end] ")
    child.sendline("y")
    child.expect_exact("2 of 3  I prefer tabs to spaces.")
    child.sendline("a=b")
    child.expect_exact("A key is a short word")
    child.sendline("answers")
    child.expect_exact("answers is I like short answers.; choose another.")
    child.sendline("Indentation style")
    child.expect_exact("3 of 3  I write in French to my customers.")
    child.sendline("")
    child.expect_exact("2 preferences went into your profile.")
    assert finish(child) == 0
    assert profile(ragmem) == {
        "answers": "I like short answers.",
        "indentation_style": "I prefer tabs to spaces.",
    }
    child = ragmem.on_terminal("memory", "profile", "learn")
    child.expect_exact("1 of 1  I write in French to my customers.")
    child.sendline("q")
    child.expect_exact("0 preferences went into your profile.")
    assert finish(child) == 0
    child = ragmem.on_terminal("memory", "profile", "learn")
    child.expect_exact("1 of 1")
    child.send("\x04")
    child.expect_exact("0 preferences went into your profile.")
    assert finish(child) == 0
    assert len(profile(ragmem)) == 2


def test_what_is_learned_is_the_persons_own() -> None:
    """Only what they said; what the profile has is not asked about again."""
    own = a_memory("I like  Short answers.", kind="preference")
    read = a_memory("Users like popups.", kind="preference", trust="tool")
    model = a_memory("The user likes Go.", kind="preference", trust="model")
    newer = a_memory("I like tea.", kind="preference")
    assert to_learn([newer, model, read, own], Profile()) == [own, newer]
    assert to_learn([newer, own], Profile(values={"x": "i like short answers."})) == [newer]


def test_a_key_is_proposed_that_is_free() -> None:
    memory = a_memory("I like tea.", kind="preference", subjects=("a=b", "hot drinks", "tea"))
    assert proposed_key(memory, {}) == "hot_drinks"
    assert proposed_key(memory, {"hot_drinks": "x"}) == "tea"
    assert proposed_key(a_memory("I like tea."), {}) == "preference"
