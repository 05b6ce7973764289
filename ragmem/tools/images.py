"""Pictures that a person shows to a model: what they are, by their first bytes, and their size."""

import hashlib
import os
import struct

import msgspec

from ragmem.messages import ImagePart
from ragmem.tools.base import ToolFailure, ToolOutput
from ragmem.tools.content import read_span

MAX_IMAGE_BYTES = 3_750_000
"""As text of base64 that is 5 MB, the most that Anthropic takes of one; the others take more:
https://docs.anthropic.com/en/docs/build-with-claude/vision
"""
_LOOKED_AT = 64 * 1024


class ImageKind(msgspec.Struct, frozen=True):
    """A format, and pixels where its header tells them early."""

    media_type: str
    name: str
    width: int = 0
    height: int = 0

    def __str__(self) -> str:
        size = f", {self.width}x{self.height}" if self.width and self.height else ""
        return f"{self.name} image{size}"


def image_kind(head: bytes) -> ImageKind | None:
    """What a file that begins so shows; None for what models take no pictures of."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        size = struct.unpack(">II", head[16:24]) if head[12:16] == b"IHDR" and head[23:] else ()
        return ImageKind("image/png", "PNG", *size)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return ImageKind("image/gif", "GIF", *(struct.unpack("<HH", head[6:10] or bytes(4))))
    if head.startswith(b"\xff\xd8\xff"):
        return ImageKind("image/jpeg", "JPEG", *_jpeg_size(head))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ImageKind("image/webp", "WebP")
    return None


def _jpeg_size(head: bytes) -> tuple[int, int]:
    """From the frame's header; zeros where it stands further on than was looked."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + max(2, length)
    return 0, 0


def read_image(fd: int, shown: str) -> ToolOutput | None:
    """An open file as a picture: in words for the store, whole for the model. None for no picture.

    ToolFailure where it is too large to be sent.
    """
    kind = image_kind(os.pread(fd, _LOOKED_AT, 0))
    if kind is None:
        return None
    data = read_span(fd, 0, MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolFailure(
            f"{shown} is a {kind}, larger than the {MAX_IMAGE_BYTES:,} bytes that can be sent to a "
            "model. Make it smaller, then name it again."
        )
    sha256 = hashlib.sha256(data).hexdigest()
    return ToolOutput(
        text=f"[{shown} is a {kind}, {len(data):,} bytes, SHA-256 {sha256}. A model that can see "
        "is shown it in the turn whose prompt names it as @path.]",
        display=str(kind),
        data={"path": shown, "sha256": sha256, "media_type": kind.media_type},
        image=ImagePart(kind.media_type, data),
    )
