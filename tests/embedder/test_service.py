"""The embedder as a service: real sockets, real processes, and what becomes of either."""

import asyncio
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ragmem.embedder import MOST_BYTES, MOST_TEXTS, CachedEmbedder, answering
from ragmem.embedder.models import OnnxEmbedder
from ragmem.service import Client, is_offered, serve
from tests.cli.process import SOURCE
from tests.fakes.hash_embedder import HashEmbedder

VERSION = "1.2.3"
LONG_S = 600.0

SERVE = """
import asyncio, os, signal, sys
from pathlib import Path
from ragmem.embedder import answering
from ragmem.service import serve
from tests.fakes.hash_embedder import HashEmbedder

class Mortal(HashEmbedder):
    async def embed(self, texts, kind="passage"):
        os.kill(os.getpid(), signal.SIGKILL)

async def main(folder, embedder):
    files = Path(folder, "e.sock"), Path(folder, "e.lock")
    own = globals()[embedder]()
    settings = {"idle_s": 600.0, "version": "1.2.3", "prepare": own.prepare}
    await serve(answering(own), *files, **settings)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no service that is silent."""
    monkeypatch.setattr("ragmem.embedder.QUESTION_S", 60.0)
    monkeypatch.setattr("ragmem.embedder.ANSWER_S", 60.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def shared(folder: Path, own: HashEmbedder | None = None, version: str = VERSION) -> CachedEmbedder:
    return CachedEmbedder(own or HashEmbedder(), Client(folder / "e.sock", version=version))


@contextmanager
def process(folder: Path, embedder: str = "HashEmbedder") -> Iterator["subprocess.Popen[bytes]"]:
    """A service in a process of its own; killed at the end, if it lives."""
    started = subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, str(folder), embedder],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
        cwd=folder,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.02)


