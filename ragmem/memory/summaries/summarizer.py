"""The summarizer: asks a model for summaries, checks its answers, and can do without it."""

import asyncio
import posixpath
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from ragmem.config import SummariesConfig
from ragmem.errors import (
    ContextTooLong,
    LLMError,
    ProviderUnavailable,
    RequestRefused,
    StreamCut,
    wait_s,
)
from ragmem.llm.base import LLM, Assembler, ModelInfo, Request, TextChunk, UsageChunk, answering
from ragmem.llm.providers import BY_NAME
from ragmem.memory.facts.words import clip_sentences
from ragmem.memory.summaries import (
    MAX_FILES,
    MAX_FINDINGS,
    MAX_TOOLS,
    MAX_TOPICS,
    SHORT_CHARS,
    Digest,
    bounded,
    files_of,
    quoted_records,
    read_object,
    schema_of,
    summaries_digest,
    summaries_records,
    summary_id,
    thread_records,
    thread_text,
    tools_of,
    turn_digest,
    turn_records,
    union,
)
from ragmem.messages import Message, prompt, system, user
from ragmem.records import Attempts, Summary, Turn, TurnQuery, utc_now
from ragmem.redact import redact
from ragmem.store import Store
from ragmem.text import clip_middle, counted, estimate_tokens, one_line
from ragmem.usage import Away, Spending, UsageLog

# --- attempts at a question to a model, counted over all processes ---------------------

TRIES = 3
PROBLEM_CHARS = 200
PAUSES = (1, 3, 0)
"""Pauses after each unusable answer before any process asks about the item again, in multiples of
`memory.summaries.retry_pause_s`."""
_KINDS = {"thread": "session summary", "memories": "fact extraction", "judge": "fact comparison"}
"""Display names of items by the beginning of their key; others are named by that itself."""

Sleep = Callable[[float], Awaitable[object]]


def given_up_text(found: Sequence[Attempts]) -> str:
    """Return a message about items that were given up; `found` has the latest last."""
    begins = (each.item.partition(":")[0] for each in found)
    kinds = Counter(_KINDS.get(begin, begin) for begin in begins)
    counts = ", ".join(counted(count, kind) for kind, count in kinds.most_common())
    last = found[-1]
    return (
        f"Given up after {TRIES} answers that could not be used: {counts}. The last, from "
        f"{one_line(last.model, PROBLEM_CHARS)}: {one_line(last.problem, PROBLEM_CHARS)}"
    )


class Tries(msgspec.Struct):
    """Attempts at one question. Without a store, other processes don't count them."""

    kept: Store | None
    """The store in which failed attempts are kept."""
    known: Attempts
    pause_s: float
    clock: Callable[[], datetime]
    sleep: Sleep
    made: int = 0
    """The number of failed attempts, by this process and others."""
    is_kept: bool = False
    """Whether the store has failed attempts at this question, with any model."""

    @property
    def are_over(self) -> bool:
        """Whether the question is given up."""
        return self.made >= TRIES

    async def begin(self) -> None:
        """Load earlier attempts with this model, and wait for the rest of their pause."""
        for known in await self.kept.attempts(self.known.item) if self.kept else ():
            self.is_kept = True
            if known.model == self.known.model:
                self.known, self.made = known, known.count
        if not self.are_over:
            await self.pause()

    async def refused(self, problem: str) -> None:
        """Count an unusable answer."""
        self.made += 1
        if self.kept:
            self.is_kept = True
            self.known = msgspec.structs.replace(
                self.known,
                count=self.known.count + 1,
                not_before=self.clock() + self._pause(PAUSES[self.known.count]),
                problem=one_line(redact(problem), PROBLEM_CHARS),
            )
            await self.kept.keep_attempts(self.known)

    async def answered(self) -> None:
        """Forget earlier failed attempts after a usable answer."""
        if self.kept and self.is_kept:
            await self.kept.forget_attempts(self.known.session_id, self.known.item)

    async def pause(self) -> None:
        """Wait for the rest of the pause, never more than the longest, whatever the clock says."""
        left = min(self.known.not_before - self.clock(), self._pause(max(PAUSES)))
        if left > timedelta():
            await self.sleep(left.total_seconds())

    def _pause(self, times: int) -> timedelta:
        return timedelta(seconds=times * self.pause_s)


