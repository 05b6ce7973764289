"""Keys out of what a terminal sends; prompt-toolkit's, with pastes of megabytes in linear time."""

from collections.abc import Callable

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

_PASTE_END = "\x1b[201~"


class KeyParser(Vt100Parser):
    """The base looks for a paste's end in all that came, each time that more comes."""

    def __init__(self, take: Callable[[KeyPress], None]) -> None:
        super().__init__(take)
        self._pieces: list[str] = []
        self._edge = ""

    def feed(self, data: str) -> None:
        """Take more of what the terminal sent."""
        if not self._in_bracketed_paste:
            super().feed(data)
            return
        self._pieces.append(data)
        edge = self._edge + data
        if _PASTE_END in edge:
            pasted = "".join(self._pieces)
            self._pieces, self._edge = [], ""
            super().feed(pasted)
        else:
            self._edge = edge[1 - len(_PASTE_END) :]
