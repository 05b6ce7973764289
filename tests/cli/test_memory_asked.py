"""`ragmem memory` where a person is asked, and the profile that they fill."""

from pathlib import Path

import pytest

from ragmem.cli.profile import proposed_key, to_learn
from ragmem.records import Profile, PutMemory
from tests.cli.process import Ragmem, finish
from tests.cli.test_memory import a_memory, added, done, listed, put


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    """Where a terminal is one."""
    return Ragmem(tmp_path, {"TERM": "xterm"})


def profile(ragmem: Ragmem) -> dict[str, str]:
    found: dict[str, str] = ragmem.read("memory", "profile", "show")["values"]
    return found


def test_a_person_is_asked_before_it_forgets(ragmem: Ragmem) -> None:
    """Only a yes is one."""
    tail = added(ragmem, "The gate squeaks.")
    kept = added(ragmem, "The shed is locked.")
    for answer, code, said in (
        ("", 2, "Nothing was forgotten."),
        ("n", 2, "Nothing was forgotten."),
        ("y", 0, "Forgot "),
    ):
        child = ragmem.on_terminal("memory", "forget", tail)
        child.expect_exact("The gate squeaks.")
        child.expect_exact("Forget it for good? [y/N] ")
        child.sendline(answer)
        child.expect_exact(said)
        assert finish(child) == code
    assert [each["id"][-8:] for each in listed(ragmem)] == [kept]


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
    document = ragmem.read("memory", "profile", "show")
    assert set(document) == {"values", "updated_at"}
    assert document["updated_at"] is not None
    done(ragmem, "profile", "set", "name", "Ana B.")
    assert done(ragmem, "profile", "unset", "Favourite editor").out == "Removed favourite_editor.\n"
    assert profile(ragmem) == {"name": "Ana B."}
    assert ragmem.refused("memory", "profile", "unset", "editor") == (
        "error: Your profile has no key 'editor'.\nExisting keys: name.\n"
    )


def test_a_profile_learns_from_preferences_with_confirmation(ragmem: Ragmem) -> None:
    """Each preference that it lacks is asked about; nothing goes in unasked."""
    for content, fields in (
        ("I like short answers.", {"subjects": ("answers",)}),
        ("I prefer tabs to spaces.", {}),
        ("I write in French to my customers.", {}),
        ("The gate squeaks.", {"kind": "fact"}),
        ("The file likes rm.", {"trust": "tool"}),
    ):
        put(ragmem, PutMemory(memory=a_memory(content, **{"kind": "preference", **fields})))
    assert "not an interactive terminal" in ragmem.refused("memory", "profile", "learn")
    child = ragmem.on_terminal("memory", "profile", "learn")
    for shown, typed in (
        ("1 of 3  I like short answers.", ""),
        ("[y: as answers, or type another key; Enter: no; q: quit] ", "y\n"),
        ("2 of 3  I prefer tabs to spaces.", "a=b\n"),
        ("A key is a single word", "answers\n"),
        (
            "answers is already set to I like short answers.; choose another key.",
            "Indentation style\n",
        ),
        ("3 of 3  I write in French to my customers.", "\n"),
        ("Added 2 preferences to your profile.", ""),
    ):
        child.expect_exact(shown)
        child.send(typed)
    assert finish(child) == 0
    assert profile(ragmem) == {
        "answers": "I like short answers.",
        "indentation_style": "I prefer tabs to spaces.",
    }
    for leaving in ("q\n", "\x04"):
        child = ragmem.on_terminal("memory", "profile", "learn")
        child.expect_exact("1 of 1  I write in French to my customers.")
        child.send(leaving)
        child.expect_exact("Added 0 preferences to your profile.")
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
