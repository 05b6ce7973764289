"""`ragmem store`, `neo4j` and `work`: administer the stores.

`store` shows, selects, migrates, backs up, checks and repairs them, `neo4j` runs a local server,
and `work` (hidden) is the detached process that embeds and summarizes; see ragmem.background.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ragmem.administration import Administration, contents, known_kind, label_of
from ragmem.cli import command as cli
from ragmem.cli.output import new_file, print_one, records, resumable, say, write
from ragmem.cli.shown import claims_text
from ragmem.config.file import change
from ragmem.errors import EXIT_DONE, EXIT_FAILED, EXIT_TRY_AGAIN, UsageError
from ragmem.listings import document, table
from ragmem.records import Finding, StoreInfo
from ragmem.text import counted, visible

if TYPE_CHECKING:
    from ragmem.administration import Comparison
    from ragmem.app import App

app = cli.commands("Show, choose, migrate, back up, check and repair the store.")

_INFO = "kind location version schema_version counts size_bytes"


@cli.command(app, cli.app_here)
async def info(opened: "App", output: cli.Format = "table") -> None:
    """Show the store in use and what it contains."""
    found = await (await opened.store()).info()
    print_one(output, lambda: document(_INFO, found), lambda _: store_text(found))


@cli.command(app, cli.home)
async def use(
    own: Administration,
    kind: Annotated[str, cli.argument("sqlite|neo4j", "The store.", cli.store_kinds)],
) -> None:
    """Use another store from now on; nothing is copied.

    The store must open without errors to be chosen.
    """
    known_kind(kind)
    before = own.kind
    # Bypass the spool, which waits at most two seconds so as not to delay a prompt.
    async with own.archive(kind, say=lambda told: say(f"note: {visible(told)}\n")) as store:
        found = await store.info()
    if outranked := change("store.kind", kind):
        say(f"warning: {outranked}\n")
    write(store_text(found))
    if before != kind:
        write(
            f"The contents of {before} stay there. To copy them here: "
            f"`ragmem store migrate --to {kind}`.\n"
        )


@cli.command(app, cli.home)
async def migrate(
    own: Administration,
    to: Annotated[
        str | None,
        cli.option("--to", "The store to copy into.", "sqlite|neo4j", offered=cli.store_kinds),
    ] = None,
    file: Annotated[
        Path | None,
        cli.option("--from", "Copy from this backup file instead of the other store.", "FILE"),
    ] = None,
    yes: cli.Yes = False,
) -> int:
    """Copy everything into another store, or restore a backup.

    Existing records stay, the source is not changed, and both are compared afterwards. If
    interrupted, run it again.
    """
    if to is None and file is None:
        raise UsageError("No target given.", hint="Add `--to neo4j` or `--to sqlite`.")
    target = known_kind(to) if to else own.kind
    other = "neo4j" if target == "sqlite" else "sqlite"
    if not file and target == own.kind:
        say(f"note: {target} is already in use; the contents of {other} are copied into it.\n")
    async with own.file(file) if file else own.store(other) as source, own.archive(target) as into:
        there = await into.info()
        say(f"from  {visible(source.label)}\nto    {visible(label_of(there))}\n")
        if file:
            say(claims_text(await own.claims(source, into)))
        if not yes:
            await cli.confirm("Copy it?", "Nothing was copied.")
        with resumable("What was copied so far is"):
            compared = await own.copy(source, into, records)
        other_owner = await own.stranger(into)
    write(comparison_text(compared))
    if not compared.equal:
        return EXIT_FAILED
    if other_owner:
        say(
            f"note: the sessions belong to another owner, called {other_owner.called}. If that is "
            f"you, run `ragmem memory owner --take {other_owner.owner_id}`; otherwise, a shared "
            "database treats them as another person's.\n"
        )
    if own.kind != target:
        say(f"Use it from now on with `ragmem store use {target}`.\n")
    return EXIT_DONE


@cli.command(app, cli.home)
async def backup(
    own: Administration,
    file: Annotated[
        Path | None, cli.argument("FILE", "A new file. Default: one in `backups`.")
    ] = None,
) -> None:
    """Back up everything into one file.

    Other processes can go on working. `ragmem store migrate --from FILE` restores it.
    """
    file, found = await own.back_up(file, new_file, records)
    write(f"{visible(str(file))}\n")
    say(f"{contents(found)}, {file.stat().st_size / 1e6:,.1f} MB\n")


@cli.command(app, cli.home)
async def check(own: Administration) -> int:
    """Check that the store is intact; exit 1 if it is not."""
    findings, found = await own.check()
    write("".join(map(violation_text, findings)))
    if findings:
        return EXIT_FAILED
    write(f"No problems found: {contents(found)}.\n")
    return EXIT_DONE


def violation_text(finding: Finding) -> str:
    """Return a violated guarantee in a line."""
    return f"violated: {finding.what} ({finding.count}: {visible(finding.where)})\n"


@cli.command(app, cli.home)
async def repair(own: Administration) -> int:
    """Repair a damaged store; the damaged one is kept.

    Everything readable is recovered, counted and numbered again; records without a session
    get one. SQLite is rebuilt in another file, Neo4j in the same graph after a copy of it was
    saved to a file.
    """
    saved = await own.repair(new_file, lambda line: say(f"{visible(line)}\n"))
    if saved is None:
        write("Nothing to repair.\n")
        return EXIT_DONE
    write(f"Recovered: {contents(saved.info)}.\n")
    write("".join(map(violation_text, saved.left)))
    return EXIT_FAILED if saved.left else EXIT_DONE


@cli.command(app, cli.app_here)
async def reembed(opened: "App") -> None:
    """Recompute all embeddings with the configured embedder.

    Run it after changing `model.embedding`; until then search matches words only. If
    interrupted, run it again to continue.
    """
    store = await opened.store()
    found = (await store.info()).counts
    total = found["turns"] + found["summaries"] + found["memories"]
    with resumable("Embeddings computed so far are"), records(total) as show:
        done = await opened.background.reembed(lambda count: show("embedding", count))
    mark = await store.embedder()
    by = f" with {mark.model_id}" if mark else ""
    made = f"Embedded {done:,} turns, summaries and memories{by}.\n"
    write(made if done else "Nothing to embed.\n")


def store_text(found: StoreInfo) -> str:
    """Format the store's properties and counts, one per line."""
    lines = [
        f"store      {found.kind} {visible(found.version)}",
        f"location   {visible(found.location)}",
        f"schema     version {found.schema_version}",
    ]
    lines += [f"{name.replace('_', ' '):<10} {count:,}" for name, count in found.counts.items()]
    if found.size_bytes is not None:
        lines.append(f"size       {found.size_bytes / 1e6:,.1f} MB")
    return "\n".join(lines) + "\n"


