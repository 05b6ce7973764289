"""A home and a project for the tests of each command."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    """With nothing in them."""
    return Ragmem(tmp_path)
