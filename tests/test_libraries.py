"""Large libraries are imported without their unneeded parts, by one thread while others import."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import FrozenImporter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ragmem.libraries import load_httpcore, load_numpy


def test_what_one_thread_leaves_out_of_an_import_hides_nothing_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is about to ask the finder of files when the one has done."""
    searching, imported = threading.Event(), threading.Event()
    found: list[bool] = []

    class Finders(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            for finder in super().__iter__():
                yield finder
                if finder is FrozenImporter and threading.current_thread() is other:
                    searching.set()
                    assert imported.wait(10)

    def start_other() -> None:
        other.start()
        assert searching.wait(10)

    other = threading.Thread(
        target=lambda: found.append(find_spec("found_by_the_other") is not None)
    )
    (tmp_path / "found_by_the_other.py").touch()
    (tmp_path / "httpcore.py").write_text("import sys\nsys.start_other()\n")
    monkeypatch.setattr(sys, "start_other", start_other, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] == "httpcore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", Finders(sys.meta_path))
    load_httpcore()
    imported.set()
    other.join()
    sys.modules.pop("httpcore")
    assert found == [True]


def test_numpy_is_told_of_one_thread_and_no_copy_of_the_environment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that copies it at the same time would miss what is gone when it gets there."""
    code = (
        "import ctypes, os\n"
        "getenv = ctypes.CDLL(None).getenv\n"
        "getenv.restype = ctypes.c_char_p\n"
        "told = getenv(b'OPENBLAS_NUM_THREADS'), os.environ.get('OPENBLAS_NUM_THREADS')\n"
    )
    (tmp_path / "numpy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    load_numpy()
    imported = sys.modules.pop("numpy")
    assert imported.told == (b"1", None)
    code = "import os; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert child.stdout == b"None\n"
