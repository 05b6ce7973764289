"""The small local model in its child process, and what is let through of its answer.

Those marked `local_model` need the model's two packages (120 MB), which scripts/test
installs; `-m "not local_model"` leaves them out.
"""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, strategies as st

from ragmem.errors import ContextTooLong, ProviderRefused
from ragmem.llm import local
from ragmem.llm.base import Chunk, EndChunk, Request, TextChunk, UsageChunk
from ragmem.llm.local import LOCAL_INFO, LocalLLM, sentences, socket_folder, without_tools
from ragmem.llm.models import find_local_model
from ragmem.messages import ToolUse, assistant, system, tool, user
from ragmem.tools import subprocess_guard
from tests.fakes.patience import until
from tests.llm.adapters import complete


def test_the_window_gives_600_tokens_of_context() -> None:
    """Half of the window at four characters a token is what the context may fill."""
    assert LOCAL_INFO.context_window is not None
    assert LOCAL_INFO.context_window * 4 / 2 == 600 * 4
    assert not LOCAL_INFO.supports_tools
    assert LOCAL_INFO.cost_usd(UsageChunk(input_tokens=100, output_tokens=100)) == 0


def test_a_conversation_without_tools() -> None:
    use = ToolUse("c", "read_file", "{}")
    before = (
        system("s"),
        user("q"),
        assistant("Looking.", (use,)),
        tool("c", "content"),
        assistant("", (use,)),
        tool("c", "more"),
        assistant("a"),
    )
    after = without_tools(before)
    assert [(m.role, m.text) for m in after] == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", "Looking."),
        ("user", "A tool answered:\ncontent"),
        ("user", "A tool answered:\nmore"),
        ("assistant", "a"),
    ]
    assert not any(m.tool_uses for m in after)


def test_its_folder_is_private_and_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [socket_folder(tmp_path), socket_folder(tmp_path / ("long" * 30))]
    for folder in made:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(os.fsencode(folder / "llm.sock")) <= local.MAX_SOCKET_PATH
        folder.rmdir()
    monkeypatch.setattr(local, "MAX_SOCKET_PATH", 10)
    with pytest.raises(ProviderRefused) as caught:
        socket_folder(tmp_path)
    assert "TMPDIR" in caught.value.hint


# --- with the model ---------------------------------------------------------------


def one_model(test: Callable[..., object]) -> object:
    """Mark a test that asks a model which others ask too."""
    return pytest.mark.local_model(pytest.mark.asyncio(loop_scope="module")(test))


