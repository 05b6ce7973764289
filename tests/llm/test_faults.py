"""Errors and waits: pure."""

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


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, '{"error": {"message": "bad"}}', RequestRefused),
        (400, '{"error": {"code": "context_length_exceeded"}}', ContextTooLong),
        (400, '{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}', ContextTooLong),
        (413, "request too large: reduce the length of the input", ContextTooLong),
        (402, "", ProviderRefused),
        (429, '{"error": {"code": "insufficient_quota"}}', ProviderRefused),
        (429, '{"error": "slow down"}', Passing),
        (301, "", ProviderRefused),
        (418, "[1, 2", RequestRefused),
        (500, "\x1b[2J<html>", Passing),
        (529, '{"detail": [{"msg": "overloaded"}]}', Passing),
        (599, "", Passing),
    ],
)
def test_a_status_becomes_an_error(status: int, body: str, kind: type[LLMError]) -> None:
    error = faults.from_status(PEER, status, body)
    assert type(error) is kind
    assert error.hint
    assert str(error).isprintable()


def test_the_message_inside_a_body_is_what_is_said() -> None:
    error = faults.from_status(PEER, 400, '{"error": {"message": "No such tool: x", "code": 3}}')
    assert str(error) == "openai answered 400: No such tool: x."


@pytest.mark.parametrize("missing", [True, False])
def test_401_says_whether_the_key_is_missing_or_wrong(missing: bool) -> None:
    """A key that was not sent and one that was refused need different deeds."""
    peer = Peer(name="openai", model="m", key_variable="K", secrets=() if missing else ("s3cr3t",))
    hint = faults.from_status(peer, 401, "").hint
    assert hint == (
        "No key was sent, for K is not set: set it to a valid one."
        if missing
        else "The key in K was refused: set a valid one."
    )


@pytest.mark.parametrize(
    "text",
    [
        "you sent sk-secret-1234",
        "you sent hunter22",
        "Bearer abcdefghijkl",
        "Incorrect key: sk-proj-ab****************wxyz.",
        "AIzaSyA1234567890abcdef",
        "gsk_abcdefghijklmnop",
    ],
)
def test_keys_are_scrubbed(text: str) -> None:
    shown = faults.scrub(text, PEER.secrets)
    assert "***" in shown
    for part in ("secret-1234", "hunter22", "abcdefgh", "wxyz", "SyA123"):
        assert part not in shown


def test_a_peer_never_shows_its_secrets() -> None:
    assert "secret" not in repr(PEER)


def test_error_events_inside_a_200() -> None:
    assert isinstance(faults.from_event(PEER, {"message": "Overloaded"}), Passing)
    assert isinstance(faults.from_event(PEER, "Overloaded"), Passing)
    assert isinstance(faults.from_event(PEER, {"message": "no", "code": 401}), ProviderRefused)
    too_long = {"message": "x", "code": "context_length_exceeded"}
    assert isinstance(faults.from_event(PEER, too_long), ContextTooLong)


def test_retry_after_is_a_number() -> None:
    assert (faults.retry_after("2"), faults.retry_after("-5")) == (2, 0)
    assert [faults.retry_after(v) for v in ("soon", "", None, "nan", "inf")] == [None] * 5


def test_waits_double_and_stay_below_a_minute() -> None:
    assert 0 < wait_s(1, None) < wait_s(3, None)
    assert wait_s(30, None) <= 10
    assert wait_s(1, 5) == 5
    assert wait_s(1, 3600) == LONGEST_WAIT_S


async def test_an_error_after_the_first_chunk_is_never_retried() -> None:
    tries = 0

    async def attempt():  # type: ignore[no-untyped-def]
        nonlocal tries
        tries += 1
        yield TextChunk("half an ")
        raise Passing("the line dropped.")

    chunks = retried(attempt, 5)
    assert await anext(chunks) == TextChunk("half an ")
    with pytest.raises(StreamCut):
        await anext(chunks)
    assert tries == 1


async def test_what_does_not_pass_is_not_retried() -> None:
    tries = 0

    async def attempt():  # type: ignore[no-untyped-def]
        nonlocal tries
        tries += 1
        if tries:
            raise ProviderUnavailable("silent")
        yield TextChunk("")

    with pytest.raises(ProviderUnavailable, match="silent"):
        await anext(retried(attempt, 5))
    assert tries == 1
