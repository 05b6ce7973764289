"""A model's Markdown as rich shows it, with nothing in it that steers the terminal.

Links become their text and address, images their address, HTML stays text: no
escape sequence but our own colours, and nothing that is left out in silence.
"""

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.syntax import Syntax

from ragmem.text import visible

_CODE_THEME = "ansi_dark"


def answer(markdown: str) -> RenderableType:
    """A block of the model's answer."""
    return _Answer(visible(markdown))


class _Heading(Heading):
    """Left aligned, without a frame."""

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _CodeBlock(CodeBlock):
    """In the terminal's own colours and background."""

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            background_color="default",
            padding=(0, 2),
        )


class _Answer(Markdown):
    """rich's Markdown, of tokens that are safe to print."""

    elements = {  # noqa: RUF012 - as its base declares it
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", code_theme=_CODE_THEME, hyperlinks=False)
        # HTML stays what it is, text: rich would leave it out.
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = [_safe(token) for token in parser.parse(markup)]


def _safe(token: Token) -> Token:
    # Entities (`&#x202e;`) are decoded by the parser, after the text was made visible.
    token.content = visible(token.content)
    if token.children:
        token.children = [_safe_inline(child) for child in token.children]
        _spell_links(token.children)
    return token


def _safe_inline(token: Token) -> Token:
    if token.type == "image":
        address = visible(str(token.attrs.get("src", "")))
        return Token("text", "", 0, content=f"[image: {address}]")
    token.content = visible(token.content)
    return token


def _spell_links(children: list[Token]) -> None:
    """Replace each link by its text and, where it differs, its address."""
    opened: list[tuple[str, int]] = []
    for at, token in enumerate(children):
        if token.type == "link_open":
            opened.append((visible(str(token.attrs.get("href", ""))), at))
            children[at] = Token("text", "", 0)
        elif token.type == "link_close" and opened:
            address, start = opened.pop()
            said = "".join(child.content for child in children[start:at])
            same = said in (address, address.removeprefix("mailto:"))
            children[at] = Token("text", "", 0, content="" if same else f" ({address})")
