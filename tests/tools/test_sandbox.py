"""The sandbox of commands: what it refuses, by each mechanism and for root and others."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ragmem.tools import kernel
from ragmem.tools.sandbox import find_mechanism
from tests.tools.escapes import GUARD, REACHED, WAYS

_REPOSITORY = Path(__file__).parents[2]
_NOBODY_ELSE = 61_234
_SOME_SYSTEMS_REFUSE = {
    "ptrace", "memory of a process", "new namespaces", "new namespace by clone", "io_uring",
    "keyring", "setuid", "type into a terminal",
}  # fmt: skip
_IS_ROOT = os.geteuid() == 0


def missing(kind: str) -> str:
    """Why a mechanism can't be tried here; empty where it can."""
    if kind == "landlock" and kernel.landlock_version() < kernel.LEAST_ABI:
        return f"Landlock of this kernel is {kernel.landlock_version()}"
    if kind == "bubblewrap" and find_mechanism().kind != kind:
        return find_mechanism().why
    return ""


def attempt(kind: str, who: str) -> dict[str, tuple[str, bool]]:
    """Try every way out, as this user or as an ordinary one; what came of each."""
    # Not below /tmp, which commands see another one of.
    folder = Path(tempfile.mkdtemp(prefix="ragmem-escapes-", dir="/var/tmp"))
    other = _NOBODY_ELSE if who == "user" and _IS_ROOT else None
    try:
        if _IS_ROOT:
            shutil.copy("/usr/bin/id", folder / "setuid-id")
            (folder / "setuid-id").chmod(0o4755)
        if other:
            os.chown(folder, other, other)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tests.tools.escapes", kind, str(folder)],
            cwd=_REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            user=other,
            group=other,
            extra_groups=[] if other else None,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def escaped(outcome: tuple[str, bool]) -> bool:
    text, intact = outcome
    return REACHED in text or GUARD in text or not intact


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("who", ["root", "user"])
def test_no_way_leads_out(kind: str, who: str) -> None:
    if why := missing(kind):
        pytest.skip(why)
    if who == "root" and not _IS_ROOT:
        pytest.skip("this is not root")
    found = attempt(kind, who)
    out = {name for name, outcome in found.items() if escaped(outcome)}
    assert out == {name for name, way in WAYS.items() if kind not in way.held_by}, [
        (name, found[name]) for name in out
    ]
    for name in out:
        assert "[Can run by itself, and was made or changed meanwhile: " in found[name][0]


@pytest.mark.parametrize("who", ["root", "user"])
def test_without_a_sandbox_they_all_lead_out(who: str) -> None:
    """The honest counterpart: each way is one, where what it is after is there."""
    if who == "root" and not _IS_ROOT:
        pytest.skip("this is not root")
    found = attempt("none", who)
    held = {name for name, outcome in found.items() if not escaped(outcome)}
    expected = {name for name, way in WAYS.items() if who not in way.works}
    assert expected <= held <= expected | _SOME_SYSTEMS_REFUSE, [
        (name, found[name]) for name in held
    ]
