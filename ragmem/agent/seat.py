"""An agent at its place in a session: all its tools, what it is told of its folder, its limits."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.agent import Agent
from ragmem.agent.turn import Dependencies, Limits
from ragmem.config import Config, Paths, PermissionMode
from ragmem.index.codebase import Codebase
from ragmem.llm.base import LLM, Effort
from ragmem.memory.context import Place
from ragmem.memory.context.builder import ContextBuilder
from ragmem.memory.memory import Memory
from ragmem.memory.projects import Instructions, find_instructions, real_folder
from ragmem.records import Project, Session, ToolCall
from ragmem.tools.base import Approver, CurrentMode, Tool, Toolset, deny_all
from ragmem.tools.files import CreateFile, EditFile, ReadFile, WriteFile
from ragmem.tools.jobs import Jobs, ReadJob
from ragmem.tools.memory import memory_tools
from ragmem.tools.patterns import PermissionRules
from ragmem.tools.permissions import Permissions
from ragmem.tools.planning import PresentPlan, UpdateTasks
from ragmem.tools.rewind import Preimages
from ragmem.tools.sandbox import Sandbox
from ragmem.tools.search import GlobFiles, GrepFiles, ListDirectory
from ragmem.tools.seen import ChangedFiles, SeenFiles, SessionCode
from ragmem.tools.shell import Commands, RunCommand, commands_of
from ragmem.tools.skills import ReadSkill, SkillSet
from ragmem.tools.workspace import Workspace
from ragmem.usage import Metrics

if TYPE_CHECKING:
    from ragmem.agent.schema import AnswerSchema
    from ragmem.tools.mcp_client import Servers


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent is to work; from flags."""

    model: str = ""
    effort: Effort | None = None
    permission_mode: PermissionMode = "default"
    add_dirs: tuple[Path, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    allow: tuple[str, ...] = ()
    """Rules of what needs no approval, beside those of the settings."""
    no_tools: bool = False
    schema: "AnswerSchema | None" = None


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all agents of a process work with."""

    config: Config
    paths: Paths
    cwd: Path
    memory: Memory
    codebase: Codebase
    rules: PermissionRules
    jobs: Jobs
    sandbox: Sandbox
    servers: "Servers | None"
    """Of other people's tools; None where the settings name none."""
    metrics: Metrics
    say: Callable[[str], None]
    """Takes what the person is to be told once."""
    notices: Callable[[], Sequence[str]]
    """Returns what was said, and empties that."""


def seat(
    shared: Shared,
    session: Session,
    project: Project,
    options: Options,
    *,
    llm: LLM,
    approver: Approver,
    skill_set: SkillSet,
    before: Iterable[ToolCall],
) -> Agent:
    """An agent in the session, of this project; `before`: the calls that it has made there."""
    config, memory, cwd = shared.config, shared.memory, shared.cwd
    top = real_folder(project.path, cwd)
    seen, tasks = SeenFiles(shared.metrics), UpdateTasks()
    before = tuple(before)
    seen.restore(before)
    tasks.restore(before)
    workspace = Workspace(cwd, options.add_dirs, private=shared.paths.own_folders)
    code = SessionCode(shared.codebase, project, cwd=cwd, top=top, seen=seen, rules=shared.rules)
    mode = CurrentMode(options.permission_mode)
    rules = shared.rules.for_session(options.allow)
    plan = PresentPlan(mode, approver, memory, session)
    toolset = standard_toolset(
        workspace,
        mode=mode,
        approver=approver,
        seen=seen,
        data_dir=shared.paths.data_dir,
        rules=rules,
        jobs=shared.jobs,
        commands=commands_of(memory, session, config.tools.command_timeout_s, shared.sandbox),
        of_servers=shared.servers.tools if shared.servers else lambda _: (),
        more=[
            tasks,
            *([] if approver is deny_all else [plan]),
            *code.tools(memory, session, config.memory.scope),
            *memory_tools(memory, session, config.memory.scope),
            *([ReadSkill(skill_set.skills)] if skill_set.skills else []),
        ],
    )
    if strange := rules.for_no_tool(toolset.names):
        shared.say(f"Rules for tools that are not there do nothing: {', '.join(strange)}")
    return Agent(
        session,
        Dependencies(
            llm=llm,
            memory=memory,
            toolset=toolset,
            builder=ContextBuilder(config.memory, llm.info),
            keeps_thoughts=config.memory.thoughts,
            place=Place(
                cwd=cwd,
                project=top,
                instructions=_instructions(shared, top),
                session_id=session.session_id,
                show_path=code.show,
                memory_tools=memory.facts is not None and not options.no_tools,
                code_tool=code.is_there and not options.no_tools,
                skills="" if options.no_tools else skill_set.listing,
            ),
            mode=mode,
            rules=rules,
            find_code=code.passages if code.is_there else None,
            project=project,
            limits=Limits(
                max_iterations=options.max_turns or config.tools.max_iterations,
                max_budget_usd=options.max_budget_usd,
            ),
            schema=options.schema,
            effort=options.effort,
            offers_tools=llm.info.supports_tools and not options.no_tools,
            notices=shared.notices,
            at_start=code.begin,
            changed=ChangedFiles(workspace, seen),
        ),
    )


def _instructions(shared: Shared, top: Path) -> Instructions:
    cwd, own = shared.cwd, shared.paths.config_dir / "AGENTS.md"
    found = find_instructions(cwd, top if cwd.is_relative_to(top) else cwd, own)
    yours = [file for file in found.files if file.is_relative_to(own.parent)]
    if names := [os.path.relpath(file, cwd) for file in found.files if file not in yours]:
        shared.say(f"Project instructions: {', '.join(names)}")
    if yours:
        shared.say(f"Your own instructions: {', '.join(map(str, yours))}")
    return found


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
    more: Sequence[Tool] = (),
    of_servers: Callable[[Permissions], Sequence[Tool]] = lambda _: (),
) -> Toolset:
    """What every agent has over one workspace, and what is given beside it.

    `seen` carries what a resumed session has read; `rules` are the
    person's. Long outputs of commands are kept below `data_dir`, in `outputs`,
    and files as they were before an edit in `preimages`.
    `jobs`: where commands go on in the background; None: none can.
    `more`: those that hang on the session, the memory and the project.
    `of_servers`: those of others (`ragmem.tools.mcp_client`) that are there by now.
    """
    outputs = data_dir / "outputs"
    known = SeenFiles() if seen is None else seen
    permissions = Permissions(workspace, mode=mode, approver=approver, rules=rules, outputs=outputs)
    if jobs:
        commands = msgspec.structs.replace(commands, jobs=jobs)
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
            # They ask for nothing: the model is not told of one that is denied.
            *(tool for tool in more if not (rules and rules.denies(tool.name))),
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
