"""Every error's way out, and how little a start imports."""

import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.cli.main import record_crash, run
from ragmem.errors import AmbiguousSession, ProviderUnavailable, RagmemError, UsageError
from tests.cli.process import Ragmem


def _left() -> SystemExit:
    """As typer tells of a reader that goes away."""
    error = SystemExit(1)
    error.__context__ = BrokenPipeError()
    return error


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr("ragmem.cli.main._dispatch", fail)
    return run(["ask"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RagmemError("It broke.", hint="Mend it."), 1, "error: It broke.\nMend it.\n"),
        (UsageError("Wrong."), 2, "error: Wrong.\n"),
        (AmbiguousSession("Two.", candidates=("a", "b")), 2, "error: Two.\n"),
        (ProviderUnavailable("Away."), 75, "error: Away.\n"),
        (RagmemError("\x1b[31mred", hint="\x07"), 1, "error: \\e[31mred\n\\x07\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (_left(), 141, ""),
        (SystemExit(3), 3, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_an_error_is_one_message_and_a_code(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert failing_with(error, monkeypatch) == code
    assert capfd.readouterr() == ("", said)


def test_an_early_prompt_is_cleared_before_a_message(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cleared: list[str] = []

    def clear() -> None:
        cleared.append(capfd.readouterr().err)

    assert run(["ask", "--bogus"], before_message=clear) == 2
    assert cleared == [""]
    assert capfd.readouterr().err.startswith("error: No such option: --bogus")


def test_a_bug_is_logged_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAGMEM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-canary")
    error = ZeroDivisionError("with sk-canary-canary and \x1b[31m")
    assert failing_with(error, monkeypatch) == 1
    out, err = capfd.readouterr()
    (log,) = (tmp_path / "home" / "logs").iterdir()
    assert (out, err) == (
        "",
        "error: ZeroDivisionError: with [redacted: OPENAI_API_KEY] and \\e[31m\n"
        f"This is a bug in ragmem. The traceback is in {log}\n",
    )
    assert log.stat().st_mode & 0o777 == 0o600
    written = log.read_text()
    assert "Traceback (most recent call last)" in written
    assert "canary" not in written


def test_a_bug_that_can_not_be_logged_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGMEM_HOME", str(tmp_path / "file" / "home"))
    told = record_crash(ValueError("odd"))
    assert told.startswith(
        "error: ValueError: odd\nThis is a bug in ragmem. It could not be logged: "
    )


def test_a_group_without_a_command_is_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["config"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("Usage: ragmem config [OPTIONS] COMMAND [ARGS]...\n")


HEAVY = (
    "rich",
    "httpcore",
    "litellm",
    "neo4j",
    "prompt_toolkit",
    "pydantic",
    "tomlkit",
    "numpy",
    "openai",
)


def test_short_commands_import_nothing_heavy(tmp_path: Path) -> None:
    """Start-up time is a feature: pydantic alone, which the parser would import, costs 190 ms."""
    code = (
        f"import sys\nfrom ragmem.__main__ import run\nheavy = set({HEAVY!r})\n"
        "for words in sys.argv[1:]:\n    sys.argv[1:] = words.split()\n    run()\n"
        "    sys.stderr.write(f'{words}: {heavy & set(sys.modules)}\\n')"
    )
    commands = ("--help", "config path", "sessions list", "sessions list --format json")
    ragmem = Ragmem(tmp_path)
    done = ragmem.execute(sys.executable, "-P", "-c", code, *commands)
    assert done.code == 0
    told = [line for line in done.err.splitlines() if line.startswith(commands)]
    assert told == [f"{words}: set()" for words in commands]


def test_the_graph_driver_comes_without_arrays_that_others_may_have_meanwhile() -> None:
    """Half of its import would be numpy, which another thread may need at the same time."""
    code = (
        "import sys, threading\n"
        "from ragmem import libraries\n"
        "with libraries._hiding('numpy', 'colorsys'):\n"
        "    other = threading.Thread(target=__import__, args=('colorsys',))\n"
        "    other.start(), other.join()\n"
        "libraries.load_neo4j()\n"
        "assert 'colorsys' in sys.modules and 'numpy' not in sys.modules\n"
        "import numpy, neo4j\n"
        "assert neo4j.AsyncGraphDatabase and numpy.zeros(1) == 0"
    )
    subprocess.run([sys.executable, "-P", "-c", code], timeout=60, check=True)


def test_version_is_told_by_any_spelling(tmp_path: Path) -> None:
    ragmem = Ragmem(tmp_path)
    said = {ragmem.run(flag).out for flag in ("--version", "-V")}
    assert said == {ragmem.run("--version", "sessions").out}
    assert said == snapshot({"ragmem 0.1.0\n"})
    assert not ragmem.home.exists()


def test_what_python_warns_of_is_not_told_to_a_person() -> None:
    """Who develops asks for it with -W."""
    code = (
        "import sys, warnings; from ragmem.__main__ import run; sys.argv[1:] = ['--help'];"
        " run(); warnings.warn('never awaited', RuntimeWarning)"
    )
    for options, is_told in (((), False), (("-W", "default"), True)):
        command = [sys.executable, "-P", *options, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ("never awaited" in done.stderr) == is_told
