"""Print how large the product is and how its parts hang together, each figure with its aim.

Most figures are read from the source. Two are taken from a real `ragmem ask` against a scripted
server: the modules that it imports, and the files that a prompt with one tool call enters.
`--list FIGURE` prints what a figure counts.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from benches.places import clean_environment, staying

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ROOT / "ragmem"
_OUTSIDE_MEMORY = ("store", "memory", "importers", "app", "administration", "deletion")
"""Packages and modules that may import a store."""
_PATCHED = ("typer._", "setattr(typer", "sys.modules[")
# Also matches the codes of ruff's rules, which `_NOT_A_CODE` removes.
_CODE = re.compile(
    r"\b(?:[ABCDE]\d{1,3}|P1?\d|X\d{1,2}[a-z]?)\b|\b[Rr]eliability,?(?: \d|$)|\b[Ii]ssue \d"
)
_DOCUMENT = re.compile(r"\b(?:cli|design|house|reliability|requirements|terminal)\.md\b")
_NOT_A_CODE = re.compile(r"noqa: ?[A-Z]+\d+(?:, ?[A-Z]+\d+)*|(?:%[0-9A-F]{2})+")

Figure = tuple[str, int | None, Callable[[], list[str]]]
"""A figure's name, its maximum (None for no limit), and a function that lists what it counts."""


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _files(folder: str = "ragmem") -> tuple[Path, ...]:
    return tuple(sorted((ROOT / folder).rglob("*.py")))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines(folder: str) -> list[str]:
    """Return all lines of Python in a folder."""
    return [line for path in _files(folder) for line in path.read_text("utf-8").splitlines()]


@cache
def _imports() -> tuple[tuple[str, str], ...]:
    """Return pairs (importer, imported) of the product's modules, including deferred imports."""
    known = {_module(path) for path in _files()}
    pairs = set()
    for path in _files():
        for node in ast.walk(_tree(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                target = name if name in known else name.rpartition(".")[0]
                if target in known and target != _module(path):
                    pairs.add((_module(path), target))
    return tuple(sorted(pairs))


def one_importer() -> list[str]:
    """Return modules with a single importer: candidates to be merged into that."""
    counts = Counter(target for _, target in _imports())
    return [name for name, count in sorted(counts.items()) if count == 1]


def past_memory() -> list[str]:
    """Return imports of a store by modules outside of memory."""
    return [
        f"{source} > {target}"
        for source, target in _imports()
        if target.startswith("ragmem.store") and source.split(".")[1] not in _OUTSIDE_MEMORY
    ]


def naming_insights() -> list[str]:
    """Return the product's files (Python, Cypher, SQL) that contain the word "insight"."""
    word = re.compile(r"insight", re.IGNORECASE)
    return [
        _short(path)
        for path in sorted(PRODUCT.rglob("*"))
        if path.suffix in {".py", ".sql", ".cypher"} and word.search(path.read_text("utf-8"))
    ]


def matches_over_writes() -> list[str]:
    """Return `match` statements with cases for two or more kinds of writes."""
    writes = {
        node.name
        for node in ast.walk(_tree(PRODUCT / "records" / "writes.py"))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    found = []
    for path in _files():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Match):
                named = {
                    part.cls.id
                    for part in ast.walk(node)
                    if isinstance(part, ast.MatchClass) and isinstance(part.cls, ast.Name)
                }
                if len(named & writes) > 1:
                    found.append(f"{_short(path)}:{node.lineno}")
    return found


def hooks() -> list[str]:
    """Return assignments to public attributes of an object from outside its class's module."""
    found = []
    for path in _files():
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Assign):
                continue
            for target in (each for each in node.targets if isinstance(each, ast.Attribute)):
                owner, homes = ast.unparse(target.value), _constructed().get(target.attr, set())
                if owner != "self" and homes and path not in homes:
                    found.append(f"{_short(path)}:{node.lineno} {owner}.{target.attr}")
    return found


@cache
def _constructed() -> dict[str, set[Path]]:
    """Map each public attribute set in an `__init__` to the files of its classes.

    Fields of structs are left out, since they are meant to be assigned.
    """
    homes, fields = defaultdict(set), set[str]()
    for path in _files():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                fields |= {ast.unparse(f.target) for f in node.body if isinstance(f, ast.AnnAssign)}
            if not (isinstance(node, ast.FunctionDef) and node.name == "__init__"):
                continue
            for part in ast.walk(node):
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.ctx, ast.Store)
                    and ast.unparse(part.value) == "self"
                    and not part.attr.startswith("_")
                ):
                    homes[part.attr].add(path)
    return {name: at for name, at in homes.items() if name not in fields}


