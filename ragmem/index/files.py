"""The project's files: listing those to index, reading them safely, and resolving their imports.

Files are listed with ripgrep, never with git, which runs commands that a folder's configuration
names. They are opened component by component without following symbolic links, so that a path
that is replaced between listing and reading is refused, and nothing outside the project is read.
"""

import codecs
import hashlib
import heapq
import os
import posixpath
import re
import stat
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import apsw
import msgspec

from ragmem.children import MADE_FOLDERS, FileList, find_ripgrep
from ragmem.errors import RagmemError, UsageError
from ragmem.index import CodeHit, CutScope
from ragmem.index.database import listed, rows
from ragmem.redact import reaches_over_lines, redact_lines
from ragmem.text import is_latin_1, visible

_TIMEOUT_S = 300.0


class ProjectFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a project that should be indexed."""

    paths: list[str]
    """Paths relative to the project's folder, with `/`, sorted."""
    left_out: Counter[str]
    """Numbers of files left out, by reason."""
    whole: bool
    """Whether the listing is complete, so that a file missing from it no longer exists."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_NAMES = _names("""
    .env .envrc .netrc _netrc .pgpass .my.cnf .npmrc .pypirc .htpasswd .git-credentials .dockercfg
    .vault-token .terraformrc .s3cfg .boto credentials .credentials credentials.json
    credentials.yml credentials.yaml credentials.toml credentials.ini credentials.xml
    credentials.txt secrets.json secrets.yml secrets.yaml secrets.toml secrets.ini secrets.txt
    client_secret.json service-account.json service_account.json token.json tokens.json
    passwords.txt password.txt .secret .secrets .passwd passwd htpasswd kubeconfig auth.json
    application_default_credentials.json local.settings.json key.properties .yarnrc.yml
    deploy_key terraform.tfvars
""")
_SECRET_SUFFIXES = _names("""
    pem key p12 pfx p8 kdbx kdb keystore jks ppk gpg pgp ovpn agekey tfstate keychain keytab
    mobileprovision der pkcs12
""")
_SECRET_FOLDERS = _names(".ssh .gnupg .aws .azure .kube .docker .password-store")
_SECRET_PATTERN = re.compile(
    r"\.env(?:rc)?[-._~](?!(?:example|sample|template|dist|defaults?)$).*|.*\.env|env\.local"
    r"|(?:secret|password|passwd)s?\.(?:txt|ya?ml|json|toml|ini|csv|db)|\..*_history"
    r"|.*\.tfvars(?:\.json)?|.*[-_]key\.json|.*private.*\.asc"
    r"|id_(?:rsa|dsa|ecdsa|ed25519).*|client_secret.*\.json|service[-_]account.*\.json"
    r"|.*\.tfstate\..*|.*\.(?:pem|key)\.(?:bak|old|orig)",
    re.DOTALL,
)
_GENERATED_NAMES = _names("""
    package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-lock.yml bun.lock bun.lockb
    poetry.lock pipfile.lock uv.lock pdm.lock cargo.lock gemfile.lock composer.lock go.sum
    flake.lock mix.lock pubspec.lock podfile.lock packages.lock.json gradle.lockfile
    deno.lock package.resolved
""")
_GENERATED_PATTERN = re.compile(
    r".*\.(?:map|snap|pb\.go|pb\.cc|pb\.h|g\.dart)|.*[.-]min\.(?:js|css|mjs)"
    r"|.*\.(?:bundle|chunk)\.(?:js|css)|.*_pb2(?:_grpc)?\.pyi?",
    re.DOTALL,
)
_BINARY_SUFFIXES = _names("""
    png jpg jpeg gif bmp ico icns webp avif heic tif tiff psd ai xcf
    mp3 mp4 m4a wav ogg oga flac aac mov avi mkv webm
    zip gz tgz bz2 xz zst 7z rar tar jar war ear whl egg deb rpm dmg iso apk
    woff woff2 ttf otf eot pdf doc docx xls xlsx ppt pptx odt ods odp
    exe dll so dylib a o obj lib class pyc pyo pyd wasm bin
    db sqlite sqlite3 mdb parquet feather npy npz pkl pickle h5 hdf5 onnx pt pth gguf safetensors
    mo
