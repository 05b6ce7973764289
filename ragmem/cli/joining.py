"""`ragmem sessions list --join`: one memory for two folders with the same remote."""

from ragmem.app import App
from ragmem.cli.choice import ask_line
from ragmem.cli.streams import is_interactive, say
from ragmem.errors import UsageError
from ragmem.memory.projects import folder_name, joinable
from ragmem.records import Project
from ragmem.store.base import SessionQuery
from ragmem.text import visible

_COUNTED = 1_000
_NOTHING = "Nothing was joined."


async def join_project(app: App) -> None:
    """Join the current folder's project to one that a person chooses; UsageError otherwise."""
    if not is_interactive():
        raise UsageError(
            "Two projects are joined only when a person says so, and there is nobody to ask here.",
            hint="Run `ragmem sessions list --join` in a terminal.",
        )
    project = (await app.memory.project_of(app.cwd)).project
    known = await (await app.store()).projects()
    if not (found := joinable(project, known, app.cwd)):
        raise UsageError(_why_none(app, project, known))
    say(f"This project: {await _described(app, project)}\nThe same remote:\n")
    for number, each in enumerate(found, 1):
        say(f"  {number}  {await _described(app, each)}\n")
    chosen = await _choose(found)
    # All folders that were joined before go along.
    own = next((each for each in known if each.project_id == project.root_id), project)
    await app.memory.join(own, chosen)
    say(f"Joined: the sessions of both folders are those of {visible(chosen.path)} now.\n")


def _why_none(app: App, project: Project, known: list[Project]) -> str:
    where = visible(folder_name(app.cwd))
    if project.joined_into:
        root = next((each.path for each in known if each.project_id == project.root_id), "another")
        return f"{where} belongs to the project {visible(root)} already; there is no other to join."
    if not project.remote:
        return (
            f"{where} is no checkout with a remote: only projects with the same one can be joined."
        )
    return f"No other project is known that has the remote {visible(project.remote)}."


async def _described(app: App, project: Project) -> str:
    query = SessionQuery(project_ids=(project.root_id,), limit=_COUNTED + 1)
    count = len(await app.memory.sessions(query))
    sessions = f"more than {_COUNTED:,}" if count > _COUNTED else f"{count:,}"
    return f"{visible(project.path)} ({sessions} session{'' if count == 1 else 's'})"


async def _choose(found: list[Project]) -> Project:
    say("Their sessions become one project's: each recalls what was said in the other.\n")
    if len(found) == 1:
        answer = await ask_line("Join them? It can't be undone. [y/N] ")
        if answer.casefold() not in ("y", "yes"):
            raise UsageError(_NOTHING)
        return found[0]
    answer = await ask_line(f"Join which? It can't be undone. [1-{len(found)}, Enter for none] ")
    if not answer.isdecimal() or not 1 <= int(answer) <= len(found):
        raise UsageError(_NOTHING)
    return found[int(answer) - 1]
