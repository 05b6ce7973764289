"""Errors and waits: pure."""

import json

import pytest

from ragmem.errors import (
    LONGEST_WAIT_S,
    ContextTooLong,
    LLMError,
    ProviderRefused,
    ProviderUnavailable,
    RequestRefused,
    StreamCut,
    wait_s,
)
from ragmem.llm import faults
from ragmem.llm.base import Passing, TextChunk, retried
from ragmem.llm.faults import Peer

PEER = Peer(
    name="openai",
    model="gpt",
    key_variable="OPENAI_API_KEY",
    secrets=("sk-secret-1234", "hunter22"),
)

TOO_MANY = "The input token count (1200000) exceeds the maximum number of tokens allowed"
AT_XAI = "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
AT_VLLM = "The decoder prompt (length 5000) is longer than the maximum model length of 4096"
AT_TGI = "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens"
WITH_OUTPUT = "input length and `max_tokens` exceed context limit: 190000 + 21000 > 200000"

NO_KEY = "API key not valid. Please pass a valid API key."


def refusal(message: str) -> str:
    """As Anthropic and others tell it."""
    return json.dumps({"type": "error", "error": {"type": "x", "message": message}})


@pytest.mark.parametrize(
    ("message", "window"),
    [
        ("This model's maximum context length is 8192 tokens. However, you used 9000", 8_192),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
        (WITH_OUTPUT, 200_000),
        (f"{TOO_MANY} (1048576).", 1_048_576),
        (AT_XAI, 131_072),
        (AT_VLLM, 4_096),
        (AT_TGI, 4_096),
        ("Your request exceeded model token limit: 8192", 8_192),
        ("prompt token count of 130000 exceeds the limit of 128,000", 128_000),
        ("Range of input length should be [1, 30720]", 30_720),
        ("the request exceeds the available context size (8192 tokens)", 8_192),
        ("too large for model with 32768 maximum context length", 32_768),
        ("a context length of only 4096 tokens, which is not enough", 4_096),
        ("Your input exceeds the context window of this model.", None),
        ("prompt is too long: 9 tokens > 8 maximum", None),
        ("Prompt exceeds max length", None),
        (TOO_MANY, None),
    ],
)
def test_the_window_is_read_from_a_refusal_that_names_it(message: str, window: int | None) -> None:
    error = faults.from_status(PEER, 400, refusal(message))
    assert isinstance(error, ContextTooLong)
    assert error.window == window
    assert "window" in error.hint


def test_a_rate_limit_of_a_new_account_is_waited_for() -> None:
    """It names the page on which one pays, as what is not paid does."""
    pay = "You can increase it by adding a payment method: https://pay.example/account/billing."
    body = refusal(f"Rate limit reached: Limit 3, Used 3. Please try again in 20s. {pay}")
    error = faults.from_status(PEER, 429, body, retry_after_s=faults.retry_after("", body))
    assert isinstance(error, Passing)
    assert error.retry_after_s == 20


def test_a_request_of_more_tokens_than_a_minute_allows_is_too_long() -> None:
    """However long one waits."""
    rate = "Request too large for gpt on tokens per min (TPM): Limit 30000, Requested 36278."
    body = refusal(f"{rate} The input or output tokens must be reduced in order to run.")
    error = faults.from_status(PEER, 429, body)
    assert isinstance(error, ContextTooLong)
    assert error.window == 30_000


@pytest.mark.parametrize(
    ("status", "body", "kind", "hint"),
    [
        (400, refusal("bad"), RequestRefused, "Another model (-m)"),
        (400, '{"error": {"code": "context_length_exceeded"}}', ContextTooLong, "window"),
        (422, refusal(AT_TGI), ContextTooLong, "window"),
        (413, refusal("Request exceeds the maximum size"), ContextTooLong, "window"),
        (413, "request too large: reduce the length of the input", ContextTooLong, "window"),
        (400, refusal("Your credit balance is too low"), ProviderRefused, "credit"),
        (401, refusal("invalid x-api-key"), ProviderRefused, "OPENAI_API_KEY was refused"),
        (400, refusal(NO_KEY), ProviderRefused, "OPENAI_API_KEY was refused"),
        (402, "", ProviderRefused, ""),
        (403, "", ProviderRefused, "use another model (-m)"),
        (403, "<html>Blocked</html>", ProviderRefused, "something in between, such as a proxy"),
        (404, refusal("model: claude-x"), ProviderRefused, "ragmem models"),
        (429, '{"error": {"code": "insufficient_quota"}}', ProviderRefused, ""),
        (429, '{"error": "slow down"}', Passing, ""),
        (301, "", ProviderRefused, ""),
        (418, "[1, 2", RequestRefused, ""),
        (500, "\x1b[2J<html>", Passing, ""),
        (529, '{"detail": [{"msg": "overloaded"}]}', Passing, ""),
        (529, refusal("Overloaded"), Passing, "moment"),
        (599, "", Passing, ""),
    ],
)
def test_a_status_becomes_an_error(status: int, body: str, kind: type[LLMError], hint: str) -> None:
    """It says what to do, as a chat can put it too, and shows nothing that steers a terminal."""
    error = faults.from_status(PEER, status, body)
    assert type(error) is kind
    assert error.hint
    assert hint in error.hint
    assert "-m" not in error.hint.replace("(-m)", "")
    assert str(error).isprintable()