def comparison_text(compared: "Comparison") -> str:
    """Format counts and checksums of source and copy, and the differences."""
    lines = [table(("RECORDS", "COUNT", "CHECKSUM", "COPY"), compared.rows)]
    if compared.later:
        lines.append(
            "Kept as they are, because they are newer in the target: "
            f"{counted(compared.later, 'record')}.\n"
        )
    if not compared.equal:
        lines += [f"{visible(each)}\n" for each in compared.differing]
        lines.append(
            f"Different: {counted(compared.differing_count, 'record')}. If the store was in use "
            "meanwhile, run it again.\n"
        )
    return "".join(lines)


neo4j = cli.commands("Run a local Neo4j, for use with `ragmem store use neo4j`.")


@cli.command(neo4j, cli.home)
async def up(own: Administration) -> int:
    """Start a local Neo4j, unless one is already in use."""
    found = await own.neo4j.up(lambda line: say(f"{visible(line)}\n"))
    write(f"{visible(found.detail)}\n")
    if found.running and own.kind == "neo4j":
        await own.look(lambda line: say(f"note: {visible(line)}\n"))
    elif found.running:
        say(
            f"To use it, run `ragmem store use neo4j`. The contents of {own.kind} stay there; "
            "`ragmem store migrate --to neo4j` copies them.\n"
        )
    return EXIT_DONE if found.running else EXIT_TRY_AGAIN


@cli.command(neo4j, cli.home)
async def down(own: Administration) -> None:
    """Stop the local Neo4j that `up` started; its data is kept."""
    stopped = await own.neo4j.down(lambda line: say(f"{visible(line)}\n"))
    write("Stopped; the data is kept.\n" if stopped else "No local Neo4j is running.\n")


@cli.command(neo4j, cli.home)
async def status(own: Administration) -> int:
    """Show whether Neo4j is running, and where; exit 1 if it is not."""
    found = await own.neo4j.status()
    write(f"{visible(found.detail)}\n")
    if not found.running:
        return EXIT_FAILED
    # How to reach the graph with a browser or a shell.
    ours = found.way != "configured"
    lines = {
        "Browser": found.browser,
        "user": found.username,
        "password": "run `ragmem neo4j password`" if ours else "as in NEO4J_PASSWORD",
        "shell": found.cypher_shell,
    }
    write("".join(f"  {name:<9} {visible(line)}\n" for name, line in lines.items() if line))
    return EXIT_DONE


@cli.command(neo4j, cli.home)
async def password(own: Administration) -> None:
    """Print the password of the local Neo4j server.

    Neo4j Browser and cypher-shell ask for it.
    """
    write(f"{own.neo4j.password()}\n")


@cli.command(neo4j, cli.home)
async def logs(
    own: Administration,
    lines: Annotated[int, cli.option("-n --lines", "Number of lines to show.", "N", least=1)] = 50,
) -> None:
    """Print the last lines of the local server's log."""
    file = own.neo4j.log
    try:
        written = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        raise UsageError(
            f"No log at {file} yet.", hint="Start the server with `ragmem neo4j up`."
        ) from None
    except OSError as error:
        raise UsageError(f"Can't read {file}: {error.strerror}.") from None
    for line in written.splitlines()[-lines:]:
        write(f"{visible(line)}\n")


working = cli.commands()
_NICENESS = 10
"""Background work, which nobody waits for, yields to other processes."""


@cli.command(working, cli.home, hidden=True)
async def work(own: "Administration", model: cli.Model = None) -> None:
    """Do pending background work, serve searches of other processes for a while, and exit."""
    from ragmem.app import answer_others, work_alone

    with suppress(OSError):
        os.nice(_NICENESS)
    if await work_alone(own.config, own.paths, model=model or ""):
        await answer_others(own.config, own.paths)
