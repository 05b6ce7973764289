"""The lines of what was found: as they are on the disk, without their secrets."""

import os
from pathlib import Path

import pytest

from ragmem import redact as module
from ragmem.index.files import read, with_texts
from ragmem.redact import know, reaches_over_lines, redact_lines
from tests.index.cuts import a_hit
from tests.index.trees import Tree
from tests.test_redact import BODY, KEYS

OF_LINES = "-----BEGIN " + f"PRIVATE KEY-----\n{BODY}\n-----END " + "PRIVATE KEY-----"
ONE_LINE = sorted(key for key in KEYS.values() if "\n" not in key)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests made known is known to them alone."""
    monkeypatch.setattr(module, "_known", {})


def lines_of(folder: Path, first: int, last: int) -> str:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    held = read(handle, "notes.txt", 1_000_000)
    os.close(handle)
    hit = a_hit(path="notes.txt", lines=(first, last))
    (found,) = with_texts(folder, [hit], {"s": held.hash}, 1_000_000)
    return found.text


@pytest.mark.parametrize("key", ONE_LINE, ids=range(len(ONE_LINE)))
def test_lines_alone_are_redacted_as_in_their_file(key: str) -> None:
    """What is redacted of some lines is what is redacted of them in the whole file."""
    text = f"first = 1\nkey = '{key}'\n{key}\n  {key}\nlast = '{key}'\n{key[:9]}\n{key[9:]}\n"
    assert not reaches_over_lines(text)
    whole = redact_lines(text).split("\n")
    lines = text.split("\n")
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + 1):
            alone = redact_lines("\n".join(lines[first:last])).split("\n")
            assert alone == whole[first:last]
    assert key not in "\n".join(whole)


def test_a_known_value_of_several_lines_reaches_over_them() -> None:
    know({"WORDS": "one line\nand another", "PLAIN": "only-one-line"})
    assert reaches_over_lines("a\none line\nand another\n")
    assert reaches_over_lines(OF_LINES)
    assert not reaches_over_lines("a\none line\nonly-one-line\n")


@pytest.mark.parametrize(
    "secret", [OF_LINES, "a phrase\nof several lines\nof a diary"], ids=["format", "known"]
)
def test_the_rest_of_a_secret_of_several_lines_is_not_shown(tmp_path: Path, secret: str) -> None:
    know({"DIARY": "a phrase\nof several lines\nof a diary"})
    lines = secret.split("\n")
    (tmp_path / "notes.txt").write_text(f"before\n{secret}\nbehind")
    assert "behind" in lines_of(tmp_path, 1, len(lines) + 2)
    for first in range(2, len(lines) + 1):
        found = lines_of(tmp_path, first, len(lines) + 2)
        assert found.split("\n")[-1] == "behind"
        assert not any(line in found for line in lines)


async def test_secrets_are_neither_kept_nor_shown(tree: Tree) -> None:
    """Of a known form, and known to be one; also those of a signature and a docstring."""
    know({"HARVEST_PASSWORD": "pumpkin-and-cherry"})
    key = "sk-ant-" + "a1B2" * 10
    text = f'def harvest(key="{key}"):\n    """Uses {key}."""\n    return "pumpkin-and-cherry"\n'
    tree.write("harvest.py", text)
    async with tree.indexed() as index:
        (found,) = await index.search("harvest")
        assert found.text.endswith('return "[redacted: HARVEST_PASSWORD]"')
        assert "[redacted: Anthropic key]" in found.text
        assert key not in f"{found.text}{found.signature}{found.docstring}"
        for file in tree.database.parent.iterdir():
            kept = file.read_bytes().lower()
            assert key.lower().encode() not in kept
            assert b"pumpkin-and-cherry" not in kept


async def test_lines_of_a_file_with_other_ends_of_lines(tree: Tree) -> None:
    tree.write("harvest.py", "\ufeffdef harvest():\r\n    return 1\r\n")
    async with tree.indexed() as index:
        (found,) = await index.search("harvest")
    assert found.text == "def harvest():\n    return 1"
