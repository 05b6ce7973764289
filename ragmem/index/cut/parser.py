"""Detecting a file's language, and parsing it for definitions, calls and imports (tree-sitter)."""

import re
import sys
import time
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ragmem.index.cut.source import SourceText

if TYPE_CHECKING:
    import tree_sitter

_FOLDER = Path(__file__).parent


class Grammar(NamedTuple):
    """A language's tree-sitter grammar, and its queries (*.scm files)."""

    module: str
    function: str
    queries: tuple[str, ...]
    comment: str = "//"
    """The start of a line comment."""


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
    rb"^[^\S\n]*(?:class\s+\w|namespace\b|template\s*<|using\s|(?:public|private|protected)\s*:)"
    rb"|\b(?:std|boost)::|^#\s*include\s*<[a-z_]+>",
    re.MULTILINE,
)


def language_of(path: str, data: bytes) -> str:
    """Return a file's language, by its name or its shebang; `text` if it is unknown."""
    name = PurePosixPath(path).name.casefold()
    extension = name.rpartition(".")[2] if "." in name[1:] else ""
    if extension == "h":
        return "cpp" if _CPP_SIGNS.search(data, 0, 200_000) else "c"
    if extension == "ts" and data[:200].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        return "xml"  # a Qt translation file
    language = _NAMES.get(name) or _EXTENSIONS.get(extension)
    if language is None and data.startswith(b"#!"):
        named = _SHEBANG.match(data[:200])
        language = _INTERPRETERS.get(named[1]) if named else None
    return language or "text"


