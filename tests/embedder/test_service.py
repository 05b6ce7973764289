"""The embedder as a service: real sockets, a real process, and what becomes of either."""

import asyncio
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ragmem.embedder import MOST_BYTES, MOST_TEXTS, CachedEmbedder, answering
from ragmem.embedder.models import OnnxEmbedder
from ragmem.service import Client, is_offered, serve
from tests.cli.process import SOURCE
from tests.fakes.hash_embedder import HashEmbedder
from tests.fakes.patience import until

VERSION = "1.2.3"
LONG_S = 600.0

SERVE_ONE_THAT_IS_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ragmem.embedder import answering
from ragmem.service import serve
from tests.fakes.hash_embedder import HashEmbedder

class Mortal(HashEmbedder):
    async def embed(self, texts, kind="passage"):
        os.kill(os.getpid(), signal.SIGKILL)

files, own = (Path("e.sock").absolute(), Path("e.lock").absolute()), Mortal()
asyncio.run(serve(answering(own), *files, idle_s=600.0, version="1.2.3", prepare=own.prepare))
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


async def made_by_the_own_one(
    folder: Path, own: HashEmbedder | None = None, version: str = VERSION
) -> bool:
    """Whether the own embedder makes the vector of a question; else the service has."""
    own = own or HashEmbedder()
    await shared(folder, own, version).embed(["a question"], "query")
    return own.seen == [("query", "a question")]


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


async def test_an_older_version_ends_no_service(folder: Path) -> None:
    """A chat or an MCP server that has been open since before an update asks again and again."""
    async with served(folder, HashEmbedder()):
        for version in ("1.2.2", "1.1.10", "1.2"):
            assert await made_by_the_own_one(folder, version=version)
        assert not await made_by_the_own_one(folder)


async def test_a_newer_version_is_not_asked_twice(folder: Path) -> None:
    """Nor does the service stay for it."""
    service = HashEmbedder()
    async with served(folder, service) as task:
        assert await made_by_the_own_one(folder, version="1.2.4")
        assert await task is True
    assert service.seen == []
    assert not (folder / "e.sock").exists()


async def test_another_model_and_one_that_fails_make_no_vectors_for_it(folder: Path) -> None:
    service = HashEmbedder()
    async with served(folder, service):
        assert await made_by_the_own_one(folder, HashEmbedder(model_id="hash-2"))
        service.failing = True
        assert await made_by_the_own_one(folder)
    assert service.seen == []


def framed(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def answered(rows: bytes, error: str = "") -> bytes:
    """An answer as a service gives it."""
    return framed({"error": error, "value": {"rows": rows, "tokens": 2}})


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
        answered(b"too short"),
        answered(np.full(64, np.nan, "<f4").tobytes()),
        answered(np.ones(64, "<f4").tobytes(), error="what is this?"),
        answered(np.ones(64, "<f4").tobytes(), error="failed"),
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


def request(**changed: object) -> bytes:
    """A request as `Client` sends it, but for what is changed."""
    asked = {"model_id": "hash-1", "kind": "query", "texts": ["a"]}
    question = {name: changed.pop(name, value) for name, value in asked.items()}
    whole = {"version": VERSION, "settings": "", "name": "embed", "question": question}
    return framed(whole | changed)


async def said_to(folder: Path, words: bytes) -> bytes:
    """What the service says to these bytes until it ends the connection."""
    reader, writer = await asyncio.open_unix_connection(folder / "e.sock")
    writer.write(words)
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


@pytest.mark.parametrize(
    "words",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        request(texts=["a"] * (MOST_TEXTS + 1)),
        request(texts=["a" * (MOST_BYTES + 1)]),
        request(kind="other"),
        request(name="other"),
        request(settings="other"),
    ],
    ids=lambda words: repr(words)[-20:],
)
async def test_what_is_no_request_is_not_embedded(folder: Path, words: bytes) -> None:
    """And the next one who asks is answered."""
    service = HashEmbedder()
    async with served(folder, service):
        said = await said_to(folder, words)
        assert said == b"" or b"request" in said
        assert service.seen == []
        assert b"rows" in await said_to(folder, request())
        assert not await made_by_the_own_one(folder)
    assert service.seen == [("query", "a"), ("query", "a question")]


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
    service = HashEmbedder()
    async with served(tmp_path, service):
        (tmp_path / "e.sock").chmod(0o666)
        tmp_path.chmod(0o755)
        words = [sys.executable, "-c", asks, str(tmp_path), request().hex()]
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


async def test_it_ends_when_only_processes_with_other_settings_ask(folder: Path) -> None:
    """They search themselves, although it embeds for them: one with their settings follows it."""
    async with asyncio.timeout(60), served(folder, HashEmbedder(), idle_s=0.3) as service:
        other = Client(folder / "e.sock", version=VERSION, settings="other")
        assert await other.ask("find", "", str, within_s=LONG_S) is None
        while not service.done():
            await shared(folder).embed(["a question"], "query")
    assert service.result() is True


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
    async with served(folder, HashEmbedder()) as first:
        assert await one_serving(folder, HashEmbedder()) is False
        assert not first.done()
        assert not await made_by_the_own_one(folder)


async def test_one_that_is_killed_in_the_middle_of_an_answer_is_replaced(folder: Path) -> None:
    """Until then whoever asks makes the vectors, though its socket is there."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE_ONE_THAT_IS_KILLED],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
        cwd=folder,
    ) as service:
        try:
            await until(lambda: answers(folder))
            assert await made_by_the_own_one(folder)
            assert await asyncio.to_thread(service.wait) == -signal.SIGKILL
        finally:
            service.kill()
    assert (folder / "e.sock").exists()
    assert await made_by_the_own_one(folder)
    async with served(folder, HashEmbedder()):
        assert not await made_by_the_own_one(folder)


async def test_a_folder_too_far_down_has_none(folder: Path) -> None:
    deep = folder / ("d" * 100)
    deep.mkdir(mode=0o700)
    assert not is_offered(deep / "e.sock")
    assert not await one_serving(deep, HashEmbedder())
    assert await made_by_the_own_one(deep)
    assert list(deep.iterdir()) == []
