"""The cost of the sandbox for a command."""

import asyncio
import json
import statistics
import time
from functools import partial
from pathlib import Path

from benches.results import Result, result, wanted
from ragmem.agent import standard_toolset
from ragmem.config import SandboxConfig
from ragmem.messages import ToolUse
from ragmem.tools.base import Toolset
from ragmem.tools.sandbox import LEAST_ABI, Mechanism, Sandbox, find_mechanism, landlock_version
from ragmem.tools.shell import Commands
from ragmem.tools.workspace import Workspace

TARGET = 15.0


def measure_sandbox(folder: Path, runs: int, only: list[str]) -> list[Result]:
    """Time a command that does nothing, without a sandbox and with each mechanism available."""
    plain = "command without a sandbox"
    there = [find_mechanism()] if find_mechanism().kind == "bubblewrap" else []
    there += [Mechanism("landlock")] if landlock_version() >= LEAST_ABI else []
    found = {
        f"command in a sandbox, {each.kind}": Sandbox(SandboxConfig(), mechanism=each)
        for each in there
    }
    if not any(wanted(name, only) for name in (plain, *found)):
        return []
    project = folder / "sandbox-project"
    (project / ".git" / "hooks").mkdir(parents=True)
    for name in (".git/config", ".git/HEAD", "AGENTS.md"):
        (project / name).touch()
    ways: dict[str, Sandbox | None] = {plain: None, **found}
    toolsets = {
        name: standard_toolset(
            Workspace(project),
            data_dir=folder / "sandbox-data",
            mode="bypassPermissions",
            commands=Commands(sandbox=partial(ways.get, name)),
        )
        for name, sandbox in ways.items()
    }
    samples = asyncio.run(_time(toolsets, runs))
    for sandbox in found.values():
        sandbox.close()
    base = statistics.median(samples[plain])
    return [result(plain, samples[plain], target=None)] + [
        result(name, samples[name], target=TARGET, base=base) for name in found
    ]


async def _time(toolsets: dict[str, Toolset], runs: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in toolsets}
    use = ToolUse("1", "run_command", json.dumps({"command": "true"}))
    for run in range(runs + 1):
        for name, toolset in toolsets.items():
            started = time.perf_counter()
            outcome = await toolset.call(use)
            assert outcome.success, outcome.text
            if run:  # the first one loads
                samples[name].append((time.perf_counter() - started) * 1000)
    return samples
