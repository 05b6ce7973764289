"""The code bases to search: downloaded, copied, and with questions about them.

A large Python project and a large Go one, as source archives fetched with pip and go and cached in
a temporary folder; this repository, on which weights were fitted; and 5,000 files, for which there
is a target for indexing.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
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
from ragmem.index import CutScope
from ragmem.index.cut import cut

CACHE = Path(tempfile.gettempdir()) / "ragmem-bench-code"
OF_DOCSTRINGS, OF_NOTES = 300, 200
LARGE_FILES = 5_020
"""More than 5,000, since the index leaves out generated files and those that are too large."""
_MOST_BYTES = 1_000_000


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A code base."""

    name: str
    language: str
    get: Callable[[], Path]
    """Returns its folder, after downloading it if necessary."""
    suffix: str
    """The suffix of the files that questions are made from."""
    notes: Sequence[str]
    """Patterns of its release notes, which yield questions and are left out of the copy."""
    left_out: Sequence[str] = ()
    """Patterns of other files that are not copied."""
    asked: bool = True
    """Whether questions are made from it; otherwise, only speed is measured."""


class Release(msgspec.Struct, frozen=True):
    """A source archive of the package index, pinned by its hash."""

    name: str
    version: str
    sha256: str


DJANGO = Release(
    "django", "5.2.7", "e0f6f12e2551b1716a95a63a1366ca91bbcd7be059862c1b18f989b1da356cdd"
)
SYMPY = Release(
    "sympy", "1.13.3", "b27fd2c6530e0ab39e275fc9b683895367e51d5da91baa8d3d64db2565fec4d9"
)
TWISTED = Release(
    "twisted", "24.11.0", "695d0556d5ec579dcc464d2856b634880ed1319f45b10d19043f2b57eb0115b5"
)


def released(release: Release) -> Path:
    """Return the folder of an archive, after downloading it if necessary."""
    folder = CACHE / f"{release.name}-{release.version}"
    if folder.exists():
        return folder
    archive = folder.with_name(f"{folder.name}.tar.gz")
    if not archive.exists():
        _download(release)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != release.sha256:
        raise CannotMeasure(f"{archive} is not what was released: its SHA-256 is {found}")
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        with tarfile.open(archive) as opened:
            # Not passed as an argument, which Python 3.11.0 to 3.11.3 don't have.
            opened.extraction_filter = getattr(tarfile, "data_filter", None)
            opened.extractall(made)
        (Path(made) / folder.name).rename(folder)
    return folder


def _download(release: Release) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted = CACHE / f"{release.name}.txt"
    wanted.write_text(f"{release.name}=={release.version} --hash=sha256:{release.sha256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    # Only this package as source: pip builds its metadata with tools installed from wheels.
    binary = ["--no-binary", release.name, "--no-deps", "--require-hashes"]
    source = [*binary, "--dest", str(CACHE)]
    _run([*pip, *source, "--requirement", str(wanted)])


def large() -> Path:
    """Return a folder with `LARGE_FILES` Python files, from projects that release their tests."""
    return gathered((DJANGO, SYMPY, TWISTED), LARGE_FILES)


def gathered(releases: Sequence[Release], count: int) -> Path:
    """Return a folder with the first `count` Python files of these, by project."""
    folder = CACHE / f"python-{count}"
    if folder.exists():
        return folder
    taken = 0
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        target = Path(made) / folder.name
        for release in releases:
            source = released(release)
            files = sorted(file for file in source.rglob("*.py") if file.is_file())
            for file in files[: count - taken]:
                copy = target / release.name / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
                taken += 1
        if taken < count:
            raise CannotMeasure(f"there are {taken:,} files, not {count:,}")
        target.rename(folder)
    return folder


def here() -> Path:
    """Return this repository."""
    return ROOT


def django() -> Path:
    """Return the source distribution of Django."""
    return released(DJANGO)


def cosmos() -> Path:
    """Return the Go module cosmos-sdk."""
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
            get=here,
            suffix=".py",
            notes=["CHANGELOG.md"],
            left_out=[".*", "docs/measured/*"],
        ),
        Base(
            name="Django 5.2.7",
            language="Python",
            get=django,
            suffix=".py",
            notes=["docs/releases/*.txt"],
            left_out=["*/locale/*", "tests/*", "js_tests/*"],
        ),
        Base(
            name="cosmos-sdk 0.50.9",
            language="Go",
            get=cosmos,
            suffix=".go",
            notes=["CHANGELOG.md", "RELEASE_NOTES.md", "UPGRADING.md"],
        ),
        Base(
            name="large: Django, SymPy, Twisted",
            language="Python",
            get=large,
            suffix=".py",
            notes=[],
            asked=False,
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
    """A copy of a code base, and questions about it."""

    questions: list[Question]
    files: int
    size_bytes: int


def copied(base: Base, folder: Path) -> Copied:
    """Return questions about a code base, and a copy without the texts half of them come from."""
    source = base.get()
    files = _listed(source, base)
    code = [path for path in files if path.endswith(base.suffix)] if base.asked else []
    placed = placed_in(source, code)
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


def placed_in(folder: Path, paths: Iterable[str]) -> list[Placed]:
    """Return the scopes of these files."""
    return [
        Placed(path, scope)
        for path in paths
        for scope in _scopes(path, (folder / path).read_bytes())
    ]


def _scopes(path: str, data: bytes) -> tuple[CutScope, ...]:
    found = cut(path, data) if len(data) <= _MOST_BYTES else None
    return found.scopes if found and not found.generated else ()


def _listed(source: Path, base: Base) -> list[str]:
    """Return the files of a base to copy, relative to its folder."""
    out = [*base.notes, *base.left_out]
    if (source / ".git").exists():
        listed = _run(["git", "-C", str(source), "ls-files", "-z"]).split("\0")
        found = [path for path in listed if path and (source / path).is_file()]
    else:
        every = (each for each in source.rglob("*") if each.is_file() and not each.is_symlink())
        found = [str(each.relative_to(source)) for each in every]
    return sorted(path for path in found if not any(fnmatch(path, p) for p in out))


def cleared(folder: Path) -> None:
    """Remove the copy."""
    shutil.rmtree(folder, ignore_errors=True)