def answers(folder: Path) -> bool:
    """Whether somebody listens."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(folder / "e.sock")) == 0


async def one_serving(
    folder: Path, embedder: HashEmbedder | OnnxEmbedder, idle_s: float = LONG_S
) -> bool:
    files = folder / "e.sock", folder / "e.lock"
    settings = {"idle_s": idle_s, "version": VERSION, "prepare": embedder.prepare}
    return await serve(answering(embedder), *files, **settings)


@asynccontextmanager
async def served(
    folder: Path, embedder: HashEmbedder | OnnxEmbedder, *, idle_s: float = LONG_S
) -> AsyncIterator["asyncio.Task[bool]"]:
    """A service in this process."""
    task = asyncio.create_task(one_serving(folder, embedder, idle_s))
    try:
        await until(lambda: answers(folder))
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_its_vectors_are_those_of_the_own_embedder(folder: Path) -> None:
    """Byte for byte, for both kinds, and as much is said to be spent."""
    texts = ["Where do wombats live?", "Où vivent-ils ?", "half a \udce9 character", ""]
    service, own, loaded = OnnxEmbedder(), OnnxEmbedder(), OnnxEmbedder()
    asking = CachedEmbedder(own, Client(folder / "e.sock", version=VERSION))
    async with served(folder, service):
        await asking.prepare()
        for text in texts:
            found = await asking.embed([text], "query")
            assert found.tobytes() == (await loaded.embed([text], "query")).tobytes()
        found = await asking.embed(texts, "passage")
        assert found.dtype == np.float32
        assert found.tobytes() == (await loaded.embed(texts, "passage")).tobytes()
        assert asking.info == own.info
        assert own.spent.texts == 0
        assert asking.spent == loaded.spent
    for embedder in (service, own, loaded):
        await embedder.aclose()


async def test_what_is_too_much_for_it_is_done_by_the_own_one(folder: Path) -> None:
    service = HashEmbedder()
    async with served(folder, service):
        for texts in ([f"{n}" for n in range(MOST_TEXTS + 1)], ["é" * MOST_BYTES]):
            own = HashEmbedder()
            assert len(await shared(folder, own).embed(texts)) == len(texts)
            assert [text for _, text in own.seen] == texts
    assert service.seen == []


async def test_once_the_own_one_is_loaded_nobody_is_asked(folder: Path) -> None:
    own, service = HashEmbedder(), HashEmbedder()
    asking = shared(folder, own)
    assert asking.count_tokens("two words") == 2
    async with served(folder, service):
        await asking.embed(["a question"], "query")
    assert own.seen
    assert service.seen == []


async def test_killed_in_the_middle_of_an_answer(folder: Path) -> None:
    own = HashEmbedder()
    with process(folder, "Mortal") as service:
        await until(lambda: answers(folder))
        assert len(await shared(folder, own).embed(["a passage"])) == 1
        assert await asyncio.to_thread(service.wait) == -signal.SIGKILL
    assert own.seen == [("passage", "a passage")]


async def test_another_version_is_not_asked_twice(folder: Path) -> None:
    """Nor does the service stay for it."""
    own, service = HashEmbedder(), HashEmbedder()
    async with served(folder, service) as task:
        await shared(folder, own, version="1.2.4").embed(["a question"], "query")
        assert await task is True
    assert own.seen
    assert service.seen == []
    assert not (folder / "e.sock").exists()


async def test_another_model_makes_no_vectors_for_it(folder: Path) -> None:
    own, service = HashEmbedder(model_id="hash-2"), HashEmbedder()
    async with served(folder, service):
        await shared(folder, own).embed(["a question"], "query")
    assert own.seen
    assert service.seen == []


async def test_a_service_that_fails(folder: Path) -> None:
    own, service = HashEmbedder(), HashEmbedder()
    service.failing = True
    async with served(folder, service):
        await shared(folder, own).embed(["a question"], "query")
    assert own.seen


def framed(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    "words",
    [
        None,
        b"",
        b"\0",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\xff\xff\xff\xff",
        struct.pack(">I", 9) + b"\xc1" * 9,
        struct.pack(">I", 100) + b"cut",
        framed({"rows": b"too short"}),
        framed({"rows": np.full(64, np.nan, "<f4").tobytes()}),
        framed({"error": "what is this?"}),
        framed([1, 2, 3]),
    ],
    ids=lambda words: "silent" if words is None else repr(words)[:20],
)
async def test_no_sound_answer(
    folder: Path, words: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence, the end, garbage: the vectors are made, and no fault gets out."""
    done = threading.Event()
    if words is None:
        monkeypatch.setattr("ragmem.embedder.QUESTION_S", 0.1)

    def answer(listener: socket.socket) -> None:
        while not done.is_set():
            connection, _ = listener.accept()
            with connection:
                if words is None:
                    done.wait(60)
                elif connection.recv(1 << 20):
                    connection.sendall(words)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "e.sock"))
        listener.listen()
        thread = threading.Thread(target=answer, args=[listener])
        thread.start()
        own = HashEmbedder()
        try:
            found = await shared(folder, own).embed(["a question"], "query")
        finally:
            done.set()
            answers(folder)
            thread.join()
    assert found.tobytes() == (await HashEmbedder().embed(["a question"])).tobytes()
    assert own.seen == [("query", "a question")]


@pytest.mark.parametrize(
    "words",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        framed({"version": VERSION, "model_id": "hash-1", "kind": "query", "texts": ["a"] * 17}),
        framed(
            {"version": VERSION, "model_id": "hash-1", "kind": "query", "texts": ["a" * 70_000]}
        ),
        framed({"version": VERSION, "model_id": "hash-1", "kind": "other", "texts": ["a"]}),
    ],
    ids=lambda words: repr(words)[:20],
)
async def test_what_is_no_request_is_not_embedded(folder: Path, words: bytes) -> None:
    """And the next one who asks is answered."""
    service, own = HashEmbedder(), HashEmbedder()
    async with served(folder, service):
        reader, writer = await asyncio.open_unix_connection(folder / "e.sock")
        writer.write(words)
        said = await reader.read()
        assert said == b"" or b"request" in said
        writer.close()
        await writer.wait_closed()
        assert service.seen == []
        await shared(folder, own).embed(["a question"], "query")
    assert service.seen == [("query", "a question")]
    assert own.seen == []


