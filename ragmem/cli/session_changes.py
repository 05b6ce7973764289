"""`ragmem sessions tag`, `archive` and `fork`."""

from typing import Annotated

import typer

from ragmem.cli.choice import resumed, session_name
from ragmem.cli.opening import open_app, settings
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.session_arguments import Reference
from ragmem.cli.streams import say, typed, write
from ragmem.errors import EXIT_DONE
from ragmem.ids import short_id
from ragmem.records import Session
from ragmem.text import counted, visible


def tag(
    reference: Reference,
    tags: Annotated[
        list[str] | None,
        typer.Argument(metavar="TAG", help="Tags that it gets.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="TAG", help="A tag that it loses; may be repeated."),
    ] = None,
) -> None:
    """Give a session tags, by which `list --tag` finds it; without any, show those it has."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        from ragmem.memory.branching import tag as tag_session

        async with open_app(config, paths) as opened:
            found = await resumed(opened, reference)
            add = [typed(each) for each in tags or ()]
            gone = [typed(each) for each in remove or ()]
            changed = await tag_session(opened.memory, found, add, gone)
        write(_line(changed, ", ".join(map(visible, changed.tags)) or "no tags"))
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def archive(
    reference: Reference,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
) -> None:
    """Put a session aside: it stays, is found by search, and is marked in the list."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        from ragmem.memory.branching import archive as archive_session

        async with open_app(config, paths) as opened:
            found = await resumed(opened, reference)
            changed = await archive_session(opened.memory, found, undo=undo)
        write(_line(changed, changed.status))
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def fork(
    reference: Reference,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            min=1,
            metavar="TURN",
            help="It begins with the turns up to this one; all of them, if not given.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("-n", "--name", metavar="NAME", help="Its name.", show_default=False)
    ] = "",
) -> None:
    """Begin a session that shares the first turns of another, and goes on by itself."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        from ragmem.memory.branching import fork_at

        async with open_app(config, paths) as opened:
            found = await resumed(opened, reference)
            forked = await fork_at(opened.memory, found, at, title=typed(name))
        tail = short_id(forked.session_id)
        write(
            _line(forked, f"{counted(forked.turn_count, 'turn')} of {short_id(found.session_id)}")
        )
        say(f"`ragmem chat -r {tail}` goes on with it.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def _line(session: Session, what: str) -> str:
    return f"{short_id(session.session_id)}  {session_name(session)}  ({what})\n"
