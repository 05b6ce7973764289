"""A separate, empty Neo4j for one measurement, with the settings of `ragmem neo4j up`."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from ragmem.config import Config, find_paths
from ragmem.store.neo4j import Connection
from ragmem.store.neo4j_server import LocalNeo4j, start
from ragmem.store.neo4j_server.ways import Layout
from tests.fakes.neo4j import jars, use_cached_jars


class Server(msgspec.Struct, frozen=True):
    """A running server."""

    connection: Connection
    data: Path
    pid: int


@contextlib.contextmanager
def server(home: Path) -> Iterator[Server]:
    """Start a server; stop it and delete its data afterwards."""
    paths = find_paths({"RAGMEM_HOME": str(home)}).make()
    layout = Layout(paths.neo4j_dir)
    layout.make()
    try:
        asyncio.run(_start(layout))
        running = layout.running()
        assert running is not None
        connection = Connection(running.url, password=layout.password())
        yield Server(connection, layout.data, running.pid)
    finally:
        asyncio.run(LocalNeo4j(paths, Config(), os.environ).down())
        shutil.rmtree(home)


async def _start(layout: Layout) -> None:
    await use_cached_jars(layout)
    await start(jars(), layout, os.environ, partial(print, file=sys.stderr))