_CALL_TIMEOUT_S = 120.0
_LONGEST_ANSWER = 40_000


async def _stream_into(llm: LLM, request: Request, answer: Assembler) -> LLMError | None:
    """Send a request and collect the stream in `answer`; return an error if it is incomplete."""
    try:
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            length = 0
            async with answering(llm, request) as chunks:
                async for chunk in chunks:
                    answer.feed(chunk)
                    length += len(chunk.text) if isinstance(chunk, TextChunk) else 0
                    if length > _LONGEST_ANSWER:
                        return StreamCut("The model's answer did not end.")
        answer.completion()
    except LLMError as error:
        return error
    except TimeoutError:
        return StreamCut(f"The model took longer than {_CALL_TIMEOUT_S:g} s.")
    return None


def _runs_here(model: str) -> bool:
    prefix = model.partition("/")[0]
    provider = BY_NAME.get(prefix)
    return prefix == "local" or (provider is not None and provider.local)


def _spending_of(
    info: ModelInfo, sent_chars: int, said_chars: int, usage: UsageChunk, *, failed: bool
) -> Spending:
    into, out = usage.input_tokens, usage.output_tokens
    into = estimate_tokens(sent_chars) if into is None else into
    out = estimate_tokens(said_chars) if out is None else out
    used = msgspec.structs.replace(usage, input_tokens=into, output_tokens=out)
    priced = info.cost_usd(used)
    cost = 0.0 if _runs_here(info.name) else priced
    return Spending(1, int(failed), into, out, cost or 0.0, int(cost is None))


_TURN_CHARS = 800
_TURN_PROMPT = ("summaries.turn", "summarize_turn", _TURN_CHARS)
_ROLL_UP_PROMPT = ("summaries.roll_up", "summarize_summaries", 1_500)
"""The name of the timing, the prompt, and the limit of the text in characters."""
SMALLEST_WINDOW = 4_000
"""Tokens; a model with a smaller window is not used. One of 135 million parameters wrote no JSON in
45 answers to these prompts; constrained by a grammar it did in 10 of 15, which kept 1 fact of 45 (7
with a shorter prompt, 14 in plain words), while the turns' own sentences keep all
(tests/memory/summary_turns.py).
"""
_LARGEST_ROOM = 24_000
_PROMPT_CHARS = 2_400
_OUTPUT_TOKENS = 4_000
"""Includes room for a reasoning model's thinking."""
_CHARS_PER_TOKEN = 4
_CLOSING = "Answer with the JSON object."
_USUAL_TOKENS = 300
"""Typical output tokens of an answer, for estimating its cost."""
_LATEST_ANSWERED = TurnQuery(limit=1, statuses=("completed",), with_tool_calls=False)
_DAY_SPENT = (
    "Background work has reached its limit for today (${:,.2f}): until tomorrow, summaries are "
    "excerpts of the turns, and no facts are learned. memory.summaries.max_cost_usd_per_day sets "
    "the limit."
)
_UNUSABLE = (
    "Background work could not use what {} answered {} times: {}. That work is done without a "
    "model. If this continues, set model.summary to another one."
)

K = TypeVar("K", bound=msgspec.Struct)
T = TypeVar("T")


