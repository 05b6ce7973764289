"""Cleaning, escaping, shortening and formatting of text for the store, requests and terminals."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, cast

_ABBREVIATIONS = (
    "z.B.", "z.", "z. B.", "d.h.", "d.", "d. h.", "u.a.", "bzw.", "ca.", "evtl.", "ggf.", "inkl.",
    "vgl.", "Nr.", "Dr.", "Prof.", "e.g.", "i.e.", "vs.", "cf.", "approx.", "Mr.", "Mrs.", "p.ex.",
    "p.", "p. ex.", "c.-à-d.",
)  # fmt: skip
IN_SENTENCE = "".join(rf"(?<!\b(?i:{re.escape(each)}))" for each in _ABBREVIATIONS) + (
    r"(?!(?:(?<=\b\d\.)|(?<=\b\d\d\.))\s+(?i:jan(?:uar)?|feb(?:ruar)?|märz|mär|maerz|apr(?:il)?|mai|jun[io]?|"
    r"jul[i]?|aug(?:ust)?|sep(?:t|tember)?|okt(?:ober)?|nov(?:ember)?|dez(?:ember)?)\b)"
    r"(?!(?:(?<=\d\.\d\.)|(?<=\d\.\d\d\.))\s+[a-zäöü])"
)
"""Matches after a full stop that ends neither an abbreviation nor a part of a German date."""


class LazyPattern:
    """A `re.Pattern` that is compiled when one of its methods is first used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern, and cache the requested method."""
        method = self.__dict__[name] = getattr(re.compile(*self._source), name)
        return method


def Regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression that is compiled on first use.

    Compiling one takes up to 3 ms, and most processes use few of those that they import.
    """
    return cast("re.Pattern[str]", LazyPattern(pattern, flags))


# Characters that are not escaped although they are not printable: line feed and tab.
_LAYOUT = "\n\t"
_SYMBOLS = ("So", "Sk", "Mn")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Return a text that every store, JSON encoder and driver accepts.

    Lone surrogates (undecodable file names, split emoji) become U+FFFD, and NULs are dropped.
    """
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # A surrogate pair that arrived as two code points becomes one character.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_latin_1(data: bytes) -> bool:
    """Return whether bytes are to be decoded as Latin-1: they contain no UTF-8 sequence.

    A file in UTF-8 with a stray byte is not Latin-1.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        carried = data.decode("utf-8", "surrogateescape")
        return not any(char > "\x7f" and not "\udc80" <= char <= "\udcff" for char in carried)
    return False


def _is_hidden(char: str) -> bool:
    # One predicate for controls, bidi overrides, zero-width and tag characters.
    return not char.isprintable() and char not in _LAYOUT


def visible(text: str) -> str:
    """Escape the characters that control a terminal or are invisible.

    Zero-width joiners between symbols (emoji) are kept, since they don't move anything; `reveal`
    escapes them too.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(text.replace("\r\n", "\n")))


def _escaped(text: str) -> Iterator[str]:
    for i, char in enumerate(text):
        around = (text[i - 1 : i], text[i + 1 : i + 2]) if char == "\u200d" else ()
        joins = around and all(c and unicodedata.category(c) in _SYMBOLS for c in around)
        yield _escape(char) if _is_hidden(char) and not joins else char


def visible_draft(text: str) -> list[str]:
    """Return each character as by `visible`, for the text's author: all spaces are kept."""
    shown = text if text.isprintable() else _escaped(text)
    return [char if _is_blank(char) else each for char, each in zip(text, shown, strict=True)]


def count_hidden(text: str) -> int:
    """Return the number of invisible characters in a draft, without spaces and joiners."""
    found = {char for char in set(text) - {"\u200d"} if _is_hidden(char) and not _is_blank(char)}
    return sum(map(text.count, found))


def _is_blank(char: str) -> bool:
    return unicodedata.category(char) == "Zs"


# Letters, marks and symbols without a glyph: fillers, variation selectors, a blank pattern.
_NO_GLYPH = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)


