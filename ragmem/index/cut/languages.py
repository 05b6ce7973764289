"""Which language a file is in, what there is to read it with, and whether a program wrote it."""

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
    """The characters that a comment to the end of the line begins with."""


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
    """Return a file's language, by its name or its interpreter; `text` where none is known."""
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
    """Return a compiled grammar and query; None where its wheel is missing or another one."""
    from importlib import import_module

    import tree_sitter

    grammar = GRAMMARS[language]
    query = "".join((_FOLDER / f"{name}.scm").read_text("utf-8") for name in grammar.queries)
    try:
        parsed = tree_sitter.Language(getattr(import_module(grammar.module), grammar.function)())
        return parsed, tree_sitter.Query(parsed, query)
    except (ImportError, AttributeError, ValueError):
        return None


_COMMON: dict[str, str] = {
    "python": """
        print len str int float bool list dict set tuple frozenset bytes range enumerate zip map
        filter sorted reversed min max sum any all abs round isinstance issubclass hasattr getattr
        setattr type super iter next open repr format join append extend items keys values get pop
        split strip startswith endswith replace lower upper encode decode add update copy insert
        remove sort index count property staticmethod classmethod ValueError TypeError KeyError
        RuntimeError AssertionError NotImplementedError Exception cast id vars hash callable
        rstrip lstrip setdefault object""",
    "ecma": """
        log error warn info require push pop map filter forEach reduce join split slice splice
        indexOf includes toString String Number Boolean Array Object keys values entries assign
        then catch finally resolve reject Promise Error TypeError Map Set Date parseInt parseFloat
        isArray test match replace trim concat find some every sort call apply bind get set has
        add delete stringify parse toLowerCase toUpperCase startsWith endsWith length Symbol super
        expect describe it toBe toEqual freeze next from of""",
    "go": """
        len cap make new append copy panic recover delete close print println string int int64
        int32 uint64 byte float64 bool error Errorf Sprintf Printf Println Fprintf Error String
        Fatal Fatalf Log Logf Done Lock Unlock RLock RUnlock min max""",
    "rust": """
        Some None Ok Err unwrap expect clone into from to_string iter collect map new len push
        println eprintln print format vec panic assert assert_eq assert_ne as_ref as_str to_owned
        unwrap_or is_some is_none is_empty write writeln Box String Vec default iter_mut
        into_iter and_then map_err ok unwrap_or_else unwrap_or_default as_mut matches debug_assert
        todo unreachable unimplemented Self""",
    "java": """
        println print printf equals hashCode toString get set add put size isEmpty length format
        valueOf of append String IllegalArgumentException IllegalStateException RuntimeException
        ArrayList HashMap HashSet List Object contains containsKey remove stream collect map filter
        toList asList charAt substring super""",
    "c": """
        printf fprintf sprintf snprintf malloc calloc realloc free memcpy memset memcmp memmove
        strlen strcmp strncmp strcpy strncpy strdup strcat assert sizeof exit abort size begin end
        push_back emplace_back empty c_str move forward make_unique make_shared get static_cast
        dynamic_cast reinterpret_cast const_cast str data length at find insert erase clear string
        to_string vector pair make_pair swap min max""",
    "c_sharp": """
        WriteLine Write ToString Equals GetHashCode nameof typeof Add ToList ToArray Select Where
        Any First FirstOrDefault Count Contains ConfigureAwait Format IsNullOrEmpty List Dictionary
        ArgumentNullException ArgumentException InvalidOperationException Exception Task""",
    "ruby": """
        puts print p require require_relative include extend attr_reader attr_accessor attr_writer
        new raise each map select reject nil? empty? to_s to_i to_sym to_a join split first last
        freeze private protected public lambda proc loop size length push is_a? respond_to? dup
        merge include? any? all? key? keys values format sprintf gsub sub strip call send describe
        it context expect to let before""",
    "php": """
        isset empty count strlen array_map array_filter array_merge in_array is_array is_null
        is_string implode explode sprintf printf str_replace substr trim array_keys array_values
        json_encode json_decode define array_key_exists strpos parent self static Exception
        InvalidArgumentException RuntimeException""",
    "bash": """
        echo printf cd local export return exit set unset shift test true false read source eval
        cat grep sed awk cut tr sort head tail rm mkdir cp mv ls touch chmod exec trap wait kill
        sleep let declare readonly type command find xargs dirname basename pwd""",
}
for _same in ("javascript", "typescript", "tsx"):
    _COMMON[_same] = _COMMON["ecma"]
_COMMON["cpp"] = _COMMON["c"]
COMMON: dict[str, frozenset[str]] = {
    language: frozenset(names.split()) for language, names in _COMMON.items()
}


_HEAD_LINES = 60
_COMMENT_LINE = re.compile(r'\s*(?:#|//|/\*|\*|--|;|<!--|"{3}|\'{3}|%|REM\b|dnl\b)', re.IGNORECASE)
# What may stand before the comment that says so.
_BEFORE = re.compile(
    r"\s*(?:$|<\?|<!DOCTYPE|package\b|namespace\b|import\b|from\b|using\b|use\b|@file:|\{|option\b"
    r"""|syntax\b|["']use strict)"""
)
_SAYS_SO = re.compile(
    r"""\W*(?:REM\b\s*|dnl\b\s*)?(?:
        .{0,80}\bcode\ generated\b.*\bdo\ not\ edit\b
      | .*\bgenerated\b.*\bdo\ not\ (?:edit|modify|change|touch)\b
      | .{0,20}(?<![\w`"'])@generated\b
      | (?:(?:this|the)\ (?:\w+\ ){0,2}?)?
        (?:file|code|module|source|class|header|document)\ (?:\S+\ )?
        (?:is|was|has\ been|are)\ (?:\w+ly\ )?(?:auto[- ]?)?generated\b
      | <auto-?generated\b
      | (?-i:A)(?:uto|utomatically)[- ]?generated\b
      | (?-i:G)enerated\ (?:by|from|with|using|automatically)\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT_CODE = frozenset(("text", "markdown", "rst", "asciidoc", "csv", "ini"))
_DATA = frozenset(("yaml", "toml", "html", "xml", "vue", "svelte"))
_MINIFIED_FROM = 5000
_MINIFIED_LINE = 400


def is_generated(text: str, line_count: int, language: str) -> bool:
    """Return whether it says so in a comment at its top, is minified, or a map of such code."""
    if language in _NOT_CODE:
        return False
    if language == "json":
        return text[:100].lstrip().startswith("{") and '"mappings"' in text and '"sources"' in text
    if (
        language not in _DATA
        and len(text) > _MINIFIED_FROM
        and len(text) / max(1, line_count) > _MINIFIED_LINE
    ):
        return True
    return _says_so(text[:4000])


def _says_so(head: str) -> bool:
    if "generated" not in head.casefold():
        return False
    inside = ""
    for line in head.split("\n")[:_HEAD_LINES]:
        line = line[:300]
        if not inside and not _COMMENT_LINE.match(line):
            if not _BEFORE.match(line):
                return False
            continue
        if _SAYS_SO.match(line):
            return True
        # A comment of many lines goes on without a mark of its own.
        opened = next((end for mark, end in _MANY if line.lstrip().startswith(mark)), "")
        if inside and inside in line:
            inside = ""
        elif not inside and opened and opened not in line.lstrip()[len(opened) :]:
            inside = opened
    return False


_MANY = (("/*", "*/"), ("<!--", "-->"), ('"""', '"""'), ("'''", "'''"))
