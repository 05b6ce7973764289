"""The code that is searched: got from the package indexes, copied, and asked about.

A large Python project and a large Go one, as source archives through pip and go, kept in a folder
for temporary files; and this repository, on which weights were chosen.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from benches.code_questions import (
    Placed,
    Question,
    entries_of,
    of_docstrings,
    of_release_notes,
    without_docstrings,
)
from benches.places import ROOT
from benches.results import CannotMeasure
from ragmem.codeindex.cutting import cut
from ragmem.codeindex.values import CutScope

CACHE = Path(tempfile.gettempdir()) / "ragmem-bench-code"
OF_DOCSTRINGS, OF_NOTES = 300, 200
_MOST_BYTES = 1_000_000


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A code base."""

    name: str
    language: str
    get: Callable[[], Path]
    """Its folder, got if need be."""
    suffix: str
    """Of the files that questions are made from."""
    notes: Sequence[str]
    """Patterns of its release notes: questions are made of them, and the copy lacks them."""
    left_out: Sequence[str] = ()
    """Patterns of what is not copied besides."""
    tuned: bool = False
    """Weights were chosen on half of its questions."""


def django() -> Path:
    """The source distribution of Django."""
    found = next(CACHE.glob("[dD]jango-*.tar.gz"), None)
    if found is None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        source = ["--no-binary", ":all:", "--no-deps", "--dest", str(CACHE)]
        _run([*pip, *source, "Django==5.2.7"])
        found = next(CACHE.glob("[dD]jango-*.tar.gz"))
    folder = CACHE / found.name.removesuffix(".tar.gz")
    if not folder.exists():
        with tarfile.open(found) as archive:
            archive.extractall(CACHE, filter="data")
    return folder


def cosmos() -> Path:
    """The module of cosmos-sdk."""
    place = CACHE / "module"
    place.mkdir(exist_ok=True)
    got = _run(
        ["go", "mod", "download", "-json", "github.com/cosmos/cosmos-sdk@v0.50.9"],
        cwd=place,
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOMODCACHE": str(CACHE / "gomod")},
    )
    return Path(json.loads(got)["Dir"])


BASES = {
    each.name: each
    for each in (
        Base(
            name="ragmem",
            language="Python",
            get=lambda: ROOT,
            suffix=".py",
            notes=["CHANGELOG.md"],
            left_out=[".*", "docs/measured/*"],
            tuned=True,
        ),
        Base(
            name="Django 5.2.7",
            language="Python",
            get=django,
            suffix=".py",
            notes=["docs/releases/*.txt"],
            left_out=["*/locale/*", "tests/*", "js_tests/*"],
            tuned=True,
        ),
        Base(
            name="cosmos-sdk 0.50.9",
            language="Go",
            get=cosmos,
            suffix=".go",
            notes=["CHANGELOG.md", "RELEASE_NOTES.md", "UPGRADING.md"],
        ),
    )
}


def _run(command: Sequence[str], **more: object) -> str:
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    except FileNotFoundError:
        raise CannotMeasure(f"{command[0]} is not there") from None
    except subprocess.CalledProcessError as error:
        raise CannotMeasure(f"{' '.join(command)}: {error.stderr.strip()[-300:]}") from None
    return str(done.stdout)


class Copied(msgspec.Struct, frozen=True):
    """A copy to be searched, and what is asked of it."""

    questions: list[Question]
    files: int
    size_bytes: int


def copied(base: Base, folder: Path) -> Copied:
    """Questions about a code base, and a copy of it without what half of them were made from."""
    source = base.get()
    files = _listed(source, base)
    placed = [
        Placed(path, scope)
        for path in files
        if path.endswith(base.suffix)
        for scope in _scopes(path, (source / path).read_bytes())
    ]
    questions = of_docstrings(placed, OF_DOCSTRINGS, base.name)
    notes = sorted(note for pattern in base.notes for note in source.glob(pattern))
    entries = [entry for note in notes for entry in entries_of(note.read_text("utf-8"))]
    questions += of_release_notes(entries, placed, OF_NOTES, base.name)
    taken = defaultdict(list)
    wanted = {(q.path, q.qualified_name) for q in questions if q.origin == "docstring taken out"}
    for each in placed:
        if (each.path, each.scope.qualified_name) in wanted:
            taken[each.path].append(each.scope)
    size = 0
    for path in files:
        data = (source / path).read_bytes()
        if path in taken:
            data = without_docstrings(data.decode("utf-8", "replace"), taken[path]).encode()
        size += len(data)
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return Copied(questions, len(files), size)


def _scopes(path: str, data: bytes) -> tuple[CutScope, ...]:
    found = cut(path, data) if len(data) <= _MOST_BYTES else None
    return found.scopes if found and not found.generated else ()


def _listed(source: Path, base: Base) -> list[str]:
    """Files of a base that are copied, relative to its folder."""
    out = [*base.notes, *base.left_out]
    if (source / ".git").exists():
        listed = _run(["git", "-C", str(source), "ls-files", "-z"]).split("\0")
        found = [path for path in listed if path and (source / path).is_file()]
    else:
        every = (each for each in source.rglob("*") if each.is_file() and not each.is_symlink())
        found = [str(each.relative_to(source)) for each in every]
    return sorted(path for path in found if not any(fnmatch(path, p) for p in out))


def cleared(folder: Path) -> None:
    """The copy is taken away."""
    shutil.rmtree(folder, ignore_errors=True)
