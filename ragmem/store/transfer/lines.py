"""A stream of Writes in a file, one a line: the backup of a store that is no file itself.

The first line says what it is, the last one how many writes there are: without
it the file was cut.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from ragmem.errors import StoreDamaged, UsageError
from ragmem.failpoints import failpoint
from ragmem.records import Write
from ragmem.store.transfer.copying import OnProgress
from ragmem.store.transfer.stream import BATCH, Stream


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["ragmem.writes"] = "ragmem.writes"
    version: Literal[1] = 1


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    end: int
    """Writes before this line."""


_write = msgspec.json.Decoder(Write)


async def write_lines(stream: Stream, out: BinaryIO, on_progress: OnProgress) -> None:
    """Write the whole stream; the caller makes it durable."""
    count = 0
    out.write(msgspec.json.encode(_Head()) + b"\n")
    async for batch in stream():
        failpoint("lines.write")
        out.writelines(msgspec.json.encode(write) + b"\n" for write in batch)
        count += len(batch)
        on_progress("copying", len(batch))
    out.write(msgspec.json.encode(_End(count)) + b"\n")


def is_lines(file: Path) -> bool:
    """Whether the file begins as such a one does."""
    with file.open("rb") as lines:
        try:
            msgspec.json.decode(lines.readline(1000), type=_Head)
        except msgspec.MsgspecError:
            return False
    return True


def count_lines(file: Path) -> int:
    """How many writes are in it, about."""
    with file.open("rb") as lines:
        return max(0, sum(1 for _ in lines) - 2)


def stream_of_lines(file: Path) -> Stream:
    """What is in the file; StoreDamaged at the first line that can't be read, or at a cut end."""

    async def stream() -> AsyncIterator[Sequence[Write]]:
        batch: list[Write] = []
        damage = None
        with file.open("rb") as lines:
            try:
                msgspec.json.decode(lines.readline(), type=_Head)
            except msgspec.MsgspecError:
                raise UsageError(f"{file} is no backup of ragmem's memory.") from None
            ended = False
            for count, line in enumerate(lines):
                failpoint("lines.read")
                try:
                    if line.startswith(b'{"end":'):
                        ended = msgspec.json.decode(line, type=_End).end == count
                        break
                    batch.append(_write.decode(line))
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    damage = f"its line {count + 2} can't be read"
                    break
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch
        if not ended:
            raise StoreDamaged(
                f"The backup {file} is damaged: {damage or 'its end is missing'}. What stands "
                "before that was taken.",
                hint="Use another backup if there is one.",
            )

    return stream
