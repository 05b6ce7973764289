"""What is said of writes that wait."""

from pathlib import Path


def writes_text(count: int) -> str:
    """`3 writes`."""
    return f"{count:,} {'write' if count == 1 else 'writes'}"


def are(count: int) -> str:
    """What so many writes do: `is` or `are`."""
    return "is" if count == 1 else "are"


def lost_text(folder: Path, most: int) -> str:
    """Of a turn that neither the disk nor memory has room for."""
    room = f"{most >> 20} MB" if most >= 1 << 20 else f"{most:,} bytes"
    return (
        f"This turn is not kept: the memory is away, {folder} can't be written, and the {room} "
        "that this process keeps for them are full. What came before is still kept."
    )
