"""Claude Code's hooks, run when a prompt is submitted and when a session ends.

If anything fails or takes too long, a hook prints nothing, and the agent continues without it.
"""

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.background import leave_to_a_process
from ragmem.config import environment, find_paths, load_config
from ragmem.errors import EXIT_DONE, RagmemError, StoreError
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context.builder import Context, ContextBuilder, framed
from ragmem.memory.context.collect import ContextRequest, Material, Place, Strategy
from ragmem.memory.projects import NO_INSTRUCTIONS, real_folder
from ragmem.memory.turns import turn_tag
from ragmem.text import clean, one_line, visible

if TYPE_CHECKING:
    from ragmem.app import App

_MAX_INPUT_BYTES = 4_000_000
_MAX_PROMPT_CHARS = 20_000
_TIMEOUT_S = 0.2
"""Time limit for the memory; the start of the process takes another 0.1 s."""
_MAX_CHARS = 4_000


class _Event(msgspec.Struct, frozen=True):
    """The fields of a hook's input that are used here."""

    cwd: str
    prompt: str = ""
    transcript_path: str = ""


def answer(name: str) -> int:
    """Handle the event on stdin: `prompt` prints relevant context, `session-end` imports a log."""
    with suppress(RagmemError, OSError, TimeoutError, msgspec.MsgspecError):
        event = msgspec.json.decode(sys.stdin.buffer.read(_MAX_INPUT_BYTES), type=_Event)
        if name == "prompt":
            asyncio.run(_print_context(event))
        elif name == "session-end":
            _import_log(Path(event.transcript_path))
    return EXIT_DONE


async def _print_context(event: _Event) -> None:
    paths = find_paths()
    if not paths.data_dir.is_dir() or not event.prompt.strip():
        return
    from ragmem.app import App

    config = load_config(paths.config_file)
    cold = not paths.embedder_socket.exists()
    if cold:  # loading the embedder takes longer than the time limit: search by words only
        off = msgspec.structs.replace(config.memory.embeddings, enabled=False)
        memory = msgspec.structs.replace(config.memory, embeddings=off)
        config = msgspec.structs.replace(config, memory=memory)
    prompt = event.prompt[:_MAX_PROMPT_CHARS]
    async with App(config, paths, cwd=Path(event.cwd), ephemeral=True, brief=True) as app:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                text = await relevant_context(
                    app, prompt, max_chars=_MAX_CHARS, strategy="relevant", with_code=False
                )
                sys.stdout.buffer.write(f"{text}\n".encode() if text else b"")
                sys.stdout.buffer.flush()
    if cold and config.memory.worker == "detached":
        leave_to_a_process(paths)


def _import_log(log: Path) -> None:
    """Import a session's log in a detached process, so that the agent can exit at once."""
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


async def relevant_context(
    app: "App",
    prompt: str,
    *,
    max_chars: int,
    strategy: Strategy = "hybrid",
    with_code: bool = True,
) -> str:
    """Return the context for another agent's prompt: all that ragmem's own gets except its turns.

    It has at most `max_chars` characters, and is empty if nothing is relevant. Raises StoreError.
    """
    from ragmem.tools.files import SeenFiles
    from ragmem.tools.memory import SessionCode

    session = await app.start_session()
    project = (await app.memory.project_of(app.cwd)).project
    top = real_folder(project.path, app.cwd)
    code = SessionCode(
        app.codebase, project, cwd=app.cwd, top=top, seen=SeenFiles(), rules=app.rules
    )
    place = Place(cwd=app.cwd, project=top, instructions=NO_INSTRUCTIONS, show_path=code.show)
    config, info = app.config.memory, ModelInfo(name="")

    def rendered(built: Context) -> str:
        if not any(section.items for section in built.sections):
            return ""
        return visible(built.recalled) + _ids_for_why(built, max_chars // 5)

    class Fitting(ContextBuilder):
        """Builds the same material with smaller and smaller budgets, until the result fits.

        It starts large, because a good part of a request's budget is reserved for the
        conversation, of which there is none here, and few sections use all of theirs.
        """

        def build(self, request: ContextRequest, material: Material) -> Context:
            room, pinned = self.max_chars, max_chars // 5
            while True:
                smaller = ContextBuilder(config, info, max_chars=room, pinned_chars=pinned)
                built = smaller.build(request, material)
                if room <= max_chars // 2 or len(rendered(built)) <= max_chars:
                    return built
                room = max(max_chars // 2, room * 2 // 3)

    built = await app.memory.build_context(
        session,
        clean(prompt),
        Fitting(config, info),
        place,
        strategy=strategy,
        find_code=code.passages if with_code and code.is_there else None,
    )
    if built.fallback:
        raise StoreError("The memory is not available right now.", hint=" ".join(built.notices))
    return rendered(built)


def _ids_for_why(built: Context, room: int) -> str:
    """List the ids of the first recalled items, for use with the tool `why`."""
    text = framed(["Ids for `why`:"], turn_tag(new_id()))
    head, end = text[: text.rindex("\n")], text[text.rindex("\n") :]
    for item in (each for section in built.sections for each in section.items):
        line = f"\n- {item.record_id}: {one_line(item.label, 60)}"
        if item.record_id and len(head) + len(line) + len(end) < room:
            head += line
    return f"\n\n{head}{end}" if head + end != text else ""
