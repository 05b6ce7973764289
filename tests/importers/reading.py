"""Session files for tests, read without a store."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragmem.importers import AgentName, FoundFile, Tally
from ragmem.importers.importer import AGENTS, titles_beside
from ragmem.importers.session_parser import SessionParser
from ragmem.records import PutTurn

FIXTURES = Path(__file__).parent / "fixtures"
NOW = datetime(2026, 10, 1, tzinfo=UTC)
CLAUDE_CODE, CODEX = FIXTURES / "claude-code", FIXTURES / "codex"
SPRING, AUTUMN, LATEST = (
    CLAUDE_CODE / "4f35e220-c435-4cf7-b9b9-f40426042847.jsonl",
    CLAUDE_CODE / "c7d1fb1a-0885-4d8b-8427-0f09a0c1a94f.jsonl",
    CLAUDE_CODE / "95e6f011-ec33-4b37-91ad-5d242b40ae3d.jsonl",
)
"""Of May 2025, November 2025, 2026."""
BARE, EVENTS, ITEMS = (
    CODEX / "rollout-2025-07-20T09-30-00-5973b6c0-94b8-487b-a530-2aeb6098ae0e.jsonl",
    CODEX / "rollout-2025-12-28T12-18-30-019b64e5-57fa-7463-b644-fba7e456f905.jsonl",
    CODEX / "rollout-2026-09-24T15-32-51-019f64ab-0000-7000-8000-000000000099.jsonl",
)
"""Of July 2025, December 2025, 2026."""


def lines(file: Path, records: Iterable[object]) -> Path:
    """The file with a record as JSON on each line, in a folder that is made for it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def asked(words: object, uuid: str = "u1", **more: object) -> dict[str, object]:
    """A record of Claude Code: what the person said, or what a call has returned."""
    return {"type": "user", "uuid": uuid, "message": {"content": words}, **more}


def answered(words: object, name: str = "m", **more: object) -> dict[str, object]:
    """A record of Claude Code: words, or blocks, of the model's message of that name."""
    return {"type": "assistant", "message": {"id": name, "content": words}, **more}


def called(tool: str, name: str = "t", **given: object) -> dict[str, object]:
    """A block of such a message: a call of that name."""
    return {"type": "tool_use", "id": name, "name": tool, "input": given}


def returned(words: str, name: str = "t", **more: object) -> dict[str, object]:
    """A block of what the person's side says next: the result of the call of that name."""
    return {"type": "tool_result", "tool_use_id": name, "content": words, **more}


class Read:
    """A file, read to its end."""

    def __init__(
        self,
        name: AgentName,
        file: Path,
        *,
        now: datetime = NOW,
        changed_at: datetime = NOW,
        session: str = "",
    ) -> None:
        agent, self.tally = AGENTS[name], Tally()
        found = FoundFile(file, file.stat().st_size, changed_at, session)
        titles = titles_beside(agent, file, [found])
        parser: SessionParser = agent.parser(found, self.tally, now=now, titles=titles)
        self.puts: list[PutTurn] = []
        for record in agent.records(found, self.tally):
            self.puts += parser.feed(record)
        self.puts += parser.finish()
        self.facts = parser.facts

    @property
    def told(self) -> list[dict[str, object]]:
        """What was said and done, to compare at a glance."""
        return [_told(put) for put in self.puts]

    @property
    def drawn(self) -> str:
        """The same as text, a turn after the other."""
        return "\n\n".join(map(_drawn, self.told))


def _drawn(told: dict[str, Any]) -> str:
    """Lines of a turn; of a call its iteration, `!` where it failed, arguments, and its result."""
    lines = [f"user: {told['user']}"]
    for call in told.get("calls", ()):
        number, (name, arguments), *_ = call["in"], list(call.items())[1]
        if call["before"]:
            lines.append(f"{number} says: {call['before']}")
        said, more = json.dumps(arguments, ensure_ascii=False), []
        if len(said) > 80:
            said, more = "", [f"  {key}: {value}" for key, value in arguments.items()]
        lines.append(f"{number} {name}{'!' * call['failed']} {said}".rstrip())
        lines += "\n".join(more).split("\n") if more else []
        if call["result"] is not None:
            lines += [f"  | {line}".rstrip() for line in call["result"].split("\n")]
    lines += [f"file: {each}" for each in told.get("files", ())]
    lines += [f"{name}: {told[name]}" for name in ("reasoning", "assistant") if name in told]
    used = (told.get("model"), told.get("model_calls"), told["tokens"])
    return "\n".join([*lines, " ".join(map(str, (told["status"], *used)))])


def _told(put: PutTurn) -> dict[str, object]:
    turn = put.turn
    told: dict[str, object] = {
        "user": turn.user_message,
        "calls": [
            {
                "in": call.iteration,
                call.tool_name: json.loads(call.arguments),
                "before": call.preamble,
                "result": json.loads(call.result)["text"] if call.result else None,
                "failed": not call.success,
            }
            for call in turn.tool_calls
        ],
        "files": [
            f"{access.access_type} {access.path}"
            for call in turn.tool_calls
            for access in put.accesses.get(call.tool_call_id, ())
        ],
        "assistant": turn.assistant_message,
        "reasoning": turn.reasoning,
        "status": turn.status,
        "model": turn.model,
        "tokens": (turn.usage.input_tokens, turn.usage.cached_tokens, turn.usage.output_tokens),
        "model_calls": turn.usage.model_calls,
    }
    return {name: value for name, value in told.items() if value}
