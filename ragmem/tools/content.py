"""Decode and encode files without loss, cut windows of their lines, and read images.

Lines end at `\\n` alone, so that numbers agree with ripgrep and editors: U+2028, form feeds and
lone carriage returns are ordinary characters of a line.
"""

import codecs
import hashlib
import os
import re
from typing import Literal

import msgspec

from ragmem.messages import ImagePart
from ragmem.redact import LONGEST_SECRET, first_of
from ragmem.text import Regex, is_latin_1, spelled
from ragmem.tools.base import ToolFailure, ToolOutput

MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Largest file that is read whole, can be edited, and has its lines counted."""
MAX_SCAN_BYTES = 256 * 1024 * 1024
"""How far from the start of a larger file lines can be reached."""
REGION_BYTES = 1024 * 1024
"""How much of a larger file is read around the requested line."""

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be", "latin-1"]

_BOMS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3\0", "an SQLite database"),
)
_SNIFFED_BYTES = 8192


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A file's decoded text, with what is needed to write it back unchanged."""

    text: str
    bom: bytes = b""
    encoding: Encoding = "utf-8"

    def encode(self, text: str) -> bytes:
        """Encode a changed text; raises UnicodeEncodeError if the encoding lacks a character."""
        errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        return self.bom + text.encode(self.encoding, errors)

    @property
    def crlf(self) -> bool:
        """Return whether every line ends with CR LF."""
        ends = self.text.count("\n")
        return ends > 0 and self.text.count("\r\n") == ends

    @property
    def notes(self) -> list[str]:
        """Return properties of the file that its text alone does not show."""
        notes = []
        if self.encoding != "utf-8":
            notes.append(f"encoding {self.encoding}")
        if self.bom:
            notes.append("starts with a byte order mark")
        if self.crlf:
            notes.append("CRLF line endings")
        elif "\r\n" in self.text:
            notes.append("mixed line endings")
        return notes


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a file's text, and its position in the file."""

    text: Text
    first_line: int
    """Number of its first line; negative numbers count from the end of the file."""
    line_count: int | None = None
    """Number of lines in the whole file, if known."""
    ends_file: bool = True


class NumberedLines(msgspec.Struct, frozen=True, kw_only=True):
    """Numbered lines, and the range that they cover."""

    body: str
    first: int
    last: int
    more: bool


def decode(data: bytes) -> Text:
    """Decode bytes losslessly: `encode` restores the same bytes, whatever they are.

    In data that is not quite UTF-8, stray bytes become surrogates if the rest has UTF-8 characters;
    otherwise it is read as Latin-1, so that its letters are legible.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return Text(text=data[len(bom) :].decode(encoding), bom=bom, encoding=encoding)
            except UnicodeDecodeError:
                break
    if is_latin_1(data):
        return Text(text=data.decode("latin-1"), encoding="latin-1")
    return Text(text=data.decode("utf-8", "surrogateescape"))


def load(fd: int, shown: str) -> bytes:
    """Read a whole open file; raises ToolFailure if it is binary or too large to edit."""
    size = os.fstat(fd).st_size
    head = os.pread(fd, _SNIFFED_BYTES, 0)
    refuse_binary(head, size, shown)
    data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise ToolFailure(
            f"{shown} is too large to edit ({size:,} bytes; the limit is {MAX_TEXT_BYTES:,}). "
            "Change it with a command."
        )
    return data


def refuse_binary(head: bytes, size: int, shown: str) -> None:
    """Raise ToolFailure, which names the kind of file, if it is binary."""
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    if b"\0" in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        kind = kind or "binary"
    if kind:
        raise ToolFailure(
            f"{shown} is {kind}, {size:,} bytes; only text can be read or edited. "
            "Inspect it with a command, such as `file` or `xxd -l 256`."
        )


def region(fd: int, shown: str, first: int) -> tuple[Region, bytes | None]:
    """Read the section around line `first` (1-based; negative from the end), in bounded memory.

    Also returns the whole content if the file is small enough to be held in memory.
    """
    size = os.fstat(fd).st_size
    refuse_binary(os.pread(fd, _SNIFFED_BYTES, 0), size, shown)
    data = read_span(fd, 0, MAX_TEXT_BYTES + 1)
    if len(data) <= MAX_TEXT_BYTES:
        text = decode(data)
        return Region(text=text, first_line=1, line_count=count_lines(text.text)), data
    del data
    if first < 0:
        tail = read_span(fd, max(0, size - REGION_BYTES), REGION_BYTES)
        # The first line of the section is probably incomplete.
        text = decode(tail[tail.find(b"\n") + 1 :])
        return Region(text=text, first_line=-count_lines(text.text)), None
    start = _find_line(fd, first, shown)
    stretch = read_span(fd, start, REGION_BYTES)
    ends_file = start + len(stretch) >= size
    if not ends_file and (cut := stretch.rfind(b"\n")) >= 0:
        stretch = stretch[: cut + 1]
    return Region(text=decode(stretch), first_line=first, ends_file=ends_file), None


def window(found: Region, first: int, limit: int, *, width: int, max_bytes: int) -> NumberedLines:
    """Cut out up to `limit` numbered lines from `first`, at most `max_bytes`, long ones cut."""
    text, number = found.text.text, found.first_line
    position = 0
    while number < first and position < len(text):
        position = text.find("\n", position) + 1 or len(text)
        number += 1
    start, out, size = number, list[str](), 0
    while position < len(text) and len(out) < limit:
        end = text.find("\n", position)
        stop = len(text) if end < 0 else end
        line = _shown_line(text, position, stop, width)
        row = f"{number:>6}\t{line}"
        size += len(row.encode("utf-8", "replace")) + 1
        if out and size > max_bytes:
            break
        out.append(row)
        position, number = stop + 1, number + 1
    more = position < len(text) or not found.ends_file
    return NumberedLines(body="\n".join(out), first=start, last=start + len(out) - 1, more=more)


def count_lines(text: str) -> int:
    """Count lines as an editor does: a last line without a line end counts."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of a content, by which tools recognize and store it."""
    return hashlib.sha256(data).hexdigest()