async def test_only_its_user_can_ask(folder: Path) -> None:
    """The socket is 0600, whatever the umask; nothing else is left in the folder."""
    before = os.umask(0)
    try:
        async with served(folder, HashEmbedder()):
            mode = (folder / "e.sock").lstat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o600
            assert stat.S_IMODE((folder / "e.lock").lstat().st_mode) == 0o600
            assert {path.name for path in folder.iterdir()} == {"e.sock", "e.lock"}
    finally:
        os.umask(before)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_another_user_is_refused(tmp_path: Path) -> None:
    """Even where the modes of the folder and the socket let that one in."""
    asks = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX);"
        "os.chdir(sys.argv[1]); os.setuid(65534); s.connect('e.sock');"
        "s.sendall(bytes.fromhex(sys.argv[2])); sys.stdout.buffer.write(s.recv(9999))"
    )
    asked = {"version": VERSION, "model_id": "hash-1", "kind": "query", "texts": ["a"]}
    service = HashEmbedder()
    async with served(tmp_path, service):
        (tmp_path / "e.sock").chmod(0o666)
        tmp_path.chmod(0o755)
        words = [sys.executable, "-c", asks, str(tmp_path), framed(asked).hex()]
        pipe = asyncio.subprocess.PIPE
        other = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        out, _ = await other.communicate()
    assert out == b""
    assert service.seen == []


async def test_it_ends_when_nobody_asks(folder: Path) -> None:
    """Of itself, and leaves nothing."""
    async with served(folder, HashEmbedder(), idle_s=0.3) as service:
        assert await service is True
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("replaced", [False, True])
async def test_it_ends_when_its_socket_is_not_there(folder: Path, replaced: bool) -> None:
    """What took its place is left alone."""
    async with served(folder, HashEmbedder()) as service:
        (folder / "e.sock").unlink()
        if replaced:
            (folder / "e.sock").write_text("mine")
        assert await asyncio.wait_for(service, 60) is True
    assert (folder / "e.sock").exists() == replaced


async def test_a_file_in_its_place_stays(folder: Path) -> None:
    (folder / "e.sock").write_text("mine")
    assert await one_serving(folder, HashEmbedder()) is False
    assert (folder / "e.sock").read_text() == "mine"


async def test_of_two_at_once_one_stays(folder: Path) -> None:
    with process(folder) as first:
        await until(lambda: answers(folder))
        assert await one_serving(folder, HashEmbedder()) is False
        assert first.poll() is None
        own = HashEmbedder()
        await shared(folder, own).embed(["a question"], "query")
        assert own.seen == []


async def test_what_a_killed_one_leaves_the_next_one_replaces(folder: Path) -> None:
    with process(folder) as first:
        await until(lambda: answers(folder))
        first.kill()
        await asyncio.to_thread(first.wait)
    assert (folder / "e.sock").exists()
    own = HashEmbedder()
    await shared(folder, own).embed(["before"], "query")
    assert own.seen == [("query", "before")]
    with process(folder):
        await until(lambda: answers(folder))
        own = HashEmbedder()
        await shared(folder, own).embed(["after"], "query")
        assert own.seen == []


async def test_a_folder_too_far_down_has_none(folder: Path) -> None:
    deep = folder / ("d" * 100)
    deep.mkdir(mode=0o700)
    assert not is_offered(deep / "e.sock")
    own = HashEmbedder()
    assert not await one_serving(deep, own)
    await shared(deep, own).embed(["a question"], "query")
    assert own.seen
    assert list(deep.iterdir()) == []
