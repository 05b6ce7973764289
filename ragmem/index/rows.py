"""Conversion of files to rows of the index: scopes with their terms and the text to embed.

Many files are cut in a few child processes. A child exits when the pipe to its parent closes, so
that none outlives the parent, however that ends. It has its own process session, so that Ctrl-C in
a terminal reaches only the parent. A file that crashes a parser or never ends loses only itself.
"""

import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from ragmem.index import NUMBERED, CutScope
from ragmem.index.files import NotRead, Unread, is_binary, read, without_secrets
from ragmem.redact import know, known
from ragmem.similarity import capped
from ragmem.terms import STOP_WORDS, terms
from ragmem.text import clean

_MOST_TERMS = 400
"""The most distinct terms of a scope's lines, the commonest: more is a table of data."""
_BODY_CHARS = 60_000
_ABOUT_CHARS = 4_000
_TEXTS = ("name", "qualified_name", "signature", "docstring")
_PATH_PARTS = 3
"""The most components at the end of a path that are indexed as one term: `store/base.py`."""

_STOP_WORDS = STOP_WORDS["english"]


def _names(scope: CutScope) -> list[str]:
    """Return the qualified name's terms, those of the name itself twice: its class is context."""
    return terms(NUMBERED.sub("", scope.qualified_name), language="english") + terms(
        scope.name, language="english"
    )


def _paths(path: str, language: str) -> list[str]:
    parts = path.split("/")
    ends = ("/".join(parts[-n:]) for n in range(2, min(_PATH_PARTS, len(parts) - 1) + 1))
    found = (term for end in (path, *ends, language) for term in terms(end, language="english"))
    return list(dict.fromkeys(found))


def _content_terms(text: str) -> list[str]:
    return [term for term in terms(text, language="english") if term not in _STOP_WORDS]


# --- what is embedded -------------------------------------------------------------------

_EMBEDDED_CHARS = 480
"""The length limit of the text to embed: some 120 tokens of code and words."""
_DOCSTRING_CHARS = 280
_SIGNATURE_CHARS = 140
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")


def embedded(path: str, scope: CutScope) -> str:
    """Return the text to embed: name and path as words, docstring, signature, and first lines.

    It is empty for a block of imports.
    """
    name = NUMBERED.sub("", scope.qualified_name)
    if scope.kind == "block" and name == "imports":
        return ""
    words = _in_words(name)
    where = _in_words(" ".join(path.rsplit(".", 1)[0].split("/")[-3:]))
    kind = "" if scope.kind in ("block", "text") else scope.kind
    head = " ".join(filter(None, (kind, words, "in", where))) if words else where
    doc = " ".join(scope.docstring.split())[:_DOCSTRING_CHARS]
    parts = [head, doc, " ".join(scope.signature.split())[:_SIGNATURE_CHARS]]
    left = _EMBEDDED_CHARS - sum(len(part) + 1 for part in parts)
    if left > 0:
        parts.append(_first_lines(scope, left))
    text = "\n".join(filter(None, parts))
    return text if any(map(str.isalnum, text)) else ""


def _in_words(name: str) -> str:
    return " ".join(word if word.isupper() else word.lower() for word in _WORDS.findall(name))


def _first_lines(scope: CutScope, room: int) -> str:
    """Return the first lines with words, without those in the signature or the docstring."""
    known = f"{' '.join(scope.signature.split())} {' '.join(scope.docstring.split())}"
    found: list[str] = []
    for line in islice(scope.text.splitlines(), 200):
        said = " ".join(line.split())
        if room <= 0:
            break
        # The marks of a comment or a string don't count.
        if not any(map(str.isalnum, said)) or said.strip("\"'/*#!;-<> ") in known:
            continue
        found.append(said[:room])
        room -= len(said) + 1
    return " ".join(found)


# --- the rows of the text index -------------------------------------------------------------


