"""Messages for models, in a form common to all providers, and ragmem's own prompts."""

import json
from base64 import b64encode
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

Json = Any
"""A JSON-compatible value; used only for schemas and tools' arguments."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image, for models that take images; it is sent, but never stored."""

    media_type: str
    """image/png, image/jpeg, image/gif or image/webp."""
    data: bytes

    def __repr__(self) -> str:
        return f"ImagePart({self.media_type!r}, {len(self.data)} bytes)"

    @property
    def base64(self) -> str:
        """Return the bytes in base64."""
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """Return the bytes with their media type, as a data URL."""
        return f"data:{self.media_type};base64,{self.base64}"


IMAGE_CHARS = 6_400
"""The estimated size of an image: 1,600 tokens, Anthropic's maximum after scaling; other providers
count fewer. https://docs.anthropic.com/en/docs/build-with-claude/vision
"""


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """A tool call of the model. `arguments` is the JSON text exactly as received."""

    id: str
    name: str
    arguments: str
    given_id: str = ""
    """The provider's id if it differs: the key of the reasoning before the call."""


def fields_in(text: str) -> dict[str, Json]:
    """Return a JSON object's fields, such as a call's arguments; empty if it isn't an object."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {}


class ToolAnswer(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call, as the model reads it."""

    tool_use_id: str
    text: str
    is_error: bool = False


Part = TextPart | ImagePart | ToolUse | ToolAnswer


class Message(msgspec.Struct, frozen=True):
    """A message. Tool results are in messages of role `tool`, one result each."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """Return the text parts, concatenated."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Return the images."""
        return tuple(p for p in self.parts if isinstance(p, ImagePart))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """Return the tool calls."""
        return tuple(p for p in self.parts if isinstance(p, ToolUse))

    @property
    def char_count(self) -> int:
        """Return the size in characters, including tools' names and arguments, and images."""
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
    """Make an assistant message with tool calls."""
    return Message("assistant", (*((TextPart(text),) if text else ()), *uses))


def tool(tool_use_id: str, text: str, *, is_error: bool = False) -> Message:
    """Make a message with the result of a tool call."""
    return Message("tool", (ToolAnswer(tool_use_id, text, is_error),))


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool's description for the model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]


@cache
def prompt(name: str) -> str:
    """Return the text of `prompts/<name>.md`, without its final line feed."""
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text("utf-8").rstrip("\n")


def of_command(text: str, typed: str) -> str:
    """Return the prompt of a command: the user is shown `typed`, but didn't write the text.

    So it doesn't count as their own words (`ragmem.memory.facts.words.own_words`).
    """
    return f"<command>\n<typed>\n{typed}\n</typed>\n{text}\n</command>"