""")


def left_out_by_name(path: str) -> str:
    """Return why a path is not indexed, whatever its content; empty if it may be."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "unnameable"
    *folders, name = path.casefold().split("/")
    suffix = name.rpartition(".")[2]
    if (
        name in _SECRET_NAMES
        or suffix in _SECRET_SUFFIXES
        or _SECRET_PATTERN.fullmatch(name)
        or not _SECRET_FOLDERS.isdisjoint(folders)
    ):
        return "secret"
    if not MADE_FOLDERS.isdisjoint(folders):
        return "installed or cached"
    if suffix in _BINARY_SUFFIXES and "." in name:
        return "binary"
    if name in _GENERATED_NAMES or _GENERATED_PATTERN.fullmatch(name):
        return "generated"
    return ""


def list_project(
    root: int,
    folder: Path,
    *,
    max_files: int,
    private: Iterable[Path] = (),
    stop: threading.Event,
) -> ProjectFiles:
    """List the files below `folder`, which the descriptor `root` holds open; raises RagmemError.

    Of too many the shallowest are kept: files deep in a tree are rarely a project's own.
    """
    program = find_ripgrep([folder])
    if program is None:
        raise RagmemError(
            "ripgrep (rg) is not installed, so the project's files can't be listed for the code "
            "index.",
            hint="`ragmem doctor` says how to install it.",
        )
    hidden = tuple(
        f"{path.relative_to(folder).as_posix()}/"
        for path in private
        if path.is_relative_to(folder) and path != folder
    )
    for found in FileList.tries(program, root, timeout_s=_TIMEOUT_S, stop=stop):
        left_out: Counter[str] = Counter()
        kept: list[str] = []
        for path in found:
            if why := "ragmem's own" if path.startswith(hidden) else left_out_by_name(path):
                left_out[why] += 1
            else:
                kept.append(path)
    if found.failed:
        raise RagmemError(
            f"ripgrep could not list the project's files for the code index: {found.failed}",
            hint="Is the folder still there, and may you read it?",
        )
    if found.unreadable:
        left_out["unreadable"] += found.unreadable
    if not found.is_ignoring:
        left_out["ignore file that can't be read"] = 1
    if (more := len(kept) - max_files) > 0:
        left_out["too many"] = more
        kept = heapq.nsmallest(max_files, kept, key=lambda path: (path.count("/"), path))
    whole = not found.timed_out and not stop.is_set()
    return ProjectFiles(paths=sorted(kept), left_out=left_out, whole=whole)


_O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SNIFFED_BYTES = 8192
"""The number of bytes at a file's start that are searched for a NUL, which means binary."""
_RACY_NS = 2_000_000_000

Unread = Literal["vanished", "unreadable", "not a regular file", "too large"]


class Content(msgspec.Struct, frozen=True, dict=True):
    """A file's bytes, its size and modification time, and when it was read."""

    data: bytes
    size: int
    mtime_ns: int
    seen_ns: int

    @cached_property
    def hash(self) -> str:
        """The BLAKE2b hash of the bytes, in hexadecimal."""
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()


class NotRead(Exception):
    """A file can't be read; `why` is the reason in a word or two."""

    def __init__(self, why: Unread) -> None:
        super().__init__(why)
        self.why: Unread = why


def read(root: int, path: str, most: int) -> Content:
    """Read a file of at most `most` bytes below the open folder `root`; raises NotRead."""
    try:
        with _opened(root, path) as handle:
            seen_ns = time.time_ns()
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise NotRead("not a regular file")
            if found.st_size > most:
                raise NotRead("too large")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotRead("vanished") from None
    except (OSError, ValueError):
        raise NotRead("unreadable") from None
    if len(data) > most:
        raise NotRead("too large")
    return Content(data, found.st_size, found.st_mtime_ns, seen_ns)


@contextmanager
def _opened(root: int, path: str) -> Iterator[int]:
    *folders, name = path.split("/")
    with ExitStack() as opened:
        handle = root
        for part, flags in (*((folder, _FOLDER) for folder in folders), (name, _FILE)):
            handle = os.open(part, flags, dir_fd=handle)
            opened.callback(os.close, handle)
        yield handle


def is_binary(data: bytes) -> bool:
    """Return whether data isn't text: it has a NUL near its start."""
    return b"\0" in data[:_SNIFFED_BYTES]


