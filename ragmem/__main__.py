"""The command `ragmem`."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script and of `python -m ragmem`."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        # Before any import: shells and scripts ask this often.
        from ragmem import __version__

        sys.stdout.write(f"ragmem {__version__}\n")
        return
    from ragmem.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