def read_span(fd: int, start: int, length: int) -> bytes:
    """Read up to `length` bytes from `start`, even if the file shrinks meanwhile."""
    parts = []
    while length > 0 and (part := os.pread(fd, min(length, 1 << 20), start)):
        parts.append(part)
        start += len(part)
        length -= len(part)
    return b"".join(parts)


def _find_line(fd: int, number: int, shown: str) -> int:
    """Return the byte offset of a line, counted from 1."""
    position, wanted = 0, number - 1
    while wanted:
        block = os.pread(fd, 1 << 20, position)
        if not block:
            raise ToolFailure(f"{shown} has no line {number:,}. For its end use a negative offset.")
        if position >= MAX_SCAN_BYTES:
            raise ToolFailure(
                f"Line {number:,} of {shown} is past its first {MAX_SCAN_BYTES:,} bytes. "
                "Use grep_files, a negative offset for its end, or a command such as `sed -n`."
            )
        if (ends := block.count(b"\n")) < wanted:
            wanted, position = wanted - ends, position + len(block)
            continue
        at = -1
        for _ in range(wanted):
            at = block.index(b"\n", at + 1)
        return position + at + 1
    return 0


def _shown_line(text: str, start: int, stop: int, limit: int) -> str:
    if stop > start and text[stop - 1] == "\r":
        stop -= 1
    # Cutting a longer line must not leave part of a secret at its end.
    beginning = text[start : min(stop, start + limit + LONGEST_SECRET)]
    line = spelled(first_of(beginning, limit), keep="\t")
    left_out = stop - start - limit
    return f"{line}… [{left_out:,} more characters]" if left_out > 0 else line


# --- images that the user shows to a model ---------------------------------------------

MAX_IMAGE_BYTES = 3_750_000
"""5 MB as base64, the most that Anthropic accepts for one image; others accept more:
https://docs.anthropic.com/en/docs/build-with-claude/vision"""

_PICTURES = {
    Regex(r"\x89PNG\r\n\x1a\n"): "PNG",
    Regex(r"GIF8[79]a"): "GIF",
    Regex(r"\xff\xd8\xff"): "JPEG",
    Regex(r"RIFF.{4}WEBP", re.DOTALL): "WebP",
}
"""First bytes, as Latin-1, of the image formats that models accept."""


def read_image(fd: int, shown: str) -> ToolOutput | None:
    """Read an open file as an image: described in words for the store, whole for the model.

    Returns None if it is not an image; raises ToolFailure if it is too large to be sent.
    """
    head = os.pread(fd, 16, 0).decode("latin-1")
    name = next((name for begins, name in _PICTURES.items() if begins.match(head)), "")
    if not name:
        return None
    kind, media_type = f"{name} image", f"image/{name.lower()}"
    data = read_span(fd, 0, MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolFailure(
            f"{shown} is a {kind}, larger than the {MAX_IMAGE_BYTES:,} bytes that can be sent to a "
            "model. Make it smaller, then mention it again."
        )
    sha256 = sha256_of(data)
    return ToolOutput(
        text=f"[{shown} is a {kind}, {len(data):,} bytes, SHA-256 {sha256}. A model that can see "
        "images gets it in the turn whose prompt mentions it as @path.]",
        display=kind,
        data={"path": shown, "sha256": sha256, "media_type": media_type},
        image=ImagePart(media_type, data),
    )
