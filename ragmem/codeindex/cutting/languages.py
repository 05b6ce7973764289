"""Which language a file is in, and what there is to read it with."""

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import tree_sitter

_FOLDER = Path(__file__).parent


class Grammar(NamedTuple):
    """A language's parser, and the queries that find what it defines."""

    module: str
    function: str
    queries: tuple[str, ...]
    comment: str = "//"
    """What a comment to the end of the line begins with."""


_ECMA = "tree_sitter_javascript"
_TYPED = "tree_sitter_typescript"
GRAMMARS: dict[str, Grammar] = {
    "python": Grammar("tree_sitter_python", "language", ("python",), "#"),
    "javascript": Grammar(_ECMA, "language", ("ecma", "javascript")),
    "typescript": Grammar(_TYPED, "language_typescript", ("ecma", "typescript")),
    "tsx": Grammar(_TYPED, "language_tsx", ("ecma", "typescript")),
    "go": Grammar("tree_sitter_go", "language", ("go",)),
    "rust": Grammar("tree_sitter_rust", "language", ("rust",)),
    "java": Grammar("tree_sitter_java", "language", ("java",)),
    "c": Grammar("tree_sitter_c", "language", ("c",)),
    "cpp": Grammar("tree_sitter_cpp", "language", ("c", "cpp")),
    "c_sharp": Grammar("tree_sitter_c_sharp", "language", ("c_sharp",)),
    "ruby": Grammar("tree_sitter_ruby", "language", ("ruby",), "#"),
    "php": Grammar("tree_sitter_php", "language_php", ("php",)),
    "bash": Grammar("tree_sitter_bash", "language", ("bash",), "#"),
}

_EXTENSIONS: dict[str, str] = {
    extension: language
    for language, extensions in {
        "python": "py pyi pyw",
        "javascript": "js jsx mjs cjs",
        "typescript": "ts mts cts",
        "tsx": "tsx",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "c": "c",
        "cpp": "cc cpp cxx c++ hpp hh hxx h++ ipp inl tpp cu cuh",
        "c_sharp": "cs csx",
        "ruby": "rb rake gemspec ru",
        "php": "php phtml php5 php7",
        "bash": "sh bash zsh ksh bats",
        "markdown": "md markdown mdx mkd",
        "rst": "rst",
        "asciidoc": "adoc asciidoc asc",
        "json": "json jsonc json5 geojson webmanifest ipynb map",
        "yaml": "yaml yml",
        "toml": "toml",
        "csv": "csv tsv",
        "ini": "ini cfg conf properties editorconfig",
        "html": "html htm xhtml",
        "xml": "xml xsd xsl xslt plist",
        "css": "css scss sass less",
        "sql": "sql",
        "vue": "vue",
        "svelte": "svelte",
        "kotlin": "kt kts",
        "swift": "swift",
        "scala": "scala sc",
        "lua": "lua",
        "elixir": "ex exs",
        "haskell": "hs",
        "perl": "pl pm",
        "protobuf": "proto",
        "terraform": "tf tfvars",
        "dart": "dart",
        "zig": "zig",
        "powershell": "ps1 psm1",
    }.items()
    for extension in extensions.split()
}
_NAMES: dict[str, str] = {
    "rakefile": "ruby", "gemfile": "ruby", "vagrantfile": "ruby", "podfile": "ruby",
    "sconstruct": "python", "sconscript": "python", "wscript": "python",
    ".bashrc": "bash", ".zshrc": "bash", ".profile": "bash", "pkgbuild": "bash",
    "pipfile": "toml", "cargo.lock": "toml", "poetry.lock": "toml", "uv.lock": "toml",
    "pipfile.lock": "json", "composer.lock": "json", ".prettierrc": "json", ".eslintrc": "json",
    "dockerfile": "dockerfile", "makefile": "make", "gnumakefile": "make",
}  # fmt: skip
_SHEBANG = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*(?:\w+=\S*\s+)*(?:\S*/)?)?([a-z]+)")
_INTERPRETERS: dict[bytes, str] = {
    b"python": "python", b"pypy": "python", b"node": "javascript", b"nodejs": "javascript",
    b"deno": "typescript", b"bun": "typescript", b"tsx": "typescript", b"sh": "bash",
    b"bash": "bash", b"dash": "bash", b"zsh": "bash", b"ksh": "bash", b"ruby": "ruby",
    b"php": "php", b"perl": "perl", b"lua": "lua",
}  # fmt: skip
_CPP_SIGNS = re.compile(
    rb"^\s*(?:class\s+\w|namespace\b|template\s*<|using\s|(?:public|private|protected)\s*:)"
    rb"|\b(?:std|boost)::|^#\s*include\s*<[a-z_]+>",
    re.MULTILINE,
)


def language_of(path: str, data: bytes) -> str:
    """By its name, else by the interpreter that it names; `text` where none is known."""
    name = PurePosixPath(path).name.casefold()
    extension = name.rpartition(".")[2] if "." in name[1:] else ""
    if extension == "h":
        return "cpp" if _CPP_SIGNS.search(data, 0, 200_000) else "c"
    if extension == "ts" and data[:200].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return "xml"  # a translation of Qt
    language = _NAMES.get(name) or _EXTENSIONS.get(extension)
    if language is None and data.startswith(b"#!"):
        named = _SHEBANG.match(data[:200])
        language = _INTERPRETERS.get(named[1]) if named else None
    return language or "text"


@cache
def loaded(language: str) -> "tuple[tree_sitter.Language, tree_sitter.Query] | None":
    """Its grammar and query, compiled once; None where its wheel is missing or another one."""
    from importlib import import_module

    import tree_sitter

    grammar = GRAMMARS[language]
    query = "".join((_FOLDER / f"{name}.scm").read_text("utf-8") for name in grammar.queries)
    try:
        parsed = tree_sitter.Language(getattr(import_module(grammar.module), grammar.function)())
        return parsed, tree_sitter.Query(parsed, query)
    except (ImportError, AttributeError, ValueError):
        return None
