"""The tools of the agent, put together."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ragmem.config import PermissionMode
from ragmem.tools.base import Approver, CurrentMode, Tool, Toolset, deny_all
from ragmem.tools.files import CreateFile, EditFile, ReadFile, WriteFile
from ragmem.tools.jobs import Jobs, ReadJob, in_background
from ragmem.tools.patterns import PermissionRules
from ragmem.tools.permissions import Permissions
from ragmem.tools.rewind import Preimages
from ragmem.tools.search import GlobFiles, GrepFiles, ListDirectory
from ragmem.tools.seen import SeenFiles
from ragmem.tools.shell import Commands, RunCommand
from ragmem.tools.workspace import Workspace


def standard_toolset(  # noqa: PLR0913 - each by its name
    workspace: Workspace,
    *,
    data_dir: Path,
    mode: PermissionMode | CurrentMode = "default",
    approver: Approver = deny_all,
    seen: SeenFiles | None = None,
    rules: PermissionRules | None = None,
    commands: Commands = Commands(),  # noqa: B008 - frozen
    jobs: Jobs | None = None,
    of_memory: Sequence[Tool] = (),
    of_servers: Callable[[Permissions], Sequence[Tool]] = lambda _: (),
) -> Toolset:
    """Every tool over one workspace.

    `seen` carries what a resumed session has read; `rules` are the
    person's. Long outputs of commands are kept below `data_dir`, in `outputs`,
    and files as they were before an edit in `preimages`.
    `jobs`: where commands go on in the background; None: none can.
    `of_memory`: those of `ragmem.tools.memory.memory_tools`, where there is one.
    `of_servers`: those of others (`ragmem.tools.mcp_client`) that are there by now.
    """
    outputs = data_dir / "outputs"
    known = SeenFiles() if seen is None else seen
    permissions = Permissions(workspace, mode=mode, approver=approver, rules=rules, outputs=outputs)
    if jobs:
        commands = msgspec.structs.replace(commands, in_background=in_background(jobs))
    preimages = Preimages(data_dir / "preimages")
    return Toolset(
        [
            ReadFile(workspace, permissions, known),
            ListDirectory(workspace, permissions),
            GlobFiles(workspace, permissions),
            GrepFiles(workspace, permissions),
            CreateFile(workspace, permissions, known, preimages),
            WriteFile(workspace, permissions, known, preimages),
            EditFile(workspace, permissions, known, preimages),
            RunCommand(workspace, permissions, outputs=outputs, commands=commands),
            *([ReadJob(jobs)] if jobs else []),
            *of_memory,
        ],
        more=partial(of_servers, permissions),
        of_person=[
            RunCommand(
                workspace,
                Permissions(workspace, mode="bypassPermissions", outputs=outputs),
                outputs=outputs,
                commands=commands.of_person(),
            )
        ],
    )
