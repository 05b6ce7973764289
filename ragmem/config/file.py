"""The user's settings file: edited atomically, with its comments preserved."""

import ast
import inspect
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import ragmem.config as declared
from ragmem.config import (
    Config,
    ProjectRules,
    as_tree,
    environment,
    find_paths,
    read as read,
    sections,
)
from ragmem.errors import ConfigError, RagmemError
from ragmem.files import lock, replace_private
from ragmem.redact import redact

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def change(key: str, value: str) -> str:
    """Change a setting in the file, which is validated whole; return what overrides it, or "".

    Raises ConfigError for an unknown setting or an invalid value; the file is unchanged then.
    """
    with _held() as file:
        save(file, with_value(read(file), file, key, value))
    shadow = _shadowing(key)
    return f"{shadow} is set in the environment and overrides the file." if shadow else ""


def reset(key: str) -> tuple[bool, str]:
    """Remove a setting from the file; return whether it was there, and what overrides it.

    Raises ConfigError for an unknown setting; the file is unchanged then.
    """
    with _held() as file:
        before = read(file)
        after = without_value(before, file, key)
        if after != before:
            save(file, after)
    shadow = _shadowing(key)
    outranked = f"{shadow} is set in the environment and stays in effect." if shadow else ""
    return after != before, outranked


def value_of(key: str) -> Any:
    """Return a setting's current value, from file and environment; raises ConfigError."""
    _default(key)
    return settings_held()[key][0]


OWN_FILE, DEFAULT = "your file", "default"
"""Where a setting's value comes from, unless it is a variable."""


def settings_held() -> dict[str, tuple[Any, str]]:
    """Map each setting, by dotted key, to its value at the next start and the source of that value.

    The source is a variable's name, `OWN_FILE` or `DEFAULT`. Raises ConfigError.
    """
    file = find_paths().config_file
    written = as_tree(read(file), str(file))
    given = declared.from_environment(environment())
    settings = {}
    for section, _, values in sections(declared.load_config(file, environ=environment())):
        table = written
        for name in section.split("."):
            table = table.get(name, {})
        for name, value in values.items():
            key = f"{section}.{name}"
            place = OWN_FILE if name in table else DEFAULT
            settings[key] = value, given.get(tuple(key.split(".")), ("", place))[1]
    return settings


def change_rules(
    kind: Literal["allow", "deny"],
    *,
    project: str = "",
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
) -> tuple[str, ...]:
    """Add and remove permission rules; return the resulting ones. Raises ConfigError.

    The rules are those for all folders, or those for the project with this folder.
    """
    if any(redact(each) != each for each in add):
        raise ConfigError("A rule with a key in it is not written.", hint="Use * for the key.")
    result = list[str]()
    with _held() as file:
        text = unchanged = read(file)
        written = declared.check_tree(as_tree(text, str(file)), text, str(file)).permissions
        tables: dict[tuple[str, ...], Sequence[str]]
        tables = {("permissions",): getattr(written, kind)}
        if project:
            own = written.named(project) or {project: ProjectRules()}
            tables = {("permissions", "projects", n): getattr(own[n], kind) for n in own}
        for path, before in tables.items():
            rules = [each for each in before if each not in remove]
            known = [each for other in tables.values() for each in other]
            rules += [each for each in add if each not in known]
            add = ()
            if rules != [*before]:
                text = _with_item(text, file, [*path, kind], rules)
            result += rules
        if text != unchanged:
            save(file, text)
    return tuple(result)


@contextmanager
def _held() -> Iterator[Path]:
    """Yield the settings file, which no other process changes meanwhile."""
    file = find_paths().make().config_file
    try:
        handle = lock(file.with_suffix(".lock"), timeout_s=5)
    except OSError as error:
        raise _unwritten(file, error) from None
    try:
        yield file
    finally:
        os.close(handle)


def save(file: Path, text: str) -> None:
    """Replace the file atomically, readable by its owner only; a symlink stays a symlink.

    Raises ConfigError if the text is not UTF-8, RagmemError if the disk can't take it.
    """
    target = file.resolve()
    try:
        replace_private(target, text.encode(), sync=True)
    except UnicodeEncodeError:
        raise ConfigError("A setting must be valid UTF-8.") from None
    except OSError as error:
        raise _unwritten(file, error) from None


def _unwritten(file: Path, error: OSError) -> RagmemError:
    return RagmemError(f"Can't write {file}: {error.strerror}.", hint="Nothing was changed.")


def _shadowing(key: str) -> str:
    named = declared.named_in(key)
    return "" if named == key else named


# --- settings as TOML ----------------------------------------------------------

_HEAD = """\
# Settings of ragmem. Each is shown with its default, commented out; remove the
# "#" in front to change it. Environment variables override this file
# (`model.summary` is RAGMEM_MODEL__SUMMARY), and flags override both. Keys of
# providers are read from the environment only, never from this file.
"""


