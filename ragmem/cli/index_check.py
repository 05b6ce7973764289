"""What `ragmem doctor` tells of the code index of this folder."""

from datetime import UTC, datetime
from pathlib import Path

from ragmem.cli.checks import Check, failing
from ragmem.cli.index import summed_up
from ragmem.config import Config, Paths
from ragmem.errors import RagmemError


async def check_index(config: Config, paths: Paths, cwd: Path) -> Check:
    """Whether this folder's code can be searched, and how much of it there is."""
    from ragmem.app import App

    try:
        async with App(config, paths, cwd=cwd) as app:
            code = await app.code()
            if code is None:
                return Check(name="code", health="ok", detail="switched off (code.enabled)")
            if code.refusal:
                return Check(name="code", health="ok", detail=code.refusal)
            status = await code.status()
    except RagmemError as error:
        return failing("code", error)
    told = summed_up(status, datetime.now(UTC))
    return Check(
        name="code",
        health="ok",
        detail=told or "nothing of this folder yet; `ragmem index` or a chat here makes it",
    )
