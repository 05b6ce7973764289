"""How the commands of `ragmem sessions` are told which session, and where to look."""

from typing import Annotated, Literal

import typer

from ragmem.cli.completing import session_ids

Reference = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An id, the tail of one, or a name.",
        show_default=False,
        autocompletion=session_ids,
    ),
]
OrNewest = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="An id, the tail of one, or a name; else the newest of this folder.",
        show_default=False,
        autocompletion=session_ids,
    ),
]
Wide = Literal["project", "all"]
WideScope = Annotated[
    Wide | None, typer.Option("--scope", help="Where to look; the project, unless configured.")
]
TextOrJson = Annotated[Literal["text", "json"], typer.Option("--format", help="How to print it.")]