def default_toml() -> str:
    """Return a commented file of all settings with their defaults, as `config init` writes it."""
    descriptions = notes()
    lines = [_HEAD.rstrip("\n")]
    for path, section, values in sections(Config()):
        lines += ["", *_comment(inspect.getdoc(type(section)) or ""), f"[{path}]"]
        for name, value in values.items():
            lines += [*_comment(descriptions[f"{path}.{name}"]), f"#{name} = {toml_value(value)}"]
    return "\n".join(lines) + "\n"


def config_toml(settings: Config) -> str:
    """Return settings as TOML, all keys with their values."""
    blocks = [
        "\n".join([f"[{path}]", *(f"{name} = {toml_value(each)}" for name, each in values.items())])
        for path, _, values in sections(settings)
        if values
    ]
    return "\n\n".join(blocks) + "\n"


def toml_value(value: Any) -> str:
    """Return a value in TOML syntax."""
    import tomlkit

    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(msgspec.to_builtins(value))
        return table.as_string()
    spelled: str = tomlkit.item(value).as_string()
    return spelled


def with_value(text: str, source: Path, key: str, value: str) -> str:
    """Return the file's text with a setting changed, comments kept; ConfigError if invalid."""
    return _with_item(text, source, key.split("."), _typed(key, value))


def _with_item(text: str, source: Path, path: list[str], value: Any) -> str:
    import tomlkit
    from tomlkit.items import Array, InlineTable

    document = _document(text, source)
    table: Any = document
    for name in path[:-1]:
        is_inline = isinstance(table, InlineTable)
        table = table.setdefault(name, tomlkit.inline_table() if is_inline else tomlkit.table())
        if not isinstance(table, dict):
            raise ConfigError(f"{name} is a value in this file, not a table.")
    held = table.get(path[-1])
    if isinstance(held, Array) and isinstance(value, list):
        # Comments inside it stay.
        for each in [each for each in held if each not in value]:
            held.remove(each)
        for each in value:
            if each not in held:
                held.append(each)
    if held != value:
        table[path[-1]] = value
    return _checked(document, source)


def _checked(document: "TOMLDocument", source: Path) -> str:
    changed = document.as_string()
    declared.check_tree(tomllib.loads(changed), changed, str(source))
    return changed


def without_value(text: str, source: Path, key: str) -> str:
    """Return the file's text without a key, comments kept; raises ConfigError for an unknown key.

    A key in the file that is not a setting is removed too, since it makes every command fail.
    """
    document = _document(text, source)
    *path, name = key.split(".")
    table: Any = document
    for each in path:
        table = table.get(each) if isinstance(table, dict) else None
    if not isinstance(table, dict) or name not in table:
        _default(key)
        return text
    del table[name]
    return _checked(document, source)


def _document(text: str, source: Path) -> "TOMLDocument":
    """Parse the file for editing; a broken one raises the ConfigError of reading settings.

    The library that keeps comments reports positions other than where the error is.
    """
    import tomlkit

    as_tree(text, str(source))
    return tomlkit.parse(text)


def _typed(key: str, value: str) -> Any:
    """Convert a text to the setting's type; ConfigError for an unknown key or invalid value."""
    default = _default(key)
    if isinstance(default, dict):
        raise ConfigError(f"{key} is a table; edit the file to set it.")
    if isinstance(default, tuple):
        with suppress(tomllib.TOMLDecodeError):
            if isinstance(items := tomllib.loads(f"value = {value}")["value"], list):
                return items
        raise ConfigError(f'{key} must be a list such as ["one", "two"], not {value!r}.')
    if key == "llm.api_base" and value and not declared.is_address(value):
        raise ConfigError(f"{key} can't be {value!r}: not a valid address.", hint=declared.ADDRESS)
    try:
        msgspec.convert(value, type(default), strict=False)
    except msgspec.ValidationError:
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(default)]
        raise ConfigError(f"{key} must be {kind}, not {value!r}.") from None
    return declared.parse(tuple(key.split(".")), value, f"{key} can't be {value!r}")


def _default(key: str) -> Any:
    every = declared.keys()
    if key not in every:
        raise ConfigError(f"Unknown setting {key!r}.", hint=declared.nearest(key))
    return every[key]


def notes() -> dict[str, str]:
    """Return the description of each setting, by dotted key, as in the settings file.

    It is the string that follows the field in the source.
    """
    found = {}
    for node in ast.parse(inspect.getsource(declared)).body:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, note in pairwise(body):
            match field, note:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[node.name, name] = inspect.cleandoc(text)  # type: ignore[attr-defined]
    return {
        f"{path}.{name}": found.get((type(section).__name__, name), "")
        for path, section, values in sections(Config())
        for name in values
    }


def _comment(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.splitlines()]
