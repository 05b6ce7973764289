"""AGENTS.md and CLAUDE.md."""

import os
from pathlib import Path

from ragmem.memory.projects import find_instructions
from ragmem.text import mark_for


def test_from_the_top_down_to_the_folder(tmp_path: Path) -> None:
    """AGENTS.md of each folder, outermost first; CLAUDE.md where there is none."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("top rules")
    (tmp_path / "CLAUDE.md").write_text("not read")
    (tmp_path / "a" / "CLAUDE.md").write_text("a's rules")
    (inner / "AGENTS.md").write_text("  \n")
    found = find_instructions(inner, tmp_path)
    mark = mark_for("top rules\na's rules")
    assert found.text == (
        f'# From "AGENTS.md" [{mark}]\n\ntop rules\n\n# From "a/CLAUDE.md" [{mark}]\n\na\'s rules'
    )
    assert found.files == (tmp_path / "AGENTS.md", tmp_path / "a" / "CLAUDE.md")


def test_nothing_outside_the_project_is_read(tmp_path: Path) -> None:
    """A link out of the project, a FIFO and a folder are no instructions."""
    project = tmp_path / "p"
    project.mkdir()
    (tmp_path / "AGENTS.md").write_text("of the parent")
    (tmp_path / "secret").write_text("secret")
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert find_instructions(project, project).text == ""
    (project / "AGENTS.md").unlink()
    os.mkfifo(project / "AGENTS.md")
    assert find_instructions(project, project).text == ""
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").mkdir()
    assert find_instructions(project, project).text == ""
