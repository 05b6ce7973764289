"""What a model sees: messages of parts, in the shape every provider shares."""

from typing import Any, Literal

import msgspec

Json = Any
"""A value that JSON can hold; only where a schema or a tool's arguments cross a boundary."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """The model asks for a tool. `arguments` is the JSON text exactly as it arrived."""

    id: str
    name: str
    arguments: str
    given_id: str = ""
    """By the provider, where it is another: what led to the call is known by it."""


class ToolAnswer(msgspec.Struct, frozen=True, tag="tool_result"):
    """What the tool answered, as the model reads it."""

    tool_use_id: str
    text: str
    is_error: bool = False


Part = TextPart | ToolUse | ToolAnswer


class Message(msgspec.Struct, frozen=True):
    """One message. Tool answers travel in messages of role `tool`, one answer each."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Its words alone."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tools that it asks for."""
        return tuple(p for p in self.parts if isinstance(p, ToolUse))

    @property
    def char_count(self) -> int:
        """Characters it costs, names and arguments included."""
        total = 0
        for part in self.parts:
            match part:
                case ToolUse(_, name, arguments):
                    total += len(name) + len(arguments)
                case _:
                    total += len(part.text)
        return total


def system(text: str) -> Message:
    """A system message."""
    return Message("system", (TextPart(text),))


def user(text: str) -> Message:
    """A user message."""
    return Message("user", (TextPart(text),))


def assistant(text: str, uses: tuple[ToolUse, ...] = ()) -> Message:
    """An assistant message, with the tools that it asks for."""
    return Message("assistant", (*((TextPart(text),) if text else ()), *uses))


def tool(tool_use_id: str, text: str, *, is_error: bool = False) -> Message:
    """One tool's answer."""
    return Message("tool", (ToolAnswer(tool_use_id, text, is_error),))


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]
