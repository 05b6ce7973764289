"""What was meant for a terminal, or could steer one, as plain text for a model."""

from ragmem.text import Regex

# A sequence that never ends takes no more than its line with it.
_SEQUENCE = Regex(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS …
    r"|\x1b[ -/]*[0-~]?"
)
_OVERSTRUCK = Regex(r"[^\n]\x08")
_OVERWRITTEN = Regex(r"[^\n]*\r(?=[^\r\n])")
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def plain(text: str) -> str:
    """Without escape sequences and control characters; overwritten lines as they ended."""
    text = _SEQUENCE.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text)
    return text.translate(_CONTROLS)


def spelled(text: str, *, keep: str = "") -> str:
    """On one line: control characters and undecodable bytes as `\\n`, `\\x1b`, `\\xff`."""
    if text.isprintable():
        return text
    return "".join(char if char in keep else _spell(char) for char in text)


def _spell(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "\\n"
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"\\x{code:02x}"
    # An undecodable byte, as surrogateescape carries it.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else char
