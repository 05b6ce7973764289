"""The declaration of a scope on one line."""

import re

from ragmem.codeindex.cutting.parsing import Definition
from ragmem.codeindex.cutting.pieces import LONGEST_SIGNATURE, clipped
from ragmem.codeindex.cutting.source import Source

_COMMENT = {
    "#": re.compile(r"(?:^|\s)#(?:\s[^\n]*|(?=\n|$))", re.MULTILINE),
    "//": re.compile(r"(?:^|\s)//[^\n]*|/\*.*?\*/", re.MULTILINE | re.DOTALL),
}
_ATTRIBUTE = re.compile(r"(?:@(?!interface\b)[\w.]+(?:\([^()]*\))?|#?\[[^\[\]]*\])\s*")
_BRACKETS = re.compile(r"(?<=[(\[]) | (?=[)\]])")
_LAST_COMMA = re.compile(r",(?=[)\]])")
_ENDS = " \t{:=;,"


def signature_of(source: Source, definition: Definition, comment: str) -> str:
    """From its first word to its body, white space collapsed."""
    start = definition.header
    end = definition.body if definition.body > start else definition.end
    text = source.between(start, min(end, start + 4 * LONGEST_SIGNATURE))
    if definition.role in (
        "function",
        "class",
        "interface",
        "type",
        "exported",
        "constant",
        "outer",
    ):
        text = _words_before(source, definition) + text
    while (attribute := _ATTRIBUTE.match(text)) and attribute.end():
        text = text[attribute.end() :]
    text = _COMMENT[comment].sub("", text)
    line = _LAST_COMMA.sub("", _BRACKETS.sub("", " ".join(text.split())))
    if definition.body > start:
        line = line.rstrip(_ENDS) if not line.endswith("=>") else line
    return clipped(line.rstrip(" \t;"), LONGEST_SIGNATURE)


def _words_before(source: Source, definition: Definition) -> str:
    # `export default`, `public static`: what a grammar puts around the definition itself.
    before = source.between(max(definition.start, definition.header - 80), definition.header)
    words = before.rpartition("\n")[2]
    return words if words.replace(" ", "").isalpha() else ""
