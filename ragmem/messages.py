"""What a model sees: messages of parts, in the shape every provider shares, and our own prompts."""

import json
from base64 import b64encode
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

Json = Any
"""A value that JSON can hold; only where a schema or a tool's arguments cross a boundary."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """A picture, for models that can see; it is sent, and never stored."""

    media_type: str
    """image/png, image/jpeg, image/gif or image/webp."""
    data: bytes

    def __repr__(self) -> str:
        return f"ImagePart({self.media_type!r}, {len(self.data)} bytes)"

    @property
    def base64(self) -> str:
        """Return its bytes as requests carry them."""
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """Return its bytes with their type, as an address."""
        return f"data:{self.media_type};base64,{self.base64}"


IMAGE_CHARS = 6_400
"""What a picture counts as: 1,600 tokens, the most that Anthropic makes of one after it has been
scaled; others make fewer. https://docs.anthropic.com/en/docs/build-with-claude/vision
"""


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """The model asks for a tool. `arguments` is the JSON text exactly as it arrived."""

    id: str
    name: str
    arguments: str
    given_id: str = ""
    """By the provider, where it is another: what led to the call is known by it."""


def named_arguments(arguments: str) -> dict[str, Json]:
    """Return a call's arguments by name; none where they are no JSON object."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(arguments), dict):
            return value
    return {}


class ToolAnswer(msgspec.Struct, frozen=True, tag="tool_result"):
    """What the tool answered, as the model reads it."""

    tool_use_id: str
    text: str
    is_error: bool = False


Part = TextPart | ImagePart | ToolUse | ToolAnswer


class Message(msgspec.Struct, frozen=True):
    """One message. Tool answers travel in messages of role `tool`, one answer each."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Return its words alone."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Return the pictures that it shows."""
        return tuple(p for p in self.parts if isinstance(p, ImagePart))

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
                case ImagePart():
                    total += IMAGE_CHARS
                case _:
                    total += len(part.text)
        return total


def system(text: str) -> Message:
    """Make a system message."""
    return Message("system", (TextPart(text),))


def user(text: str) -> Message:
    """Make a user message."""
    return Message("user", (TextPart(text),))


def assistant(text: str, uses: tuple[ToolUse, ...] = ()) -> Message:
    """An assistant message, with the tools that it asks for."""
    return Message("assistant", (*((TextPart(text),) if text else ()), *uses))


def tool(tool_use_id: str, text: str, *, is_error: bool = False) -> Message:
    """Make a message of one tool's answer."""
    return Message("tool", (ToolAnswer(tool_use_id, text, is_error),))


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]


@cache
def prompt(name: str) -> str:
    """The text of `<name>.md`, without its final line feed."""
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text("utf-8").rstrip("\n")


def of_command(text: str, typed: str) -> str:
    """A prompt that a person has asked for by a command, but has not written: its words are not
    theirs (`ragmem.memory.facts.words.own_words`). They are shown what they typed for it."""
    return f"<command>\n<typed>\n{typed}\n</typed>\n{text}\n</command>"
