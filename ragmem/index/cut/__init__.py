"""A file cut into scopes: functions, classes, sections; what no parser reads, by lines."""

from ragmem.index.cut.code import code_pieces
from ragmem.index.cut.languages import GRAMMARS, is_generated, language_of
from ragmem.index.cut.parser import LARGEST, imports_of, parse
from ragmem.index.cut.source import HEADED, SourceText, scopes_of, section_pieces, text_pieces
from ragmem.index.values import Cut

__all__ = ["cut", "language_of"]

_MOST = 4000
"""The most scopes of one file: more are a table, and no one looks for its rows by name."""


def cut(path: str, data: bytes) -> Cut:
    """Cut a file into scopes; any bytes are taken, none makes it fail.

    A language without a parser, a file of more than a megabyte, one that a parser
    can't make sense of in its time and one of thousands of scopes are cut by lines.
    """
    language = language_of(path, data)
    source = SourceText(data)
    generated = is_generated(source.text, len(source.lines), language)
    imports: tuple[str, ...] = ()
    found = parse(source, language) if language in GRAMMARS and not generated else None
    if found is not None:
        pieces = code_pieces(source, language, found)
        imports = imports_of(language, found.imports)
    elif language in HEADED and len(data) <= LARGEST:
        pieces = section_pieces(source, language)
    else:
        pieces = text_pieces(source, language)
    if len(pieces) > _MOST:
        pieces = text_pieces(source, language)
    return Cut(
        language=language,
        scopes=scopes_of(source, pieces),
        imports=imports,
        line_count=len(source.lines),
        generated=generated,
    )