def as_utf8(data: bytes) -> bytes:
    """Return a file's data, converted to UTF-8 if it is in Latin-1."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or not is_latin_1(data):
        return data
    return data.decode("latin-1").encode()


def without_secrets(data: bytes) -> bytes:
    """Redact a file's secrets, keeping its line numbers; Latin-1 is converted to UTF-8.

    To be called before cutting, which might leave half of a secret in a scope.
    """
    data = as_utf8(data)
    text = data.decode("utf-8", "replace")
    redacted = redact_lines(text)
    return data if redacted == text else redacted.encode("utf-8", "replace")


@contextmanager
def opened_folder(root: Path) -> Iterator[int]:
    """Open the project's folder as a descriptor."""
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            f"The folder {visible(str(root))} can't be indexed: {error.strerror}.",
            hint="Is it still there, and may you read it?",
        ) from None
    try:
        yield handle
    finally:
        os.close(handle)


class FileStamp(NamedTuple):
    """The state of a file when it was indexed."""

    size: int
    mtime_ns: int
    seen_ns: int
    hash: str
    left_out: str = ""

    def is_of(self, size: int, mtime_ns: int) -> bool:
        """Return whether a file with this stat is certainly unchanged.

        It isn't certain if it was read within 2 s of its modification (git's "racy" entries).
        """
        is_racy = abs(self.seen_ns - self.mtime_ns) < _RACY_NS
        return (size, mtime_ns) == (self.size, self.mtime_ns) and not is_racy


def hashes_of(connection: apsw.Connection, hits: Sequence[CodeHit]) -> dict[str, str]:
    """Return by scope id the hash that the scope's file had when it was indexed."""
    found = rows(
        connection,
        "SELECT s.scope_id, f.hash FROM scopes AS s JOIN files AS f USING (file)"
        " WHERE s.scope_id IN (SELECT value FROM json_each(?))",
        listed(hit.scope_id for hit in hits),
    )
    return dict(found)


def with_texts(
    root: Path, hits: Sequence[CodeHit], hashes: Mapping[str, str], most: int
) -> list[CodeHit]:
    """Return the hits with their current lines, dropping those that no longer exist.

    Files that changed since they were indexed are cut again. Blocks.
    """
    files: dict[str, _ShownFile | None] = {}
    found: list[CodeHit | None] = []
    try:
        with opened_folder(root) as folder:
            for hit in hits:
                if hit.path not in files:
                    files[hit.path] = _shown_file(folder, hit.path, most)
                file, indexed = files[hit.path], hashes.get(hit.scope_id)
                found.append(file.fresh(hit, indexed) if file and indexed else None)
    except UsageError:  # the folder is gone
        return []
    return [hit for hit in found if hit is not None]


def _shown_file(folder: int, path: str, most: int) -> "_ShownFile | None":
    try:
        content = read(folder, path, most)
    except NotRead:
        return None
    return None if is_binary(content.data) else _ShownFile(path, content)


class _ShownFile:
    """A file that contains hits: read once, and cut again only if it changed."""

    def __init__(self, path: str, content: Content) -> None:
        self._path = path
        self._content = content

    def fresh(self, hit: CodeHit, indexed: str) -> CodeHit | None:
        if self._content.hash != indexed:
            scope = self._scopes.get((hit.kind, hit.qualified_name))
            if scope is None:
                return None
            names = ("signature", "docstring", "start_line", "end_line")
            hit = msgspec.structs.replace(hit, **{name: getattr(scope, name) for name in names})
        lines, is_redacted = self._lines
        text = "\n".join(lines[hit.start_line - 1 : hit.end_line])
        return msgspec.structs.replace(hit, text=text if is_redacted else redact_lines(text))

    @cached_property
    def _redacted(self) -> bytes:
        """The redacted data, as it is indexed and shown."""
        return without_secrets(self._content.data)

    @cached_property
    def _lines(self) -> tuple[list[str], bool]:
        """The lines, and whether they are redacted: that takes long for a whole file."""
        text = as_utf8(self._content.data).decode("utf-8", "replace")
        if is_redacted := reaches_over_lines(text):
            text = self._redacted.decode("utf-8", "replace")
        return text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), is_redacted

    @cached_property
    def _scopes(self) -> dict[tuple[str, str], CutScope]:
        from ragmem.index.cut import cut

        return {(s.kind, s.qualified_name): s for s in cut(self._path, self._redacted).scopes}


_MOST_FILES_OF_A_FOLDER = 20
"""The most files that an import of a whole package or folder resolves to."""
_SOURCE_FOLDERS = ("", "src/", "lib/", "python/", "app/")
_SCRIPT_SUFFIXES = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".vue",
                    ".svelte")  # fmt: skip
