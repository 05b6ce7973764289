"""Skills and custom commands: Markdown files of the user, and of a project.

Those of a project are used only after the user has agreed once, and only as they were then: the
agreement is pinned to a hash of all their files, and asked for again when one changes.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from ragmem.errors import UsageError
from ragmem.files import replace_private
from ragmem.messages import Json, of_command, prompt as prompt_text
from ragmem.text import Regex, clean, clip_middle, counted, one_line, visible
from ragmem.tools.base import AgentTool, Arguments, ToolFailure, ToolOutput, arg

_MOST_FILES, _MOST_BYTES, _MOST_DEPTH = 500, 5_000_000, 8
"""Limits for a project's files; beyond them, none is used."""
_FILE_BYTES = 500_000
_READ_CHARS = 30_000
_LISTED_CHARS, _DESCRIPTION_CHARS = 4_000, 300
_NAME = Regex(r"\w[\w.-]{0,63}")
_FIELD = Regex(r"(\w[\w-]*):(?:\s+(.*))?")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a kind of task."""

    name: str
    description: str
    folder: Path
    pinned: Mapping[str, bytes] | None = None
    """Its files as they were agreed to; None for the user's own, which are read from disk."""

    def read(self, path: str) -> str:
        """Return a file of the skill's folder as text; raises ToolFailure if there is none."""
        wanted = os.path.normpath(path)
        if self.pinned is not None:
            data = self.pinned.get(wanted)
        else:
            data = _read(self.folder / wanted, self.folder)
        if data is None:
            raise ToolFailure(f"The skill {self.name} has no file {one_line(path, 200)!r}.")
        return data.decode("utf-8", "replace")

    def files(self) -> list[str]:
        """Return the names of the files next to SKILL.md."""
        own = (os.path.relpath(file, self.folder) for file in _walk(self.folder))
        names = own if self.pinned is None else self.pinned
        return sorted(name for name in names if name != "SKILL.md")


class OwnCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A named prompt."""

    name: str
    description: str
    text: str
    is_brought: bool = False
    """Whether it comes from the project, so that its words are not the user's."""

    def prompt(self, arguments: str) -> str:
        """Return the prompt with the arguments typed after the name."""
        text, more = self.text.replace("$ARGUMENTS", arguments), ""
        typed = f"/{self.name} {arguments}".strip()
        if "$ARGUMENTS" not in self.text:
            typed, more = f"/{self.name}", arguments
        return f"{of_command(text, typed) if self.is_brought else text}\n\n{more}".strip()


