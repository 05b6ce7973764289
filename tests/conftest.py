"""What holds for every test: a bare environment, what `--all` adds, a worker for Neo4j."""

import os
import shutil
import signal
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.forks import keep_processes_apart
from tests.fakes.neo4j import neo4j_server
from tests.fakes.patience import be_patient

__all__ = ["neo4j_server"]

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "random", max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Some, the same ones each time; more and other ones are looked for under --all.
settings.register_profile(
    "tests", settings.get_profile("random"), max_examples=25, derandomize=True
)
# Ten times as many lives of twice the length: pytest --hypothesis-profile=thorough.
settings.register_profile("thorough", settings.get_profile("random"))
settings.load_profile("tests")

_PREFIXES = ("RAGMEM_", "NEO4J_", "OPENAI_", "ANTHROPIC_", "LITELLM_", "OLLAMA_")
_SUFFIXES = ("_API_KEY", "_PROXY", "_proxy")
_TASTES = (
    "TERM", "TZ", "LC_ALL", "LANGUAGE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR",
    "PAGER", "MANPAGER", "VISUAL", "EDITOR",
)  # fmt: skip
"""How words look to the person, and by what programs."""
_MEMORY = "/dev/shm"
_ROOM = 4 * 1024**3
_KEPT = ("RAGMEM_TEST_NEO4J_URI", "RAGMEM_TEST_NEO4J_PASSWORD")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Before what takes long is left out, someone can ask for it."""
    parser.addoption(
        "--all",
        action="store_true",
        help="random campaigns too, what sees only the store's protocol on every store, and each"
        " command as a process of its own",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settings, keys, proxies and tastes of whoever runs the tests reach none of them."""
    if config.getoption("--all"):
        settings.load_profile("random")
        keep_processes_apart()
    for name in list(os.environ):
        is_theirs = name.startswith(_PREFIXES) or name.endswith(_SUFFIXES) or name in _TASTES
        if is_theirs and name not in _KEPT:
            del os.environ[name]
    # The processes that tests start have the machine's time zone.
    time.tzset()
    # Under nohup, or started by a script with `&`, the processes of the tests would inherit that
    # hanging up, or Ctrl-C, is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    be_patient()
    # A test that forgets to say where its home is can't touch the person's own.
    os.environ["RAGMEM_HOME"] = "/dev/null/no-home-was-given"
    # Stores of tests lie in memory where it has room: on a disk they wait for it most of the time.
    with suppress(OSError):
        if shutil.disk_usage(_MEMORY).free > _ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns are left out without `--all`; what runs is shared out."""
    if not config.getoption("--all"):
        campaigns = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    items.sort(key=_changes_a_schema)
    _share_out(items)


def _share_out(items: list[pytest.Item]) -> None:
    """Tests that empty a Neo4j database run after each other, in the worker whose server it is.

    To start a server and to plan its statements takes longer than most of the tests: one serves
    all. When its schema changes it plans all of them anew, for 15 seconds of the processor: tests
    that change it come last. Tests that run servers of their own share a worker too, and so do
    those that import litellm, which takes seconds.
    """
    for item in items:
        if _uses_neo4j(item):
            item.add_marker(pytest.mark.xdist_group("neo4j"))
        elif item.path.name == "test_neo4j_server.py":
            item.add_marker(pytest.mark.xdist_group("neo4j_server"))
        elif "litellm" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("litellm"))


def _uses_neo4j(item: pytest.Item) -> bool:
    # The fixture is asked for by name, or, where a store is a parameter, while the test runs.
    return "neo4j_server" in getattr(item, "fixturenames", ()) or _has_neo4j_parameter(item)


def _changes_a_schema(item: pytest.Item) -> bool:
    return _uses_neo4j(item) and item.get_closest_marker("changes_schema") is not None


def _has_neo4j_parameter(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and any("neo4j" in str(value) for value in call.params.values())
