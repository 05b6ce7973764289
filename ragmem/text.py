"""Text at the doors: what enters the store, a request or the terminal passes here."""

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
)
"""Behind a full stop: that it ends no abbreviation, nor the day of a date as it is in German."""


class LazyPattern:
    """A `re.Pattern` that the first use of one of its methods compiles."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """A method of the pattern, kept for the next use."""
        method = self.__dict__[name] = getattr(re.compile(*self._source), name)
        return method


def Regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression that the first use compiles.

    To compile one takes up to 3 ms, and most processes use few of those that they import.
    """
    return cast("re.Pattern[str]", LazyPattern(pattern, flags))


# Kept where a control character is shown in clear: line feed and tab.
_LAYOUT = "\n\t"
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Text that every store, JSON encoder and driver accepts.

    Lone surrogates (undecodable file names, split emoji) become U+FFFD, NUL is
    dropped; all else stays as it is.
    """
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        # A surrogate pair that arrived as two code points is one character.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_latin_1(data: bytes) -> bool:
    """Whether bytes are to be read as Latin-1: no UTF-8, and none of their letters is.

    A file in UTF-8 with a stray byte is none.
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
    """Text that can't steer a terminal or hide: each such character as an escape.

    Zero-width joiners stay between other printable characters (emoji), since
    they move nothing; `reveal` shows them too.
    """
    if text.isprintable():
        return text
    return "".join(_shown(text.replace("\r\n", "\n")))


def _shown(text: str) -> Iterator[str]:
    for i, char in enumerate(text):
        if not _is_hidden(char) or (
            char == "\u200d" and 0 < i < len(text) - 1 and _joins(text[i - 1], text[i + 1])
        ):
            yield char
        else:
            yield _escape(char)


def visible_draft(text: str) -> list[str]:
    """Each character as `visible` shows it, for who writes the text: blanks stay themselves."""
    shown = text if text.isprintable() else _shown(text)
    return [char if _is_blank(char) else each for char, each in zip(text, shown, strict=True)]


def count_hidden(text: str) -> int:
    """How many characters don't show themselves to who writes the text; no joiner is counted."""
    found = {char for char in set(text) - {"\u200d"} if _is_hidden(char) and not _is_blank(char)}
    return sum(map(text.count, found))


def _is_blank(char: str) -> bool:
    return unicodedata.category(char) == "Zs"


# Letters, marks and symbols that draw nothing: fillers, variation selectors, a blank pattern.
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)


def reveal(text: str) -> str:
    """`visible` for what is approved: every hidden character shown, none kept."""
    return "".join(_escape(c) if _is_hidden(c) or c in _BLANK else c for c in text)


def quoted(name: str) -> str:
    """A name in quotes: it begins no line, hides nothing and can't end its quotes."""
    shown = reveal(name.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + shown.replace("\n", "\\n").replace("\t", "\\t") + '"'


def plain_or_quoted(path: str) -> str:
    """A path as it is, or in quotes where it holds more than printable characters."""
    return path if path.isprintable() else quoted(path)


def mark_for(text: str) -> str:
    """A mark to set the text apart with: the same for the same text, and not to be found in it."""
    mark = text
    while (mark := sha256(mark.encode("utf-8", "replace")).hexdigest()[:10]) in text:
        pass
    return mark


def without_controls(text: str) -> str:
    """Controls that a terminal would obey, as escapes; all else, also what hides, as it is."""
    return _CONTROLS.sub(lambda found: _escape(found[0]), text)


def printable_json(text: str) -> str:
    """Return the JSON with an escape for each character that is not printable; lines stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _joins(before: str, after: str) -> bool:
    symbols = ("So", "Sk", "Mn")
    return unicodedata.category(before) in symbols and unicodedata.category(after) in symbols


def _escape(char: str) -> str:
    code = ord(char)
    if code == 0x1B:
        return "\\e"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:04x}}}"


def fence_of(text: str, least: int = 1) -> str:
    """Return the backticks that set a text as code in Markdown: more than stand together in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code in Markdown, which nothing in it can end."""
    fence = fence_of(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


_CUT_CHARS = 20
"""Of a line's end that may look otherwise where its text was cut: more than an escape has."""


def one_line(text: str, limit: int) -> str:
    """The text's words on one line, at most `limit` characters, clipped at the end."""
    beginning = text[: 2 * max(0, limit) + _CUT_CHARS]
    line = " ".join(visible(beginning).split())
    if len(beginning) < len(text) and len(line) <= limit + _CUT_CHARS:
        line = " ".join(visible(text).split())
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"


def first_line(text: str) -> str:
    """The first line that says something, with an ellipsis behind it where others follow."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return f"{lines[0]} …" if len(lines) > 1 else "".join(lines)


def folder_name(path: str, home: str, limit: int) -> str:
    """Return a folder as a prompt names it: `~` for the home, its beginning left out if long."""
    within = path == home or path.startswith(f"{home.rstrip('/')}/")
    named = visible(f"~{path[len(home.rstrip('/')) :]}" if home and within else path)
    named = " ".join(named.split())
    return named if len(named) <= limit else f"…{named[len(named) - limit + 1 :]}"


def clip_middle(text: str, limit: int) -> str:
    """Cut a text to at most `limit` characters: start, end, and a marker that counts the rest.

    What follows the marker begins with an ellipsis: it may be the end of any line.
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
    """Return to what length the longest are to be cut, so that all fit."""
    share = 0
    for i, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - i)
        room -= min(length, share)
    return share