def reveal(text: str) -> str:
    """Escape every invisible character, for texts that a user approves; stricter than `visible`."""
    return "".join(_escape(c) if _is_hidden(c) or c in _NO_GLYPH else c for c in text)


def quoted(name: str) -> str:
    """Return a name in quotes, on one line, with quotes and invisible characters escaped."""
    shown = reveal(name.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + shown.replace("\n", "\\n").replace("\t", "\\t") + '"'


def plain_or_quoted(path: str) -> str:
    """Return a path as it is, or quoted if it has unprintable characters."""
    return path if path.isprintable() else quoted(path)


def mark_for(text: str) -> str:
    """Return a delimiter that doesn't occur in a text, and is always the same for it."""
    mark = text
    while (mark := sha256(mark.encode("utf-8", "replace")).hexdigest()[:10]) in text:
        pass
    return mark


def without_controls(text: str) -> str:
    """Escape control characters only; other invisible characters are kept."""
    return _CONTROLS.sub(lambda found: _escape(found[0]), text)


def printable_json(text: str) -> str:
    """Escape unprintable characters in JSON, except line feeds."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    if code == 0x1B:
        return "\\e"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:04x}}}"


def fence_of(text: str, least: int = 1) -> str:
    """Return a Markdown code fence for a text: more backticks than any run in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def fenced(text: str, language: str = "") -> str:
    """Return a text as a Markdown code block, which nothing in it can close."""
    fence = fence_of(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


_CUT_CHARS = 20
"""More than the length of an escape: the end of a cut text, which may be escaped differently."""


def one_line(text: str, limit: int) -> str:
    """Return a text's words on one line, escaped as by `visible`, and cut to `limit` characters."""
    beginning = text[: 2 * max(0, limit) + _CUT_CHARS]
    line = " ".join(visible(beginning).split())
    if len(beginning) < len(text) and len(line) <= limit + _CUT_CHARS:
        line = " ".join(visible(text).split())
    if len(line) <= limit:
        return line
    cut = line[: max(0, limit - 1)]
    return cut.rstrip() if cut.rstrip().endswith("…") else f"{cut}…"


def first_line(text: str) -> str:
    """Return the first line that isn't blank, with an ellipsis if others follow."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"{lines[0]} …" if len(lines) > 1 else "".join(lines)


def folder_name(path: str, home: str, limit: int) -> str:
    """Return a folder as a shell prompt shows it: with `~` for HOME, its beginning cut if long."""
    within = path == home or path.startswith(f"{home.rstrip('/')}/")
    named = visible(f"~{path[len(home.rstrip('/')) :]}" if home and within else path)
    named = " ".join(named.split())
    return named if len(named) <= limit else f"…{named[len(named) - limit + 1 :]}"


def clip_middle(text: str, limit: int) -> str:
    """Cut out a text's middle to leave `limit` characters, with a marker that counts the rest.

    The text after the marker begins with an ellipsis, since its first line may be incomplete.
    """
    if len(text) <= limit:
        return text
    marker = f"\n… [{len(text) - limit} characters left out] …\n…"
    room = limit - len(marker)
    if room <= 0:
        return text[: max(0, limit)]
    head = (room + 1) // 2
    tail = room - head
    return text[:head] + marker + (text[-tail:] if tail else "")


def fair_share(lengths: Sequence[int], room: int) -> int:
    """Return the length to cut the longest texts to, so that all fit into `room`."""
    share = 0
    for i, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - i)
        room -= min(length, share)
    return share


_BREAK = r"(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])"
_AT_MARGIN = re.compile(rf"{_BREAK}(?! {{2}}|\t| ?(?:{_BREAK}|\Z))")
"""Matches a line break before a line that is not indented."""


def set_in(text: str) -> str:
    """Indent each line but the first by two spaces, unless it is indented.

    Nothing in a quoted text can thus pass for a heading or label around it: those begin at the
    left margin.
    """
    return _AT_MARGIN.sub("\n  ", text)


def clip_bytes(text: str, limit: int) -> str:
    """Cut out a text's middle to leave `limit` bytes of UTF-8; the marker is always included."""
    if len(text) <= limit and (text.isascii() or len(text.encode()) <= limit):
        return text
    data = text.encode("utf-8", "replace")
    marker = f"\n… [{len(data):,} bytes: the middle is left out] …\n"
    half = max(0, limit - len(marker.encode())) // 2
    tail = data[len(data) - half :]
    return data[:half].decode("utf-8", "ignore") + marker + tail.decode("utf-8", "ignore")


def estimate_tokens(char_count: int) -> int:
    """Estimate the number of tokens in a text, at four characters each."""
    return -(-char_count // 4)


_DAY = 1_440


def relevance(similarity: float | None) -> str:
    """Return a similarity in percent, to show; `text match` if there is none."""
    return "text match" if similarity is None else f"{max(0.0, similarity):.0%}"


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a time was, in words; a time in the future counts as now.

    From 24 hours on, calendar days count: the day before yesterday is two days ago, whatever the
    hour.
    """
    minutes = max(0, int((now - at).total_seconds() // 60))
    if minutes >= _DAY:
        # On the day when clocks go back, 24 hours may lie within one date.
        minutes = _DAY * max(1, (now.astimezone().date() - at.astimezone().date()).days)
    for size, unit in ((525_600, "year"), (43_800, "month"), (_DAY, "day"), (60, "hour")):
        if count := minutes // size:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{minutes} minute{'s' if minutes != 1 else ''} ago" if minutes else "just now"


def duration(ms: int) -> str:
    """Format a duration: `12 ms`, `2.3 s`, `4 min 10 s`, `2 h 5 min`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return whole_seconds(ms // 1000)


def whole_seconds(seconds: int) -> str:
    """Format a duration that is given in seconds: `12 s`, `4 min 10 s`, `2 h 5 min`."""
    minutes, rest = divmod(seconds, 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def counted(count: int, name: str, verb: str = "") -> str:
    """Format a count: `1 turn`, `2,000 turns`; with a verb `1 turn waits`, `2,000 turns wait`."""
    if count != 1:
        name = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
    elif verb:
        verb += "s"
    return f"{count:,} {name} {verb}".rstrip()


def in_short(count: int) -> str:
    """Format a large number: `950`, `1.9k`, `25k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            shown = f"{count / size:.1f}" if count < 10 * size else f"{count / size:.0f}"
            return f"{shown.removesuffix('.0')}{unit}"
    return str(count)


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of `width` columns for a share; it is empty only if the part is 0."""
    share = min(1.0, part / whole) if whole > 0 else 0.0
    filled = min(width, max(1, round(share * width))) if part > 0 else 0
    return "█" * filled + "·" * (width - filled)


def line_range(first: int, last: int) -> str:
    """Format an inclusive range of lines: `11-13`, or `11` if it is a single one."""
    return str(first) if first == last else f"{first}-{last}"


# --- terminals ------------------------------------------------------------------------


def hanging(head: str, text: str, width: int | None = None) -> list[str]:
    """Wrap a text between words with a hanging indent as wide as its head; return the rows."""
    row, rows = head, []
    margin = " " * display_width(head)
    for word in text.split():
        longer = row + word if row in (head, margin) else f"{row} {word}"
        if width is not None and row not in (head, margin) and display_width(longer) > width:
            rows.append(row)
            longer = margin + word
        row = longer
    return [*rows, row.rstrip()]


def display_width(text: str) -> int:
    """Return a text's width in terminal columns; an emoji of several characters has two."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    cells = wcswidth(text)
    # wcswidth returns -1 for a text with a control character: these count as 0.
    return cells if cells >= 0 else sum(max(0, wcswidth(char)) for char in text)


def clusters(text: str) -> Iterable[str]:
    """Split a text into grapheme clusters: characters with all that combine with them."""
    if text.isascii():
        return text
    from wcwidth import iter_graphemes

    return iter_graphemes(text)


def clip_to_width(text: str, width: int) -> str:
    """Cut a text to `width` columns, with an ellipsis if something is left out."""
    if display_width(text) <= width:
        return text
    kept, room = [], width - 1
    for cluster in clusters(text):
        room -= display_width(cluster)
        if room < 0:
            break
        kept.append(cluster)
    return "".join(kept) + "…"


def flowing(parts: Sequence[str], width: int) -> list[str]:
    """Join parts with dots into lines of at most `width` columns, further lines indented."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
        if lines[-1].strip() and display_width(longer) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] = longer
    return [clip_to_width(visible(line), width) for line in lines]


# An unterminated sequence ends with its line.
_SEQUENCE = Regex(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS …
    r"|\x1b[ -/]*[0-~]?"
)
_OVERSTRUCK = Regex(r"[^\n]\x08")
_OVERWRITTEN = Regex(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)
_UNPRINTED = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def plain(text: str) -> str:
    """Remove escape sequences and control characters, keeping the final state of lines."""
    text = _SEQUENCE.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text)
    return text.translate(_UNPRINTED)


def spelled(text: str, *, keep: str = "") -> str:
    """Escape control characters and undecodable bytes (`\n`, `\x1b`, `\xff`), for one line."""
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


# --- Markdown as plain text -----------------------------------------------------------

_FENCE = Regex(r"^ {0,3}(?:`{3,}|~{3,})[^`\n]*$|^(?=[^\n]*---)[ \t|:+-]+$", re.MULTILINE)
_LEAD = Regex(r"^[ \t]{0,12}(?:#{1,6}[ \t]+|>[ \t]?)+", re.MULTILINE)
_BULLET = Regex(r"^([ \t]{0,12})[-*+][ \t]+(?:\[[ xX]\][ \t]+)?", re.MULTILINE)
INLINE = Regex(
    r"`([^`\n]{1,400})`"
    r"|\*\*(?=\S)([^*\n]{1,400})(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=\S)([^*\n]{1,400})(?<=\S)\*(?![\w*])"
    r"|!?\[([^\]\n]{0,400})\]\([^)\s]{0,500}\)"
)
"""Matches code, strong and emphasized text, and links, with a group each for their text."""


def without_markdown(text: str) -> str:
    """Convert Markdown to plain text: without fences, heading marks, stars, backticks, links.

    Names with underscores are kept, and so is everything in backticks.
    """
    text = _BULLET.sub(r"\1• ", _LEAD.sub("", _FENCE.sub("", text)))
    return INLINE.sub(_inner, text)


def _inner(found: re.Match[str]) -> str:
    code, *others = found.groups()
    if code is not None:
        return code
    return INLINE.sub(_inner, next((each for each in others if each), ""))


_TYPE_NAMES = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "null",
    ">=": "at least", "<=": "at most", ">": "more than", "<": "less than",
}  # fmt: skip
_VALIDATION_ERRORS = (
    (r"Object missing required field `(.*?)`", "{1} is missing"),
    (r"Object contains unknown field `(.*?)`", "unknown field {1}"),
    (r"Invalid enum value (.*)", "{0} can't be {1}"),
    (r"Expected `(.*?)`, got `(.*?)`", "{0} must be {1}, not {2}"),
    (r"Expected `.*?` of length >= 1", "{0} is empty"),
    (r"Expected `.*?` of length >= (\d+)", "{0} is shorter than {1}"),
    (r"Expected `.*?` of length <= (\d+)", "{0} is longer than {1}"),
    (r"Expected `.*?` ([<>]=?) (\S+)", "{0} must be {1} {2}"),
)
"""Patterns of msgspec's validation errors, and messages in plain words."""


def in_words(fault: str) -> str:
    """Return a msgspec validation error in plain words: `limit must be a number, not text`."""
    said, _, path = fault.partition(" - at `$")
    argument = one_line(path.strip("`."), 80) or "what is given"
    for pattern, words in _VALIDATION_ERRORS:
        if found := re.fullmatch(pattern, said.replace(" | null`", "`")):
            parts = (one_line(_TYPE_NAMES.get(part, part), 80) for part in found.groups())
            return words.format(argument, *parts)
    return f"{argument} does not fit"
