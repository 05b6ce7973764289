"""What a person asks of one agent, by flags."""

from pathlib import Path

import msgspec

from ragmem.tools.base import PermissionMode


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent is to work; from flags."""

    model: str = ""
    permission_mode: PermissionMode = "default"
    add_dirs: tuple[Path, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    allow: tuple[str, ...] = ()
    """Tools that need no approval."""
    no_tools: bool = False