_BREAK = r"(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])"
_AT_MARGIN = re.compile(rf"{_BREAK}(?! {{2}}|\t| ?(?:{_BREAK}|\Z))")
"""The end of a line behind which another begins that is not set in."""


def set_in(text: str) -> str:
    """The text with each further line set in by two blanks, if it is not yet.

    So nothing quoted looks like the headings and labels of what it is quoted in: those begin at
    the left margin.
    """
    return _AT_MARGIN.sub("\n  ", text)


def clip_bytes(text: str, limit: int) -> str:
    """Cut a text to so many bytes; the marker is there where nothing else has room."""
    if len(text) <= limit and (text.isascii() or len(text.encode()) <= limit):
        return text
    data = text.encode("utf-8", "replace")
    marker = f"\n… [{len(data):,} bytes: the middle is left out] …\n"
    half = max(0, limit - len(marker.encode())) // 2
    tail = data[len(data) - half :]
    return data[:half].decode("utf-8", "ignore") + marker + tail.decode("utf-8", "ignore")


def estimate_tokens(char_count: int) -> int:
    """Estimate a text's tokens: about four characters each."""
    return -(-char_count // 4)


_DAY = 1_440


def relevance(similarity: float | None) -> str:
    """A similarity as it is shown: in percent, without one how such a hit is found."""
    return "text match" if similarity is None else f"{max(0.0, similarity):.0%}"


def ago(at: datetime, now: datetime) -> str:
    """How long ago, in words; a clock that went back makes nothing come from the future.

    From a whole day on it is told by the calendar: what is of the day before yesterday is two days
    old, whatever the hour.
    """
    minutes = max(0, int((now - at).total_seconds() // 60))
    if minutes >= _DAY:
        # On the day when clocks go back 24 hours may lie within one date.
        minutes = _DAY * max(1, (now.astimezone().date() - at.astimezone().date()).days)
    for size, unit in ((525_600, "year"), (43_800, "month"), (_DAY, "day"), (60, "hour")):
        if count := minutes // size:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{minutes} minute{'s' if minutes != 1 else ''} ago" if minutes else "just now"


def duration(ms: int) -> str:
    """Tell people how long it was: `12 ms`, `2.3 s`, `4 min 10 s`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1000} s"


def counted(count: int, name: str, verb: str = "") -> str:
    """Count in words: `1 turn`, `2,000 turns`; with a verb `1 turn waits`, `2,000 turns wait`."""
    if count != 1:
        name = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
    elif verb:
        verb += "s"
    return f"{count:,} {name} {verb}".rstrip()


def in_short(count: int) -> str:
    """A large number for people: `950`, `1.9k`, `25k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            shown = f"{count / size:.1f}" if count < 10 * size else f"{count / size:.0f}"
            return f"{shown.removesuffix('.0')}{unit}"
    return str(count)


def bar(part: float, whole: float, width: int) -> str:
    """How much of a whole, as a bar of so many columns; nothing at all is told from a little."""
    share = min(1.0, part / whole) if whole > 0 else 0.0
    filled = min(width, max(1, round(share * width))) if part > 0 else 0
    return "█" * filled + "·" * (width - filled)


def line_range(first: int, last: int) -> str:
    """Lines of a file, both included: `11-13`; `11` where it is one."""
    return str(first) if first == last else f"{first}-{last}"


# --- on a terminal --------------------------------------------------------------------


def hanging(head: str, text: str, width: int | None = None) -> list[str]:
    """A text behind its head, cut between words, the further rows below the first."""
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
    """Columns on a terminal; an emoji of several characters is one of two columns."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    cells = wcswidth(text)
    # What is a control character has no width of its own, and its whole text none.
    return cells if cells >= 0 else sum(max(0, wcswidth(char)) for char in text)


def clusters(text: str) -> Iterable[str]:
    """What has a place of its own on a terminal: a character with all that combines with it."""
    if text.isascii():
        return text
    from wcwidth import iter_graphemes

    return iter_graphemes(text)


def clip_to_width(text: str, width: int) -> str:
    """Cut to at most `width` columns, with an ellipsis where something is left out."""
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
    """Put as many as fit on a line, the further ones indented below."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
        if lines[-1].strip() and display_width(longer) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] = longer
    return [clip_to_width(visible(line), width) for line in lines]


# A sequence that never ends takes no more than its line with it.
_SEQUENCE = Regex(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS …
    r"|\x1b[ -/]*[0-~]?"
)
_OVERSTRUCK = Regex(r"[^\n]\x08")
_OVERWRITTEN = Regex(r"^[^\n]*\r(?=[^\r\n])", re.MULTILINE)
_UNPRINTED = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def plain(text: str) -> str:
    """Without escape sequences and control characters; overwritten lines as they ended."""
    text = _SEQUENCE.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text)
    return text.translate(_UNPRINTED)


def spelled(text: str, *, keep: str = "") -> str:
    """Spell it on one line: control characters and undecodable bytes as `\n`, `\x1b`, `\xff`."""
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


# --- Markdown as plain words

_FENCE = Regex(r"^ {0,3}(?:`{3,}|~{3,})[^`\n]*$|^(?=[^\n]*---)[ \t|:+-]+$", re.MULTILINE)
_LEAD = Regex(r"^[ \t]{0,12}(?:#{1,6}[ \t]+|>[ \t]?)+", re.MULTILINE)
_BULLET = Regex(r"^([ \t]{0,12})[-*+][ \t]+(?:\[[ xX]\][ \t]+)?", re.MULTILINE)
INLINE = Regex(
    r"`([^`\n]{1,400})`"
    r"|\*\*(?=\S)([^*\n]{1,400})(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=\S)([^*\n]{1,400})(?<=\S)\*(?![\w*])"
    r"|!?\[([^\]\n]{0,400})\]\([^)\s]{0,500}\)"
)
"""Code, strong and emphasized words, and the words of a link: a group each."""


def without_markdown(text: str) -> str:
    """Return what a text in Markdown says: no fences, heading marks, stars, backticks, links.

    Names with underscores stay as they are, and so does what stands in backticks.
    """
    text = _BULLET.sub(r"\1• ", _LEAD.sub("", _FENCE.sub("", text)))
    return INLINE.sub(_inner, text)


def _inner(found: re.Match[str]) -> str:
    code, *others = found.groups()
    if code is not None:
        return code
    return INLINE.sub(_inner, next((each for each in others if each), ""))


_IN_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "null",
    ">=": "at least", "<=": "at most", ">": "more than", "<": "less than",
}  # fmt: skip
_FAULTS = (
    (r"Object missing required field `(.*?)`", "{1} is missing"),
    (r"Object contains unknown field `(.*?)`", "unknown field {1}"),
    (r"Invalid enum value (.*)", "{0} can't be {1}"),
    (r"Expected `(.*?)`, got `(.*?)`", "{0} must be {1}, not {2}"),
    (r"Expected `.*?` of length >= 1", "{0} is empty"),
    (r"Expected `.*?` of length >= (\d+)", "{0} is shorter than {1}"),
    (r"Expected `.*?` of length <= (\d+)", "{0} is longer than {1}"),
    (r"Expected `.*?` ([<>]=?) (\S+)", "{0} must be {1} {2}"),
)
"""What a validator says of an argument, and the same in a person's words."""


def in_words(fault: str) -> str:
    """Return what a validator says as a person would: `limit must be a number, not text`."""
    said, _, path = fault.partition(" - at `$")
    argument = one_line(path.strip("`."), 80) or "what is given"
    for pattern, words in _FAULTS:
        if found := re.fullmatch(pattern, said.replace(" | null`", "`")):
            parts = (one_line(_IN_WORDS.get(part, part), 80) for part in found.groups())
            return words.format(argument, *parts)
    return f"{argument} does not fit"
