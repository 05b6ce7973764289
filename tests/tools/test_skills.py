"""Skills and commands of one's own: where they come from, what pins those of a project."""

import os
import tracemalloc
from pathlib import Path

import pytest

from ragmem.errors import UsageError
from ragmem.tools.base import ToolFailure
from ragmem.tools.skills import ReadSkill, SkillSet

FERNS = """---
name: ferns
description: >
  Water the ferns.
  Use it when somebody asks about plants.
---
Take the can. See [times](times.md).
"""


class Desk:
    """A person's folder, a project's, and the answers."""

    def __init__(self, folder: Path) -> None:
        self.own, self.top = folder / "own", folder / "project"
        self.top.mkdir()
        self.agreed = folder / "agreed.json"

    def put(self, home: Path, name: str, text: str) -> Path:
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def skill_set(self) -> SkillSet:
        return SkillSet([self.own], self.top, self.agreed)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def read(skill_set: SkillSet, name: str, path: str = "SKILL.md") -> str:
    return (await ReadSkill(skill_set.skills).run(ReadSkill.Params(name, path))).text


async def test_ones_own_are_listed_by_what_they_say_and_read_with_their_files(desk: Desk) -> None:
    desk.put(desk.own, "skills/f/SKILL.md", FERNS)
    desk.put(desk.own, "skills/f/times.md", "At seven.\x1b[2J")
    desk.put(desk.own, "skills/plain/SKILL.md", "No head.")
    skill_set = desk.skill_set()
    assert "- ferns: Water the ferns. Use it when somebody asks about plants." in skill_set.listing
    assert list(skill_set.skills) == ["ferns", "plain"]
    said = await read(skill_set, "ferns")
    assert said.startswith(f"[Its folder is {desk.own}/skills/f; other files: times.md]")
    assert "Take the can" in said
    assert "description:" in said
    assert await read(skill_set, "ferns", "times.md") == "At seven.\\e[2J"
    for path in ("../plain/SKILL.md", "/etc/passwd", "none.md", "a\0b"):
        with pytest.raises(ToolFailure, match="has no file"):
            await read(skill_set, "ferns", path)
    with pytest.raises(ToolFailure, match="Available skills: ferns, plain"):
        await read(skill_set, "moss")


def test_a_link_that_cannot_be_followed_is_passed_over(desk: Desk) -> None:
    desk.put(desk.own, "commands/tidy.md", "Tidy up.")
    for name in ("commands/a.md", "skills/a"):
        (desk.own / name).parent.mkdir(exist_ok=True)
        (desk.own / name).symlink_to("a" * 300)
    assert [*desk.skill_set().commands] == ["tidy"]


def test_the_list_is_bounded(desk: Desk) -> None:
    for number in range(60):
        desk.put(desk.own, f"skills/s{number:02}/SKILL.md", f"---\ndescription: {'x' * 500}\n---\n")
    listing = desk.skill_set().listing
    assert len(listing) < 4_500
    assert listing.endswith("more, which read_skill lists")


def test_commands_are_prompts_with_arguments(desk: Desk) -> None:
    desk.put(desk.own, "commands/review.md", "---\ndescription: Look\n---\nReview $ARGUMENTS now.")
    desk.put(desk.own, "commands/tidy.md", "Tidy up.")
    skill_set = desk.skill_set()
    assert skill_set.expanded("/review a.py b.py") == "Review a.py b.py now."
    assert skill_set.expanded("/tidy the hall") == "Tidy up.\n\nthe hall"
    assert skill_set.expanded("/etc/hosts is what?") == "/etc/hosts is what?"
    assert skill_set.expanded("/review\na.py") == "Review a.py now."
    assert [each.description for each in skill_set.commands.values()] == ["Look", "Tidy up."]


def test_a_long_paste_that_is_no_command_is_not_copied(desk: Desk) -> None:
    paste = "a word of the paste\n" * 50_000
    skill_set = desk.skill_set()
    tracemalloc.start()
    try:
        assert skill_set.expanded(paste) is paste
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(paste)


