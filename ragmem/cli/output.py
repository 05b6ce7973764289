"""`ask --output-format`: what becomes of the events of a turn."""

import sys
from typing import Literal, Protocol

from ragmem.cli.documents import (
    Document,
    result_document,
    text_block,
    to_json,
    tool_result_block,
    tool_use_block,
)
from ragmem.cli.progress import Progress
from ragmem.cli.streams import say, write, write_json
from ragmem.events import (
    ContextBuilt,
    Event,
    MemoryWritten,
    MessageFinished,
    Notice,
    ReasoningDelta,
    Recalled,
    TextDelta,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from ragmem.messages import Json
from ragmem.text import visible, without_controls

OutputFormat = Literal["text", "json", "stream-json"]
_LONGEST_WORD = 200


class Output(Protocol):
    """A consumer of the events of one turn."""

    def show(self, event: Event) -> None:
        """Print what the event means in this format; BrokenPipeError when nobody reads."""
        ...


class TextOutput:
    """The answer alone on stdout: as it comes on a terminal, once and whole in a pipe."""

    def __init__(self, progress: Progress, *, live: bool, raw: bool = False) -> None:
        self._progress = progress
        self._live = live
        self._raw = raw
        """What a model sends goes into a pipe byte for byte, terminal controls too."""
        self._flow = VisibleFlow()
        self._streamed = ""

    def show(self, event: Event) -> None:
        """Stream the words; say the rest on stderr."""
        match event:
            case TextDelta(text=text) if self._live:
                self._progress.clear()
                self._stream(self._flow.feed(text))
            case MessageFinished() if self._live:
                self._stream(self._flow.flush())
                self._end_line()
            case TurnFinished():
                self._progress.clear()
                self._finish(event)
        self._progress.show(event)

    def _stream(self, text: str) -> None:
        if text:
            self._streamed += text
            write(text)

    def _end_line(self) -> None:
        if self._streamed and not self._streamed.endswith("\n"):
            self._stream("\n")

    def _finish(self, finished: TurnFinished) -> None:
        answer = finished.result.rstrip("\n")
        if self._live:
            self._stream(self._flow.flush())
            self._end_line()
            # An answer that did not come in pieces, such as one that memory gave.
            if answer and not self._streamed.rstrip("\n").endswith(visible(answer)):
                write(visible(answer) + "\n")
        elif answer:
            write((answer if self._raw else without_controls(answer)) + "\n")


class JsonOutput:
    """One result object on stdout at the end."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def show(self, event: Event) -> None:
        """Print the result; say the rest on stderr."""
        self._progress.show(event)
        if isinstance(event, TurnFinished):
            write_json(to_json(result_document(event)))


class LineDocument(Document, frozen=True, kw_only=True, omit_defaults=True):
    """An event of stream-json; what does not belong to its type is left out."""

    type: Literal["system", "assistant", "user", "stream_event"]
    subtype: Literal["init", "memory_recall", "memory_write", "notice"] | None = None
    session_id: str
    turn_id: str | None = None
    turn_index: int | None = None
    cwd: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    sections: dict[str, int] | None = None
    fallback: bool | None = None
    recalled: tuple[Recalled, ...] | None = None
    action: str | None = None
    kind: str | None = None
    content: str | None = None
    id: str | None = None
    trust: str | None = None
    superseded: tuple[str, ...] | None = None
    level: str | None = None
    text: str | None = None
    message: dict[str, Json] | None = None
    event: dict[str, Json] | None = None


class StreamJsonOutput:
    """One event a line, the result last; every line carries `session_id`."""

    def __init__(
        self, session_id: str, *, cwd: str, permission_mode: str, include_partial: bool = False
    ) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self._permission_mode = permission_mode
        self._include_partial = include_partial

    def show(self, event: Event) -> None:
        """Print the event's line, if it has one."""
        if isinstance(event, TurnFinished):
            write_json(to_json(result_document(event), indent=None))
        elif line := self._line(event):
            write_json(to_json(line, indent=None))

    def _line(self, event: Event) -> LineDocument | None:
        session_id = self._session_id
        match event:
            case TurnStarted():
                return LineDocument(
                    type="system",
                    subtype="init",
                    session_id=session_id,
                    turn_id=event.turn_id,
                    turn_index=event.turn_index,
                    cwd=self._cwd,
                    model=event.model,
                    permission_mode=self._permission_mode,
                )
            case ContextBuilt():
                return LineDocument(
                    type="system",
                    subtype="memory_recall",
                    session_id=session_id,
                    sections=event.sections,
                    fallback=event.fallback,
                    recalled=event.recalled,
                )
            case MemoryWritten():
                return LineDocument(
                    type="system",
                    subtype="memory_write",
                    session_id=session_id,
                    action=event.action,
                    kind=event.kind,
                    content=event.content,
                    id=event.id,
                    trust=event.trust,
                    superseded=event.superseded,
                )
            case Notice(level=level, text=text):
                return LineDocument(
                    type="system", subtype="notice", session_id=session_id, level=level, text=text
                )
            case MessageFinished():
                return LineDocument(
                    type="assistant", session_id=session_id, message=_assistant_message(event)
                )
            case ToolFinished():
                block = tool_result_block(
                    event.tool_call_id, event.text, is_error=not event.success
                )
                return LineDocument(
                    type="user", session_id=session_id, message={"role": "user", "content": [block]}
                )
            case TextDelta(text=text) if self._include_partial:
                return self._partial({"type": "text_delta", "text": text})
            case ReasoningDelta(text=text) if self._include_partial:
                return self._partial({"type": "thinking_delta", "thinking": text})
            case _:
                return None

    def _partial(self, delta: dict[str, Json]) -> LineDocument:
        return LineDocument(
            type="stream_event",
            session_id=self._session_id,
            event={"type": "content_block_delta", "delta": delta},
        )


class VisibleFlow:
    """`visible` for text in pieces: whole words, so that no pair of characters is torn."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be shown by now."""
        self._held += text
        end = max(self._held.rfind(" "), self._held.rfind("\n")) + 1
        if not end and len(self._held) > _LONGEST_WORD:
            end = len(self._held) - 1
        ready, self._held = self._held[:end], self._held[end:]
        return visible(ready)

    def flush(self) -> str:
        """The rest."""
        ready, self._held = self._held, ""
        return visible(ready)


def make_output(
    output_format: OutputFormat,
    progress: Progress,
    *,
    session_id: str,
    cwd: str,
    permission_mode: str,
    include_partial: bool,
    raw: bool = False,
) -> Output:
    """The consumer for a format."""
    if output_format == "json":
        return JsonOutput(progress)
    if output_format == "stream-json":
        return StreamJsonOutput(
            session_id, cwd=cwd, permission_mode=permission_mode, include_partial=include_partial
        )
    return TextOutput(progress, live=sys.stdout.isatty(), raw=raw)


def _assistant_message(event: MessageFinished) -> dict[str, Json]:
    words = [text_block(event.text)] if event.text else []
    uses = [tool_use_block(*use) for use in event.tool_uses]
    return {"role": "assistant", "content": words + uses}


def say_denials(finished: TurnFinished) -> None:
    """Tell on stderr what was not allowed, and how to allow it."""
    names = sorted({denial.tool_name for denial in finished.permission_denials})
    if names:
        allow = " ".join(f"--allow {name}" for name in names)
        say(
            f"warning: not allowed: {visible(', '.join(names))}. "
            f"Use {visible(allow)}, or --permission-mode.\n"
        )