def test_what_is_said_is_the_message_inside_a_body_and_what_is_missing() -> None:
    """A key that was not sent and one that was refused need different deeds."""
    error = faults.from_status(PEER, 400, '{"error": {"message": "No such tool: x", "code": 3}}')
    assert str(error) == "openai answered 400: No such tool: x."
    without = Peer(name="openai", model="m", key_variable="K")
    hint = faults.from_status(without, 401, "").hint
    assert hint == "No key was sent: K is not set. Set it to a valid key."
    refused = Peer(name="openai", model="m", key_variable="K", secrets=("s3cr3t",))
    assert faults.from_status(refused, 401, "").hint == (
        "The key in K was refused: set a valid one."
    )


def test_a_limit_that_passes_is_not_one_of_credit() -> None:
    """Gemini speaks of plan and billing in both, and says how long to wait in one."""
    told = "You exceeded your current quota, please check your plan and billing details."
    body = json.dumps({"error": {"message": told, "details": [{"retryDelay": "17s"}]}})
    seconds = faults.retry_after(None, body)
    assert seconds == 17
    assert type(faults.from_status(PEER, 429, body, retry_after_s=seconds)) is Passing
    assert type(faults.from_status(PEER, 429, body)) is ProviderRefused


def test_where_an_address_is_mended_is_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable wins over the file: to look there helps nobody."""
    peer = Peer(name="gateway", model="x", custom=True)
    for name in ("llm.api_base", "RAGMEM_API_BASE"):
        if name.isupper():
            monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
        for status in (302, 404, 405):
            assert name in faults.from_status(peer, status, "").hint
        assert f"is {name} right" in faults.unreachable(peer, "refused").hint


@pytest.mark.parametrize(
    "text",
    [
        "you sent sk-secret-1234", "you sent hunter22", "Bearer abcdefghijkl",
        "Incorrect key: sk-proj-ab****************wxyz.", "AIzaSyA1234567890abcdef",
        "gsk_abcdefghijklmnop",
    ],
)  # fmt: skip
def test_keys_are_scrubbed(text: str) -> None:
    shown = faults.scrub(text, PEER.secrets)
    assert "***" in shown
    for part in ("secret-1234", "hunter22", "abcdefgh", "wxyz", "SyA123"):
        assert part not in shown


def test_error_events_inside_a_200() -> None:
    assert isinstance(faults.from_event(PEER, {"message": "Overloaded"}), Passing)
    assert isinstance(faults.from_event(PEER, "Overloaded"), Passing)
    assert isinstance(faults.from_event(PEER, {"message": "no", "code": 401}), ProviderRefused)
    too_long = {"message": "x", "code": "context_length_exceeded"}
    assert isinstance(faults.from_event(PEER, too_long), ContextTooLong)


def test_retry_after_is_a_number() -> None:
    told = {"20s": 20, "9.816s": 9.816, "6m0s": 360, "1h2m3.5s": 3_723.5, "357ms": 0.357}
    for text, seconds in told.items():
        assert faults.retry_after("", refusal(f"Please try again in {text}. Visit us.")) == seconds
    assert (faults.retry_after("2"), faults.retry_after("-5")) == (2, 0)
    assert [faults.retry_after(v) for v in ("soon", "", None, "nan", "inf")] == [None] * 5


def test_waits_double_and_stay_below_a_minute() -> None:
    assert 0 < wait_s(1, None) < wait_s(3, None)
    assert wait_s(30, None) <= 10
    assert wait_s(1, 5) == 5
    assert wait_s(1, 3600) == LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("said", "problem", "end"),
    [
        ("half an ", Passing("the line dropped."), StreamCut),
        ("", ProviderUnavailable("silent"), ProviderUnavailable),
    ],
    ids=["after the first chunk", "what does not pass"],
)
async def test_some_errors_end_at_once(said: str, problem: LLMError, end: type[LLMError]) -> None:
    tries = 0

    async def attempt():  # type: ignore[no-untyped-def]
        nonlocal tries
        tries += 1
        if said:
            yield TextChunk(said)
        raise problem

    chunks = retried(attempt, 5)
    if said:
        assert await anext(chunks) == TextChunk(said)
    with pytest.raises(end):
        await anext(chunks)
    assert tries == 1