class ScopeRow(msgspec.Struct, frozen=True, array_like=True):
    """A scope with its terms, by the field that they are indexed in."""

    scope: CutScope
    """The scope without its text."""
    names: str
    paths: str
    about: str
    body: str
    length: int
    """The number of terms in `about` and `body`; names and paths are about equally long for all."""
    embedded: str
    """The text to embed; empty if there is none."""
    embed_hash: str


class FileRow(msgspec.Struct, frozen=True, array_like=True):
    """A file to be written to the index."""

    path: str
    unread: Unread | None = None
    """The reason why it could not be read; the other fields are empty then."""
    size: int = 0
    mtime_ns: int = 0
    seen_ns: int = 0
    hash: str = ""
    left_out: str = ""
    """The reason why it was read but not cut; empty if it was cut."""
    language: str = ""
    line_count: int = 0
    imports: tuple[str, ...] = ()
    scopes: tuple[ScopeRow, ...] = ()


def row_of(root: int, path: str, max_bytes: int) -> FileRow:
    """Read and cut one file; no content makes this raise."""
    from ragmem.index.cut import cut

    try:
        content = read(root, path, max_bytes)
    except NotRead as error:
        return FileRow(path, error.why)
    row = FileRow(
        path,
        size=content.size,
        mtime_ns=content.mtime_ns,
        seen_ns=content.seen_ns,
        hash=content.hash,
    )
    if is_binary(content.data):
        return msgspec.structs.replace(row, left_out="binary")
    found = cut(path, without_secrets(content.data))
    if found.generated:
        return msgspec.structs.replace(row, left_out="generated")
    return msgspec.structs.replace(
        row,
        language=found.language,
        line_count=found.line_count,
        imports=tuple(map(clean, found.imports)),
        scopes=tuple(scope_row(path, found.language, scope) for scope in found.scopes),
    )


def scope_row(path: str, language: str, scope: CutScope) -> ScopeRow:
    """Return a scope with its terms, joined with spaces, and its text to embed."""
    from ragmem.index.vectors import embed_hash

    about = capped(_content_terms(f"{scope.docstring}\n{scope.signature}"[:_ABOUT_CHARS]))
    body = capped(_content_terms(scope.text[:_BODY_CHARS]), _MOST_TERMS)
    to_embed = clean(embedded(path, scope))
    said = {name: clean(getattr(scope, name)) for name in _TEXTS}
    return ScopeRow(
        msgspec.structs.replace(scope, text="", calls=tuple(map(clean, scope.calls)), **said),
        names=clean(" ".join(_names(scope))),
        paths=clean(" ".join(_paths(path, language))),
        about=clean(" ".join(about)),
        body=clean(" ".join(body)),
        length=len(about) + len(body),
        embedded=to_embed,
        embed_hash=embed_hash(to_embed),
    )


_MOST_INLINE = 64
"""The most files to cut in this process: starting a child would take longer."""
_GREEDY = frozenset(("c", "cpp", "java", "c_sharp"))
"""The languages that only children cut: between two checks of its limits, the parser may take
gigabytes for 20 KB of unclosed `a<` or `a=>`. A child has a limit, and dies of it."""
_CHILD_BYTES = 512 * 1024 * 1024
_BATCH = 100
_MOST_CHILDREN = 4
"""The most children, and at most one per core: they are niced, and this process is mostly idle."""
_NICENESS = 10
_CHILD_TIMEOUT_S = 120.0
"""The time limit for a child to start, and for each batch."""
_TICK_S = 0.1
_PROGRAM = "from ragmem.index.rows import serve; serve()"


def _is_greedy(path: str) -> bool:
    from ragmem.index.cut import language_of

    return language_of(path, b"") in _GREEDY


def cut_files(
    root: int, paths: Sequence[str], *, most: int, stop: threading.Event
) -> Iterator[list[FileRow]]:
    """Yield the rows of these files, in batches, in any order; ends early if `stop` is set."""
    batches = [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]
    if len(paths) > _MOST_INLINE or any(map(_is_greedy, paths)):
        try:
            yield from _cut_by_children(root, batches, most, stop)
            return
        except OSError:  # No process can be started: cut here, which takes longer.
            pass
    for batch in batches:
        if not stop.is_set():
            yield [row_of(root, path, most) for path in batch if not stop.is_set()]


