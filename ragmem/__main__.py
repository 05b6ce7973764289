"""The command `ragmem`."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script and of `python -m ragmem`."""
    argv = sys.argv[1:]
    if argv in (["--version"], ["-V"]):
        # Before any import: shells and scripts ask this often.
        from ragmem import __version__

        sys.stdout.write(f"ragmem {__version__}\n")
        return
    from ragmem.cli.argv import shows_prompt_early

    before_message = None
    if shows_prompt_early(argv):
        from ragmem.repl import early

        early.show()
        before_message = early.clear
    _import_msgspec()
    from ragmem.cli.main import run

    sys.exit(run(argv, before_message=before_message))


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions: 25 ms of every start.

    It takes from there only what Python 3.11's own `typing` has as well, and
    falls back to that when the import fails.
    """
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current folder first: a project's own json.py must not run here.
        del sys.path[0]
    main()
