"""What `ragmem store reembed` does."""

import asyncio

from ragmem.cli.opening import open_app
from ragmem.cli.streams import say, write
from ragmem.cli.transfer_progress import progress
from ragmem.config import Config, Paths
from ragmem.errors import EXIT_DONE


async def reembed(config: Config, paths: Paths) -> int:
    """Make all vectors anew, showing how far it is; the exit code."""
    async with open_app(config, paths) as opened:
        store = await opened.store()
        counts = (await store.info()).counts
        try:
            with progress(counts["turns"] + counts["summaries"] + counts["memories"]) as show:
                done = await opened.background.reembed(lambda count: show("embedding", count))
        except asyncio.CancelledError:
            say("Stopped. What was embedded stays; run it again to go on.\n")
            raise
        mark = await store.embedder()
    by = f" by {mark.model_id}" if mark else ""
    made = f"{done:,} turns, summaries and memories were embedded{by}.\n"
    write(made if done else "Nothing was to do.\n")
    return EXIT_DONE
