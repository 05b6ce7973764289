"""A home and a project for the tests of each command."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.e2e.house import house, server

__all__ = ["house", "server"]


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    """With nothing in them."""
    return Ragmem(tmp_path)