_SOURCE_SUFFIXES = {".js": (".ts", ".tsx"), ".jsx": (".tsx",), ".mjs": (".mts",), ".cjs": (".cts",)}
_GO_MODULE = re.compile(r"^[^\S\n]*module\s+\"?([^\s\"]+)", re.MULTILINE)

Read = Callable[[str], str]
"""Reads a file of the project as text; empty where that fails."""


class Resolver:
    """Resolves imports to paths of the project."""

    def __init__(self, paths: Iterable[str], read: Read) -> None:
        self._paths = frozenset(paths)
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        self._by_end: defaultdict[str, list[str]] = defaultdict(list)
        """Paths by their last two components."""
        self._folders: defaultdict[str, list[str]] = defaultdict(list)
        for path in sorted(self._paths):
            folder, name = posixpath.split(path)
            self._by_name[name].append(path)
            self._by_end[f"{posixpath.basename(folder)}/{name}"].append(path)
            self._folders[folder].append(path)
        self._read = read
        self._modules: list[tuple[str, str]] | None = None

    def resolve(self, path: str, language: str, imports: Sequence[str]) -> tuple[str, ...]:
        """Return the paths that a file imports, each once, sorted, without its own."""
        ways: dict[str, Callable[[str, str], Iterable[str]]] = {
            "python": self._python,
            "javascript": self._script,
            "typescript": self._script,
            "tsx": self._script,
            "go": self._go,
            "rust": self._rust,
            "java": self._java,
            "c": self._c_include,
            "cpp": self._c_include,
        }
        way = ways.get(language)
        if way is None:
            return ()
        found = {each for written in imports for each in way(path, written)}
        return tuple(sorted(found - {path}))

    def _first(self, candidates: Iterable[str]) -> Iterator[str]:
        found = next((each for each in candidates if each in self._paths), None)
        if found is not None:
            yield found

    # --- Python -----------------------------------------------------------------------

    def _python(self, path: str, written: str) -> Iterator[str]:
        dots = len(written) - len(written.lstrip("."))
        parts = [part for part in written.lstrip(".").split(".") if part]
        if dots:
            folder = posixpath.dirname(path).split("/") if "/" in path else []
            if dots - 1 > len(folder):
                return
            base = folder[: len(folder) - (dots - 1)]
            yield from self._first(_python_files([*base, *parts], whole=not parts))
            return
        if not parts:
            return
        here = posixpath.dirname(path)
        # Also its own folder, if that is not a package: scripts, and tests, import their siblings.
        beside = here and f"{here}/__init__.py" not in self._paths
        roots = (*_SOURCE_FOLDERS, *([f"{here}/"] if beside else []))
        names = list(_python_files(parts, whole=False))
        found = list(self._first(root + name for root in roots for name in names))
        yield from found
        if len(parts) > 1 and not found:
            yield from self._nearest_ending(path, _python_files(parts, whole=False))

    def _nearest_ending(self, path: str, tails: Iterable[str]) -> Iterator[str]:
        """Yield the path nearest to `path` that ends with one of the tails of two or more parts."""
        for tail in tails:
            if "/" not in tail:
                continue
            if found := self._ending(tail):
                yield min(found, key=lambda each: _distance(path, each))
                return

    def _ending(self, tail: str) -> list[str]:
        end = "/".join(tail.split("/")[-2:])
        near = self._by_end.get(end) if "/" in tail else self._by_name.get(end)
        return [each for each in near or () if each == tail or each.endswith(f"/{tail}")]

    # --- JavaScript, TypeScript ---------------------------------------------------------

    def _script(self, path: str, written: str) -> Iterator[str]:
        if written.startswith("."):
            base = _joined(path, written)
        elif written.startswith(("@/", "~/")):
            base = f"src/{written[2:]}"
        else:
            return
        if base is not None:
            yield from self._first(_script_files(base))

    # --- Go -------------------------------------------------------------------------------

    def _go(self, path: str, written: str) -> Iterator[str]:
        for module, folder in self._go_modules():
            if written == module or written.startswith(f"{module}/"):
                rest = written[len(module) :].strip("/")
                below = posixpath.join(folder, rest).rstrip("/")
                files = [
                    each
                    for each in self._folders.get(below, ())
                    if each.endswith(".go") and not each.endswith("_test.go")
                ]
                yield from files[:_MOST_FILES_OF_A_FOLDER]
                return

    def _go_modules(self) -> list[tuple[str, str]]:
        """Return the names of modules with their folders, the longest name first."""
        if self._modules is None:
            found = [
                (match[1], posixpath.dirname(path))
                for path in self._by_name.get("go.mod", ())
                if (match := _GO_MODULE.search(self._read(path)))
            ]
            self._modules = sorted(found, key=lambda each: (-len(each[0]), each))
        return self._modules

    # --- Rust -------------------------------------------------------------------------------

    def _rust(self, path: str, written: str) -> Iterator[str]:
        first, *parts = [part for part in written.split("::") if part] or [""]
        if first == "crate":
            base = self._crate_source(path)
        elif first in ("self", "super"):
            base = _rust_module(path)
            if first == "super":
                base = posixpath.dirname(base)
            while parts and parts[0] == "super":
                base, parts = posixpath.dirname(base), parts[1:]
        else:
            return
        stems = (posixpath.join(base, *parts[:end]) for end in range(len(parts), 0, -1))
        yield from self._first(f"{stem}{end}" for stem in stems for end in (".rs", "/mod.rs"))

    def _crate_source(self, path: str) -> str:
        folder = posixpath.dirname(path)
        while folder and posixpath.join(folder, "Cargo.toml") not in self._paths:
            folder = posixpath.dirname(folder)
        return posixpath.join(folder, "src") if folder else "src"

    # --- Java -------------------------------------------------------------------------------

    def _java(self, path: str, written: str) -> Iterator[str]:
        parts = written.split(".")
        if parts[-1] == "*":
            tail = "/".join(parts[:-1])
            folder = next((f for f in self._folders if f == tail or f.endswith(f"/{tail}")), None)
            if folder is not None and len(parts) > 2:
                files = [each for each in self._folders[folder] if each.endswith(".java")]
                yield from files[:_MOST_FILES_OF_A_FOLDER]
            return
        # A nested class or a static member is in the file of its outer class.
        ends = range(len(parts), max(1, len(parts) - 2), -1)
        yield from self._nearest_ending(path, (f"{'/'.join(parts[:end])}.java" for end in ends))

    # --- others ----------------------------------------------------------------------------

    def _c_include(self, path: str, written: str) -> Iterator[str]:
        near = _joined(path, written)
        if near in self._paths:
            yield str(near)
            return
        if found := self._ending(written.removeprefix("./")):
            yield min(found, key=lambda each: _distance(path, each))


