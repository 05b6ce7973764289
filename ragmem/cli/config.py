"""`ragmem config`: the one file of settings."""

from typing import Annotated, Literal

from ragmem.cli.options import argument, commands, option, settings_keys
from ragmem.cli.output import say, write, write_json
from ragmem.config import environment, find_paths, load_config
from ragmem.config.file import change, config_toml, default_toml, save
from ragmem.errors import UsageError

app = commands("Show and change the settings.")


@app.command()
def show(
    output: Annotated[Literal["toml", "json"], option("--format", "How to print it.")] = "toml",
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
        write(redact(config_toml(settings)))


@app.command()
def path() -> None:
    """Print where the file of settings is, or would be."""
    write(f"{find_paths().config_file}\n")


@app.command()
def init() -> None:
    """Write a file with every setting and its default, commented out."""
    file = find_paths().make().config_file
    if file.exists():
        raise UsageError(f"{file} is there already.", hint="`ragmem config show` prints it.")
    save(file, default_toml())
    write(f"{file}\n")


@app.command("set")
def set_value(
    key: Annotated[str, argument("KEY", "Such as model.main.", settings_keys)],
    value: Annotated[str, argument("VALUE", "")],
) -> None:
    """Change one setting in the file; the rest of it stays as it is."""
    if outranked := change(key, value):
        say(f"warning: {outranked}\n")
    write(f"{key} = {value}\n")
