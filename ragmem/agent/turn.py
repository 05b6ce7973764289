"""One turn, from the user's prompt to the recorded answer."""

import asyncio
import os.path
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ragmem.agent.calls import CallRunner, ToolLoop, cut_short, with_note
from ragmem.config import Effort, LLMConfig, ToolsConfig
from ragmem.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SIGINT,
    AnswerTooLong,
    ContextTooLong,
    ProviderRefused,
    RagmemError,
    StreamCut,
    wait_s,
)
from ragmem.events import (
    ContextBuilt,
    Event,
    MessageFinished,
    ModelCallStarted,
    Notice,
    PromptAdded,
    ReasoningDelta,
    Recalled,
    RetryWaiting,
    Subtype,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from ragmem.failpoints import failpoint
from ragmem.ids import new_id
from ragmem.llm.base import (
    LLM,
    Assembler,
    Completion,
    ReasoningChunk,
    Request,
    RetryChunk,
    TextChunk,
    answering,
)
from ragmem.memory.context.builder import Context, ContextBuilder
from ragmem.memory.context.collect import FindCode, Place
from ragmem.memory.facts.words import without_piped
from ragmem.memory.memory import Memory
from ragmem.memory.recording import TurnRecording, settled
from ragmem.memory.turns import clip_result, turn_tag, with_mentions
from ragmem.messages import (
    IMAGE_CHARS,
    ImagePart,
    Json,
    Message,
    ToolSpec,
    ToolUse,
    assistant,
    prompt as prompt_text,
    user,
)
from ragmem.records import Project, Session, ToolCall, Turn, TurnStatus, Usage, without_marks
from ragmem.redact import redact
from ragmem.text import clean, counted, estimate_tokens, one_line
from ragmem.tools.base import CurrentMode, Toolset
from ragmem.tools.files import ChangedFiles
from ragmem.tools.permissions import PermissionRules
from ragmem.tools.workspace import at_paths, named_files, show_name

if TYPE_CHECKING:
    from ragmem.agent.schema import AnswerSchema

Typed = Callable[[int], Sequence[str]]
"""Takes a number of characters; returns, once, what the user typed during the turn for the model to
read now, as much as fits.
"""


def nothing_typed(_: int) -> Sequence[str]:
    """Return nothing: nobody types, or all of it waits for the end of the turn."""
    return ()


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an agent works with, as assembled by `create_agent`."""

    llm: LLM
    owns_llm: bool = True
    """Whether the model is closed with the agent."""
    memory: Memory
    toolset: Toolset
    builder: ContextBuilder
    place: Place
    mode: CurrentMode = msgspec.field(default_factory=CurrentMode)
    """The permission mode; tools check it at each call."""
    rules: PermissionRules = msgspec.field(default_factory=PermissionRules)
    """What the user has allowed and denied in advance; tools check it at each call."""
    find_code: FindCode | None = None
    """Searches the project's code; None if it is not indexed."""
    project: Project
    max_iterations: int = ToolsConfig().max_iterations
    """The model calls of a turn, after which follows one more without tools."""
    max_budget_usd: float | None = None
    retries: int = LLMConfig().retries
    """How often an answer that broke off is requested again."""
    schema: "AnswerSchema | None" = None
    """The schema that the answer must match; None for any text."""
    effort: Effort | None = None
    """How long the model may think; None for its provider's default."""
    offers_tools: bool = True
    """False: the model gets no tools; files named in prompts are still read."""
    keeps_thoughts: bool = True
    """False: the model's reasoning is shown, but not stored."""
    notices: Callable[[], Sequence[str]] = tuple
    """Returns notices to show once, such as an unavailable store; called between a turn's steps."""
    said: set[str] = msgspec.field(default_factory=set)
    """Once-per-session notices that have been shown."""
    at_start: Callable[[], None] = lambda: None
    """Called when a turn begins, to prepare what it needs a little later."""
    changed: ChangedFiles | None = None
    """Finds files that differ from what the agent has read."""


_LEAST_MENTION = 400
"""Least characters of each file named in a prompt, however many there are."""
_LEAST_CONTEXT = 4_000
"""Characters to which a context is not made smaller."""
_UNKNOWN_WINDOW_TOKENS = 128_000
"""Assumed for an unknown window, only to decide when to condense results."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended."""

    subtype: Subtype
    text: str
    error: str = ""
    hint: str = ""
    exit_code: int = EXIT_FAILED
    structured: Json = None
    """The answer as a JSON value, if a schema was given."""
    is_cut: bool = False
    """Whether the answer reached the model's output limit."""

    @property
    def status(self) -> TurnStatus:
        """Return the status that the turn is recorded with."""
        named: dict[str, TurnStatus] = {
            "interrupted": "interrupted",
            "error_during_execution": "failed",
        }
        return named.get(self.subtype, "completed")

    @property
    def mark(self) -> str:
        """The note recorded after the answer of a turn that reached a limit, for later turns."""
        is_bound = self.subtype in ("error_max_turns", "error_max_budget_usd")
        return f"\n\n[This turn ended before it was finished: {self.error}]" * is_bound


def interrupted_with(text: str) -> Ending:
    """Return the ending of a turn that the user interrupted, with the text so far."""
    return Ending(subtype="interrupted", text=text, error="interrupted", exit_code=EXIT_SIGINT)


class TurnRun:
    """Runs one turn; `run` is called once."""

    def __init__(
        self,
        session: Session,
        parts: Dependencies,
        emit: Callable[[Event], None],
        typed: Typed = nothing_typed,
    ) -> None:
        self._session = session
        self._parts = parts
        self._emit = emit
        self._typed = typed
        self._recording: TurnRecording
        self._calls: CallRunner
        self._said: list[str] = []
        """The pieces of the answer that is being streamed."""
        self._thoughts: list[str] = []
        """The model's reasoning, if it is kept, and answers that broke off."""
        self._builder = parts.builder.for_model(parts.llm.info)
        self._context: Callable[[ContextBuilder], Awaitable[Context]]
        """Builds the prompt's context."""
        self._images: tuple[ImagePart, ...] = ()
        """Images named in the prompt."""
        self._usage = Usage()
        self._unpriced = False
        """Whether an answer came without its token counts."""
        self._sizes: dict[str, int] = {}
        self._started = time.monotonic()
        self.has_begun = False
        """Whether `run` has started, from where on the turn's end is recorded in any case."""
        self._over = False

    @property
    def turn(self) -> Turn:
        """The turn as recorded so far."""
        return self._recording.turn

    def tell(self, event: Event) -> bool:
        """Emit an event from outside the turn; false once the turn is over."""
        if not self._over:
            self._emit(event)
        return not self._over

    async def run(self, prompt: str) -> None:
        """Run the turn; RagmemError and CancelledError are never raised, but end the turn."""
        self.has_begun = True
        ending = Ending(subtype="error_during_execution", text="", error="internal error")
        interrupted = await settled(self._begin(prompt))
        try:
            if interrupted:
                raise asyncio.CancelledError
            ending = await self._answer(without_marks(prompt))
        except asyncio.CancelledError:
            ending = interrupted_with("".join(self._said))
        except RagmemError as error:
            ending = Ending(
                subtype="error_during_execution",
                text="".join(self._said),
                error=redact(str(error)),
                hint=error.hint,
                exit_code=error.exit_code,
            )
        except (OSError, MemoryError, ImportError) as error:
            # The system is out of some resource, or lacks a file: not a bug of the loop.
            why = getattr(error, "strerror", None) or one_line(str(error), 200) or "out of memory"
            said = "".join(self._said)
            ending = msgspec.structs.replace(ending, text=said, error=f"{why}.")
            raise
        finally:
            await settled(self._finish(ending))

    async def _begin(self, prompt: str) -> None:
        parts = self._parts
        parts.at_start()
        self._recording = await parts.memory.begin_turn(
            self._session, parts.project, prompt, model=parts.llm.info.name
        )
        self._calls = CallRunner(parts.toolset, self._recording, self._emit)
        turn = self.turn
        self._emit(
            TurnStarted(
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                turn_index=turn.turn_index,
                model=parts.llm.info.name,
                recorded=self._recording.recorded,
            )
        )
        self._say_notices()

    async def _answer(self, prompt: str) -> Ending:
        """Call the model and run its tool calls until it answers or a limit is reached."""
        mentions = await self._mentions(prompt)
        info = self._parts.llm.info
        if self._calls.images and info.supports_images is False:
            warning = f"{info.name} can't see images: it gets only their names."
            self._warn(f"{warning} /model and -m choose another model.")
        self._images = tuple(self._calls.images)
        self._context = partial(self._build, prompt, mentions, await self._changed_files())
        loop = self._loop(await self._context(self._builder))
        asked_again = False
        for number in range(self._parts.max_iterations):
            if number:
                await self._add_typed(loop, number)
            specs = self._parts.toolset.specs() if self._parts.offers_tools else ()
            completion = await self._ask(loop, specs)
            if completion.tool_uses:
                offered = self._parts.offers_tools
                answers = await self._calls.run(completion, number, offered=offered)
            else:
                value, misfit = self._structured(completion.text)
                if not misfit or asked_again:
                    return self._ending_of(completion, value, misfit)
                asked_again = True
                again = user(prompt_text("json_again").format(reason=misfit))
                answers = [assistant(completion.text), again]
            loop.add(with_note(answers, await self._changed_files()))
            if reason := self._too_expensive:
                return Ending(
                    subtype="error_max_budget_usd",
                    text=completion.text,
                    error=reason,
                    hint="Raise --max-budget-usd or leave it out, or continue with `-c`.",
                )
            if self._calls.stuck:
                break
        if not completion.tool_uses:  # The second try is the last call.
            completion = await self._ask(loop, ())
            return self._ending_of(completion, *self._structured(completion.text))
        return await self._final_answer(loop)

    async def _ask(self, loop: ToolLoop, specs: tuple[ToolSpec, ...], *more: Message) -> Completion:
        """Call the model with the loop's messages; shrink them as often as they are too long."""
        while True:
            try:
                return await self._call([*loop.messages, *more], specs)
            except ContextTooLong as error:
                self._learn_window(error.window)
                if not await self._shrunk(loop):
                    raise

    def _learn_window(self, tokens: int | None) -> None:
        """Adopt a window's size as reported by the provider, for this process."""
        llm = self._parts.llm
        if tokens and tokens < (llm.info.context_window or tokens + 1):
            llm.info = msgspec.structs.replace(llm.info, context_window=tokens)
            notice = f"{llm.info.name} takes at most {tokens:,} tokens, according to its provider."
            self._emit(Notice(level="info", text=notice))

    async def _shrunk(self, loop: ToolLoop) -> bool:
        """Shrink the loop and its context; false if nothing became smaller."""
        before = self._builder
        self._builder = before.for_model(self._parts.llm.info)
        if self._builder.max_chars == before.max_chars > _LEAST_CONTEXT:
            self._builder = before.smaller()
        return loop.shrink(self._loop(await self._context(self._builder)))

    async def _add_typed(self, loop: ToolLoop, number: int) -> None:
        """Add what the user has typed meanwhile after the results of the model's calls."""
        typed = [clean(text) for text in self._typed(loop.room_for_words)]
        if not typed:
            return
        words = "\n\n".join(typed)
        # Recorded even if the user stops the turn now.
        interrupted = await settled(self._recording.say(words))
        for text in typed:
            self._emit(PromptAdded(text=text))
        if interrupted:
            raise asyncio.CancelledError
        images = len(self._calls.images)
        mentions = await self._mentions(words, number)
        share = max(_LEAST_MENTION, loop.room_for_words // max(1, len(mentions)))
        mentions = [clip_result(call, share) for call in mentions]
        said = user(with_mentions(words, mentions, turn_tag(self.turn.turn_id)))
        loop.say(self._with_images(said, self._calls.images[images:]))

    def _loop(self, context: Context) -> ToolLoop:
        """Create the loop, with half of the window for rounds, or less if the context needs it."""
        window = 4 * (self._parts.llm.info.context_window or _UNKNOWN_WINDOW_TOKENS)
        room = min(window // 2, max(window // 4, window * 3 // 4 - context.chars))
        schema = self._parts.schema
        rule = (user(schema.rule),) if schema else ()
        standing = self._parts.toolset.standing() if self._parts.offers_tools else ""
        notes = (user(f"[{standing}]"),) if standing else ()
        *before, prompt = context.messages
        messages = (*before, self._with_images(prompt, self._images), *rule, *notes)
        images = IMAGE_CHARS * len(self._images)
        return ToolLoop(messages, limit=context.chars + images + room)

    def _with_images(self, prompt: Message, images: Sequence[ImagePart]) -> Message:
        """Add images to a prompt, unless the model is known not to support them."""
        if self._parts.llm.info.supports_images is False:
            return prompt
        return msgspec.structs.replace(prompt, parts=(*prompt.parts, *images))

    def _structured(self, text: str) -> tuple[Json, str]:
        """Return the answer as a JSON value, if there is a schema, or why it does not match."""
        try:
            return (self._parts.schema.parse(text) if self._parts.schema else None), ""
        except ValueError as error:
            return None, str(error)

    async def _final_answer(self, loop: ToolLoop) -> Ending:
        completion = await self._ask(loop, (), user(prompt_text("final_answer")))
        most = counted(self._parts.max_iterations, "model call")
        error = f"The limit of {most} was reached."
        hint = "Ask it to continue (-c), or raise the limit (--max-turns)."
        if self._calls.stuck:
            error = "The model kept repeating itself."
            hint = "Say what to do instead; if it is waiting for something, ask it again later."
        value, _ = self._structured(completion.text)
        return Ending(
            subtype="error_max_turns",
            text=completion.text,
            error=error,
            hint=hint,
            structured=value,
        )

    def _ending_of(self, completion: Completion, value: Json, misfit: str) -> Ending:
        if completion.end_reason == "content_filter":
            if not completion.text.strip():
                raise ProviderRefused("The provider's content filter withheld the answer.")
            self._warn("The provider's content filter stopped the answer: it may be cut short.")
        is_cut = completion.end_reason == "length"
        if is_cut:
            self._warn("The answer reached the model's output limit and may be cut short.")
        elif completion.end_reason != "content_filter" and cut_short(completion.end_reason):
            end = one_line(completion.end_reason, 40)
            self._warn(f"The provider ended the answer with {end!r}; it may be cut short.")
        if misfit:
            return Ending(
                subtype="error_during_execution",
                text=completion.text,
                error=f"The answer does not match the schema. {misfit.rstrip('.')}. It was: "
                + (one_line(completion.text, 200) or "empty"),
                hint="Rephrase the prompt, or use another model (-m).",
            )
        schema, text = self._parts.schema, completion.text
        return Ending(
            subtype="success",
            text=schema.bare(text) if schema else text,
            exit_code=EXIT_DONE,
            structured=value,
            is_cut=is_cut,
        )

    async def _changed_files(self) -> str:
        """Return a note on files changed by others, for a model that can read them again."""
        parts = self._parts
        return await parts.changed.news() if parts.changed and parts.offers_tools else ""

    async def _build(
        self, prompt: str, mentions: list[ToolCall], changed: str, builder: ContextBuilder
    ) -> Context:
        parts = self._parts
        context = await parts.memory.build_context(
            self._session,
            prompt,
            builder,
            parts.place,
            turn=self.turn,
            mentions=mentions,
            changed=changed,
            find_code=parts.find_code,
        )
        self._sizes = context.sizes
        self._emit(
            ContextBuilt(
                sections=context.sizes,
                fallback=context.fallback,
                recalled=_recalled(context),
                without_code=context.without_code,
            )
        )
        # It resolves itself: the process that answers searches may just have ended.
        self._say_once(Notice(level="info", text=context.without_code))
        for text in context.over_limits:
            self._say_once(Notice(level="warning", text=text))
        for text in context.notices:
            self._warn(text)
        self._say_notices()
        return context

    async def _mentions(self, prompt: str, number: int = 0) -> list[ToolCall]:
        """Read the files that the prompt names; `number` is that of the next model call."""
        parts = self._parts
        uses = await reads_of_mentions(prompt, parts, parts.toolset)
        for path in at_paths(without_piped(prompt)):
            if path not in uses and ("/" in path or "." in path):
                self._warn(f"There is no file {one_line(path, 200)} here.")
        calls = [await self._calls.mention(use, path, number) for path, use in uses.items()]
        return [call for call in calls if call is not None]

    async def _call(self, messages: Sequence[Message], specs: tuple[ToolSpec, ...]) -> Completion:
        """Call the model; repeat the same request if the answer breaks off."""
        spec_chars = sum(len(msgspec.json.encode(spec)) for spec in specs)
        sent = estimate_tokens(sum(message.char_count for message in messages) + spec_chars)
        self._emit(ModelCallStarted(number=self._usage.model_calls + 1, context_tokens=sent))
        schema = self._parts.schema
        request = Request(
            messages=tuple(messages),
            tools=specs,
            effort=self._parts.effort,
            cache_key=self._session.session_id,
            # Some providers accept no schema together with tools.
            answer_schema=schema.schema if schema and not specs else None,
        )
        tries = self._parts.retries + 1
        for attempt in range(1, tries):
            words: list[str] = []
            try:
                return await self._try(request, words, sent)
            except AnswerTooLong:
                raise
            except StreamCut:
                if self._too_expensive:
                    raise
            reason = "the answer broke off"
            if "".join(words).strip():
                self._warn("The answer broke off here; asking for it again.")
                reason = "asking again"
            wait = wait_s(attempt, None)
            self._emit(RetryWaiting(reason=reason, attempt=attempt + 1, most=tries, wait_s=wait))
            await asyncio.sleep(wait)
        return await self._try(request, [], sent)

    async def _try(self, request: Request, words: list[str], sent: int) -> Completion:
        """Stream an answer, appending its text to `words`; raises StreamCut if it is incomplete.

        The text of a previous attempt remains the turn's partial answer until new text arrives.
        """
        assembler, is_whole = Assembler(), False
        started = time.monotonic()
        failpoint("model.ask")
        try:
            async with answering(self._parts.llm, request) as chunks:
                async for chunk in chunks:
                    failpoint("model.chunk")
                    assembler.feed(chunk)
                    match chunk:
                        case TextChunk(text):
                            self._begin_words(words)
                            words.append(text)
                            self._recording.answering(words)
                            self._emit(TextDelta(text=clean(text)))
                        case ReasoningChunk(text):
                            self._emit(ReasoningDelta(text=clean(text)))
                        case RetryChunk():
                            self._emit(RetryWaiting(**msgspec.structs.asdict(chunk)))
                    # However fast chunks arrive, let the tasks run that show or stop them.
                    await asyncio.sleep(0)
            completion = _renamed(assembler.completion())
            is_whole = True
        finally:
            if self._parts.keeps_thoughts:
                self._thoughts.append(assembler.reasoning)
            api_ms = round((time.monotonic() - started) * 1000)
            self._count(assembler, api_ms, 0 if is_whole else sent)
        used = completion.usage
        self._unpriced |= used.input_tokens is None or used.output_tokens is None
        self._begin_words(words)
        words.clear()
        failpoint("model.answered")
        uses = tuple((u.id, u.name, u.arguments) for u in completion.tool_uses)
        said = estimate_tokens(sum(map(len, (completion.text, *(u[2] for u in uses)))))
        tokens = (used.input_tokens or sent) + (used.output_tokens or said)
        self._emit(
            MessageFinished(text=clean(completion.text), tool_uses=uses, context_tokens=tokens)
        )
        return completion

    def _begin_words(self, words: list[str]) -> None:
        """Make `words` the partial answer; one that broke off is kept among the thoughts."""
        if self._said is not words:
            half = "".join(self._said).strip()
            self._thoughts.append(half and f"[An answer that broke off:]\n{half}")
            self._said = words

    def _count(self, assembler: Assembler, api_ms: int, cut: int) -> None:
        """Add an attempt to the turn's usage; `cut`: the tokens sent for one that broke off.

        Providers bill that too, but report its usage at the end or not at all: its cost is
        estimated.
        """
        used = billed = assembler.usage
        if cut and assembler.has_begun:
            said = estimate_tokens(len(assembler.text) + len(assembler.reasoning))
            billed = msgspec.structs.replace(
                used,
                input_tokens=used.input_tokens or cut,
                output_tokens=max(used.output_tokens or 0, said),
            )
        self._usage += Usage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cached_tokens,
            cost_usd=self._parts.llm.info.cost_usd(billed),
            model_calls=int(assembler.has_begun),
            api_ms=api_ms,
        )

    @property
    def _too_expensive(self) -> str:
        """Why the budget forbids another model call; empty while it does not."""
        limit = self._parts.max_budget_usd
        if limit is None:
            return ""
        if self._unpriced:
            return f"The provider reported no usage, so the budget of ${limit:g} can't be enforced."
        spent = (self._usage.cost_usd or 0) >= limit
        return f"The budget of ${limit:g} is spent." if spent else ""

    def _say_notices(self) -> None:
        for text in self._parts.notices():
            self._warn(text)

    def _say_once(self, notice: Notice) -> None:
        """Show a notice unless it is empty or has been shown in this session."""
        if notice.text and notice.text not in self._parts.said:
            self._parts.said.add(notice.text)
            self._emit(notice)

    def _warn(self, text: str) -> None:
        self._emit(Notice(level="warning", text=text))

    async def _finish(self, ending: Ending) -> None:
        parts = self._parts
        thoughts = "\n\n".join(filter(None, self._thoughts))
        await self._recording.finish(
            ending.status, ending.text + ending.mark, reasoning=thoughts, usage=self._usage
        )
        parts.memory.finished(self._session, self.turn)
        self._say_notices()
        self._over = True
        self._emit(
            TurnFinished(
                session_id=self.turn.session_id,
                turn_id=self.turn.turn_id,
                subtype=ending.subtype,
                result=self.turn.assistant_message.removesuffix(ending.mark),
                error=ending.error,
                hint=ending.hint,
                exit_code=ending.exit_code,
                model=parts.llm.info.name,
                usage=self._usage,
                duration_ms=round((time.monotonic() - self._started) * 1000),
                context=self._sizes,
                permission_denials=tuple(self._calls.denials),
                structured_output=ending.structured,
                is_cut=ending.is_cut,
            )
        )


def _recalled(context: Context) -> tuple[Recalled, ...]:
    return tuple(
        Recalled(
            id=item.record_id,
            section=section.name,
            score=item.score,
            why=item.why,
            label=item.label,
            chars=item.chars,
            source=item.source,
            at=item.at,
            similarity=item.similarity,
        )
        for section in context.sections
        for item in section.items
        if item.record_id
    )


def _renamed(completion: Completion) -> Completion:
    """Give calls our own ids, since some providers repeat theirs or send none."""
    uses = tuple(
        msgspec.structs.replace(use, id=new_id(), given_id=use.id) for use in completion.tool_uses
    )
    return msgspec.structs.replace(completion, tool_uses=uses)


async def reads_of_mentions(
    prompt: str, parts: Dependencies, toolset: Toolset
) -> dict[str, ToolUse]:
    """Return the calls that read the files that a prompt names, by path."""
    prompt = without_piped(prompt)  # Piped input, such as a log, may name files too.
    paths = [path for path in at_paths(prompt) if _exists(parts.place.cwd / path)]
    if not parts.llm.info.supports_tools:
        listed = await toolset.call(_use("glob_files", pattern="**/*"))
        known = listed.text.splitlines() if listed.success else []
        paths += named_files(prompt, known)
    # `Path.is_dir` raises if it can't be looked at.
    folders = {path for path in paths if os.path.isdir(parts.place.cwd / path)}  # noqa: ASYNC240
    return {
        path: _use("list_directory" if path in folders else "read_file", path=show_name(path))
        for path in dict.fromkeys(paths)
    }


def _use(name: str, **arguments: str) -> ToolUse:
    return ToolUse(new_id(), name, msgspec.json.encode(arguments).decode())


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except PermissionError:
        return True  # Perhaps: reading it says why it can't be read.
    except (OSError, ValueError):
        return False
    return True
