"""Records of a file: streamed, and none lost for the sake of its neighbours."""

import json
import os
from io import BytesIO
from pathlib import Path

import pytest

from ragmem import importers
from ragmem.importers import Tally, opened, records

GOOD = b'{"type":"user","n":%d}'


def read(data: bytes) -> tuple[list[object], dict[str, int]]:
    """The numbers of the records, and what was broken."""
    tally = Tally()
    found = [record.get("n") for record in records(BytesIO(data), tally)]
    return found, dict(tally.broken)


def test_bad_lines_cost_nothing_else() -> None:
    """Torn, appended to a torn one, no JSON, no object, binary, empty."""
    data = b"\n".join(
        [
            b"\xef\xbb\xbf" + GOOD % 1,
            b'{"type":"user","n":2,"message":{"content":"torn' + GOOD % 3,
            b"",
            b"[1, 2]",
            b"\0\0\0\0",
            bytes(range(128, 256)),
            b'{"type":"user","n":4,"text":"half \\ud83c, and \xff"}\r',
            GOOD % 5 + b"}",
            b"[" * 100_000,
            GOOD % 6,
            b'{"type":"user","n":7',
        ]
    )
    found, broken = read(data)
    assert found == [1, 3, 4, 6]
    assert broken == {"no JSON": 4, "no JSON object": 1, "cut off, with another one behind it": 1}


def test_what_is_torn_is_not_taken_for_a_record() -> None:
    """The inner objects of a record that was cut off are no records."""
    torn = b'{"type":"user","message":{"content":[{"type":"text","n":1},{"type":"text","n":2}'
    assert read(torn + b'],"cut') == ([], {"no JSON": 1})


def test_a_line_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ever being in memory as a whole."""
    monkeypatch.setattr(importers, "LINE_LIMIT", 1000)
    long = json.dumps({"type": "user", "n": 2, "text": "x" * 5000}).encode()
    found, broken = read(b"\n".join([GOOD % 1, long, GOOD % 3]))
    assert found == [1, 3]
    assert list(broken.values()) == [1]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """No link is followed, and nobody waits for a pipe."""
    real, link, pipe = (tmp_path / name for name in ("real", "link", "pipe"))
    real.write_bytes(GOOD % 1)
    link.symlink_to(real)
    os.mkfifo(pipe)
    with opened(real) as source:
        assert source.read() == GOOD % 1
    for file in (link, pipe, tmp_path):
        with pytest.raises(OSError, match=r"link|regular|directory|Too many"), opened(file):
            pass
