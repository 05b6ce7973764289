"""`ragmem memory`: what is known beyond the conversations, seen and kept by the person."""

from pathlib import Path
from typing import Annotated

import typer

from ragmem.cli import memory_profile
from ragmem.cli.completing import memory_ids
from ragmem.cli.memory_acts import (
    Listed,
    add_one,
    clean_up,
    edit_one,
    forget_one,
    list_episodes,
    list_memories,
    show_one,
    show_owner,
    tell_why,
)
from ragmem.cli.memory_values import (
    Change,
    Kind,
    ScopeName,
    Shown,
    TextFormat,
    subjects_of,
    ttl_of,
    words,
)
from ragmem.cli.opening import settings
from ragmem.cli.options import Format
from ragmem.cli.runner import run_async
from ragmem.errors import UsageError

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Show, add, correct and forget facts, rules and preferences.",
)
app.add_typer(memory_profile.app, name="profile")

Reference = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="An id, or the tail of one.",
        show_default=False,
        autocompletion=memory_ids,
    ),
]
Everywhere = Annotated[bool, typer.Option("--all", help="Those of every project.")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="S", help="What it is about; may be repeated."),
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="7d", help="How long it holds: a number and h, d or w."),
]
ScopeOption = Annotated[
    ScopeName | None,
    typer.Option("--scope", help="user: known in every project; project: in this one."),
]


@app.command("list")
def list_(
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only of this kind.")] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="S", help="About this; repeated: any of them."),
    ] = None,
    scope: Annotated[
        Shown | None,
        typer.Option("--scope", help="This project's, your own, or both.", show_default=False),
    ] = None,
    everywhere: Everywhere = False,
    superseded: Annotated[
        bool,
        typer.Option("--with-superseded", help="Those too that others took the place of."),
    ] = False,
    limit: Limit = 50,
    output: Format = "table",
) -> None:
    """List what is known in this project, and of you, newest first."""
    if everywhere and scope not in (None, "all"):
        raise UsageError("--all and --scope exclude each other.")
    wanted = Listed(
        kind=kind,
        subjects=subjects_of(subject) or (),
        scope=scope,
        everywhere=everywhere,
        superseded=superseded,
        limit=limit,
    )
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: list_memories(config, paths, wanted, output)))


@app.command()
def show(reference: Reference, output: TextFormat = "text") -> None:
    """Show one whole."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: show_one(config, paths, reference, output)))


@app.command()
def add(
    content: Annotated[
        str,
        typer.Argument(metavar="CONTENT", help="A fact, in a sentence.", show_default=False),
    ],
    subject: Subjects = None,
    kind: Annotated[Kind, typer.Option("--kind", help="What it is.")] = "fact",
    ttl: Ttl = None,
    scope: ScopeOption = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Put it into the system message of every request.")
    ] = False,
) -> None:
    """Remember something worth knowing later.

    Without --scope it goes by what it is: preferences, and facts about yourself, are
    known in every project; all others in this one.
    """
    change = Change(
        content=words(content),
        subjects=subjects_of(subject),
        kind=kind,
        ttl=ttl_of(ttl),
        pinned=pin,
        scope=scope,
    )
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: add_one(config, paths, change)))


@app.command()
def edit(
    reference: Reference,
    content: Annotated[
        str | None,
        typer.Argument(metavar="CONTENT", help="How it is to read.", show_default=False),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="S", help="What it is about instead; may be repeated."),
    ] = None,
    no_subjects: Annotated[
        bool, typer.Option("--no-subjects", help="It is about nothing in particular.")
    ] = False,
    kind: Annotated[Kind | None, typer.Option("--kind", help="What it is instead.")] = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="7d", help="How long it holds from now, or `never`."),
    ] = None,
    scope: ScopeOption = None,
) -> None:
    """Correct one; what is not given stays."""
    if subject and no_subjects:
        raise UsageError("Give --subject or --no-subjects, not both.")
    change = Change(
        content=words(content),
        subjects=() if no_subjects else subjects_of(subject),
        kind=kind,
        ttl=ttl_of(ttl),
        scope=scope,
    )
    if change == Change():
        raise UsageError(
            "There is nothing to change.",
            hint="Give the new text, or --kind, --subject, --no-subjects, --ttl, --scope.",
        )
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: edit_one(config, paths, reference, change)))


@app.command()
def pin(reference: Reference) -> None:
    """Put one into the system message of every request."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: edit_one(config, paths, reference, Change(pinned=True))))


@app.command()
def unpin(reference: Reference) -> None:
    """Recall it only where it bears on the question, like the others."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: edit_one(config, paths, reference, Change(pinned=False))))


@app.command()
def forget(
    reference: Reference, yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False
) -> None:
    """Forget one for ever, with its earlier versions."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: forget_one(config, paths, reference, confirmed=yes)))


@app.command()
def why(reference: Reference, output: TextFormat = "text") -> None:
    """Show where one comes from, and what it took the place of."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: tell_why(config, paths, reference, output)))


@app.command()
def episodes(everywhere: Everywhere = False, limit: Limit = 20, output: Format = "table") -> None:
    """List decisions, preferences and deadlines, newest first."""
    config, paths = settings()
    raise typer.Exit(
        run_async(
            lambda _: list_episodes(
                config, paths, everywhere=everywhere, limit=limit, output=output
            )
        )
    )


@app.command()
def owner(
    take: Annotated[
        str,
        typer.Option("--take", metavar="ID", help="Be the owner that another home of yours has."),
    ] = "",
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What others in the same database see."),
    ] = None,
) -> None:
    """Show whose this home is: the id that its sessions and what is known of you bear."""
    from ragmem.store.owning import take_owner

    named = words(name)
    config, paths = settings()
    paths.make()
    if take:
        take_owner(paths, take)
    raise typer.Exit(run_async(lambda _: show_owner(config, paths, named)))


@app.command()
def cleanup() -> None:
    """Remove those that are past their time. Nothing else is ever removed by age."""
    config, paths = settings()
    raise typer.Exit(run_async(lambda _: clean_up(config, paths)))


@app.command("export")
def export_memories(
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="A new file, instead of stdout."),
    ] = None,
    everywhere: Everywhere = False,
) -> None:
    """Write what is known in this project, and of you, as JSON."""
    from ragmem.cli.memory_files import export

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: export(config, paths, file, everywhere=everywhere)))


@app.command("import")
def import_memories(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="As `export` has written it.", show_default=False)
    ],
) -> None:
    """Store what was exported; what is here already is left as it is."""
    from ragmem.cli.memory_files import import_file

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: import_file(config, paths, file)))