def _python_files(parts: Sequence[str], *, whole: bool) -> Iterator[str]:
    """Yield possible paths of a module; unless `whole`, the last part may be a name in it."""
    ends = [len(parts)] if whole or len(parts) < 2 else [len(parts), len(parts) - 1]
    for end in ends:
        stem = "/".join(parts[:end])
        if stem:
            yield f"{stem}.py"
            yield f"{stem}/__init__.py"
            yield f"{stem}.pyi"
        else:
            yield "__init__.py"


def _script_files(base: str) -> Iterator[str]:
    stem, suffix = posixpath.splitext(base)
    yield base
    for other in _SOURCE_SUFFIXES.get(suffix, ()):
        yield stem + other
    for suffix in _SCRIPT_SUFFIXES:
        yield base + suffix
    for suffix in _SCRIPT_SUFFIXES:
        yield posixpath.join(base, f"index{suffix}")


def _rust_module(path: str) -> str:
    """Return the folder of a module's submodules."""
    stem = path.removesuffix(".rs")
    folder, name = posixpath.split(stem)
    return folder if name in ("mod", "lib", "main") else stem


def _joined(path: str, written: str) -> str | None:
    """Resolve a path relative to a file's folder; None if it leads out of the project."""
    base = posixpath.normpath(posixpath.join(posixpath.dirname(path), written))
    return None if base.startswith(("..", "/")) else "" if base == "." else base


def _distance(path: str, other: str) -> tuple[int, int, str]:
    """Return a sort key for how far apart two files are in the tree."""
    one, two = path.split("/"), other.split("/")
    common = len(posixpath.commonpath([path, other]).split("/")) if one[0] == two[0] else 0
    return len(one) + len(two) - 2 * common, len(two), other


def stems_of(paths: Iterable[str]) -> set[str]:
    """Return words of which any import of one of these files contains at least one."""
    found = set()
    for path in paths:
        folder, name = posixpath.split(path)
        found |= {name.split(".")[0], posixpath.basename(folder)}
    return found - {""}
