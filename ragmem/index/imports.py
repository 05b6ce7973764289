"""What a file imports, as paths of the project's files: where the language makes it plain.

What is not found in the project (a library, a generated module) gives nothing.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

_MOST_OF_A_FOLDER = 20
"""The most files that the import of a whole package or folder stands for."""
_SOURCE_FOLDERS = ("", "src/", "lib/", "python/", "app/")
_SCRIPT_SUFFIXES = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".vue",
                    ".svelte")  # fmt: skip
_WRITTEN_AS = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_GO_MODULE = re.compile(r"^\s*module\s+\"?([^\s\"]+)", re.MULTILINE)

Read = Callable[[str], str]
"""Reads a file of the project as text; empty where that fails."""


class Resolver:
    """The project's paths, so arranged that imports are found among them."""

    def __init__(self, paths: Iterable[str], read: Read) -> None:
        self._paths = frozenset(paths)
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        self._by_end: defaultdict[str, list[str]] = defaultdict(list)
        """By the name with that of its folder."""
        self._folders: defaultdict[str, list[str]] = defaultdict(list)
        for path in sorted(self._paths):
            folder, name = posixpath.split(path)
            self._by_name[name].append(path)
            self._by_end[f"{posixpath.basename(folder)}/{name}"].append(path)
            self._folders[folder].append(path)
        self._read = read
        self._modules: list[tuple[str, str]] | None = None

    def resolve(self, path: str, language: str, imports: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of what a file imports, each once, without itself; sorted."""
        ways: dict[str, Callable[[str, str], Iterable[str]]] = {
            "python": self._python,
            "javascript": self._script,
            "typescript": self._script,
            "tsx": self._script,
            "go": self._go,
            "rust": self._rust,
            "java": self._java,
            "c": self._included,
            "cpp": self._included,
            "php": self._beside,
            "ruby": self._beside,
        }
        way = ways.get(language)
        if way is None:
            return ()
        found = {each for written in imports for each in way(path, written)}
        return tuple(sorted(found - {path}))

    def _first(self, candidates: Iterable[str]) -> Iterator[str]:
        found = next((each for each in candidates if each in self._paths), None)
        if found is not None:
            yield found

    # --- Python -----------------------------------------------------------------------

    def _python(self, path: str, written: str) -> Iterator[str]:
        dots = len(written) - len(written.lstrip("."))
        parts = [part for part in written.lstrip(".").split(".") if part]
        if dots:
            folder = posixpath.dirname(path).split("/") if "/" in path else []
            if dots - 1 > len(folder):
                return
            base = folder[: len(folder) - (dots - 1)]
            yield from self._first(_python_files([*base, *parts], whole=not parts))
            return
        if not parts:
            return
        here = posixpath.dirname(path)
        # Beside it where that is no package: a script, or a test of one.
        beside = here and f"{here}/__init__.py" not in self._paths
        for root in (*_SOURCE_FOLDERS, *([f"{here}/"] if beside else [])):
            for name in _python_files(parts, whole=False):
                if root + name in self._paths:
                    yield root + name
                    return
        if len(parts) > 1:
            yield from self._below(path, _python_files(parts, whole=False))

    def _below(self, path: str, tails: Iterable[str]) -> Iterator[str]:
        """A file that ends so, with a folder at least: the nearest to the one that imports it."""
        for tail in tails:
            if "/" not in tail:
                continue
            found = self._ending(tail)
            if found:
                yield min(found, key=lambda each: _distance(path, each))
                return

    def _ending(self, tail: str) -> list[str]:
        end = "/".join(tail.split("/")[-2:])
        near = self._by_end.get(end) if "/" in tail else self._by_name.get(end)
        return [each for each in near or () if each == tail or each.endswith(f"/{tail}")]

    # --- JavaScript, TypeScript ---------------------------------------------------------

    def _script(self, path: str, written: str) -> Iterator[str]:
        if written.startswith("."):
            base = _joined(path, written)
        elif written.startswith(("@/", "~/")):
            base = f"src/{written[2:]}"
        else:
            return
        if base is not None:
            yield from self._first(_script_files(base))

    # --- Go -------------------------------------------------------------------------------

    def _go(self, path: str, written: str) -> Iterator[str]:
        for module, folder in self._go_modules():
            if written == module or written.startswith(f"{module}/"):
                rest = written[len(module) :].strip("/")
                below = posixpath.join(folder, rest).rstrip("/")
                files = [
                    each
                    for each in self._folders.get(below, ())
                    if each.endswith(".go") and not each.endswith("_test.go")
                ]
                yield from files[:_MOST_OF_A_FOLDER]
                return

    def _go_modules(self) -> list[tuple[str, str]]:
        """Names of modules with their folders, the longest first."""
        if self._modules is None:
            found = [
                (match[1], posixpath.dirname(path))
                for path in self._by_name.get("go.mod", ())
                if (match := _GO_MODULE.search(self._read(path)))
            ]
            self._modules = sorted(found, key=lambda each: (-len(each[0]), each))
        return self._modules

    # --- Rust -------------------------------------------------------------------------------

    def _rust(self, path: str, written: str) -> Iterator[str]:
        first, *parts = [part for part in written.split("::") if part] or [""]
        if first == "crate":
            bases = [self._crate_source(path)]
        elif first in ("self", "super"):
            module = _rust_module(path)
            if first == "super":
                module = posixpath.dirname(module)
            while parts and parts[0] == "super":
                module, parts = posixpath.dirname(module), parts[1:]
            bases = [module]
        else:
            return
        for base in bases:
            for end in range(len(parts), 0, -1):
                stem = posixpath.join(base, *parts[:end])
                for found in self._first((f"{stem}.rs", f"{stem}/mod.rs")):
                    yield found
                    return

    def _crate_source(self, path: str) -> str:
        folder = posixpath.dirname(path)
        while folder and posixpath.join(folder, "Cargo.toml") not in self._paths:
            folder = posixpath.dirname(folder)
        return posixpath.join(folder, "src") if folder else "src"

    # --- Java -------------------------------------------------------------------------------

    def _java(self, path: str, written: str) -> Iterator[str]:
        parts = written.split(".")
        if parts[-1] == "*":
            tail = "/".join(parts[:-1])
            folder = next((f for f in self._folders if f == tail or f.endswith(f"/{tail}")), None)
            if folder is not None and len(parts) > 2:
                files = [each for each in self._folders[folder] if each.endswith(".java")]
                yield from files[:_MOST_OF_A_FOLDER]
            return
        # A nested class or a static member is in the file of what it is in.
        ends = range(len(parts), max(1, len(parts) - 2), -1)
        yield from self._below(path, (f"{'/'.join(parts[:end])}.java" for end in ends))

    # --- others ----------------------------------------------------------------------------

    def _included(self, path: str, written: str) -> Iterator[str]:
        near = _joined(path, written)
        if near in self._paths:
            yield str(near)
            return
        tail = written.removeprefix("./")
        found = self._ending(tail)
        if found:
            yield min(found, key=lambda each: _distance(path, each))

    def _beside(self, path: str, written: str) -> Iterator[str]:
        base = _joined(path, written)
        if base is not None:
            yield from self._first((base, f"{base}.rb", f"{base}.php"))


def _python_files(parts: Sequence[str], *, whole: bool) -> Iterator[str]:
    """Where a module may be; of `a.b.c` the last may be a name in `a.b`, unless that is whole."""
    ends = [len(parts)] if whole or len(parts) < 2 else [len(parts), len(parts) - 1]
    for end in ends:
        stem = "/".join(parts[:end])
        if stem:
            yield f"{stem}.py"
            yield f"{stem}/__init__.py"
            yield f"{stem}.pyi"
        else:
            yield "__init__.py"


def _script_files(base: str) -> Iterator[str]:
    stem, suffix = posixpath.splitext(base)
    yield base
    for other in _WRITTEN_AS.get(suffix, ()):
        yield stem + other
    for suffix in _SCRIPT_SUFFIXES:
        yield base + suffix
    for suffix in _SCRIPT_SUFFIXES:
        yield posixpath.join(base, f"index{suffix}")


def _rust_module(path: str) -> str:
    """The folder of a module's own modules."""
    stem = path.removesuffix(".rs")
    folder, name = posixpath.split(stem)
    return folder if name in ("mod", "lib", "main") else stem


def _joined(path: str, written: str) -> str | None:
    """Relative to a file's folder; None where it leads out of the project."""
    base = posixpath.normpath(posixpath.join(posixpath.dirname(path), written))
    return None if base.startswith(("..", "/")) else "" if base == "." else base


def _distance(path: str, other: str) -> tuple[int, int, str]:
    """How far apart two files are in the tree."""
    one, two = path.split("/"), other.split("/")
    common = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        common += 1
    return len(one) + len(two) - 2 * common, len(two), other


def stems_of(paths: Iterable[str]) -> set[str]:
    """Return words of which an import has at least one if it means one of these files."""
    found = set()
    for path in paths:
        folder, name = posixpath.split(path)
        stem = name.split(".")[0]
        found.add(stem)
        found.add(posixpath.basename(folder))
    return {each for each in found if each}
