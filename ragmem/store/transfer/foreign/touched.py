"""Which files a tool call of another agent touched, by its name and arguments."""

import os
import re
import shlex
from collections.abc import Iterable, Sequence

import msgspec

from ragmem.records import AccessType
from ragmem.store.transfer.foreign.fields import Fields, fields, items, text

_PATHS: dict[str, tuple[AccessType, tuple[str, ...]]] = {
    "Read": ("read", ("file_path",)),
    "NotebookRead": ("read", ("notebook_path",)),
    "Edit": ("write", ("file_path",)),
    "MultiEdit": ("write", ("file_path",)),
    "Write": ("write", ("file_path",)),
    "NotebookEdit": ("write", ("notebook_path",)),
    "LS": ("list", ("path",)),
    "Glob": ("list", ("path",)),
    "Grep": ("search", ("path",)),
    "read_file": ("read", ("file_path", "path")),
    "view_image": ("read", ("path",)),
    "write_file": ("write", ("file_path", "path")),
    "edit_file": ("write", ("file_path", "path")),
    "list_dir": ("list", ("dir_path", "path")),
    "grep_files": ("search", ("path",)),
}
_SHELLS = ("Bash", "shell", "local_shell", "shell_command", "exec_command", "container.exec")
_READERS = {"cat", "head", "tail", "nl", "less", "bat", "sed"}
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)
_STEERING = re.compile(r"[|;&<>$`*?(){}\n\\~!\[\]]")
_MOST = 200
"""Files of one call that are noted."""
_LONGEST_PATH = 4096


class Touched(msgspec.Struct, frozen=True):
    """A file, as the tool was given it, and what was done with it."""

    path: str
    access: AccessType


def touched(name: str, arguments: Fields, cwd: str) -> list[Touched]:
    """What the arguments name; relative paths are those of `cwd`, or of the call's own folder."""
    folder = text(arguments, "workdir") or text(arguments, "cwd") or cwd
    found: list[Touched] = []
    if name in _PATHS:
        access, names = _PATHS[name]
        path = next(filter(None, (text(arguments, each) for each in names)), "")
        found = [Touched(path, access)]
    elif name in _SHELLS:
        script = script_of(arguments)
        found = _patched(script) or [Touched(path, "read") for path in _read(script)]
    elif name == "apply_patch":
        found = _patched(text(arguments, "input") or text(arguments, "patch"))
    return listed(found, folder)


def listed(found: Iterable[Touched], folder: str) -> list[Touched]:
    """Each once, from the folder that it is relative to."""
    whole = (
        Touched(os.path.join(folder, each.path), each.access)
        for each in found
        if each.path.strip() and len(each.path) <= _LONGEST_PATH
    )
    return list(dict.fromkeys(whole))[:_MOST]


def found_by(name: str, answer: Fields) -> list[Touched]:
    """The files that a search of Claude Code has found, as its structured answer lists them."""
    if name not in ("Grep", "Glob"):
        return []
    access: AccessType = "search" if name == "Grep" else "list"
    names = items(fields(answer), "filenames")
    return [Touched(each, access) for each in names if isinstance(each, str)]


def script_of(arguments: Fields) -> str:
    """What a shell was told to run."""
    for name in ("command", "cmd", "script"):
        words = [word for word in items(arguments, name) if isinstance(word, str)]
        if len(words) == 3 and words[1] in ("-c", "-lc"):
            return words[2]
        if words:
            return words[1] if words[0] == "apply_patch" and len(words) == 2 else shlex.join(words)
        if script := text(arguments, name):
            return script
    return ""


def _patched(patch: str) -> list[Touched]:
    if "*** Begin Patch" not in patch:
        return []
    return [Touched(path, "write") for path in _PATCHED.findall(patch)]


def _read(script: str) -> Sequence[str]:
    """Files that a plain command reads; of all that is more than plain, nothing is known."""
    if len(script) > _LONGEST_PATH or _STEERING.search(script.strip()):
        return ()
    try:
        words = shlex.split(script)
    except ValueError:
        return ()
    if len(words) < 2 or words[0] not in _READERS:
        return ()
    program, rest = words[0], [word for word in words[1:] if not word.startswith("-")]
    if program == "sed":
        return rest[1:] if "-n" in words and "-i" not in words else ()
    # The number of `head -n 20 FILE` is no file.
    return [word for word in rest if not re.fullmatch(r"\+?[0-9]+[a-zA-Z]?", word)]
