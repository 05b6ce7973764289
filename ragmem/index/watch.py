"""Changes of a project's files as they happen, and the index kept current with them."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import watchfiles
from watchfiles import Change

from ragmem.errors import RagmemError
from ragmem.index import Refreshed
from ragmem.index.database import following
from ragmem.index.files import says_what_is_ignored
from ragmem.logs import LOGGER

if TYPE_CHECKING:
    from ragmem.index.index import CodeIndex

EVERYTHING: frozenset[str] = frozenset({""})
"""The paths that stand for the whole project: what changed is not known."""
_TOGETHER_MS = 800
"""How long changes that follow one another are told together."""
_QUIET_MS = 150
"""How long nothing changes before what came is told."""
_TIMEOUT_MS = 1_000
"""How long nothing changes before it is looked whether the folder is still there."""
_POLL_S = 30.0
_AGAIN_S = 1.0
"""The least pause until folders are looked for again; at least ten times what that takes."""
_FAILURES_AT_MOST = 5
"""How often folders that went just then may end it, one after the other."""

Tell = Callable[[frozenset[str] | None], None]


@contextmanager
def changes_of(root: Path) -> "Iterator[asyncio.Queue[frozenset[str] | None]]":
    """Give a queue of paths below a folder that came, changed or went; None once the folder went.

    `EVERYTHING` once it listens, for what changed until then. Where the system can't watch (too
    many folders for it), `EVERYTHING` every half minute.
    """
    heard: asyncio.Queue[frozenset[str] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    stop = threading.Event()

    def tell(paths: frozenset[str] | None) -> None:
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(heard.put_nowait, paths)

    # To begin with a large folder takes seconds: not on the loop.
    threading.Thread(target=_listen, args=(root, stop, tell), daemon=True).start()
    try:
        yield heard
    finally:
        stop.set()


def _listen(root: Path, stop: threading.Event, tell: Tell) -> None:
    """Tell of changes, in a thread of its own, until the folder goes or it is told to stop."""
    watch = _ProjectWatch(root, stop, tell)
    try:
        watch.run()
    except Exception as error:  # the system's, or the library's own kind
        if root.is_dir():
            told = "The files of %s can't be watched (%s); they are looked at every %g s instead."
            logging.getLogger(LOGGER).warning(told, root, error, _POLL_S)
        while root.is_dir() and not stop.wait(_POLL_S):
            tell(EVERYTHING)
    finally:
        tell(None)


class Folders(NamedTuple):
    """What is watched of a project, so that no link is followed.

    The library follows links to folders wherever it watches a whole tree, out of the project and
    round in circles.
    """

    paths: tuple[str, ...]
    whole: bool
    """Whether all that is in them is watched too: only where none has a link to a folder."""


def folders_of(root: str) -> Folders:
    """Find what to watch of a folder; unreadable and unnameable ones are left out."""
    found: list[str] = []
    whole = True
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        found.append(folder)
        inside, has_links = _inside(folder)
        waiting += inside
        whole = whole and not has_links
    single = sorted(path for path in found if not _is_gits(path[len(root) + 1 :]))
    return Folders((root,) if whole else tuple(single), whole)


def _inside(folder: str) -> tuple[list[str], bool]:
    """Its folders, and whether it has links to some, or folders that can't be named."""
    inside: list[str] = []
    has_links = False
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _is_nameable(entry.path):
                    inside.append(entry.path)
                elif entry.is_dir():
                    has_links = True
    return inside, has_links


def _is_nameable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class _ProjectWatch:
    """Watches a project's folders, and begins anew where some come that are not watched yet."""

    def __init__(self, root: Path, stop: threading.Event, tell: Tell) -> None:
        self._root = root
        self._top = os.path.join(root, "")
        self._stop = stop
        self._tell = tell
        self._failures = 0

    def run(self) -> None:
        """Listen until told to stop, or the folder goes; raise what keeps it from that."""
        while not self._stop.is_set() and self._root.is_dir():
            try:
                self._follow()
            except Exception as error:
                # A folder may go while it is begun with, and a file may have a strange name.
                # The library's own failures are of this kind.
                is_strange = isinstance(error, RuntimeError)
                went = isinstance(error, FileNotFoundError) and self._failures < _FAILURES_AT_MOST
                if not (is_strange or went):
                    raise
                self._failures += 1
                # It may come again before anything is heard: a log with a strange name.
                self._tell(EVERYTHING)
                self._stop.wait(min(_POLL_S, 2**self._failures))

    def _follow(self) -> None:
        """Tell of changes until other folders are to be watched."""
        started = time.monotonic()
        folders = folders_of(str(self._root))
        now = time.monotonic()
        not_before = now + max(_AGAIN_S, 10 * (now - started))
        listens = is_over = False
        changes_heard = watchfiles.watch(
            *folders.paths,
            watch_filter=lambda _, path: not _is_gits(path.removeprefix(self._top)),
            debounce=_TOGETHER_MS,
            step=_QUIET_MS,
            rust_timeout=_TIMEOUT_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
            ignore_permission_denied=True,
            recursive=folders.whole,
        )
        with closing(changes_heard):
            for changes in changes_heard:
                paths = {path for _, path in changes if path.startswith(self._top)}
                if not listens:
                    self._tell(EVERYTHING)
                elif paths:
                    self._tell(frozenset(path.removeprefix(self._top) for path in paths))
                listens = True
                self._failures = 0 if paths else self._failures
                came = {path for change, path in changes if change == Change.added} & paths
                new = (_is_new(path, is_watched=folders.whole) for path in _outermost(came))
                is_over = is_over or any(new)
                if (is_over and time.monotonic() >= not_before) or not self._root.is_dir():
                    return


