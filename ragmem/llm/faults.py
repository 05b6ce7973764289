"""Mapping of provider failures to `LLMError`s with messages that a user can act on.

The functions are pure: they take a status, a body or an error's name, and return an exception.
No message contains a key: `scrub` removes known keys and what looks like one.
"""

import json
import math
import re

import msgspec

from ragmem.config import named_in
from ragmem.errors import (
    PASSING_STATUS,
    ContextTooLong,
    LLMError,
    ProviderRefused,
    ProviderUnavailable,
    RequestRefused,
)
from ragmem.llm.base import Passing
from ragmem.redact import redact
from ragmem.text import Regex, clean, one_line, whole_seconds

MOST_ERROR_CHARS = 64 * 1024
"""The part of an error's body that is read: searching more for keys would take seconds."""
DETAIL_CHARS = 300

_KEY = Regex(r"\b(?:(?:sk|pk|gsk|xai|tgp|hf|key)[-_]|AIza|AKIA|Bearer )[A-Za-z0-9*._\-]{6,}", re.A)
_TOO_LONG = Regex(
    r"context[_ ](?:length|window|size|limit)|maximum (?:context|prompt length|model length)|"
    r"too many (?:input )?tokens|prompt is too long|input is too long|reduce the length|"
    r"exceeds? the (?:available|model|maximum number of tokens)|exceeds? max length|"
    r"exceeded model token limit|token count of \d+ exceeds|range of input length|"
    r"tokens \+ .max_new_tokens. must be",
    re.IGNORECASE,
)
_WINDOW = Regex(
    r"(?:(?:context|prompt|model) (?:length|size)(?: is| of)?(?: only)?|token limit:|limit of|"
    r"\d(?: tokens)? >|must be <=|length should be \[\d+,|tokens allowed|"
    r"\(TPM\): limit) ?\(?([1-9][\d,]{3,9})|"
    r"([1-9][\d,]{3,9}) maximum context",
    re.IGNORECASE,
)
_MORE_THAN_THE_RATE = "tokens must be reduced"
"""In OpenAI's refusal of a request that exceeds the tokens of a minute, so that no wait helps."""
_NO_CREDIT = Regex(r"insufficient[_ ](?:quota|balance|funds)|billing|credit", re.IGNORECASE)
_RETRY_DELAY = Regex(
    r'"retryDelay": ?"(?P<s>\d{1,9}(?:\.\d{1,9})?)s"'
    r"|try again in (?:(?P<h>\d{1,3})h)?(?:(?P<m>\d{1,3})m)?"
    r"(?P<n>\d{1,6}(?:\.\d{1,9})?)(?P<milli>m?)s"
)
_BAD_KEY = Regex(r"API_KEY_INVALID|API key (?:not valid|expired)")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The server of a model, as far as error messages need it."""

    name: str
    """The name to show: `openai`, or a host."""
    model: str
    """The server's name of the model."""
    key_variable: str = ""
    secrets: tuple[str, ...] = ()
    """Texts that are never shown."""
    custom: bool = False
    """Whether it is reached through `llm.api_base`."""
    base_variable: str = ""
    """The environment variable with its address; empty for the provider's default one."""

    def __repr__(self) -> str:
        return f"Peer({self.name!r}, {self.model!r})"


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Reduce a text to one short line without keys and control characters."""
    for secret in secrets:
        if len(secret) > 3:
            text = text.replace(secret, "***")
    text = redact(text)
    return one_line(clean(_KEY.sub("***", text)), DETAIL_CHARS)


def _is_web_page(body: str) -> bool:
    return body.lstrip()[:200].lower().startswith(("<!doctype html", "<html"))


def _error_text(body: str) -> str:
    """Return the message in an error body; a web page is named, not quoted."""
    if _is_web_page(body):
        return "a web page, not an API's answer"
    try:
        return _message_in(json.loads(body)) or body
    except (ValueError, RecursionError):
        return body


def from_status(
    peer: Peer, status: int, body: str, *, retry_after_s: float | None = None
) -> LLMError:
    """Return the error for an HTTP status and body; it is `Passing` if a retry makes sense."""
    detail = scrub(_error_text(body), peer.secrets)
    said = f"{peer.name} answered {status}" + (f": {detail}" if detail else "")
    said = said if said.endswith((".", "!", "?", "…")) else said + "."
    is_over_rate = status == 429 and _MORE_THAN_THE_RATE in body
    if status == 413 or is_over_rate or (status in (400, 422) and _TOO_LONG.search(body)):
        return too_long(peer, detail)
    no_money = _NO_CREDIT.search(detail + body[:2000]) is not None
    if status == 402 or (no_money and (status == 400 or (status == 429 and retry_after_s is None))):
        return ProviderRefused(said, hint=f"Check your plan and credit at {peer.name}.")
    brief = "rate limited" if status == 429 else f"{peer.name} answered {status}"
    if status in PASSING_STATUS:
        return Passing(said, hint=_later(retry_after_s), retry_after_s=retry_after_s, brief=brief)
    if status == 401 or (status == 400 and _BAD_KEY.search(body)):
        return ProviderRefused(said, hint=_key_hint(peer))
    if status == 403 and not _is_web_page(body):
        hint = f"The key has no access to {peer.model}: use another model (-m) of `ragmem models`."
        return ProviderRefused(said, hint=hint)
    where = f" Check {_to_check(peer)}." if peer.custom or peer.base_variable else ""
    if status == 403:
        hint = f"It is of something in between, such as a proxy, or a network's sign-in.{where}"
        return ProviderRefused(said, hint=hint)
    if status in (404, 405) or _is_web_page(body):
        return ProviderRefused(
            said, hint=f"Is {peer.model!r} the right name? `ragmem models` lists what works.{where}"
        )
    if 300 <= status < 400:
        return ProviderRefused(
            f"{peer.name} answered {status}, a redirection, which is not followed.",
            hint=f"Set {_address(peer)} to the final address.",
        )
    return RequestRefused(said, hint="Another model (-m) may take this request.")


def from_event(peer: Peer, error: object) -> LLMError:
    """Return the error for an error object in a 200 response: an SSE event or a JSON body."""
    text = _message_in({"error": error}) or "an error without a message"
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int | str) and re.fullmatch("[45]..", str(code)) else 0
    if status:
        return from_status(peer, status, json.dumps({"error": error}, default=str))
    if _TOO_LONG.search(text) or code == "context_length_exceeded":
        return too_long(peer, scrub(text, peer.secrets))
    return Passing(f"{peer.name} ended the answer early: {scrub(text, peer.secrets)}.")


def too_long(peer: Peer, detail: str) -> ContextTooLong:
    """Return the error for a request that exceeds the context window."""
    found = _WINDOW.search(detail)
    return ContextTooLong(
        f"The request is larger than the context window of {peer.model}: {detail}",
        hint="Ask for less at once, or use a model with a larger window (-m).",
        window=int((found[1] or found[2]).replace(",", "")) if found else None,
    )


def timed_out(peer: Peer, timeout_s: float) -> ProviderUnavailable:
    """Return the error for a timeout. It is not retried: the user has waited long enough."""
    return ProviderUnavailable(
        f"{peer.name} sent nothing for {timeout_s:g} s.",
        hint="Try again; a slow model needs a larger llm.timeout_s.",
    )


def unreachable(peer: Peer, reason: str, *, proxy: str = "") -> Passing:
    """Return the error for a failed connection: refused, unknown host, no network.

    `proxy` is the host of the proxy through which it was tried; empty for none.
    """
    own = peer.custom or peer.base_variable
    hint = f"Is it running, and is {_address(peer)} right?" if own else "Check the network."
    through = f" through the proxy {proxy}" if proxy else ""
    if proxy:
        hint += (
            " The proxy is set by HTTPS_PROXY, HTTP_PROXY or ALL_PROXY (NO_PROXY: for whom not)."
        )
    return Passing(
        f"{peer.name} can't be reached{through}: {scrub(reason, peer.secrets) or 'no connection'}.",
        hint=hint,
        brief=f"{peer.name} can't be reached",
    )


def bad_tls(peer: Peer, reason: str) -> ProviderUnavailable:
    """Return the error for a certificate that isn't trusted, or a server that doesn't speak TLS."""
    return ProviderUnavailable(
        f"{peer.name}: no secure connection: {scrub(reason, peer.secrets)}.",
        hint="For a proxy with its own certificate, set SSL_CERT_FILE; for a server without TLS, "
        "use http://.",
    )


def bad_certificates(file: str, reason: str) -> ProviderUnavailable:
    """Return the error for certificates of the user's own that can't be read."""
    return ProviderUnavailable(
        f"The certificates of SSL_CERT_FILE can't be read: {file}: {reason}.",
        hint="Set SSL_CERT_FILE to a file of certificates in PEM format, or unset it.",
    )


def closed_early(peer: Peer) -> Passing:
    """Return the error for a stream that ended without an end reason."""
    return Passing(f"{peer.name} closed the connection before the end.")


def not_an_api(peer: Peer, kind: str) -> ProviderUnavailable:
    """Return the error for a 200 that isn't from a model's API: a sign-in page, a proxy's page."""
    return ProviderUnavailable(
        f"{peer.name} answered with {kind}, not like a model's API.",
        hint=f"Check {_to_check(peer)}, or sign in to the network if it asks for that.",
    )


