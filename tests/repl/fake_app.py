"""An App, its Memory and its Agent, scripted by the prompts themselves; for the chat alone.

Run as a program it is a whole chat on them: `python fake_app.py LOG [name=value …]`. LOG
gets a line of JSON for each thing that reached the app. What is `held` goes on when the test
lets it: nothing depends on which of the two processes is the quicker one.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ragmem.config import Config
from ragmem.errors import NoModel, SessionNotFound
from ragmem.events import (
    ContextBuilt,
    Event,
    ModelCallStarted,
    Notice,
    Recalled,
    RetryWaiting,
    Subtype,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from ragmem.memory.context.builder import Context
from ragmem.memory.context.sections import ContextItem, ContextSection
from ragmem.memory.last_time import SessionRecap
from ragmem.memory.memory import SessionTurns
from ragmem.messages import user
from ragmem.records import (
    ALL_TURNS,
    DEFAULT_TITLE,
    FileAccess,
    Session,
    SessionQuery,
    Turn,
    TurnQuery,
    Usage,
)
from ragmem.tools.base import Approver, Proposal
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.sandbox import Mechanism, Sandbox
from ragmem.tools.shell import Jobs
from ragmem.tools.skills import SkillSet

LONG_AGO = datetime(2024, 1, 2, 3, 4, tzinfo=UTC)
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[6n\x9b31m\rcarriage\bback\u202eright"
RECALLED = tuple(
    Recalled(id=f"r{i}", section=section, score=0.5, why="its words", label=label, chars=1_900)
    for i, (section, label) in enumerate(
        [
            ("Remembered Facts", f"the deploy key rotates on Mondays{EVIL}"),
            ("Remembered Facts", "make ship failed: 403"),
            ("Relevant Turns", "Turn 5: why do deploys fail?"),
            ("Relevant Code", "ragmem/app.py:3-9 App"),
        ]
    )
)
DECIDED = ("allowed", "remember", "reason")
DIFF = "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-print('old')\n+print('new')"


def long_diff(lines: int) -> str:
    """A new file a.py of so many lines."""
    rows = "\n".join(f"+line_{n} = {n}" for n in range(1, lines + 1))
    return f"--- /dev/null\n+++ a.py\n@@ -0,0 +1,{lines} @@\n{rows}"


EVIL_FILE = FileAccess(
    path=f"src/{EVIL}.py",
    tool_name="read_file",
    access_type="read",
    accessed_at=LONG_AGO,
    turn_index=1,
)
EVIL_CONTEXT = Context(
    sections=(
        ContextSection(name="system", chars=1200, budget=0),
        ContextSection(
            name="recent",
            chars=34,
            budget=40_000,
            items=(ContextItem(label=f"turn 1{EVIL}", chars=34, why="recent"),),
            dropped=2,
        ),
    ),
    messages=(user("?"),),
    max_chars=100_000,
)


def gate(log_file: Path, name: str) -> Path:
    """What is held waits until this file is there."""
    return log_file.with_name(f"go-{name}")


def session(number: int = 1, **fields: Any) -> Session:
    """A session with an id whose tail is `0000000N`."""
    return Session(
        **{
            "session_id": f"0190a000-0000-7000-8000-{number:012}",
            "cwd": "/project",
            "project_id": "p",
            "started_at": LONG_AGO,
            "updated_at": LONG_AGO,
            "last_activity_at": LONG_AGO,
            **fields,
        }
    )


def tool_done(display: str, **fields: Any) -> ToolFinished:
    """The end of a tool call that went well."""
    given = {"tool_call_id": "1", "name": "t", "success": True, "text": "", "duration_ms": 12}
    return ToolFinished(**{**given, "display": display, **fields})


def turn_finished(subtype: Subtype, **fields: Any) -> TurnFinished:
    """The end of a turn without an answer, and what it has used."""
    given = {
        "session_id": session(2).session_id,
        "turn_id": "t",
        "result": "",
        "model": "openai/scripted",
        "usage": Usage(input_tokens=1234, output_tokens=56, cost_usd=0.0123, model_calls=2),
        "duration_ms": 2345,
    }
    return TurnFinished(**{**given, "subtype": subtype, **fields})


def past_turn(index: int, said: str, answered: str) -> Turn:
    """A completed turn."""
    return Turn(
        turn_id=f"t{index}",
        session_id=session().session_id,
        turn_index=index,
        user_message=said,
        assistant_message=answered,
        status="completed",
        started_at=LONG_AGO,
        usage=Usage(input_tokens=100, output_tokens=10, cost_usd=0.01, model_calls=1),
    )


class FakeMemory:
    """Sessions in a list."""

    records = True

    def __init__(
        self, sessions: list[Session], held: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self.all = sessions
        self.elsewhere: list[Session] = []
        self._held = held
        self.turns: dict[str, list[Turn]] = {}

    async def sessions(self, query: SessionQuery) -> list[Session]:
        return [*self.all, *self.elsewhere][: query.limit]

    def recollect(self, session: Session) -> Session:
        return session

    async def find_session(self, reference: str) -> Session:
        for each in [*self.all, *self.elsewhere]:
            if each.session_id.endswith(reference) or each.title == reference:
                return each
        raise SessionNotFound(f"Session {reference} not found.", hint="`/sessions` lists.")

    async def load_session(self, session_id: str, query: TurnQuery = ALL_TURNS) -> SessionTurns:
        found = await self.find_session(session_id)
        turns = self.turns.get(session_id, [])
        return SessionTurns(found, tuple(turns[-(query.limit or len(turns)) :]))

    async def turns_back(self, session_id: str, query: TurnQuery) -> AsyncIterator[Turn]:
        for turn in reversed(self.turns.get(session_id, [])):
            yield turn

    async def recap(self, session: Session) -> SessionRecap:
        if session.title == "Work 3" and self._held:
            await self._held("recap")
        outcome = f"and then?{EVIL} — It fell."
        return SessionRecap(
            session=session, outcome=outcome, open=("the gate still squeaks",), changed=("a.py",)
        )

    async def accessed_files(self, session_id: str) -> list[FileAccess]:
        return [EVIL_FILE]


class FakeAgent:
    """Does what the prompt says: see `_script`."""

    def __init__(self, app: "FakeApp", session: Session, model: str, approver: Approver) -> None:
        self.session = session
        self.model = model
        self.context_window = 100_000
        self.effort: str | None = None
        self.rules = PermissionRules()
        self._app = app
        self._approver = approver
        self._task: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Nothing is warm here."""

    def use_mode(self, mode: str) -> None:
        self._app.log("mode", mode=mode)

    async def ask(self, prompt: str, _: object = None) -> AsyncIterator[Event]:
        self._app.log("ask", prompt=prompt)
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        task = self._task = asyncio.create_task(self._run(prompt, events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, prompt: str, emit: Callable[[Event], None]) -> None:
        ids = {"session_id": self.session.session_id, "turn_id": "t"}
        emit(TurnStarted(**ids, turn_index=1, model=self.model))
        recalled = RECALLED if "recall" in prompt else ()
        emit(ContextBuilt(sections={"system": 1200, "recent": 34}, recalled=recalled))
        emit(ModelCallStarted(number=1, context_tokens=41_000))
        subtype: Subtype = "success"
        error = hint = ""
        try:
            if prompt == "fail":
                subtype, error, hint = "error_during_execution", f"Away{EVIL}", "Try again."
            else:
                await self._script(prompt, emit)
        except asyncio.CancelledError:
            subtype = "interrupted"
        self._app.log("finished", prompt=prompt, subtype=subtype)
        lingers = prompt == "lingering"
        emit(turn_finished(subtype, **ids, error=error, hint=hint, model=self.model))
        if lingers:
            await self._app.held("end")

    async def _script(self, prompt: str, emit: Callable[[Event], None]) -> None:
        def say(text: str) -> None:
            emit(TextDelta(text=text))

        match prompt.split():
            case ["slow", *_]:
                for number in range(1000):
                    say(f"word{number} ")
                    await asyncio.sleep(0.05)
            case ["limited"]:
                wait = {"reason": f"rate limited{EVIL}", "attempt": 2, "most": 4, "wait_s": 90.0}
                emit(RetryWaiting(**wait))
                await self._app.held("limit")
                say("At last.")
            case ["deaf", *_]:
                say("listening to nobody")
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        await asyncio.sleep(60)
            case ["markdown"]:
                begun = "# Title\n\nSome *text* and `code`.\n\n```py"
                for piece in (begun, "thon\nx = 1\n", "```\n"):
                    say(piece)
                    await asyncio.sleep(0.05)
                say("\n- one\n- two\n\n![alt](http://host/image.png) [link](http://host/)\n")
            case ["tool", *rest]:
                await self._read(emit, "1", held="held" in rest)
                say("It is an app.")
            case ["evil"]:
                emit(ToolStarted(tool_call_id="1", name="read_file", title=f"read_file {EVIL}"))
                emit(tool_done(EVIL, name="read_file"))
                emit(Notice(level="warning", text=EVIL))
                for char in f"{EVIL} [x](http://h/\x1b]8;;) &#x202e;&#x9b; ```{EVIL}```\n\n{EVIL}":
                    say(char)
            case ["edit" | "command", *_]:
                await self._propose(prompt, emit)
            case _:
                say(f"You said {prompt!r}.")

    async def _propose(self, prompt: str, emit: Callable[[Event], None]) -> None:
        if prompt.startswith("edit"):
            body = DIFF
            if "evil" in prompt:
                body = DIFF.replace("+1 @@", "+1,2 @@") + f"\n+{EVIL}\u200b\U000e0041"
            if "long" in prompt:
                body = long_diff(120)
            await self._approve("edit_file", "diff", body, emit)
        else:
            plain = "plain" in prompt
            body = "git status" if plain else "echo hi" + " " * 2000 + "; evil"
            async with asyncio.TaskGroup() as group:
                if "beside" in prompt:
                    group.create_task(self._read(emit, "2", held=True))
                await self._approve("run_command", "command", body, emit, plain=plain)

    async def _read(self, emit: Callable[[Event], None], call_id: str, *, held: bool) -> None:
        emit(ToolStarted(tool_call_id=call_id, name="read_file", title="read_file ragmem/app.py"))
        if held:
            await self._app.held("tool")
        emit(tool_done("120 lines", tool_call_id=call_id, name="read_file"))
        self._app.log("read")

    async def _approve(
        self, tool: str, kind: Any, body: str, emit: Callable[[Event], None], *, plain: bool = False
    ) -> None:
        emit(ToolStarted(tool_call_id="1", name=tool, title=f"{tool} a.py"))
        decision = await self._approver(
            Proposal(
                tool_name=tool,
                title=f"{tool} a.py",
                kind=kind,
                body=body,
                warnings=() if plain else ("a.py is a link",),
                always="every edit of this file in this session",
                for_good=((f"{tool}({body})",),) if plain else (),
            )
        )
        self._app.log("decided", **{f: getattr(decision, f) for f in DECIDED})
        await asyncio.sleep(0)  # as recording it takes: a turn that was stopped ends here
        display = body if kind == "diff" else "exit code 0"
        emit(tool_done(display, name=tool, success=decision.allowed))
        emit(TextDelta(text="Done so." if decision.allowed else "Then not."))

    def interrupt(self, *, by_person: bool = True) -> None:
        if self._task:
            self._task.cancel()

    async def context(self, prompt: str) -> Context:
        return EVIL_CONTEXT

    async def aclose(self) -> None:
        self.interrupt()


class FakeBackground:
    """What small calls beside the conversation have used."""

    doing = ""

    def spent(self, session_id: str) -> Usage:
        """By whichever process, for a session."""
        assert session_id
        return Usage(input_tokens=300, output_tokens=60, cost_usd=0.0012, model_calls=3)


class FakeApp:
    """What `ragmem.app.App` offers the chat."""

    def __init__(
        self, log_file: Path, *, past: bool = False, no_model: bool = False, more: int = 0
    ) -> None:
        self._log_file = log_file
        self._no_model = no_model
        self.cwd = Path.cwd()
        self.config = Config()
        self.sandbox = Sandbox(self.config.sandbox, mechanism=Mechanism("", why="a fake"))
        self.embedder = None
        self.jobs = Jobs(log_file.parent)
        known = (
            [session(1, title="Past work", turn_count=2, last_message="and then?")] if past else []
        )
        known += [
            session(100 + i, title=f"Work {i}", turn_count=i + 1, tags=("wip",) if i % 2 else ())
            for i in range(more)
        ]
        self.memory = FakeMemory(known, self.held)
        self.memory.elsewhere = [session(99, title="Far away", turn_count=3, cwd="/other/place")]
        self.background = FakeBackground()
        if past:
            self.memory.turns[known[0].session_id] = [
                past_turn(1, "what is it?", "A **house**."),
                past_turn(2, f"and then?{EVIL}", f"It{EVIL} fell."),
            ]
        self._notices = ["Project instructions: AGENTS.md"]
        self.servers = None

    async def sessions_here(self, limit: int) -> list[Session]:
        return self.memory.all[:limit]

    def log(self, what: str, **fields: Any) -> None:
        with self._log_file.open("a") as file:
            file.write(json.dumps({"what": what, **fields}) + "\n")

    async def held(self, name: str) -> None:
        """Until the test lets it go on."""
        while not gate(self._log_file, name).exists():
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> "FakeApp":
        self.log("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log("closed")

    def start_background(self, *, model: str = "") -> None:
        """Nothing is pending here."""

    async def _nothing(self, **_: object) -> None:
        """Nothing is left, asked, gone or a worktree here."""

    leave_background = is_seen_first = join_worktree = _nothing

    async def skill_set(self, session: Session) -> SkillSet:
        return SkillSet((), self.cwd, Path("/dev/null"))

    def notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    async def start_session(self, *, title: str = "") -> Session:
        return session(2, title=title or DEFAULT_TITLE)

    async def continue_session(self, *, chats: bool, wait_s: float = 0) -> Session | None:
        return self.memory.all[0] if self.memory.all else None

    async def resume_session(self, reference: str) -> Session:
        return await self.memory.find_session(reference)

    async def agent(self, session: Session, options: Any, approver: Approver) -> FakeAgent:
        if self._no_model or options.model == "none":
            raise NoModel("No model can be used.", hint="Set OPENAI_API_KEY.")
        self.log("agent", session=session.session_id, model=options.model)
        agent = FakeAgent(self, session, options.model or "openai/scripted", approver)
        agent.effort = options.effort
        return agent


class FakeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the chat looks at of `ragmem.agent.Options`."""

    model: str = ""
    effort: str | None = None
    permission_mode: str = "default"


def main(log: str, *settings: str) -> int:
    """A chat; settings: early, past, no_model, resume=…, continue, color=never, theme=…, hurried.

    `editing=vi` is for its keys, `drawn=never` for what is drawn unasked, `more=40` is as many
    sessions before it. With `clock` a file of that name tells the time by which an Enter
    comes too early, with `wall_clock` how many seconds the machine's own clock was set forward.

    `early=held`, `load=held` and `files=held` hold it at its first prompt, while it loads, and
    before files are listed.
    """
    from ragmem.repl import early

    given = dict(setting.partition("=")[::2] for setting in settings)

    def hold(name: str) -> None:
        while given.get(name) == "held" and not gate(Path(log), name).exists():
            time.sleep(0.01)

    if "early" in given:
        early.show()
        hold("early")
    from ragmem.config import ChatConfig, UiConfig
    from ragmem.errors import RagmemError
    from ragmem.repl import completion
    from ragmem.repl.chat import Opening, run_chat

    if "hurried" not in given:
        _be_patient()
    if given.keys() & {"drawn", "clock"}:
        from ragmem.repl import input as prompt

        if "drawn" in given:
            prompt.REDRAW_S = 3_600.0
        if "clock" in given:
            prompt._clock = lambda: float(Path(log).with_name("clock").read_text())

    if "wall_clock" in given:
        wall_time, set_by = time.time, Path(log).with_name("wall_clock")
        time.time = lambda: wall_time() + float(set_by.read_text())

    list_now = completion.project_files

    def listed(cwd: Path, stop: threading.Event) -> list[str]:
        hold("files")
        return list_now(cwd, stop)

    if "files" in given:
        completion.project_files = listed

    def start(_: Callable[[str], None]) -> Any:
        hold("load")
        more = int(given.get("more", 0))
        app = FakeApp(Path(log), past="past" in given, no_model="no_model" in given, more=more)
        return app, FakeOptions()

    editing: Any = given.get("editing", "emacs")
    opening = Opening(resume=given.get("resume"), continue_last="continue" in given)
    history = Path(log).with_name("history")
    color: Any = given.get("color", "auto")
    theme: Any = given.get("theme", "auto")
    try:
        return run_chat(
            start,
            opening=opening,
            cwd=Path.cwd(),
            history=history,
            config=Config(
                ui=UiConfig(color=color, theme=theme), chat=ChatConfig(editing_mode=editing)
            ),
        )
    except RagmemError as error:
        print(f"error: {error}\n{error.hint}", file=sys.stderr)
        return error.exit_code


def _be_patient() -> None:
    """A busy machine takes longer to leave in order."""
    from ragmem.repl import chat

    chat._EXIT_WITHIN_S = chat._KILLED_WITHIN_S = 50.0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