class Summarizer:
    """Makes summaries, but does not store them. One per process and model.

    Without a model, with one that is too small, beyond the session's limits, or after three failed
    attempts, a summary is cut from its source and marked `extractive`. Raises only ValueError for a
    wrong call, StoreError of reading attempts, and cancellation.
    """

    def __init__(
        self,
        llm: LLM | None,
        config: SummariesConfig,
        *,
        usage: UsageLog | None = None,
        open_attempts: Callable[[], Awaitable[Store]] | None = None,
        say: Callable[[str], None] = lambda _: None,
        is_chosen: bool = True,
        clock: Callable[[], datetime] = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Create a summarizer; `is_chosen`: the user chose this model for background work.

        Otherwise, if it runs on another machine, it gets nothing of a session whose latest answer
        is by a model on this machine.
        """
        self._llm = llm if llm is not None and not is_too_small(llm.info) else None
        self._config = config
        self.usage = usage or UsageLog()
        self.problem = ""
        """Why the last question failed; empty if it did not."""
        self._metrics = self.usage.metrics
        self._clock = clock
        self._sleep = sleep
        self._told: set[str] = set()
        self._say = say
        """Shows problems to the user, each kind once."""
        self._is_chosen = is_chosen
        self._kept_here: dict[str, bool] = {}
        """By session: whether its content must not be sent to this model."""
        self._open_attempts = open_attempts
        """Opens the store of failed attempts; without it each call makes up to three."""

    def ask_anew(self) -> None:
        """Use the model again after failures, because the user asks for it."""
        if self._llm is not None:
            self.usage.answered(self._llm.info.name)

    async def consider(self, store: Store, session_ids: Iterable[str]) -> None:
        """Look up which of these sessions must not be sent to another machine, as of now."""
        if self._llm is None or self._is_chosen or _runs_here(self._llm.info.name):
            return
        for session_id in set(session_ids):
            turns = await store.turns(session_id, _LATEST_ANSWERED)
            self._kept_here[session_id] = any(_runs_here(turn.model or "") for turn in turns)

    def uses_model(self, session_id: str) -> bool:
        """Whether the model can be used now; only then can extractive summaries be replaced."""
        return (
            self._llm is not None
            and self.usage.may_ask(self._llm.info.name, self._clock())
            and self._may_ask(session_id, self._llm.info, 0)
        )

    def _may_ask(self, session_id: str, info: ModelInfo, sent_chars: int) -> bool:
        """Check the limits of the session and of the day; the user is told of the latter once."""
        if self._kept_here.get(session_id):
            return False
        if _runs_here(info.name):
            return True
        config, spent = self._config, self.usage.spent(session_id)
        tokens = UsageChunk(input_tokens=estimate_tokens(sent_chars), output_tokens=_USUAL_TOKENS)
        expected = info.cost_usd(tokens) or 0.0
        if (
            spent.calls >= config.max_calls_per_session
            or spent.cost_usd + expected > config.max_cost_usd_per_session
        ):
            return False
        if self.usage.spent_today() + expected > config.max_cost_usd_per_day:
            self._tell("day", _DAY_SPENT.format(config.max_cost_usd_per_day))
            return False
        return True

    def _tell(self, kind: str, text: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._say(text)

    async def summarize_turn(
        self,
        turn: Turn,
        *,
        locate: Callable[[str], str] = posixpath.normpath,
        instead_of: Summary | None = None,
    ) -> Summary:
        """Return the level-1 summary of a completed turn.

        `locate` turns a path as a tool gave it into its stored form. `instead_of` is an extractive
        summary to be replaced, whose id and time are kept.
        """
        bare = Summary(
            summary_id=summary_id(turn.session_id, 1, (turn.turn_id,)),
            session_id=turn.session_id,
            text="",
            level=1,
            turn_count=1,
            files_mentioned=files_of(turn.tool_calls, locate),
            tools_used=tools_of(turn.tool_calls),
            created_at=self._clock(),
            covers=(turn.turn_id,),
        )
        source = turn_records(turn, max_chars=self.room)
        return await self._with_text(bare, source, partial(turn_digest, turn), instead_of)

    async def summarize_summaries(
        self, session_id: str, summaries: Sequence[Summary], *, instead_of: Summary | None = None
    ) -> Summary:
        """Return the summary of the next level over these, which have one level, oldest first."""
        level = min((s.level for s in summaries), default=0)
        if level < 1 or any(s.level != level for s in summaries):
            raise ValueError("there must be summaries, all of one level")
        covers = tuple(s.summary_id for s in summaries)
        bare = Summary(
            summary_id=summary_id(session_id, level + 1, covers),
            session_id=session_id,
            text="",
            level=level + 1,
            turn_count=sum(s.turn_count for s in summaries),
            files_mentioned=union([s.files_mentioned for s in summaries], MAX_FILES),
            tools_used=union([s.tools_used for s in summaries], MAX_TOOLS),
            created_at=self._clock(),
            covers=covers,
        )
        source, cut = summaries_records(summaries), partial(summaries_digest, summaries)
        return await self._with_text(bare, source, cut, instead_of)

    async def thread_summary(
        self, previous: str | None, since: Sequence[Turn], *, are_known: bool = False
    ) -> str:
        """Return a session's own summary in 2 to 3 sentences, from the previous one and new turns.

        It has at most `memory.summaries.max_tokens`. It stays as it is without turns, and also
        without a model if the previous one covers the turns already (`are_known`).
        """
        limit = self._config.max_tokens * _CHARS_PER_TOKEN
        if not since:
            return clip_sentences(previous or "", limit)
        session_id, item = since[-1].session_id, f"thread:{since[-1].turn_id}"
        source = thread_records(previous, since, max_chars=self.room)
        with self._metrics.time("summaries.thread"):
            digest = await self._digest(session_id, item, "summarize_thread", source, limit)
        new = () if are_known else since
        return digest.text if digest else thread_text(previous, new, text_chars=limit)

    def idle_summary(self, previous: str | None, since: Sequence[Summary]) -> str:
        """Return a session's own summary, extended by its turns' summaries, without a model."""
        limit = self._config.max_tokens * _CHARS_PER_TOKEN
        room = limit // 2 if previous else limit
        rest = summaries_digest(since, text_chars=room).text
        before = clip_sentences(previous, max(1, limit - len(rest) - 1)) if previous else ""
        return " ".join(filter(None, [before, rest]))

    async def _with_text(
        self, bare: Summary, source: str, cut: Callable[..., Digest], instead_of: Summary | None
    ) -> Summary:
        timed, asked, text_chars = _TURN_PROMPT if bare.level == 1 else _ROLL_UP_PROMPT
        item = f"summary:{bare.summary_id}"
        with self._metrics.time(timed):
            digest = await self._digest(bare.session_id, item, asked, source, text_chars)
        self._metrics.count("summaries.made" if digest else "summaries.extractive")
        words = digest or cut(text_chars=text_chars)
        return msgspec.structs.replace(
            bare,
            text=words.text,
            key_findings=words.key_findings,
            topics=words.topics,
            extractive=digest is None,
            summary_id=instead_of.summary_id if instead_of else bare.summary_id,
            created_at=instead_of.created_at if instead_of else bare.created_at,
        )

    # --- asking -----------------------------------------------------------------

    @property
    def room(self) -> int:
        """The characters of records that fit into one request."""
        window = self._llm.info.context_window if self._llm else None
        if window is None:
            return _LARGEST_ROOM
        return min(_LARGEST_ROOM, window * _CHARS_PER_TOKEN // 2 - _PROMPT_CHARS)

    async def _digest(
        self, session_id: str, item: str, asked: str, source: str, text_chars: int
    ) -> Digest | None:
        """Return the model's digest of as much of the source as fits into one request.

        `asked` names the prompt; attempts are counted by `item`.
        """
        data = clip_middle(source.strip(), self.room)
        if not data:
            return None
        rules = prompt("summarize_rules").format(
            text_chars=text_chars, findings=MAX_FINDINGS, topics=MAX_TOPICS
        )
        limit = min(text_chars, max(len(data), SHORT_CHARS))
        # The limit is not in the rules, so that those stay in providers' prefix caches.
        hint = f" Its `text` may have at most {limit} characters." if limit < text_chars else ""
        return await self.ask(
            session_id,
            data,
            f"{prompt(asked)}\n\n{rules}",
            Digest,
            partial(bounded, text_chars=limit),
            item=item,
            hint=hint,
        )

    async def ask(
        self,
        session_id: str,
        data: str,
        rules: str,
        kind: type[K],
        read: Callable[[K], T],
        *,
        item: str = "",
        quote: Callable[[str, str], str] = quoted_records,
        hint: str = "",
    ) -> T | None:
        """Ask the model about quoted data; return what `read` makes of its JSON object, or None.

        The object is of type `kind`; `read` raises ValueError, with the reason, for an unusable
        one. `quote` puts the data between marks with random letters; `hint` is appended to the
        request. It is asked up to three times, within the session's limits. Unusable answers to an
        `item` count over all processes, with growing pauses, until another model is used; without
        an item (the user asked) they don't.
        """
        llm, self.problem = self._llm, ""
        if llm is None or not self.usage.may_ask(llm.info.name, self._clock()):
            return None
        model = llm.info.name
        kept = await self._open_attempts() if item and self._open_attempts else None
        now, pause_s = self._clock(), self._config.retry_pause_s
        none = Attempts(item=item, session_id=session_id, model=model, count=0, not_before=now)
        tries = Tries(kept, none, pause_s, self._clock, self._sleep)
        await tries.begin()
        problem = tries.known.problem
        while not tries.are_over:
            while (tag := secrets.token_hex(5)) in data:
                pass
            closing = prompt("summarize_again").format(problem=problem) if problem else _CLOSING
            text = prompt("quoted_data").format(data=quote(data, tag), closing=closing + hint)
            asked = _request((system(rules), user(text)), llm.info, kind)
            sent = sum(message.char_count for message in asked.messages)
            if not self._may_ask(session_id, llm.info, sent):
                return None
            answer = Assembler()
            error = await _stream_into(llm, asked, answer)
            found, wrong = None, str(error or "")
            if error is None:
                try:
                    found = read(read_object(answer.text, kind, tag))
                except ValueError as refused:
                    wrong = problem = str(refused)
            said = len(answer.text) + len(answer.reasoning)
            call = _spending_of(llm.info, sent, said, answer.usage, failed=found is None)
            self.usage.add(session_id, call)
            self.problem = wrong if error or not wrong else f"the answer could not be used: {wrong}"
            if error is None or isinstance(error, ContextTooLong | StreamCut):
                self.usage.answered(model)
            if found is not None:
                await tries.answered()
                return found
            if isinstance(error, ContextTooLong):
                data = clip_middle(data, len(data) // 2)
            await self._failed(tries, model, error, wrong)
        return None

    async def _failed(self, tries: Tries, model: str, error: LLMError | None, wrong: str) -> None:
        """Count a failed attempt; wait before the next, or tell the user that it was the last."""
        is_away = error is not None and not isinstance(error, ContextTooLong | StreamCut)
        if is_away and not isinstance(error, RequestRefused):
            tries.made += 1  # Not the item's fault: other processes don't count it.
        else:
            await tries.refused(wrong)
        passes = isinstance(error, ProviderUnavailable)
        if is_away and (tries.are_over or not passes):
            tries.made = TRIES
            count, now = TRIES if passes else 1, self._clock()
            away = self.usage.failed(model, now, str(error), tries=count)
            if away.until > now:
                self._tell("away", away_text(away))
        elif tries.are_over:
            self._tell("unusable", _UNUSABLE.format(model, TRIES, one_line(wrong, PROBLEM_CHARS)))
        elif isinstance(error, ProviderUnavailable):
            await self._sleep(wait_s(tries.made, error.retry_after_s))
        elif tries.kept:
            await tries.pause()
        elif isinstance(error, StreamCut):
            await self._sleep(wait_s(tries.made, None))


def away_text(away: Away) -> str:
    """Return a message about a failing model, and when it is used again."""
    until = f"{away.until.astimezone():%Y-%m-%d %H:%M}"
    return (
        f"Background work continues without {away.model} until {until}: "
        f"{one_line(away.problem, PROBLEM_CHARS)}"
    )


def is_too_small(info: ModelInfo) -> bool:
    """Whether extractive summaries are better than this model's."""
    return info.context_window is not None and info.context_window < SMALLEST_WINDOW


def _request(messages: tuple[Message, ...], info: ModelInfo, kind: type) -> Request:
    window = info.context_window or 4 * _OUTPUT_TOKENS
    return Request(
        messages=messages,
        max_output_tokens=min(_OUTPUT_TOKENS, info.max_output_tokens or window, window // 4),
        answer_schema=schema_of(kind),
    )