def retry_after(value: str | None, body: str = "") -> float | None:
    """Return the seconds of a `Retry-After` header; None if it isn't a number.

    Without a header, the body's delay counts (Gemini's `"retryDelay": "17s"`, and `try again in
    6m1.5s` or `20ms` of OpenAI and Groq).
    """
    if not value:
        if (found := _RETRY_DELAY.search(body)) is None:
            return None
        if found["s"]:
            return float(found["s"])
        last = float(found["n"]) / (1_000 if found["milli"] else 1)
        return 3_600 * int(found["h"] or 0) + 60 * int(found["m"] or 0) + last
    try:
        seconds = float(value)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _message_in(value: object) -> str:
    """Return the text in one of the shapes that servers use: error.message, error, detail …"""
    match value:
        case str():
            return value
        case [first, *_]:
            return _message_in(first)
        case dict():
            names = ("error", "message", "detail", "msg")
            return next(filter(None, (_message_in(value.get(name)) for name in names)), "")
    return ""


def _address(peer: Peer) -> str:
    """Return the variable or setting that holds a server's address, where it can be fixed."""
    return peer.base_variable or named_in("llm.api_base")


def _to_check(peer: Peer) -> str:
    named = _address(peer)
    has_version = not peer.base_variable or peer.base_variable == "OPENAI_BASE_URL"
    return f"{named} (it often ends in /v1)" if has_version else named


def _key_hint(peer: Peer) -> str:
    if peer.key_variable and not peer.secrets:
        return f"No key was sent: {peer.key_variable} is not set. Set it to a valid key."
    if peer.key_variable:
        return f"The key in {peer.key_variable} was refused: set a valid one."
    return "The server requires a valid key."


def _later(retry_after_s: float | None) -> str:
    if not retry_after_s:
        return ""
    wait = whole_seconds(math.ceil(retry_after_s))
    return f"Try again in {wait}, as it asks, or use another model (-m)."