def test_a_command_that_there_is_not_is_said_to_be_none(desk: Desk) -> None:
    desk.put(desk.own, "commands/review.md", "Review $ARGUMENTS now.")
    skill_set = desk.skill_set()
    with pytest.raises(UsageError, match="Unknown command /reviwe: ") as caught:
        skill_set.expanded("/reviwe a.py")
    assert caught.value.hint.startswith("Did you mean /review? ")
    for words in (" /reviwe a.py", "/* a comment */", "//", "/", "/usr/bin is full"):
        assert skill_set.expanded(words) == words


def test_a_command_that_waits_for_a_yes_is_said_to_wait(desk: Desk) -> None:
    desk.put(desk.top, ".ragmem/commands/tidy.md", "Tidy up.")
    with pytest.raises(UsageError) as caught:
        desk.skill_set().expanded("/tidy")
    assert "This project comes with 1 command (/tidy). A chat asks" in caught.value.hint


def test_commands_in_subfolders_have_the_names_of_their_files(desk: Desk) -> None:
    desk.put(desk.own, "commands/home/sweep.md", "Sweep.")
    desk.put(desk.top, ".claude/commands/garden/rake.md", "Rake.")
    desk.put(desk.top, ".claude/commands/garden/tidy.md", "Tidy the garden.")
    desk.put(desk.top, ".claude/commands/tidy.md", "Tidy up.")
    desk.put(desk.top, ".claude/skills/ferns/SKILL.md", FERNS)
    desk.put(desk.top, ".claude/skills/ferns/commands/dig.md", "Dig.")
    skill_set = desk.skill_set()
    assert "1 skill (ferns) and 3 commands (/rake, /tidy, /tidy)" in skill_set.question
    skill_set.answer(True)
    for each in (skill_set, desk.skill_set()):
        assert list(each.commands) == ["sweep", "tidy", "rake"]
        assert each.commands["tidy"].text == "Tidy up."


async def test_a_projects_are_used_after_a_yes_as_they_were_then(desk: Desk) -> None:
    skill = desk.put(desk.top, ".claude/skills/ferns/SKILL.md", FERNS)
    desk.put(desk.top, ".ragmem/commands/tidy.md", "Tidy up.")
    skill_set = desk.skill_set()
    assert (skill_set.skills, skill_set.commands) == ({}, {})
    assert skill_set.question == "This project comes with 1 skill (ferns) and 1 command (/tidy)"
    assert "A chat asks" in skill_set.hint()
    assert desk.skill_set().hint() == ""
    assert desk.skill_set().question
    skill_set.answer(True)
    assert (list(skill_set.skills), list(skill_set.commands)) == (["ferns"], ["tidy"])
    tidied = "<command>\n<typed>\n/tidy\n</typed>\nTidy up.\n</command>\n\nthe hall"
    assert skill_set.expanded("/tidy the hall") == tidied
    again = desk.skill_set()
    assert (again.question, list(again.skills)) == ("", ["ferns"])
    skill.write_text("Rather burn them.")
    assert "Take the can" in await read(again, "ferns")
    # Another time it is asked again, and a no holds as well.
    changed = desk.skill_set()
    assert (bool(changed.question), changed.skills) == (True, {})
    changed.answer(False)
    assert (desk.skill_set().question, desk.skill_set().skills) == ("", {})


def test_what_leads_out_of_the_project_or_is_too_much_is_not_taken(desk: Desk) -> None:
    outside = desk.put(desk.own.parent / "outside", "skills/evil/SKILL.md", FERNS)
    (desk.top / ".claude").symlink_to(outside.parents[2])
    desk.put(desk.top, ".ragmem/skills/linked/notes.md", "x")
    (desk.top / ".ragmem/skills/linked/SKILL.md").symlink_to(outside)
    os.mkfifo(desk.top / ".ragmem/skills/fifo")
    skill_set = desk.skill_set()
    skill_set.answer(True)
    assert skill_set.skills == {}
    for number in range(501):
        desk.put(desk.top, f".ragmem/skills/many/{number}.md", "x")
    skill_set = desk.skill_set()
    assert (skill_set.question, "not used" in skill_set.problem) == ("", True)


def test_ones_own_folder_is_never_asked_for(desk: Desk) -> None:
    """A home that is a project too."""
    home = desk.top / ".claude"
    desk.put(home, "skills/ferns/SKILL.md", FERNS)
    skill_set = SkillSet([home], desk.top, desk.agreed)
    assert (skill_set.question, list(skill_set.skills)) == ("", ["ferns"])
