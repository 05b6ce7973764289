"""Neo4j in a container, by docker or podman."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping

from ragmem.errors import StoreUnavailable
from ragmem.store.neo4j_server.layout import (
    HEAP_MAX,
    PAGE_CACHE,
    Layout,
    Ports,
    Running,
)
from ragmem.store.neo4j_server.process import harmless

IMAGE = "neo4j:5.26-community"
ENGINES = ("docker", "podman")
ANSWER_S = 3.0
"""How long an engine may take to say that it is there, in seconds."""
FETCH_S = 1200.0
"""How long it may take to fetch the image and start it, in seconds."""


class Container:
    """One container of one engine."""

    def __init__(self, program: str, name: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self._program = program
        self._environ = environ

    async def answers(self) -> bool:
        """Whether its daemon is there, soon."""
        return (await self._run("info", timeout_s=ANSWER_S))[0] == 0

    async def prepare(self, layout: Layout, on_progress: Callable[[str], None]) -> None:
        """Remove a container of ours that has ended; the image comes with the start."""
        await self._run("rm", container_name(layout))
        on_progress(f"starting Neo4j in {self.name} (its image, about 500 MB, is fetched once)…")

    async def start(self, layout: Layout, ports: Ports) -> Running:
        """Start it; it is ready some seconds later."""
        code, words = await self._run(
            *self.start_arguments(layout, ports),
            # By name in the arguments, by value here: a password among arguments is public.
            secret={"NEO4J_AUTH": f"neo4j/{layout.password()}"},
            timeout_s=FETCH_S,
        )
        if code != 0:
            raise StoreUnavailable(
                f"{self.name} could not start Neo4j. Its last lines:\n" + _indented(words),
                hint=f"See whether `{self.name} run --rm {IMAGE} --version` works.",
            )
        name = container_name(layout)
        return Running(self.name, ports.bolt, http=ports.http, container=name)

    def start_arguments(self, layout: Layout, ports: Ports) -> list[str]:
        """Of `run`; nothing secret among them."""
        user = ["--user", f"{os.getuid()}:{os.getgid()}"]
        return [
            "run",
            "--detach",
            *("--name", container_name(layout)),
            *("--publish", f"127.0.0.1:{ports.bolt}:7687"),
            *("--publish", f"127.0.0.1:{ports.http}:7474"),
            *("--volume", f"{layout.data}:/data"),
            *("--volume", f"{layout.logs}:/logs"),
            *(["--userns", "keep-id", *user] if self.name == "podman" else user),
            *("--env", "NEO4J_AUTH"),
            *("--env", f"NEO4J_server_memory_heap_max__size={HEAP_MAX}"),
            *("--env", f"NEO4J_server_memory_pagecache_size={PAGE_CACHE}"),
            *("--env", "NEO4J_dbms_usage__report_enabled=false"),
            *("--env", "NEO4J_db_logs_query_enabled=OFF"),
            *("--env", f"NEO4J_server_bolt_advertised__address=127.0.0.1:{ports.bolt}"),
            *("--env", "NEO4J_client_allow__telemetry=false"),
            IMAGE,
        ]

    async def runs(self, container: str) -> bool:
        """Whether this container is running."""
        code, words = await self._run("inspect", "--format", "{{.State.Running}}", container)
        return code == 0 and words.strip() == "true"

    async def stop(self, container: str, *, timeout_s: float) -> None:
        """Stop and remove it; its data stays."""
        await self._run("stop", "--time", f"{timeout_s:.0f}", container, timeout_s=timeout_s + 30)
        await self._run("rm", container)

    async def _run(
        self, *arguments: str, secret: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> tuple[int, str]:
        """Exit status and output; 124 when it took too long."""
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env=harmless(self._environ) | dict(secret or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(timeout_s):
                output, _ = await process.communicate()
        except TimeoutError:
            return 124, f"no answer within {timeout_s:.0f} seconds"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode("utf-8", "replace")


async def find_engine(environ: Mapping[str, str]) -> Container | None:
    """The first engine whose daemon answers."""
    for name in ENGINES:
        if (engine := engine_named(name, environ)) and await engine.answers():
            return engine
    return None


def engine_named(name: str, environ: Mapping[str, str]) -> Container | None:
    """The engine, if it is installed."""
    program = shutil.which(name, path=environ.get("PATH"))
    return Container(program, name, environ) if program else None


def container_name(layout: Layout) -> str:
    """One per folder, so that two homes have two servers."""
    return f"ragmem-neo4j-{hashlib.sha256(str(layout.folder).encode()).hexdigest()[:12]}"


def _indented(words: str) -> str:
    return "\n".join(f"  {line[:300]}" for line in words.strip().splitlines()[-12:])
