"""`ragmem models`: which models can answer now."""

from ragmem.cli.command import settings
from ragmem.cli.documents import Document, document
from ragmem.cli.options import Format, commands
from ragmem.cli.output import print_all, say
from ragmem.config import environment
from ragmem.errors import NoModel
from ragmem.listings import table
from ragmem.text import visible

app = commands()


@app.command()
def models(output: Format = "table") -> None:
    """List the models that can be used now; * answers by default."""
    from ragmem.llm.models import choose_model, list_models

    config, _ = settings()
    environ = environment()
    listed = list_models(environ, config)
    try:
        default = choose_model(config, environ)
    except NoModel as error:
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
            input_usd_per_million_tokens=_per_million(each.info.input_usd_per_token),
            output_usd_per_million_tokens=_per_million(each.info.output_usd_per_token),
        )
        for each in listed
    ]
    print_all(output, found, lambda each: each, lambda width: models_table(found, width), "")


def models_table(found: list[Document], width: int) -> str:
    """A model a line; the default one has a star."""
    rows = [
        (
            "*" if each["is_default"] else "",
            each["name"],
            f"{each['context_window']:,}" if each["context_window"] else "unknown",
            _prices(each),
            each["why"] + ("" if each["supports_tools"] else "; calls no tools"),
        )
        for each in found
    ]
    return table(("", "MODEL", "WINDOW", "$/M IN, OUT", "WHY"), rows, width=width)


def _prices(each: Document) -> str:
    prices = [each[f"{way}_usd_per_million_tokens"] for way in ("input", "output")]
    return ", ".join(
        "unknown" if price is None else f"{price:g}" for price in dict.fromkeys(prices)
    )


def _per_million(usd_per_token: float | None) -> float | None:
    return None if usd_per_token is None else round(usd_per_token * 1e6, 6)
