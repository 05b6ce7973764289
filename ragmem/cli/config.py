"""`ragmem config`: the one file of settings."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ragmem.cli.streams import say, write, write_json
from ragmem.config import environment, find_paths, load_config
from ragmem.errors import ConfigError, UsageError
from ragmem.files import replace_private

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Show and change the settings.",
)


@app.command()
def show(
    output: Annotated[
        Literal["toml", "json"], typer.Option("--format", help="How to print it.")
    ] = "toml",
) -> None:
    """Print the settings in force: the file, with the environment over it."""
    from ragmem.redact import know, redact, secrets_among

    settings = load_config(find_paths().config_file)
    know(secrets_among(environment()) | settings.passwords())
    if output == "json":
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(settings)).decode()
        write_json(redact(text) + "\n")
    else:
        from ragmem.cli.default_config import config_toml

        write(redact(config_toml(settings)))


@app.command()
def path() -> None:
    """Print where the file of settings is, or would be."""
    write(f"{find_paths().config_file}\n")


@app.command()
def init() -> None:
    """Write a file with every setting and its default, commented out."""
    from ragmem.cli.default_config import default_toml

    file = find_paths().make().config_file
    if file.exists():
        raise UsageError(f"{file} is there already.", hint="`ragmem config show` prints it.")
    save(file, default_toml())
    write(f"{file}\n")


@app.command("set")
def set_value(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Such as model.main.", show_default=False)
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", show_default=False)],
) -> None:
    """Change one setting in the file; the rest of it stays as it is."""
    change(key, value)
    write(f"{key} = {value}\n")


def change(key: str, value: str) -> None:
    """Change one setting in the file, validated as a whole, and say what outranks it."""
    from ragmem.cli.default_config import with_value

    file = find_paths().make().config_file
    save(file, with_value(read(file), file, key, value))
    if shadow := _shadowing(key):
        say(f"warning: {shadow} is set in the environment and goes before the file.\n")


def read(file: Path) -> str:
    """The file's text; empty where there is none."""
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file} can't be read: {reason}.") from None


def save(file: Path, text: str) -> None:
    """Replace the file whole or not at all, readable by its owner only; a link stays a link."""
    target = file.resolve()
    try:
        replace_private(target, text.encode(), sync=True)
    except OSError as error:
        raise ConfigError(
            f"{file} can't be written: {error.strerror}.", hint="Nothing was changed."
        ) from None


def _shadowing(key: str) -> str:
    from ragmem.config import environment

    names = ["RAGMEM_" + key.replace(".", "__").upper()]
    names += {
        "model.main": ["RAGMEM_MODEL"],
        "store.kind": ["RAGMEM_STORE"],
        "llm.api_base": ["RAGMEM_API_BASE"],
        "store.url": ["NEO4J_URI"],
        "store.database": ["NEO4J_DATABASE"],
    }.get(key, [])
    environ = environment()
    return next((name for name in names if environ.get(name)), "")