def codes() -> list[str]:
    """Return lines with a requirement's code, or with the name of a document not in this repo."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = []
    for name in names:
        path = ROOT / name
        if path.suffix not in {".py", ".md", ".sql", ".cypher", ".scm", ".toml", ""}:
            continue
        if name == _short(Path(__file__)) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
            text = _NOT_A_CODE.sub("", line)
            if _DOCUMENT.search(text) or (path.suffix in (".py", "") and _CODE.search(text)):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def classes_twice() -> list[str]:
    """Return public class names that are defined more than once, with their modules."""
    places = defaultdict(list)
    for path in _files():
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_module(path))
    return [f"{name}: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def reaching_into_libraries() -> list[str]:
    """Return lines that replace or import private parts of a library."""
    return [
        f"{_short(path)}:{number}: {line.strip()}"
        for path in _files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if any(part in line for part in _PATCHED) and "TYPE_CHECKING" not in line
    ]


_TRACER = """
import json, os, sys, threading
entered, changes, last = set(), 0, None
top = os.environ["HOUSE_TOP"]
def importing(frame):
    while frame:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(top):
            return True
        frame = frame.f_back
    return False
def trace(frame, event, arg):
    global changes, last
    name = frame.f_code.co_filename
    if name.startswith(top) and frame.f_code.co_name != "<module>" and not importing(frame):
        entered.add(name)
        if name != last:
            changes += 1
            last = name
sys.argv = ["ragmem", *sys.argv[2:]]
if os.environ["HOUSE_TRACE"]:
    threading.setprofile(trace)
    sys.setprofile(trace)
from ragmem.__main__ import run
try:
    run()
finally:
    sys.setprofile(None)
    out = {"entered": sorted(entered), "changes": changes, "modules": sorted(sys.modules)}
    with open(os.environ["HOUSE_OUT"], "w") as file:
        json.dump(out, file)
"""


_TRIES = 5
_READING = "And what does greet.py hold?"


@cache
def _asked(trace: bool) -> dict[str, list[str]]:
    """Return the files entered and modules imported by an `ask`; with `trace` it calls read_file.

    The store is warm and the background process is running, as after a user's first question.
    """
    for _ in range(_TRIES):
        found = _second_question(trace)
        # On a busy machine the background process may answer too late; then `ask` searches itself.
        if "numpy" not in found["modules"]:
            break
    return found


def _second_question(trace: bool) -> dict[str, list[str]]:
    """Return that of the second question in a fresh home: a used one would have more memory."""
    sys.path.insert(0, str(ROOT))
    from tests.fakes.llm_server import Answer, Call, LLMServer, Received

    def answered(request: Received) -> Answer:
        # Decided by the prompt, since the background process sends requests, too.
        asked = request.body["messages"][-1]
        if trace and asked["role"] == "user" and _READING in str(asked["content"]):
            return Answer(tools=[Call("read_file", {"path": "greet.py"})])
        return Answer("It says hello.")

    with tempfile.TemporaryDirectory() as folder:
        home, project, out = Path(folder, "home"), Path(folder, "project"), Path(folder, "out")
        project.mkdir()
        (project / "greet.py").write_text("def greet():\n    return 'hello'\n")
        with LLMServer([answered], repeat=True) as server:
            environment = clean_environment(home, **server.env) | {
                "RAGMEM_MEMORY__EMBEDDINGS__IDLE_S": "600",
                "HOUSE_TOP": str(PRODUCT),
                "HOUSE_OUT": str(out),
                "HOUSE_TRACE": "1" if trace else "",
            }

            def ask(prompt: str) -> None:
                subprocess.run(
                    [sys.executable, "-P", "-c", _TRACER, "-", "ask", prompt],
                    cwd=project,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=True,
                )

            ask("What does greet say?")
            with staying(Path(folder), environment):
                ask(_READING)
        found: dict[str, list[str]] = json.loads(out.read_text())
        return found


def entered() -> list[str]:
    """Return the files that an `ask` with one read_file call enters on a warm store."""
    return [os.path.relpath(name, ROOT) for name in _asked(True)["entered"]]


def imported(prefix: str = "") -> list[str]:
    """Return the modules that are imported at the end of an `ask`."""
    return [name for name in _asked(False)["modules"] if name.startswith(prefix)]


FIGURES: tuple[Figure, ...] = (
    ("lines in ragmem/", 40_000, lambda: lines("ragmem")),
    ("files in ragmem/", 200, lambda: [_short(path) for path in _files()]),
    ("modules with one importer", 40, one_importer),
    ("files that name an insight", 8, naming_insights),
    ("files entered by ask", 60, entered),
    ("matches over writes", 3, matches_over_writes),
    ("modules of ours in ask", 110, lambda: imported("ragmem")),
    ("modules in ask", 420, imported),
    ("hooks", 0, hooks),
    ("imports of a store past memory", 0, past_memory),
    ("requirement codes", 0, codes),
    ("class names used twice", 0, classes_twice),
    ("lines in tests/", 45_000, lambda: lines("tests")),
    ("reaching into libraries", 0, reaching_into_libraries),
)


def _table(figures: tuple[Figure, ...]) -> Iterator[str]:
    for name, most, counted in figures:
        found = len(counted())
        verdict = "" if most is None else f"{'ok' if found <= most else 'over':<5}at most {most:,}"
        yield f"{name:<32}{found:>8,}  {verdict}"


def main() -> int:
    """Print all figures, or list what one of them counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="FIGURE", choices=[name for name, _, _ in FIGURES])
    wanted = parser.parse_args().list
    if wanted:
        counted = next(counted for name, _, counted in FIGURES if name == wanted)
        print("\n".join(counted()))
    else:
        for line in _table(FIGURES):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
