"""Long pasted text, folded to one mark in the prompt and sent whole."""

import re

from ragmem.text import clean

_FOLD_LINES = 5
_FOLD_CHARS = 1_000


class Pastes:
    """The pasted texts of a chat, by the mark that stands for each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """What to insert for a pasted text: itself if it is short, else its mark."""
        text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines < _FOLD_LINES and len(text) <= _FOLD_CHARS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark, number = f"[pasted {size}]", 1
        while self._texts.get(mark, text) != text:
            number += 1
            mark = f"[pasted {size} #{number}]"
        self._texts[mark] = text
        return mark

    def unfold(self, draft: str) -> str:
        """The draft with each whole mark replaced by its text."""
        if not self._texts:
            return draft
        marks = re.compile("|".join(map(re.escape, self._texts)))
        return marks.sub(lambda mark: self._texts[mark[0]], draft)

    def mark_before(self, draft: str) -> str:
        """The mark that the draft ends with, or nothing."""
        return next((mark for mark in self._texts if draft.endswith(mark)), "")
