"""What holds for every test: a bare environment, and a worker for each Neo4j."""

import os
import signal

import pytest
from hypothesis import settings

from tests.fakes.neo4j import neo4j_server

__all__ = ["neo4j_server"]

# Ten times as many lives of twice the length: pytest --hypothesis-profile=thorough.
settings.register_profile("thorough")

_PREFIXES = ("RAGMEM_", "NEO4J_", "OPENAI_", "ANTHROPIC_", "LITELLM_", "OLLAMA_")
_SUFFIXES = ("_API_KEY", "_PROXY", "_proxy")
_KEPT = ("RAGMEM_TEST_NEO4J_URI", "RAGMEM_TEST_NEO4J_PASSWORD")


def pytest_configure() -> None:
    """Settings, keys and proxies of whoever runs the tests reach none of them."""
    for name in list(os.environ):
        if name not in _KEPT and (name.startswith(_PREFIXES) or name.endswith(_SUFFIXES)):
            del os.environ[name]
    # Under nohup, or started by a script with `&`, the processes of the tests would inherit that
    # hanging up, or Ctrl-C, is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A test that forgets to say where its home is can't touch the person's own.
    os.environ["RAGMEM_HOME"] = "/dev/null/no-home-was-given"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that empty a Neo4j database run after each other, in the worker whose server it is.

    Those of a file stay together, so that all workers share them, each with a server; with one
    that was given (RAGMEM_TEST_NEO4J_URI) all do. Tests that run servers of their own share
    a worker too: each takes half a gigabyte.
    """
    given = "RAGMEM_TEST_NEO4J_URI" in os.environ
    for item in items:
        if _uses_neo4j(item):
            group = "neo4j" if given else f"neo4j {item.path.relative_to(item.config.rootpath)}"
            item.add_marker(pytest.mark.xdist_group(group))
        elif item.path.name == "test_neo4j_server.py":
            item.add_marker(pytest.mark.xdist_group("neo4j_server"))


def _uses_neo4j(item: pytest.Item) -> bool:
    # The fixture is asked for by name, or, where a store is a parameter, while the test runs.
    call = getattr(item, "callspec", None)
    return "neo4j_server" in getattr(item, "fixturenames", ()) or (
        call is not None and any("neo4j" in str(value) for value in call.params.values())
    )
