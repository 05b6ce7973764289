"""Errors that users can encounter: what happened and why (`str(error)`), what to do (`hint`).

Anything else that escapes is a bug; its traceback is in the log.
"""

import errno
import os
import re

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_TRY_AGAIN = 0, 1, 2, 75
EXIT_SIGINT, EXIT_SIGPIPE, EXIT_SIGTERM = 130, 141, 143
_RESOURCE_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


class RagmemError(Exception):
    """Base class: a message for the user, and what they can do about it."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RagmemError):
    """The request itself is invalid."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A setting is invalid."""


class SessionNotFound(UsageError):
    """No session has that id or name."""


class Ambiguous(UsageError):
    """Several records match; `candidates` are their ids."""

    def __init__(self, message: str, *, candidates: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class AmbiguousSession(Ambiguous):
    """Several sessions match."""


class MemoryNotFound(UsageError):
    """No memory has that id."""


class AmbiguousMemory(Ambiguous):
    """Several memories match."""


class MayPass(RagmemError):
    """A possibly temporary fault: of the network or a server, a timeout, a rate limit.

    `retry_after_s` is the delay that the provider asked for.
    """

    exit_code = EXIT_TRY_AGAIN

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class StoreError(RagmemError):
    """The store could not carry out an operation."""

    can_be_read = False
    """Whether stored data can still be read."""


class MemoryOff(StoreError):
    """Nothing is stored or recalled: `memory.enabled` is false."""

    def __init__(self) -> None:
        hint = "Set memory.enabled = true, or unset RAGMEM_MEMORY__ENABLED."
        super().__init__("Memory is turned off.", hint=hint)


class StoreUnavailable(StoreError):
    """The store is temporarily unavailable; the same call may succeed later."""

    exit_code = EXIT_TRY_AGAIN


class StoreRefused(StoreError):
    """The store responds, but refuses access: password, database, permission, version."""


class StoreDamaged(StoreError):
    """The store's files are damaged; they are left as they are."""


class EmbedderError(RagmemError):
    """A text could not be embedded; search by keyword is not affected."""


class EmbedderUnavailable(MayPass, EmbedderError):
    """The embedder is temporarily unavailable."""


class LLMError(RagmemError):
    """The model could not answer."""


class ProviderUnavailable(MayPass, LLMError):
    """The model is temporarily unavailable."""


class StreamCut(LLMError):
    """The answer broke off before it was complete."""

    exit_code = EXIT_TRY_AGAIN


class AnswerTooLong(StreamCut):
    """The answer exceeded the limit, as it would if the request were repeated."""


class ProviderRefused(LLMError):
    """The provider responds, but refuses this request: key, model, arguments."""


class RequestRefused(ProviderRefused):
    """The provider refuses this request; another one may succeed."""


class ContextTooLong(RequestRefused):
    """The request does not fit the model's context window, of `window` tokens if known."""

    def __init__(self, message: str, *, hint: str = "", window: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.window = window


class NoModel(LLMError):
    """No model is configured, reachable or installed."""

    exit_code = EXIT_USAGE


class NoWeights(NoModel):
    """The small local model lacks only its weights, which can be downloaded."""


PASSING_STATUS = {408, 409, 425, 429, *range(500, 600)}
"""HTTP status codes for which a retry may succeed."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


def after_tries(fault: Exception, tries: int) -> str:
    """Return the text of a fault with the number of tries, if there was more than one."""
    return f"{str(fault).rstrip('.')} (tried {tries} times)." if tries > 1 else str(fault)


def wait_s(attempt: int, asked_s: float | None) -> float:
    """Return the seconds until the next try: what the server asked for, else doubling, jittered."""
    from random import uniform

    if asked_s is not None:
        return min(asked_s, LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), 8.0) * uniform(0.75, 1.25)


def chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes; one that litellm carries comes before `__cause__`."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        original = getattr(error, "original_exception", None)
        if isinstance(original, BaseException) and original not in found:
            error = original
        else:
            error = error.__cause__ or error.__context__
    return found


def in_the_systems_words(error: BaseException) -> str:
    """Return the system's own message: `Connection refused`, not `All attempts failed`."""
    messages = [
        _strerror(each) for each in chain(error) if isinstance(each, OSError) and each.strerror
    ]
    return messages[-1] if messages else str(error) or type(error).__name__


def _strerror(error: OSError) -> str:
    """Return the system's message; asyncio replaces it with one that contains an address."""
    text = error.strerror or ""
    return os.strerror(error.errno) if error.errno and text.startswith("Connect call") else text


def header_of(error: BaseException, name: str) -> str | None:
    """Return a response header of a litellm error, from whichever attribute has it."""
    for each in chain(error):
        for holder in (each, getattr(each, "response", None)):
            for attribute in ("litellm_response_headers", "headers"):
                value = getattr(getattr(holder, attribute, None), "get", lambda _: None)(name)
                if isinstance(value, str):
                    return value
    return None


def unreadable(file: os.PathLike[str], error: OSError) -> UsageError:
    """Return the error for a file that the user named and that can't be read."""
    return UsageError(
        f"{file} can't be read: {error.strerror}.",
        hint="Give a file that exists and that you can read.",
    )


def lacking(error: BaseException) -> str:
    """Return which system resource was exhausted, if that caused the error; else empty."""
    match error:
        case MemoryError():
            return os.strerror(errno.ENOMEM)
        case OSError(errno=number) if number in _RESOURCE_ERRNOS:
            return os.strerror(number)
        case RuntimeError() if "can't start new thread" in str(error):
            return str(error)
        case ImportError() if "failed to map segment" in str(error):
            return os.strerror(errno.ENOMEM)
        case SystemError() | RuntimeError() if "Out of memory" in str(error):
            return os.strerror(errno.ENOMEM)
        # How Python itself fails without memory for an exception.
        case SystemError() if re.search("without (?:exception set|setting an exc)", str(error)):
            return os.strerror(errno.ENOMEM)
    return ""