@cache
def loaded(language: str) -> "tuple[tree_sitter.Language, tree_sitter.Query] | None":
    """Return a compiled grammar and query; None if its package is missing or incompatible."""
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
# Lines that may precede the comment that says that a file is generated.
_PREAMBLE_LINE = re.compile(
    r"\s*(?:$|<\?|<!DOCTYPE|package\b|namespace\b|import\b|from\b|using\b|use\b|@file:|\{|option\b"
    r"""|syntax\b|["']use strict)"""
)
_GENERATED_NOTICE = re.compile(
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
_NOT_CODE = frozenset(("text", "markdown", "rst", "csv", "ini"))
_DATA = frozenset(("yaml", "toml", "html", "xml", "vue", "svelte"))
_MINIFIED_FROM = 5000
_MINIFIED_LINE = 400


def is_generated(text: str, line_count: int, language: str) -> bool:
    """Return whether a file is generated: by a comment at its top, minified, or a source map."""
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
    return _has_generated_notice(text[:4000])


def _has_generated_notice(head: str) -> bool:
    if "generated" not in head.casefold():
        return False
    for line in head.split("\n")[:_HEAD_LINES]:
        is_comment = _COMMENT_LINE.match(line)
        if is_comment and _GENERATED_NOTICE.match(line[:300]):
            return True
        if not is_comment and not _PREAMBLE_LINE.match(line):
            return False
    return False


LARGEST = 1_000_000
# Parsing takes 0.2 s of CPU time per megabyte of code. With syntax errors, time and memory may
# grow with the square of the file's size.
_LIMIT_S, _LIMIT_S_PER_BYTE = 0.25, 1e-6
# Between two checks of the time, parsers work for milliseconds. What takes longer is mostly a
# collection of garbage: the thread that triggers it waits half a second in a large process.
_LONGEST_STEP_S = 0.1
_LIMIT_BYTES = 256_000_000
_WIDEST_ERROR = 4000
# If the same syntax error occurs thousands of times, parsers take gigabytes between two checks of
# the limits. zlib compresses code to a third or a tenth, tables to a thirtieth, such files to a
# sixtieth.
_MAX_COMPRESSION, _COMPRESSION_FROM_BYTES = 40, 1500

# The roles of definitions: names of captures in *.scm. If two patterns match the same name, the
# role that comes first here counts; `outer` only extends a definition by the lines around it.
ROLES = (
    "class",  # functions in it are methods
    "interface",  # likewise
    "impl",  # of a type that is defined elsewhere
    "module",
    "tested",  # describe("…", () => …)
    "namespace",  # not a scope, but part of the qualified names in it
    "prefix",  # likewise, for everything that follows
    "function",
    "inline",  # a function expression: a scope if it isn't short
    "declaration",  # a function without a body: a scope if it is documented
    "type",
    "exported",  # a constant
    "constant",  # a scope if its name has the form of a constant's
    "outer",
)


class Definition:
    """A definition and its position, in bytes and in rows (from 0, inclusive)."""

    __slots__ = (
        "body", "end", "first", "header", "last", "name", "owner", "role", "start", "tester",
    )  # fmt: skip

    def __init__(self, role: str, name: str, node: "tree_sitter.Node") -> None:
        self.role = role
        self.name = name
        self.start: int = node.start_byte
        self.header = self.start
        """The byte where the definition itself begins, after decorators."""
        self.end: int = node.end_byte
        self.body = -1
        """The byte where its body begins; -1 if it has none."""
        self.first: int = node.start_point[0]
        self.last = _last_row(node)
        self.owner = ""
        """The type that a method belongs to, or the trait that an `impl` implements."""
        self.tester = ""


class ParsedFile(NamedTuple):
    """What parsing finds in a file."""

    definitions: list[Definition]
    calls: list[tuple[int, str]]
    """The byte of each call, with the unqualified name that is called."""
    imports: list[tuple[str, str]]
    """The kind (`import`, `module`, `required …`) and the text of each import."""
    aside: list[tuple[int, int]]
    """The first and last rows of imports and the like, which don't get scopes of their own."""
    above: dict[int, int]
    """The first row of each attribute, by its last row."""


def parse(source: SourceText, language: str) -> ParsedFile | None:
    """Parse a file; return None if there is no parser, or it would take too long."""
    if len(source.data) > LARGEST or (known := loaded(language)) is None:
        return None
    size = len(source.data)
    if size > _COMPRESSION_FROM_BYTES and size > _MAX_COMPRESSION * len(
        zlib.compress(source.data, 1)
    ):
        return None
    grammar, query = known
    tree = _tree(source.data, grammar)
    if tree is None or (tree.root_node.has_error and _is_hopeless(tree.root_node)):
        return None
    from tree_sitter import QueryCursor

    return _parsed_file(source, QueryCursor(query).matches(tree.root_node))


def _tree(data: bytes, grammar: "tree_sitter.Language") -> "tree_sitter.Tree | None":
    from resource import RUSAGE_SELF, getrusage

    from tree_sitter import Parser

    left, last = _LIMIT_S + _LIMIT_S_PER_BYTE * len(data), time.thread_time()
    unit = 1 if sys.platform == "darwin" else 1024
    memory = getrusage(RUSAGE_SELF).ru_maxrss + _LIMIT_BYTES // unit
    steps = 0
    is_over = False

    def takes_too_long() -> bool:
        nonlocal left, last
        now = time.thread_time()
        left -= min(now - last, _LONGEST_STEP_S)
        last = now
        return left < 0

    def is_enough(_: int, __: bool) -> bool:
        nonlocal steps, is_over
        steps += 1
        if not is_over and not steps % 16:
            is_over = takes_too_long() or getrusage(RUSAGE_SELF).ru_maxrss > memory
        return is_over

    def read(offset: int, _: object) -> bytes | memoryview:
        nonlocal is_over
        # If the lexer scans to the end of the file for each token, the progress callback isn't
        # called for long, but this is.
        is_over = is_over or takes_too_long()
        if is_over:
            return b""
        views.append(whole[offset : offset + 65536])
        return views[-1]

    # The binding (0.26) leaks what this returns: a released memoryview is small, bytes are not.
    whole, views = memoryview(data), list[memoryview]()
    try:
        tree = Parser(grammar).parse(read, progress_callback=is_enough)
    except ValueError:  # the progress callback stopped it
        return None
    finally:
        for view in [*views, whole]:
            view.release()
    return None if is_over else tree


def _is_hopeless(root: "tree_sitter.Node") -> bool:
    # A query's time grows with the square of the number of children of an error node (0.1 s for
    # 10,000).
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error and node.child_count > _WIDEST_ERROR:
            return True
        waiting += [
            child
            for child in node.children
            if child.has_error and child.end_byte - child.start_byte > _WIDEST_ERROR
        ]
    return False


def _parsed_file(
    source: SourceText, matches: "list[tuple[int, dict[str, list[tree_sitter.Node]]]]"
) -> ParsedFile:
    defined: dict[int, Definition] = {}
    calls: dict[int, str] = {}
    found = ParsedFile([], [], [], [], {})
    for _, nodes in matches:
        if "call" in nodes:
            node = nodes["call"][0]
            if "made" not in nodes or _text(source, nodes["made"][0]) == "new":
                calls[node.start_byte] = _text(source, node)
        elif "name" in nodes:
            _define(source, nodes, defined)
        elif "above" in nodes:
            node = nodes["above"][0]
            found.above[_last_row(node)] = node.start_point[0]
        else:
            _set_aside(source, nodes, found)
    found.definitions.extend(one for one in defined.values() if one.name and one.role != "outer")
    found.definitions.sort(key=lambda one: (one.start, -one.end))
    found.calls.extend(sorted(calls.items()))
    return found


def _define(
    source: SourceText, nodes: "dict[str, list[tree_sitter.Node]]", defined: dict[int, Definition]
) -> None:
    name = nodes["name"][0]
    role = next(role for role in ROLES if role in nodes)
    new = Definition(role, _text(source, name), nodes[role][0])
    if "body" in nodes:
        new.body = nodes["body"][0].start_byte
    for key in ("owner", "trait"):
        if key in nodes:
            new.owner = _text(source, nodes[key][0])
    if "tester" in nodes:
        new.tester = _text(source, nodes["tester"][0])
    if "tail" in nodes:
        tail = nodes["tail"][0]
        new.end, new.last, new.body = tail.end_byte, _last_row(tail), tail.start_byte
    old = defined.get(name.start_byte)
    if old is None:
        defined[name.start_byte] = new
        return
    if ROLES.index(old.role) < ROLES.index(role):
        old, new = new, old
    # `new` has the role that counts; `old` extends its lines, and fills in what it lacks.
    new.start, new.end = min(old.start, new.start), max(old.end, new.end)
    new.first, new.last = min(old.first, new.first), max(old.last, new.last)
    if old.role != "outer":
        new.header = max(old.header, new.header)
    new.body = max(old.body, new.body)
    new.owner = new.owner or old.owner
    new.tester = new.tester or old.tester
    defined[name.start_byte] = new


def _set_aside(
    source: SourceText, nodes: "dict[str, list[tree_sitter.Node]]", found: ParsedFile
) -> None:
    by = _text(source, nodes["required"][0]) if "required" in nodes else ""
    if by not in ("", "require", "require_relative"):
        return
    for kind in ("import", "skip"):
        if kind in nodes:
            node = nodes[kind][0]
            found.aside.append((node.start_point[0], _last_row(node)))
    if "module" in nodes:
        kind = f"required {by}" if by else "module"
        found.imports.append((kind, _text(source, nodes["module"][0])))
    elif "import" in nodes:
        found.imports.append(("import", _text(source, nodes["import"][0])))


def _text(source: SourceText, node: "tree_sitter.Node") -> str:
    # Never use `node.text`, nor a predicate in a query: both read the source again through the
    # callback, whose views are released by then.
    return source.between(node.start_byte, node.end_byte)


def _last_row(node: "tree_sitter.Node") -> int:
    # A node that includes its line feed ends at column 0 of the next row.
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point[0] else row


_STRING = re.compile(r"""["'`]([^"'`\n]+)["'`]""")
_PYTHON_FROM = re.compile(r"from\s*(\.*)\s*([\w.]*)\s*import\s*(.*)", re.DOTALL)
_PYTHON_NAME = re.compile(r"([\w.]+)(?:\s+as\s+\w+)?\s*$")
_PYTHON_COMMENT = re.compile(r"#[^\n]*")
_MOST_IMPORTS = 2000


def imports_of(language: str, found: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return what a file imports, each once, in the order of the file."""
    plain: dict[str, None] = {}
    for kind, text in found:
        for name in _module_names(language, kind, text):
            if name and len(name) <= 300:
                plain[name] = None
    return tuple(plain)[:_MOST_IMPORTS]


def _module_names(language: str, kind: str, text: str) -> Iterator[str]:
    if language == "python":
        yield from _python(_PYTHON_COMMENT.sub("", text).replace("\\", " "))
    elif language in ("javascript", "typescript", "tsx"):
        if kind in ("module", "required require", "required import"):
            yield from _STRING.findall(text)
    elif language == "go":
        yield text.strip("\"`' \t\n")
    elif language == "rust":
        yield from _rust(text)
    elif language == "java":
        words = text.removeprefix("import").strip(" \t\n;").split()
        yield "".join(words[1:] if words[:1] == ["static"] else words)
    elif language in ("c", "cpp"):
        path = text.strip('" \t\n')
        yield path if path.startswith((".", "/")) else f"./{path}"


def _python(text: str) -> Iterator[str]:
    source = _PYTHON_FROM.match(text)
    if source is None:
        for part in text.removeprefix("import").split(","):
            if name := _PYTHON_NAME.match(part.strip()):
                yield name[1]
        return
    module = source[1] + source[2].strip(".")
    yield module
    # A name imported from a package may be a submodule.
    for part in source[3].strip(" \t\n()").split(","):
        if name := _PYTHON_NAME.match(part.strip()):
            yield f"{module}{name[1]}" if module.endswith(".") else f"{module}.{name[1]}"


def _rust(text: str) -> Iterator[str]:
    text = " ".join(text.split())
    if module := re.search(r"\bmod (?:r#)?(\w+) ?;$", text):
        yield f"self::{module[1]}"
        return
    text = re.sub(r"^.*?\buse ", "", text).strip(" ;")
    # Braces nest: a stack of prefixes grows and shrinks as they open and close.
    prefixes, path = [""], ""
    for token in re.findall(r"[{},]|[^{},]+", text)[: 2 * _MOST_IMPORTS]:
        if token == "{":
            prefixes.append(prefixes[-1] + path)
            path = ""
        elif token in ",}":
            if path:
                yield _rust_path(prefixes[-1] + path)
            path = ""
            if token == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            path = token.strip().partition(" as ")[0].replace(" ", "")
    if path:
        yield _rust_path(prefixes[-1] + path)


def _rust_path(path: str) -> str:
    return path.removesuffix("::self").removesuffix("::*").removeprefix("::")