def local_llm(folder: Path, file: Path | None) -> LocalLLM:
    """The model, which must be installed where these tests are selected."""
    assert file is not None, "install ragmem[local] and the model first"
    log = folder / "local-model.log"
    return LocalLLM(LOCAL_INFO, model_file=file, runtime_dir=folder, log_file=log)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """With modules that a model that starts there must not import."""
    with tempfile.TemporaryDirectory(prefix="rm") as name:
        for module in ("json", "xllamacpp", "sitecustomize"):
            Path(name, f"{module}.py").write_text(f"open('{name}/hit', 'w')\n")
        yield Path(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm(folder: Path) -> AsyncIterator[LocalLLM]:
    """A model for all that ask one."""
    llm = local_llm(folder, find_local_model({}))
    with contextlib.chdir(folder):
        await llm.prepare()
    yield llm
    await llm.aclose()


SAY_HELLO = Request(messages=(user("Say hello."),))


@one_model
async def test_it_answers(llm: LocalLLM, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No key, no account, no service; nothing is printed, no module of the folder is imported."""
    request = Request(messages=(system("Be brief."), user("What is the capital of France?")))
    done = await complete(llm, request)
    assert "Paris" in done.text
    assert done.usage.output_tokens
    assert [p.name for p in folder.rglob("*.sock")] == ["llm.sock"]
    assert stat.S_IMODE((folder / "local-model.log").stat().st_mode) == 0o600
    assert capfd.readouterr() == ("", "")
    assert not (folder / "hit").exists()


@one_model
async def test_it_listens_on_no_port(llm: LocalLLM) -> None:
    sockets = {os.readlink(f) for f in Path(f"/proc/{llm.pid}/fd").iterdir() if f.is_symlink()}
    inodes = {s.removeprefix("socket:[").rstrip("]") for s in sockets if s.startswith("socket:")}
    assert inodes
    for table in ("tcp", "tcp6"):
        rows = Path(f"/proc/{llm.pid}/net/{table}").read_text().splitlines()[1:]
        assert not inodes & {row.split()[9] for row in rows}


@one_model
async def test_a_prompt_that_is_too_long(llm: LocalLLM) -> None:
    with pytest.raises(ContextTooLong):
        await complete(llm, Request(messages=(user("word " * 5000),)))
    assert (await complete(llm, SAY_HELLO)).text


@one_model
async def test_it_comes_back_after_death_and_leaves_nothing(llm: LocalLLM, folder: Path) -> None:
    first = llm.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: llm.pid is None)
    assert (await complete(llm, SAY_HELLO)).text
    pid = llm.pid
    assert pid not in (None, first)
    await llm.aclose()
    await llm.aclose()
    await until(lambda: gone(pid))
    assert list(folder.rglob("*.sock")) == []
    assert [p.name for p in folder.iterdir() if p.suffix != ".py"] == ["local-model.log"]


def gone(pid: int) -> bool:
    return subprocess_guard.stat_of(pid)[0] in ("", "Z")


@pytest.mark.local_model
async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from ragmem.llm.local import LOCAL_INFO, LocalLLM\n"
        "from ragmem.llm.models import find_local_model\n"
        "async def main():\n"
        "    llm = LocalLLM(LOCAL_INFO, model_file=find_local_model({}),\n"
        "                   runtime_dir=Path(sys.argv[1]), log_file=Path('/dev/null'))\n"
        "    await llm.prepare()\n"
        "    print(llm.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
    await until(lambda: gone(child))
    assert list(tmp_path.rglob("*.sock")) == []


@pytest.mark.local_model
async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + os.urandom(1000))
    llm = local_llm(tmp_path, file)
    with pytest.raises(ProviderRefused, match="did not start") as caught:
        await llm.prepare()
    assert "local-model.log" in caught.value.hint
    assert llm.pid is None


# --- its answer, sentence by sentence -------------------------------------------------------------


async def stream(texts: Iterable[str], reason: str) -> AsyncIterator[Chunk]:
    for text in texts:
        yield TextChunk(text)
    yield EndChunk(reason)
    yield UsageChunk(output_tokens=7)


async def heard(texts: Iterable[str], reason: str = "stop") -> tuple[str, str]:
    """What is let through, and the reason of the end."""
    chunks = [chunk async for chunk in sentences(stream(texts, reason))]
    (end,) = [chunk.reason for chunk in chunks if isinstance(chunk, EndChunk)]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), end


CODE = "Do this:\n\n```\na = f()\n\nb\n```"


@pytest.mark.parametrize(
    ("answer", "reason", "expected"),
    [
        ("It is 8080. It listens.", "stop", ("It is 8080. It listens.", "stop")),
        ("It is 8080. It lis", "length", ("It is 8080.", "stop")),
        ("Steps:\n1. One goes.\n2. Tw", "length", ("Steps:\n1. One goes.", "stop")),
        ("It has no en", "length", ("It has no en", "length")),
        ("I am glad. I am glad. I am", "length", ("I am glad.", "stop")),
        ("I am glad.\n\nI am glad.", "stop", ("I am glad.", "stop")),
        ("```\na\n```\n```\nb\n```", "stop", ("```\na\n```\n```\nb\n```", "stop")),
        ("v0.4.2 is it", "stop", ("v0.4.2 is it", "stop")),
        ("It is.\n\nI'm sorry for", "length", ("It is.", "stop")),
        ('You asked: "What?"\n\nWell.', "stop", ('You asked: "What?"', "stop")),
        (CODE, "stop", (CODE, "stop")),
    ],
    ids=[
        "whole", "cut", "cut-item", "cut-first", "loop", "loop-end", "short-lines", "dots",
        "paragraph", "quote", "code",
    ],
)  # fmt: skip
async def test_it_ends_with_a_sentence(answer: str, reason: str, expected: tuple[str, str]) -> None:
    """A loop is left at its first repetition, and a cut answer needs no warning."""
    for pieces in ([answer], list(answer)):
        text, end = await heard(pieces, reason)
        assert (text.rstrip(), end) == expected


async def test_other_chunks_pass() -> None:
    chunks = [chunk async for chunk in sentences(stream("Yes.", "stop"))]
    assert chunks == [TextChunk("Yes."), EndChunk("stop"), UsageChunk(output_tokens=7)]


@given(st.lists(st.text("aB1.! \n`)", max_size=8), max_size=30))
async def test_nothing_is_added_or_changed(texts: list[str]) -> None:
    shown, _ = await heard(texts)
    assert "".join(texts).startswith(shown)
