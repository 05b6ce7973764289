"""The generated parts of README.md; cog calls these from there (see scripts/lint)."""

import os
import subprocess
import sys

from ragmem.config.file import default_toml


def settings() -> str:
    """A table of all settings, from the file that `ragmem config init` writes."""
    rows = ["| setting | default | what |", "|---|---|---|"]
    section, notes = "", list[str]()
    for line in default_toml().splitlines():
        if line.startswith("["):
            section, notes = line.strip("[]"), []
        elif line.startswith("# "):
            notes.append(line.removeprefix("# "))
        elif line.startswith("#"):
            name, _, default = line.removeprefix("#").partition(" = ")
            what = " ".join(notes).replace("|", "\\|")
            rows.append(f"| `{section}.{name}` | `{default}` | {what} |")
            notes = []
        else:
            notes = []
    return "\n".join(rows) + "\n"


def command_help(*commands: str) -> str:
    """What `--help` of each command prints; "" is ragmem itself."""
    blocks = []
    for command in commands:
        words = ["ragmem", *command.split(), "--help"]
        text = subprocess.run(
            [sys.executable, "-P", "-m", *words],
            env={**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = [line.rstrip() for line in text.strip().splitlines()]
        blocks.append("\n".join([f"$ {' '.join(words)}", *lines]))
    return "\n```console\n" + "\n\n".join(blocks) + "\n```\n"