class SkillSet:
    """The skills and commands that are in use in one project."""

    def __init__(self, own: Sequence[Path], top: Path, agreed: Path) -> None:
        """Read the user's folders and the project's; `agreed` is the file of the user's answers."""
        self.skills: dict[str, Skill] = {}
        self.commands: dict[str, OwnCommand] = {}
        self.problem = ""
        """Why the project's files are not used, where no answer of the user could change that."""
        self._top, self._answers_file = top, agreed
        self._homes = [home for home in (top / ".ragmem", top / ".claude") if home not in own]
        for folder in own:
            self._add(folder, None)
        self._project_files = self._read_project()
        self._digest = _digest(self._project_files)
        if self._project_files and self._answer() is True:
            self._add_project()

    @property
    def question(self) -> str:
        """The question about the project's files; empty if there is none to ask."""
        if not self._project_files or self._answer() is not None:
            return ""
        files = [name.split("/") for name in self._project_files]
        skills = [
            name for _, kind, name, *rest in files if (kind, rest) == ("skills", ["SKILL.md"])
        ]
        commands = [f"/{Path(path[-1]).stem}" for path in files if path[1] == "commands"]
        parts = [
            f"{counted(len(names), what)} ({one_line(', '.join(names), 200)})"
            for names, what in ((skills, "skill"), (commands, "command"))
            if names
        ]
        return f"This project comes with {' and '.join(parts) or 'files for agents'}"

    def hint(self) -> str:
        """Return, once for the current files, a note that the question awaits an answer."""
        question = self.question
        if not question or self._stored_answer() is not None:
            return ""
        self._store_answer(None)
        return f"{question}. A chat asks whether to use them."

    def answer(self, allowed: bool) -> None:
        """Store the user's answer about the current files."""
        self._store_answer(allowed)
        if allowed:
            self._add_project()

    def _store_answer(self, allowed: bool | None) -> None:
        answers = self._answers()
        answers[str(self._top)] = {"digest": self._digest, "allowed": allowed}
        with suppress(OSError):  # then it will be asked again
            replace_private(self._answers_file, json.dumps(answers, indent=1).encode(), sync=False)

    def expanded(self, text: str) -> str:
        """Return the prompt that `/name arguments` stands for; a path is returned unchanged.

        Raises UsageError for an unknown command; a space before the slash makes it plain text.
        """
        if not text.startswith("/"):
            return text
        name, *arguments = text[1:].split(maxsplit=1) or [""]
        if not _NAME.fullmatch(name):
            return text
        if name not in self.commands:
            if os.path.lexists(f"/{name}"):
                return text
            close = get_close_matches(name, self.commands, n=1, cutoff=0.6)
            meant = f"Did you mean /{close[0]}? " if close else ""
            waiting = f"{self.question}. A chat asks whether to use them. " if self.question else ""
            raise UsageError(
                f"Unknown command /{name}: nothing was sent.",
                hint=f"{meant}{waiting}To send it as text, put a space before it.",
            )
        return self.commands[name].prompt("".join(arguments).strip())

    @property
    def listing(self) -> str:
        """The skills as listed for the model, within 4,000 characters; empty if there are none."""
        lines: list[str] = []
        room = _LISTED_CHARS
        for skill in self.skills.values():
            line = f"- {skill.name}: {one_line(skill.description, _DESCRIPTION_CHARS)}"
            room -= len(line) + 1
            if room < 0:
                lines.append(f"- and {len(self.skills) - len(lines)} more, which read_skill lists")
                break
            lines.append(line)
        return "\n".join([prompt_text("skills"), *lines]) if lines else ""

    def _stored_answer(self) -> dict[str, Json] | None:
        """Return the stored answer about the current files."""
        stored = self._answers().get(str(self._top))
        return stored if isinstance(stored, dict) and stored.get("digest") == self._digest else None

    def _answer(self) -> Json:
        return (self._stored_answer() or {}).get("allowed")

    def _answers(self) -> dict[str, Json]:
        try:
            answers: Json = json.loads(self._answers_file.read_bytes())
        except (OSError, ValueError):
            return {}
        return answers if isinstance(answers, dict) else {}

    def _read_project(self) -> dict[str, bytes]:
        """Return the project's files, by path."""
        found: dict[str, bytes] = {}
        size = 0
        for folder in (home / kind for home in self._homes for kind in ("skills", "commands")):
            for file in _walk(folder):
                data = _read(file, self._top)
                if data is None:
                    continue
                size += len(data)
                if len(found) >= _MOST_FILES or size > _MOST_BYTES:
                    self.problem = (
                        "The skills and commands of this project are not used: they have more than "
                        f"{_MOST_FILES} files, or {_MOST_BYTES // 1_000_000} MB."
                    )
                    return {}
                found[str(file.relative_to(self._top))] = data
        return found

    def _add_project(self) -> None:
        for home in self._homes:
            self._add(home, self._project_files)

    def _add(self, home: Path, pinned: Mapping[str, bytes] | None) -> None:
        """Add the skills and commands of a folder, unless their names are taken."""
        for name in _names(home / "skills", pinned, self._top):
            folder = home / "skills" / name
            files = None if pinned is None else _below(folder, pinned, self._top)
            skill = Skill(name=name, description="", folder=folder, pinned=files)
            with suppress(ToolFailure):
                fields, _ = _front_matter(skill.read("SKILL.md"))
                called = fields.get("name", "")
                if not _NAME.fullmatch(called):
                    called = name
                about = clean(visible(fields.get("description", "")))
                skill = msgspec.structs.replace(skill, name=called, description=about)
                self.skills.setdefault(called, skill)
        folder = home / "commands"
        below = (os.path.relpath(file, folder) for file in _walk(folder, links=True))
        found = [*below] if pinned is None else [*_below(folder, pinned, self._top)]
        for name in sorted(found, key=lambda name: (name.count("/"), name)):
            file = folder / name
            data = _read(file, home) if pinned is None else pinned[str(file.relative_to(self._top))]
            if file.suffix == ".md" and data and _NAME.fullmatch(file.stem):
                fields, body = _front_matter(data.decode("utf-8", "replace"))
                about = fields.get("description") or body.strip().split("\n")[0]
                about, text = one_line(about, 100), clean(body).strip()
                brought = pinned is not None
                made = OwnCommand(name=file.stem, description=about, text=text, is_brought=brought)
                self.commands.setdefault(file.stem, made)


