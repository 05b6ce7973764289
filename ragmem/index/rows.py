"""The rows that a file becomes in the index: its scopes with their words and the text to embed."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ragmem.index.files import NotRead, Unread, is_binary, read, without_secrets
from ragmem.index.values import CutScope
from ragmem.records import ScopeKind
from ragmem.terms import terms
from ragmem.terms.languages import STOP_WORDS
from ragmem.text import clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    D = TypeVar("D", int, NDArray[np.int64])


LENGTH_BITS = 8
_STEPS = 16
"""Lengths told apart between one and its double."""
_MOST_OF_A_TERM = 8
"""Times that a term counts in one field."""
_MOST_TERMS = 400
"""Distinct ones of a scope's lines, the commonest and first: more is a table of data."""
_BODY_CHARS = 60_000
_ABOUT_CHARS = 4_000
_PATH_PARTS = 3
"""At the end of a path that are found as one: `store/base.py`."""

_STOPS = STOP_WORDS["english"]
_NUMBERED = re.compile(r"#\d+$")
"""Of the second scope of a name in its file."""


def _names(scope: CutScope) -> list[str]:
    """The qualified name's terms; those of the last name twice: that of its class is context."""
    return terms(_NUMBERED.sub("", scope.qualified_name), language="english") + terms(
        scope.name, language="english"
    )


def _paths(path: str, language: str) -> list[str]:
    parts = path.split("/")
    ends = ("/".join(parts[-n:]) for n in range(2, min(_PATH_PARTS, len(parts) - 1) + 1))
    found = (term for end in (path, *ends, language) for term in terms(end, language="english"))
    return list(dict.fromkeys(found))


def _telling(text: str) -> list[str]:
    return [term for term in terms(text, language="english") if term not in _STOPS]


def _capped(found: list[str], most: int = 0) -> list[str]:
    """Each term so often at most, and the commonest of them where there are many."""
    counted = Counter(found)
    if most and len(counted) > most:
        counted = Counter(dict(counted.most_common(most)))
    return [term for each, n in counted.items() for term in repeat(each, min(n, _MOST_OF_A_TERM))]


# --- what is embedded -------------------------------------------------------------------

_EMBEDDED_CHARS = 480
"""Some 120 tokens of code and words."""
_DOCSTRING_CHARS = 280
_SIGNATURE_CHARS = 140
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")


def embedded(path: str, scope: CutScope) -> str:
    """Its name in words and where it is, what is said of it, its signature, how it begins.

    Nothing of a block that only imports.
    """
    name = _NUMBERED.sub("", scope.qualified_name)
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
        parts.append(_beginning(scope, left))
    text = "\n".join(filter(None, parts))
    return text if any(map(str.isalnum, text)) else ""


def _in_words(name: str) -> str:
    return " ".join(word if word.isupper() else word.lower() for word in _WORDS.findall(name))


def _beginning(scope: CutScope, room: int) -> str:
    """Its first lines that say something, without what the signature and the docstring say."""
    known = f"{' '.join(scope.signature.split())} {' '.join(scope.docstring.split())}"
    found: list[str] = []
    for line in islice(scope.text.splitlines(), 200):
        said = " ".join(line.split())
        if room <= 0:
            break
        if not any(map(str.isalnum, said)) or _bare(said) in known:
            continue
        found.append(said[:room])
        room -= len(said) + 1
    return " ".join(found)


def _bare(line: str) -> str:
    """A line without the marks of a comment or a string around it."""
    return line.strip("\"'/*#!;-<> ")


# --- the rows of the text index -------------------------------------------------------------


def numbered(sequence: int, length: int) -> int:
    """The row of a scope: with its length in it, so that a search need not look it up."""
    code = min(round(_STEPS * math.log2(length + 1)), (1 << LENGTH_BITS) - 1)
    return sequence << LENGTH_BITS | code


def length_of(scopes: "NDArray[np.int64]") -> "NDArray[np.float64]":
    """Terms of each, within 3 %."""
    lengths: NDArray[np.float64] = 2.0 ** ((scopes & (1 << LENGTH_BITS) - 1) / _STEPS) - 1
    return lengths


class ScopeRow(msgspec.Struct, frozen=True, array_like=True):
    """A scope with its words."""

    kind: ScopeKind
    name: str
    qualified_name: str
    signature: str
    docstring: str
    start_line: int
    end_line: int
    hash: str
    calls: tuple[str, ...]
    names: str
    paths: str
    about: str
    body: str
    length: int
    """Terms of what is said about it and of its lines: the names of all are about as long."""
    embedded: str
    """The text that is embedded; empty where there is nothing to embed."""
    embed_hash: str


class FileRow(msgspec.Struct, frozen=True, array_like=True):
    """A file that was read, or could not be."""

    path: str
    unread: Unread | None = None
    """Why there is nothing of it."""
    size: int = 0
    mtime_ns: int = 0
    seen_ns: int = 0
    hash: str = ""
    left_out: str = ""
    """Why it is not cut though it was read; empty when it is."""
    language: str = ""
    line_count: int = 0
    imports: tuple[str, ...] = ()
    scopes: tuple[ScopeRow, ...] = ()


def rows_of(root: int, paths: Sequence[str], most: int) -> list[FileRow]:
    """These files, read, cut and worded."""
    return [row_of(root, path, most) for path in paths]


def row_of(root: int, path: str, most: int) -> FileRow:
    """One file; never raises for what is in it."""
    from ragmem.index.cut import cut

    try:
        content = read(root, path, most)
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
    """A scope of a file with its words, terms joined with spaces, and its text for the embedder."""
    from ragmem.index.vectors import embed_hash

    about = _capped(_telling(f"{scope.docstring}\n{scope.signature}"[:_ABOUT_CHARS]))
    body = _capped(_telling(scope.text[:_BODY_CHARS]), _MOST_TERMS)
    to_embed = clean(embedded(path, scope))
    return ScopeRow(
        scope.kind,
        clean(scope.name),
        clean(scope.qualified_name),
        clean(scope.signature),
        clean(scope.docstring),
        scope.start_line,
        scope.end_line,
        scope.hash,
        tuple(map(clean, scope.calls)),
        names=clean(" ".join(_names(scope))),
        paths=clean(" ".join(_paths(path, language))),
        about=clean(" ".join(about)),
        body=clean(" ".join(body)),
        length=len(about) + len(body),
        embedded=to_embed,
        embed_hash=embed_hash(to_embed),
    )
