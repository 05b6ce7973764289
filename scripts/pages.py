"""The generated parts of README.md; cog calls these from there (see scripts/lint)."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ragmem.cli.main import command
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
        elif line.startswith("#") and " = " in line:
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
    for words_of_one in commands:
        words = ["ragmem", *words_of_one.split(), "--help"]
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


def man_page() -> str:
    """The manual page of ragmem, section 1, with every command and what it takes."""
    root = command()
    rows = [
        '.TH RAGMEM 1 "" ragmem',
        ".SH NAME",
        "ragmem \\- a terminal coding agent whose memory lasts",
        ".SH SYNOPSIS",
        ".B ragmem",
        "[OPTIONS] [COMMAND] [ARGS]",
        ".SH DESCRIPTION",
        *_paragraphs(root.help or ""),
        ".SH COMMANDS",
        *_commands(root, "ragmem"),
        ".SH SEE ALSO",
        "ragmem COMMAND --help",
    ]
    return "\n".join(rows) + "\n"


def _commands(group: Any, called: str) -> Iterator[str]:
    context = group.make_context(called, [], resilient_parsing=True)
    for name in group.list_commands(context):
        each = group.get_command(context, name)
        if each.hidden:
            continue
        yield f".SS {called} {name}"
        yield from _paragraphs(each.help or "")
        inner = each.make_context(f"{called} {name}", [], resilient_parsing=True)
        is_group = hasattr(each, "list_commands")
        for parameter in each.get_params(inner):
            row = parameter.get_help_record(inner)
            if row and not (is_group and parameter.name == "help"):
                yield from (".TP", f".B {_roff(row[0])}", _roff(row[1]))
        if is_group:
            yield from _commands(each, f"{called} {name}")


def _paragraphs(text: str) -> list[str]:
    return ["\n.PP\n".join(_roff(part) for part in text.strip().split("\n\n"))]


def _roff(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip()
    escaped = plain.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.stdout.write(man_page())
