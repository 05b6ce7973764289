"""What a model that can't look for itself is shown of files: passages that the question names."""

import re
from collections.abc import Sequence

import msgspec

from ragmem.memory.window import result_text
from ragmem.prompts import prompt as prompt_text
from ragmem.records import ToolCall
from ragmem.text import plain_or_quoted

_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
"""What read_file puts before each line."""
_WORD = re.compile(r"[^\W_]{3,}")
_ASKING = set(
    _WORD.findall(
        "about and are can did does explain file files for from has have how into its read say "
        "says show tell that the this use used was were what when where which who why with you"
    )
)
"""Words of questions, not of what is asked about."""
_RARE = 3
"""A word on more lines than this does not tell where to look."""


class _Named(msgspec.Struct, frozen=True):
    path: str


def with_passages(prompt: str, calls: Sequence[ToolCall], tag: str, *, max_chars: int) -> str:
    """Passages of the files that the prompt mentions, as quoted data, then the prompt.

    Tried with a model of 135 million parameters: it repeats line numbers and the `@`
    of a path, answers what stands last, and knows an answer's place by its name.
    """
    blocks = []
    question = prompt
    for call in calls:
        path = msgspec.json.decode(call.arguments, type=_Named).path
        question = question.replace(f'@"{path}"', path).replace(f"@{path}", path)
        text = _NUMBER.sub("", result_text(call)).strip("\n")
        found = passage(text, question.replace(path, ""), max_chars // len(calls))
        blocks.append(f"{plain_or_quoted(path)}:\n<file-{tag}>\n{found}\n</file-{tag}>")
    return "\n\n".join([*blocks, prompt_text("question_small").format(question=question)])


def passage(text: str, question: str, max_chars: int) -> str:
    """At most `max_chars` of a text, in whole lines: its beginning, and what the question names.

    A text that fits stays whole. Otherwise half of the room is for the lines from
    just before the one with most of the question's rare words, where there is one;
    an ellipsis stands for what is left out before them.
    """
    if len(text) <= max_chars:
        return text
    lines = text.split("\n")
    named = _named_line(lines, question)
    if named is None:
        return _whole_lines(lines, max_chars)
    start = max(0, named - 1)
    there = _whole_lines(lines[start:], max_chars // 2)
    beginning = _whole_lines(lines[:start], max_chars - len(there) - len("\n…\n"))
    follows = beginning == "\n".join(lines[:start])
    return "\n".join(([beginning] if beginning else []) + ([] if follows else ["…"]) + [there])


def _named_line(lines: Sequence[str], question: str) -> int | None:
    words = [_words(line) for line in lines]
    counts = {word: sum(word in found for found in words) for word in question_words(question)}
    rare = {word: 1 / count for word, count in counts.items() if 0 < count <= _RARE}
    if not rare:
        return None
    scores = [sum(rare.get(word, 0.0) for word in found) for found in words]
    return scores.index(max(scores))


def question_words(question: str) -> set[str]:
    """What is asked about: its words, casefolded, but those of questions themselves."""
    return _words(question) - _ASKING


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _whole_lines(lines: Sequence[str], max_chars: int) -> str:
    """As many as fit; a first line that is too long is cut."""
    kept, room = 0, max_chars + 1
    while kept < len(lines) and len(lines[kept]) < room:
        room -= len(lines[kept]) + 1
        kept += 1
    return "\n".join(lines[:kept]) if kept or not lines else lines[0][: max(0, max_chars)]