def _cut_by_children(
    root: int, batches: Sequence[Sequence[str]], max_bytes: int, stop: threading.Event
) -> Iterator[list[FileRow]]:
    """Cut files in child processes; a batch that kills a child is tried again, file by file."""
    from multiprocessing.connection import wait

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    waiting = deque(batches)
    count = min(cores or 1, _MOST_CHILDREN, len(waiting))
    children = [_Child(root, max_bytes) for _ in range(count)]
    try:
        while (waiting or any(child.asked for child in children)) and not stop.is_set():
            ready = wait([child.line for child in children], _TICK_S)
            done: list[list[FileRow]] = []
            for child in children:
                if child.line in ready:
                    asked, rows = child.asked, child.rows()
                    if rows is None and len(asked) > 1:
                        waiting.extend([path] for path in asked)
                    elif rows is None:
                        rows = [FileRow(path, "unreadable") for path in asked]
                    done.append(rows or [])
                elif child.works and time.monotonic() - child.since > _CHILD_TIMEOUT_S:
                    child.process.kill()
                # The child works on while the caller writes these rows.
                if waiting and child.is_started and not child.asked:
                    child.ask(waiting.popleft())
            yield from filter(None, done)
    finally:
        for child in children:
            child.close()


class _Child:
    """A child process that cuts files, restarted if it dies."""

    asked: Sequence[str]

    def __init__(self, root: int, most: int) -> None:
        self._root = root
        self._start = (most, known())
        self._begin()

    def _begin(self) -> None:
        from multiprocessing import Pipe

        from ragmem.children import child_environment

        self.line, theirs = Pipe()
        with theirs:
            handles = (self._root, theirs.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(str, handles)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=child_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=handles,
                start_new_session=True,
            )
        self.is_started, self.asked, self.since = False, (), time.monotonic()
        self._send(self._start)

    @property
    def works(self) -> bool:
        """Whether a message from it is due: that it has started, or an answer."""
        return bool(self.asked) or not self.is_started

    def ask(self, paths: Sequence[str]) -> None:
        """Send it files; if it has died, `rows` finds out."""
        self.asked, self.since = paths, time.monotonic()
        self._send(paths)

    def _send(self, message: object) -> None:
        with suppress(BrokenPipeError):
            self.line.send_bytes(msgspec.msgpack.encode(message))

    def rows(self) -> list[FileRow] | None:
        """Read the answer; if the child died instead, start another one and return None.

        Raises OSError if it died before it had started.
        """
        with suppress(EOFError, OSError):
            answer = self.line.recv_bytes()
            self.is_started, self.asked = True, ()
            return msgspec.msgpack.decode(answer, type=list[FileRow])
        self.close()
        if not self.is_started:
            raise OSError(0, "a process that cuts files ended when it was started")
        self._begin()
        return None

    def close(self) -> None:
        """Kill the child and close the pipe."""
        self.process.kill()
        self.process.wait()
        self.line.close()


def serve() -> None:
    """Answer requests until the pipe closes; arguments: descriptors of the folder and the pipe."""
    from multiprocessing.connection import Connection

    root, line = int(sys.argv[1]), Connection(int(sys.argv[2]))
    with suppress(OSError, ValueError):
        os.nice(_NICENESS)
        resource.setrlimit(resource.RLIMIT_DATA, (_CHILD_BYTES, _CHILD_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError, ConnectionError):
        kind = tuple[int, list[tuple[str, str]]]
        most, secrets = msgspec.msgpack.decode(line.recv_bytes(), type=kind)
        for name, value in secrets:
            know({name: value})
        line.send_bytes(msgspec.msgpack.encode([]))
        while True:
            paths = msgspec.msgpack.decode(line.recv_bytes(), type=list[str])
            rows = [row_of(root, path, most) for path in paths]
            line.send_bytes(msgspec.msgpack.encode(rows))