class ReadSkill(AgentTool):
    """Read a skill, and the files next to it."""

    name = "read_skill"
    description = (
        "Read a skill that the system message lists, then, with `path`, other files in its folder "
        "that it names."
    )

    class Params(Arguments, frozen=True):
        name: Annotated[str, arg("The skill's name.")]
        path: Annotated[str, arg("Another file, relative to its folder.")] = "SKILL.md"

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self._skills = skills

    def title(self, params: Params) -> str:
        """Return the skill and file to read."""
        return f"{params.name} {params.path}".removesuffix(" SKILL.md")

    async def run(self, params: Params) -> ToolOutput:
        """Return the text; SKILL.md is preceded by the folder and its other files."""
        skill = self._skills.get(params.name)
        if skill is None:
            names = clip_middle(", ".join(self._skills), 4_000)
            raise ToolFailure(
                f"There is no skill {one_line(params.name, 80)!r}. Available skills: {names}."
            )
        text = clip_middle(visible(skill.read(params.path)), _READ_CHARS)
        if params.path == "SKILL.md":
            beside = one_line(", ".join(skill.files()), 2_000) or "none"
            text = f"[Its folder is {visible(str(skill.folder))}; other files: {beside}]\n\n{text}"
        return ToolOutput(text=text, display=counted(text.count("\n") + 1, "line"))


# --- files ------------------------------------------------------------------------


def _walk(folder: Path, depth: int = 0, *, links: bool = False) -> Iterator[Path]:
    """Yield the files below a folder, sorted by name, without hidden ones; `links`: also links."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or (entry.is_symlink() and not links):
            continue
        if entry.is_dir(follow_symlinks=False) and depth < _MOST_DEPTH:
            yield from _walk(Path(entry.path), depth + 1, links=links)
        elif os.path.isfile(entry.path):
            yield Path(entry.path)


def _read(file: Path, inside: Path) -> bytes | None:
    """Return the content of a regular file of at most 500 kB inside a folder; else None."""
    try:
        real = file.resolve(strict=True)
        if not real.is_relative_to(inside.resolve()):
            return None
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError):
        return None
    with open(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = stream.read(_FILE_BYTES + 1)
    return data if len(data) <= _FILE_BYTES else None


def _names(folder: Path, pinned: Mapping[str, bytes] | None, top: Path) -> list[str]:
    if pinned is None:
        with suppress(OSError):
            return sorted(os.listdir(folder))
        return []
    return sorted({name.split("/")[0] for name in _below(folder, pinned, top)})


def _below(folder: Path, files: Mapping[str, bytes], top: Path) -> dict[str, bytes]:
    at = f"{folder.relative_to(top)}/"
    return {name.removeprefix(at): data for name, data in files.items() if name.startswith(at)}


def _digest(files: Mapping[str, bytes]) -> str:
    each = {name: sha256(data).hexdigest() for name, data in files.items()}
    return sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """Split off the `name: value` lines between two `---` at the beginning of a text."""
    head, mark, body = text.lstrip("\ufeff").partition("\n---")
    if not mark or not head.startswith("---"):
        return {}, text
    fields: dict[str, str] = {}
    last = ""
    for line in head.split("\n")[1:]:
        if found := _FIELD.fullmatch(line.rstrip()):
            last = found[1]
            value = (found[2] or "").strip()
            fields[last] = "" if value in (">", "|", ">-", "|-") else value.strip("\"'")
        elif last and line.startswith((" ", "\t")):
            fields[last] = f"{fields[last]} {line.strip()}".strip()
    return fields, body.partition("\n")[2]
