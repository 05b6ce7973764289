"""Which files of a project are indexed: those that .gitignore leaves, without what tells nothing.

Listed by ripgrep, never by git, which runs what a folder says. Links are not followed.
"""

import heapq
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ragmem.errors import RagmemError
from ragmem.ripgrep import find_ripgrep, list_files

_TIMEOUT_S = 300.0
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")


class Limits(msgspec.Struct, frozen=True):
    """How much of a project is indexed."""

    max_files: int = 50_000
    max_file_bytes: int = 1_000_000


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a project."""

    paths: list[str]
    """Relative, with `/`; in the order of their bytes."""
    left_out: Counter[str]
    """By reason; of these the paths are not kept."""
    whole: bool
    """Whether a file that is not there is gone."""


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
    """Why a file of this path is not indexed, whatever is in it; empty where it may be."""
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
    if suffix in _BINARY_SUFFIXES and "." in name:
        return "binary"
    if name in _GENERATED_NAMES or _GENERATED_PATTERN.fullmatch(name):
        return "generated"
    return ""


def says_what_is_ignored(path: str) -> bool:
    """Whether other files come or go when this one changes."""
    return path.rpartition("/")[2] in _IGNORE_FILES


def list_project(
    root: int,
    folder: Path,
    *,
    limits: Limits,
    private: Iterable[Path] = (),
    stop: threading.Event,
) -> Listed:
    """The files below the folder that a descriptor holds; RagmemError where they can't be had.

    Of too many the shallowest are kept: what is deep down in a tree is rarely a project's own.
    """
    program = find_ripgrep([folder])
    if program is None:
        raise RagmemError(
            "ripgrep (rg) is not installed, so the project's files can't be listed for the code "
            "index.",
            hint="`ragmem doctor` says how to get it.",
        )
    hidden = tuple(
        f"{path.relative_to(folder).as_posix()}/"
        for path in private
        if path.is_relative_to(folder) and path != folder
    )
    left_out: Counter[str] = Counter()
    found = list_files(program, root, timeout_s=_TIMEOUT_S, stop=stop)
    kept = _shallowest(found, lambda path: _reason(path, hidden), limits.max_files, left_out)
    if found.failed:
        raise RagmemError(
            f"ripgrep could not list the project's files for the code index: {found.failed}",
            hint="Is the folder still there, and may you read it?",
        )
    if found.unreadable:
        left_out["unreadable"] += found.unreadable
    whole = not found.timed_out and not stop.is_set()
    return Listed(paths=sorted(kept), left_out=left_out, whole=whole)


def _reason(path: str, hidden: tuple[str, ...]) -> str:
    return "ragmem's own" if path.startswith(hidden) else left_out_by_name(path)


def _shallowest(
    found: Iterable[str], reason: Callable[[str], str], most: int, left_out: Counter[str]
) -> list[str]:
    """At most so many, whichever order they come in; never more than twice that in memory."""
    kept: list[str] = []
    for path in found:
        if why := reason(path):
            left_out[why] += 1
            continue
        kept.append(path)
        if len(kept) >= 2 * most + 1:
            left_out["too many"] += len(kept) - most
            kept = heapq.nsmallest(most, kept, key=_depth)
    if len(kept) > most:
        left_out["too many"] += len(kept) - most
        kept = heapq.nsmallest(most, kept, key=_depth)
    return kept


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def refusal(folder: Path) -> str:
    """Why a folder is no project to be indexed; empty where it may be one."""
    real = Path(os.path.realpath(folder))
    if real == Path(real.anchor):
        return "it is the root of the file system"
    try:
        home = Path(os.path.realpath(Path.home()))
    except RuntimeError:  # HOME is not set, and the system knows of none
        return ""
    if real == home:
        return "it is your home folder"
    return "your home folder is in it" if home.is_relative_to(real) else ""
