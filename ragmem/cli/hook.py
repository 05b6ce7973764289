"""What Claude Code calls when a prompt is sent and when a session ends.

Whatever goes wrong here, the agent goes on without: nothing is said, and nothing takes long.
"""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from ragmem.background import leave_to_a_process
from ragmem.config import environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, RagmemError

_MOST_BYTES = 4_000_000
_PROMPT_CHARS = 20_000
_WITHIN_S = 0.2
"""So long the memory has; to start takes a tenth of a second beside it."""
_MOST_CHARS = 4_000


class _Event(msgspec.Struct, frozen=True):
    """What a hook is told on stdin, as far as it is of use here."""

    cwd: str
    prompt: str = ""
    transcript_path: str = ""


def answer(name: str) -> int:
    """Take an event from stdin: `prompt` prints what bears on it, `session-end` has it imported."""
    with suppress(RagmemError, OSError, TimeoutError, msgspec.MsgspecError):
        event = msgspec.json.decode(sys.stdin.buffer.read(_MOST_BYTES), type=_Event)
        if name == "prompt":
            asyncio.run(_tell(event))
        elif name == "session-end":
            _take_over(Path(event.transcript_path))
    return EXIT_DONE


async def _tell(event: _Event) -> None:
    paths = find_paths()
    if not paths.data_dir.is_dir() or not event.prompt.strip():
        return
    from ragmem.app import App
    from ragmem.cli.bearing import bearing_on

    config = load_config(paths.config_file)
    cold = not paths.embedder_socket.exists()
    if cold:  # to load the embedder takes longer than there is: words alone are searched
        off = msgspec.structs.replace(config.memory.embeddings, enabled=False)
        memory = msgspec.structs.replace(config.memory, embeddings=off)
        config = msgspec.structs.replace(config, memory=memory)
    prompt = event.prompt[:_PROMPT_CHARS]
    async with App(config, paths, cwd=Path(event.cwd), ephemeral=True, brief=True) as app:
        with suppress(TimeoutError):
            async with asyncio.timeout(_WITHIN_S):
                text = await bearing_on(
                    app, prompt, max_chars=_MOST_CHARS, strategy="relevant", with_code=False
                )
                sys.stdout.buffer.write(f"{text}\n".encode() if text else b"")
                sys.stdout.buffer.flush()
    if cold and config.memory.worker == "detached":
        leave_to_a_process(paths)


def _take_over(log: Path) -> None:
    """Import a session's log in a process of its own: the agent that ends waits for nobody."""
    if log.suffix != ".jsonl" or not log.is_absolute():
        return
    subprocess.Popen(
        [sys.executable, "-P", "-m", "ragmem", "import", "claude-code", str(log)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=log.parent,
        start_new_session=True,
        env=environment(),
    )
