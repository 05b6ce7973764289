"""What a file imports, made plain."""

import re
from collections.abc import Iterator

_STRING = re.compile(r"""["'`]([^"'`\n]+)["'`]""")
_PYTHON_FROM = re.compile(r"from\s*(\.*)\s*([\w.]*)\s*import\s*(.*)", re.DOTALL)
_PYTHON_NAME = re.compile(r"(\.*[\w.]+)(?:\s+as\s+\w+)?\s*$")
_COMMENT = re.compile(r"#[^\n]*")
_PHP = re.compile(r"""(__DIR__\s*\.\s*)?(["'])([^"'\n$]+)\2\s*\)?\s*;?\s*$""")
_MOST = 2000


def imports_of(language: str, found: list[tuple[str, str]]) -> tuple[str, ...]:
    """Each once, in the order of the file."""
    plain: dict[str, None] = {}
    for kind, text in found:
        for name in _plain(language, kind, text):
            if name and len(name) <= 300:
                plain[name] = None
    return tuple(plain)[:_MOST]


def _plain(language: str, kind: str, text: str) -> Iterator[str]:
    if language == "python":
        yield from _python(_COMMENT.sub("", text).replace("\\", " "))
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
        yield _beside(text.strip('" \t\n'))
    elif language == "ruby":
        yield from _ruby(kind, text)
    elif language == "php" and (literal := _PHP.search(text)):
        # Only what is written out, not `$folder . '/x.php'`.
        rest = text[: literal.start()].strip(" (\n\t")
        if rest in ("require", "require_once", "include", "include_once"):
            yield _beside(literal[3].lstrip("/") if literal[1] else literal[3])


def _beside(path: str) -> str:
    return path if path.startswith((".", "/")) else f"./{path}"


def _python(text: str) -> Iterator[str]:
    source = _PYTHON_FROM.match(text)
    if source is None:
        for part in text.removeprefix("import").split(","):
            if name := _PYTHON_NAME.match(part.strip()):
                yield name[1]
        return
    module = source[1] + source[2].strip(".")
    yield module
    # What is imported from a package may be a module of it.
    for part in source[3].strip(" \t\n()").split(","):
        if name := _PYTHON_NAME.match(part.strip()):
            yield f"{module}{name[1]}" if module.endswith(".") else f"{module}.{name[1]}"


def _rust(text: str) -> Iterator[str]:
    text = " ".join(text.split())
    if module := re.search(r"\bmod (?:r#)?(\w+) ?;$", text):
        yield f"self::{module[1]}"
        return
    text = re.sub(r"^.*?\buse ", "", text).strip(" ;")
    # Braces from the inside out would need a tree: a path grows and shrinks as they open and close.
    prefixes, path = [""], ""
    for token in re.findall(r"[{},]|[^{},]+", text)[: 2 * _MOST]:
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


def _ruby(kind: str, text: str) -> Iterator[str]:
    name = text.strip("\"' ")
    if "#{" in name:
        return
    if kind == "required require_relative":
        yield _beside(name)
    elif kind == "required require":
        yield name
