"""Reads the settings: the file, the environment over it, flags over both."""

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from ragmem.config.settings import Config
from ragmem.errors import ConfigError
from ragmem.paths import NO_HOME, Paths

_SHORT_NAMES = {"RAGMEM_MODEL": "RAGMEM_MODEL__MAIN", "RAGMEM_STORE": "RAGMEM_STORE__KIND"}
_NAMED = {
    "RAGMEM_API_BASE": ("llm", "api_base"),
    "NEO4J_URI": ("store", "url"),
    "NEO4J_DATABASE": ("store", "database"),
}
_NOT_SETTINGS = {
    "RAGMEM_HOME",
    "RAGMEM_API_BASE",
    "RAGMEM_API_KEY",
    "RAGMEM_FAILPOINT",
    "RAGMEM_TEST_NEO4J_URI",
    "RAGMEM_TEST_NEO4J_PASSWORD",
}
# Permissions never come from the environment.
_NEVER_FROM_ENV = {("ui", "permission_mode")}


def find_paths(environ: Mapping[str, str] = os.environ) -> Paths:
    """Where things are; creates nothing."""
    home = environ.get("RAGMEM_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(root, root / "data", root / "logs")
    from platformdirs import PlatformDirs

    if not environ.get("HOME") and not _has_home():
        return NO_HOME
    dirs = PlatformDirs("ragmem", appauthor=False)
    return Paths(Path(dirs.user_config_dir), Path(dirs.user_data_dir), Path(dirs.user_log_dir))


def _has_home() -> bool:
    """Whether the system knows a home of this user, where HOME names none."""
    return os.path.isabs(os.path.expanduser("~")) and "HOME" not in os.environ


def load_config(
    file: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[tuple[str, ...], Any] | None = None,
) -> Config:
    """Read, merge and validate; ConfigError names the file and line, the variable or the flag.

    `flags` maps key paths, `("model", "main")`, to values; None values are skipped.
    """
    tree = _read_file(file)
    for path, (value, variable) in _from_environment(environ).items():
        _merge(tree, path, _parse_variable(path, value, variable))
    for path, value in (flags or {}).items():
        if value is not None:
            _merge(tree, path, value)
            _convert(tree, f"the flag for {'.'.join(path)}")
    return _convert(tree, str(file))


def check_tree(tree: dict[str, Any], text: str, source: str) -> Config:
    """Validate a parsed file against the settings; errors name line and nearest key."""
    _check_keys(tree, Config(), (), text, source)
    return _convert(tree, source, text)


def keys() -> dict[str, Any]:
    """Every key, dotted, with its default."""
    found: dict[str, Any] = {}

    def walk(section: msgspec.Struct, prefix: str) -> None:
        for name in section.__struct_fields__:
            value = getattr(section, name)
            if isinstance(value, msgspec.Struct):
                walk(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = value

    walk(Config(), "")
    return found


def provider_key(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """A secret from the environment, such as OPENAI_API_KEY; empty is absent."""
    return environ.get(name) or None


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of the environment, for those who must hand one to a child."""
    return dict(environ)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file} can't be read: {reason}.") from None
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{file} is not valid TOML: {error}.", hint="Mend it, or move it away to start afresh."
        ) from None
    check_tree(tree, text, str(file))
    return tree


def _check_keys(
    tree: dict[str, Any], section: msgspec.Struct, path: tuple[str, ...], text: str, source: str
) -> None:
    for name, value in tree.items():
        dotted = ".".join((*path, name))
        where = f"{source}, line {_line_of(text, (*path, name))}"
        if name not in section.__struct_fields__:
            raise ConfigError(f"{where}: there is no setting {dotted!r}.", hint=nearest(dotted))
        child = getattr(section, name)
        if isinstance(child, msgspec.Struct):
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: {dotted} is a table, not a value.")
            _check_keys(value, child, (*path, name), text, source)


def nearest(dotted: str) -> str:
    """What to say to a key that there is not."""
    every = list(keys())
    close = get_close_matches(dotted, every, n=1, cutoff=0.5) or get_close_matches(
        dotted.rpartition(".")[2], [k.rpartition(".")[2] for k in every], n=1
    )
    full = next((k for k in every if close and k.endswith(close[0])), "")
    return f"Did you mean {full!r}?" if full else "`ragmem config show` lists them all."


def _line_of(text: str, path: tuple[str, ...]) -> int:
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = tuple(part.strip(" \"'") for part in header[1].split("."))
            if table == path:
                return number
        elif (key := re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)) and (
            *table,
            *(part.strip(" \"'") for part in key[1].split(".")),
        ) == path:
            return number
    return 1


def _convert(tree: dict[str, Any], source: str, text: str = "") -> Config:
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        message = str(error)
        at = re.search(r" - at `\$\.([\w.]+)`", message)
        dotted = at[1] if at else ""
        reason = message.split(" - at ")[0]
        where = f"{source}, line {_line_of(text, tuple(dotted.split('.')))}" if text else source
        raise ConfigError(f"{where}: {dotted}: {reason}.", hint=_choices(dotted)) from None


def _from_environment(
    environ: Mapping[str, str],
) -> dict[tuple[str, ...], tuple[str, str]]:
    """Key path to (value, variable); the longer, exact name wins over its short form."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for variable, named in _NAMED.items():
        if value := environ.get(variable):
            found[named] = (value, variable)
    known = {tuple(key.split(".")) for key in keys()}
    for variable in sorted(environ, key=len):
        if not variable.startswith("RAGMEM_") or variable in _NOT_SETTINGS:
            continue
        full = _SHORT_NAMES.get(variable, variable)
        path = tuple(full.removeprefix("RAGMEM_").lower().split("__"))
        if path in _NEVER_FROM_ENV:
            raise ConfigError(f"{variable}: permissions never come from the environment.")
        if path not in known:
            raise ConfigError(f"{variable}: no such setting.", hint=nearest(".".join(path)))
        if environ[variable]:
            found[path] = (environ[variable], variable)
    return found


def how_to_set(dotted: str, value: str, environ: Mapping[str, str] = os.environ) -> str:
    """What a person does so that a setting gets this value: a variable wins over the file."""
    given = _from_environment(environ).get(tuple(dotted.split(".")))
    if given is not None and given[0] != value:
        said, variable = given
        return f"{variable} is {said!r} in the environment: unset it, or set it to {value}."
    return f"`ragmem config set {dotted} {value}` switches it on."


def _parse_variable(path: tuple[str, ...], value: str, variable: str) -> Any:
    return parse(path, value, f"{variable}={value!r}")


def parse(path: tuple[str, ...], value: str, where: str) -> Any:
    """A setting's value from text; ConfigError, which begins with `where`, if it can't be one."""
    try:
        return msgspec.convert(value, _type_of(path), strict=False)
    except msgspec.ValidationError as error:
        hint = _choices(".".join(path))
        raise ConfigError(f"{where}: {error}.", hint=hint) from None


def _type_of(path: tuple[str, ...]) -> Any:
    section: Any = Config()
    for name in path[:-1]:
        section = getattr(section, name)
    return next(f.type for f in msgspec.structs.fields(section) if f.name == path[-1])


def _choices(dotted: str) -> str:
    """What a setting may be, where that is a list."""
    kind = _type_of(tuple(dotted.split("."))) if dotted in keys() else None
    names = get_args(kind) if get_origin(kind) is Literal else ()
    return f"It is one of {', '.join(names)}." if names else ""


def _merge(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
