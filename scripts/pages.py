"""The generated parts of docs/: cog calls these functions, and scripts/lint makes the man page."""

import re
import sys
from collections.abc import Iterator
from typing import Any

from ragmem.cli.main import command
from ragmem.config.file import default_toml

_WIDTH = 78
"""The width of help texts, as on a terminal of 80 columns."""


def settings() -> str:
    """Return a table of all settings, made from the file that `ragmem config init` writes."""
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


def command_help() -> str:
    """Return the `--help` of each command; the commands of a group share a heading."""
    blocks = dict[str, list[str]]()
    for each in _commands():
        heading = " ".join(each.command_path.split()[:2])
        blocks.setdefault(heading, []).append(f"$ {each.command_path} --help\n{each.get_help()}")
    return "".join(
        f"\n### {heading}\n\n```console\n" + "\n\n".join(shown) + "\n```\n"
        for heading, shown in blocks.items()
    )


def man_page() -> str:
    """Return the man page of ragmem (section 1), with every command and its options."""
    root, *others = _commands()
    rows = [
        '.TH RAGMEM 1 "" ragmem',
        ".SH NAME",
        "ragmem \\- a terminal coding agent whose memory lasts",
        ".SH SYNOPSIS",
        ".B ragmem",
        "[OPTIONS] [COMMAND] [ARGS]",
        ".SH DESCRIPTION",
        *_paragraphs(root.command.help or ""),
        ".SH COMMANDS",
        *(row for each in others for row in _section(each)),
        ".SH SEE ALSO",
        "ragmem COMMAND --help",
    ]
    return "\n".join(rows) + "\n"


def _commands(name: str = "ragmem", parent: Any = None) -> Iterator[Any]:
    """Yield the contexts of a command and its subcommands, without hidden ones."""
    each = parent.command.get_command(parent, name) if parent else command()
    if each.hidden:
        return
    context = each.make_context(name, [], parent, resilient_parsing=True, terminal_width=_WIDTH)
    yield context
    for below in each.list_commands(context) if hasattr(each, "list_commands") else ():
        yield from _commands(below, context)


def _section(context: Any) -> Iterator[str]:
    yield f".SS {context.command_path}"
    yield from _paragraphs(context.command.help or "")
    for parameter in context.command.get_params(context):
        row = parameter.get_help_record(context)
        if row and not (hasattr(context.command, "list_commands") and parameter.name == "help"):
            yield from (".TP", f".B {_roff(row[0])}", _roff(row[1]))


def _paragraphs(text: str) -> list[str]:
    return ["\n.PP\n".join(_roff(part) for part in text.strip().split("\n\n"))]


def _roff(text: str) -> str:
    plain = re.sub(r"\s+", " ", text).strip()
    escaped = plain.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.stdout.write(man_page())
