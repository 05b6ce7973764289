"""`ragmem store`: where memory is kept."""

from pathlib import Path
from typing import Annotated

import typer

from ragmem.cli.config import change
from ragmem.cli.documents import StoreDocument, to_json
from ragmem.cli.opening import open_app, settings
from ragmem.cli.options import Format
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import write, write_json
from ragmem.config import find_paths, load_config
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.store.base import StoreInfo
from ragmem.store.opening import KINDS
from ragmem.text import visible

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Show and choose where memory is kept; move, keep and mend it.",
)


@app.command()
def info(output: Format = "table") -> None:
    """Show the store in use and how much is in it."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with open_app(config, paths) as opened:
            found = await (await opened.store()).info()
        if output == "json":
            write_json(to_json(store_document(found)))
        else:
            write(store_text(found))
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def use(
    kind: Annotated[
        str, typer.Argument(metavar="sqlite|neo4j", help="The store.", show_default=False)
    ],
) -> None:
    """Keep memory in another store from now on; nothing is moved.

    The store is opened first: one that can't be is not chosen.
    """
    _known(kind)
    paths = find_paths()
    before = load_config(paths.config_file).store.kind
    config = load_config(paths.config_file, flags={("store", "kind"): kind})

    async def main(_: Interruption) -> int:
        async with open_app(config, paths.make()) as opened:
            found = await (await opened.store()).info()
        change("store.kind", kind)
        write(store_text(found))
        if before != kind:
            write(
                f"Nothing was moved: what is in {before} stays there, untouched. "
                f"`ragmem store migrate --to {kind}` copies it.\n"
            )
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def migrate(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="sqlite|neo4j", help="The store that is to have it all."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Take it from a backup, not the other store."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> None:
    """Copy all of memory into another store, or a backup into one.

    What is there stays, what is copied from is left untouched, and both are compared
    afterwards. Stopped half-way, it can be run again.
    """
    from ragmem.cli.moving import migrate as move

    config, paths = settings()
    if to is None and file is None:
        raise UsageError("Where to?", hint="Add `--to neo4j` or `--to sqlite`.")
    kind = _known(to) if to else config.store.kind
    raise typer.Exit(
        run_async(lambda _: move(config, paths, target=kind, backup=file, confirmed=yes))
    )


@app.command()
def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A new file; else one in `backups`.", show_default=False
        ),
    ] = None,
) -> None:
    """Write all of memory into one file, while others go on working.

    `ragmem store migrate --from FILE` brings it back.
    """
    from ragmem.cli.moving import backup as back_up

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: back_up(config, paths, file)))


@app.command()
def check() -> None:
    """Look whether memory is whole; exit 1 when it is not."""
    from ragmem.cli.moving import check as look

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: look(config, paths)))


@app.command()
def repair() -> None:
    """Make a damaged memory whole again; what was there before is kept.

    Of a SQLite memory, what can be read is saved into a new one. In Neo4j it is mended in its
    place: counted and numbered anew, and what belongs to nothing gets a session. Nothing is
    deleted.
    """
    from ragmem.cli.mending import repair as mend

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: mend(config, paths)))


@app.command()
def reembed() -> None:
    """Make all vectors anew, with the embedder of the settings.

    Those of turns and summaries, for when `model.embedding` has changed: until then
    search goes by words alone. Stopped half-way, it can be run again and goes on.
    """
    from ragmem.cli.reembedding import reembed as embed_anew

    config, paths = settings()
    raise typer.Exit(run_async(lambda _: embed_anew(config, paths)))


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise UsageError(
            f"There is no store {visible(kind)!r}.", hint=f"The stores are {' and '.join(KINDS)}."
        )
    return kind


def store_document(found: StoreInfo) -> StoreDocument:
    """The store as one document."""
    return StoreDocument(
        kind=found.kind,
        location=found.location,
        version=found.version,
        schema_version=found.schema_version,
        counts=found.counts,
        size_bytes=found.size_bytes,
    )


def store_text(found: StoreInfo) -> str:
    """The store as a person reads it."""
    lines = [
        f"store      {found.kind} {visible(found.version)}",
        f"location   {visible(found.location)}",
        f"schema     version {found.schema_version}",
    ]
    lines += [f"{name.replace('_', ' '):<10} {count:,}" for name, count in found.counts.items()]
    if found.size_bytes is not None:
        lines.append(f"size       {found.size_bytes / 1e6:,.1f} MB")
    return "\n".join(lines) + "\n"
