"""The first page of a database, made anew: it says where the list of all tables stands.

That list is a tree; its leaves lie elsewhere in the file and are known by what is in
them. A page that was freed may still look like one: of those with the same rows the
first is taken.
"""

from collections.abc import Iterator
from pathlib import Path

import apsw

_SIZE = 4096
_HEADER = 100
_LEAF, _BRANCH = 0x0D, 0x05
_KINDS = (b"table", b"index", b"trigger", b"view")


def renew(database: Path, folder: Path) -> bool:
    """Write it, with a new database's header; False when no list of tables is left."""
    leaves: dict[int, int] = {}
    with database.open("rb") as file:
        for number, (first, last) in _leaves(file.read()):
            if not any(first <= key <= last for key in leaves):
                leaves[last] = number
    if not leaves:
        return False
    page = bytearray(_header(folder) + bytes(_SIZE - _HEADER))
    page[18:20] = b"\x02\x02"  # there is, or was, a log
    page[28:32] = (database.stat().st_size // _SIZE).to_bytes(4, "big")
    keys = sorted(leaves)
    at = _SIZE
    places = []
    for key in keys[:-1]:
        cell = leaves[key].to_bytes(4, "big") + _as_varint(key)
        at -= len(cell)
        page[at : at + len(cell)] = cell
        places.append(at.to_bytes(2, "big"))
    branch = bytes([_BRANCH, 0, 0]) + len(places).to_bytes(2, "big") + at.to_bytes(2, "big")
    branch += bytes(1) + leaves[keys[-1]].to_bytes(4, "big") + b"".join(places)
    page[_HEADER : _HEADER + len(branch)] = branch
    with database.open("r+b") as file:
        file.write(page)
    return True


def _header(folder: Path) -> bytes:
    new = folder / "new.db"
    connection = apsw.Connection(str(new))
    connection.execute("CREATE TABLE any_table (any_column)")
    connection.close()
    header = new.read_bytes()[:_HEADER]
    new.unlink()
    return header


def _leaves(content: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Pages that hold rows of the list: the number of each, its first row's and its last row's."""
    for start in range(_SIZE, len(content) - _SIZE + 1, _SIZE):
        page = content[start : start + _SIZE]
        if page[0] != _LEAF:
            continue
        count = int.from_bytes(page[3:5], "big")
        places = [int.from_bytes(page[8 + 2 * i : 10 + 2 * i], "big") for i in range(count)]
        rows = [_row(page, place) for place in places]
        known = [row for row in rows if row is not None]
        if known and len(known) == len(rows) and known == sorted(set(known)):
            yield start // _SIZE + 1, (known[0], known[-1])


def _row(page: bytes, place: int) -> int | None:
    """The number of a row that tells of a table, an index or the like; None for another one."""
    try:
        _, at = _varint(page, place)
        number, at = _varint(page, at)
        header, types_at = _varint(page, at)
        types = []
        while types_at < at + header:
            kind, types_at = _varint(page, types_at)
            types.append(kind)
    except IndexError:
        return None
    # Five columns, of which the first is a text: the kind.
    if len(types) != 5 or types[0] < 13 or not types[0] % 2:
        return None
    text = page[at + header : at + header + (types[0] - 13) // 2]
    return number if text in _KINDS else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as SQLite writes it, and where it ends."""
    number = 0
    for used in range(9):
        byte = data[at + used]
        if used == 8:
            return number << 8 | byte, at + 9
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + used + 1
    raise AssertionError


def _as_varint(number: int) -> bytes:
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(0x80 | number & 0x7F)
    return bytes(reversed(parts))
