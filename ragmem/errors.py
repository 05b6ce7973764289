"""Every error that a person can meet: what happened (`str(error)`), why where that is known, and
what to do (`hint`). Anything else that escapes is a bug and keeps its traceback in the log.
"""

import errno
import os
import re

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_TRY_AGAIN = 0, 1, 2, 75
EXIT_SIGINT, EXIT_SIGPIPE, EXIT_SIGTERM = 130, 141, 143
_OF_THE_COMPUTER = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


class RagmemError(Exception):
    """Base: a message for the person, and what they can do about it."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RagmemError):
    """The request itself is wrong."""

    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A setting is wrong."""


class SessionNotFound(UsageError):
    """No session bears that id or name."""


class Ambiguous(UsageError):
    """Several records match; `candidates` are their ids."""

    def __init__(self, message: str, *, candidates: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class AmbiguousSession(Ambiguous):
    """Several sessions match."""


class MemoryNotFound(UsageError):
    """No memory bears that id."""


class AmbiguousMemory(Ambiguous):
    """Several memories match."""


class MayPass(RagmemError):
    """A fault that may pass: of the network, a time limit, a rate limit, a server's.

    `retry_after_s` is as the provider asked.
    """

    exit_code = EXIT_TRY_AGAIN

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class StoreError(RagmemError):
    """The memory could not do what was asked."""

    can_be_read = False
    """Whether what was stored before can be read all the same."""


class StoreUnavailable(StoreError):
    """The store is away for now; the same call may succeed later."""

    exit_code = EXIT_TRY_AGAIN


class StoreRefused(StoreError):
    """The store answers, but not to us: password, database, permission, version."""


class StoreDamaged(StoreError):
    """The store's files are not what they were; they are left as they are."""


class EmbedderError(RagmemError):
    """A text could not be turned into a vector; search by text is not affected."""


class EmbedderUnavailable(MayPass, EmbedderError):
    """The embedder is away for now."""


class LLMError(RagmemError):
    """The model could not answer."""


class ProviderUnavailable(MayPass, LLMError):
    """The model is away for now."""


class StreamCut(LLMError):
    """The answer broke off before it was whole."""

    exit_code = EXIT_TRY_AGAIN


class AnswerTooLong(StreamCut):
    """The answer ran past what is taken of one; asked again it would do the same."""


class ProviderRefused(LLMError):
    """The provider answers, but not to this request: key, model, arguments."""


class RequestRefused(ProviderRefused):
    """The provider does not take this request; another one may do."""


class ContextTooLong(RequestRefused):
    """The request does not fit the model's window: of `window` tokens, where that is told."""

    def __init__(self, message: str, *, hint: str = "", window: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.window = window


class NoModel(LLMError):
    """No model is configured, reachable or installed."""

    exit_code = EXIT_USAGE


class NoWeights(NoModel):
    """The small local model would answer, but for its weights, which can be fetched."""


PASSING_STATUS = {408, 409, 425, 429, *range(500, 600)}
"""Of answers over HTTP that may be others a little later."""
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


def wait_s(attempt: int, asked_s: float | None) -> float:
    """Seconds until the next try: what the server asked for, else doubling, jittered."""
    from random import uniform

    if asked_s is not None:
        return min(asked_s, LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), 8.0) * uniform(0.75, 1.25)


def chain(error: BaseException | None) -> list[BaseException]:
    """An error and what it came from; first the one that litellm carries in it."""
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
    """What the system says of a failure: `Connection refused`, not `All attempts failed`."""
    told = [_strerror(each) for each in chain(error) if isinstance(each, OSError) and each.strerror]
    return told[-1] if told else str(error) or type(error).__name__


def _strerror(error: OSError) -> str:
    """What the system calls it; asyncio puts an address in the place of these words."""
    said = error.strerror or ""
    return os.strerror(error.errno) if error.errno and said.startswith("Connect call") else said


def header_of(error: BaseException, name: str) -> str | None:
    """A header of the response that an error of litellm came from, wherever that keeps it."""
    for each in chain(error):
        for holder in (each, getattr(each, "response", None)):
            for attribute in ("litellm_response_headers", "headers"):
                value = getattr(getattr(holder, attribute, None), "get", lambda _: None)(name)
                if isinstance(value, str):
                    return value
    return None


def unreadable(file: os.PathLike[str], error: OSError) -> UsageError:
    """The error for a file that a person named and that can't be read."""
    return UsageError(
        f"{file} can't be read: {error.strerror}.",
        hint="Give a file that exists and that you can read.",
    )


def lacking(error: BaseException) -> str:
    """What the computer gives this process no more of, where that is why it failed; else empty."""
    match error:
        case MemoryError():
            return os.strerror(errno.ENOMEM)
        case OSError(errno=number) if number in _OF_THE_COMPUTER:
            return os.strerror(number)
        case RuntimeError() if "can't start new thread" in str(error):
            return str(error)
        case ImportError() if "failed to map segment" in str(error):
            return os.strerror(errno.ENOMEM)
        case SystemError() | RuntimeError() if "Out of memory" in str(error):
            return os.strerror(errno.ENOMEM)
        # How Python itself fails where it has no memory for an exception.
        case SystemError() if re.search("without (?:exception set|setting an exc)", str(error)):
            return os.strerror(errno.ENOMEM)
    return ""