def _outermost(paths: set[str]) -> Iterable[str]:
    """Without those that lie in another one of them."""
    last = ""
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not last or not path.startswith(f"{last}/"):
            last = path
            yield path


def _is_new(path: str, *, is_watched: bool) -> bool:
    """Whether it is a folder that is not watched, or one that is watched though it holds links."""
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    return not is_watched or not folders_of(path).whole


def _is_gits(path: str) -> bool:
    return path == ".git" or path.startswith(".git/") or "/.git/" in path


_LONGEST_PAUSE_S = 10.0
_RETRY_S = 0.5
"""The pause where another process is at it, or it failed; each time that it fails twice as long."""
_LONGEST_AGAIN_S = 60.0
_MANY = 500
"""The most changes at once; for more the project is looked at as a whole."""


async def keep_current(
    index: "CodeIndex",
    root: Path,
    known_of: Callable[[Collection[str]], Awaitable[set[str]]],
    *,
    followers: Path,
) -> AsyncGenerator[Refreshed, None]:
    """Refresh the index after each change that concerns it.

    Whether a new path does takes a listing of the project: where those that came were ignored ones
    (a build writes its outputs), the next are looked at less and less often. Others see by the
    file `followers` that it is done.
    """
    with changes_of(root) as changes, following(followers):
        due, again_s = _PendingPaths(), _RETRY_S
        while True:
            try:
                async with asyncio.timeout(due.wait_s()):
                    paths = await changes.get()
                if paths is None:
                    return
                due.add(paths, await known_of(paths))
            except TimeoutError:
                pass
            except RagmemError:
                # It could not be asked what it knows: then it is looked at as a whole.
                due.add(EVERYTHING, set())
            if not due.is_now():
                continue
            refreshed = await _refreshed(index, due.taken())
            if refreshed is None or refreshed.elsewhere:
                due.add(EVERYTHING, set())
                due.later(again_s)
                again_s = _RETRY_S if refreshed else min(2 * again_s, _LONGEST_AGAIN_S)
                continue
            again_s = _RETRY_S
            due.judge(refreshed)
            if refreshed.changed or refreshed.removed:
                yield refreshed


async def _refreshed(index: "CodeIndex", paths: frozenset[str] | None) -> Refreshed | None:
    """None where it failed."""
    try:
        return await index.refresh(paths=paths)
    except RagmemError as error:
        logging.getLogger(LOGGER).warning("The code index was not brought up to date: %s", error)
        return None


class _PendingPaths:
    """Paths that are to be looked at, and when."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._unknown: set[str] = set()
        self._asked: set[str] = set()
        """Unknown ones that were looked at last."""
        self._not_before = 0.0
        self._pause_s = 0.0

    def add(self, paths: frozenset[str], known: set[str]) -> None:
        """Add paths, and which of them the index has."""
        told = {path for path in paths if path in known or says_what_is_ignored(path)}
        self._known |= told
        self._unknown |= paths - told

    def wait_s(self) -> float | None:
        """Return how long to wait for more; None until there is something."""
        if not self._unknown:
            return None
        return max(0.0, self._not_before - time.monotonic())

    def is_now(self) -> bool:
        """Return whether there is something to do."""
        return bool(self._known) or bool(self._unknown and not self.wait_s())

    def taken(self) -> frozenset[str] | None:
        """Return what is to be looked at now; None for all."""
        self._asked = set(self._unknown) if not self.wait_s() else set()
        taken = frozenset(self._known | self._asked)
        self._known.clear()
        self._unknown -= self._asked
        return None if len(taken) > _MANY or EVERYTHING & taken else taken

    def judge(self, refreshed: Refreshed) -> None:
        """Pause longer where new paths were of no concern."""
        if not self._asked or EVERYTHING & self._asked:
            return
        if refreshed.changed or refreshed.removed:
            self._pause_s = 0.0
        else:
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2 or _RETRY_S)
        self._not_before = time.monotonic() + self._pause_s

    def later(self, seconds: float) -> None:
        """Look at nothing new for so many seconds."""
        self._not_before = time.monotonic() + seconds
