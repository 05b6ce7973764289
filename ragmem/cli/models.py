"""`ragmem models`: which models can answer now."""

from typing import TYPE_CHECKING

import typer

from ragmem.cli.command import Format, settings
from ragmem.cli.output import Document, print_all, say, table
from ragmem.config import environment
from ragmem.errors import NoModel
from ragmem.text import visible

if TYPE_CHECKING:
    from ragmem.llm.models import ModelChoice

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class ModelDocument(Document, frozen=True, kw_only=True):
    """A model that can be used now; null is unknown."""

    name: str
    is_default: bool
    why: str
    context_window: int | None
    input_usd_per_million_tokens: float | None
    output_usd_per_million_tokens: float | None
    supports_tools: bool


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
    found = [model_document(each, default) for each in listed]
    print_all(output, found, lambda each: each, lambda width: models_table(found, width), "")


def model_document(choice: "ModelChoice", default: "ModelChoice | None") -> ModelDocument:
    """One model as a document."""
    info = choice.info
    return ModelDocument.of(
        choice,
        info,
        is_default=default is not None and choice.name == default.name,
        input_usd_per_million_tokens=_per_million(info.input_usd_per_token),
        output_usd_per_million_tokens=_per_million(info.output_usd_per_token),
    )


def models_table(found: list[ModelDocument], width: int) -> str:
    """A model a line; the default one has a star."""
    rows = [
        (
            "*" if each.is_default else "",
            each.name,
            f"{each.context_window:,}" if each.context_window else "unknown",
            _prices(each),
            each.why + ("" if each.supports_tools else "; calls no tools"),
        )
        for each in found
    ]
    return table(("", "MODEL", "WINDOW", "$/M IN, OUT", "WHY"), rows, width=width)


def _prices(each: ModelDocument) -> str:
    prices = (each.input_usd_per_million_tokens, each.output_usd_per_million_tokens)
    return ", ".join(
        "unknown" if price is None else f"{price:g}" for price in dict.fromkeys(prices)
    )


def _per_million(usd_per_token: float | None) -> float | None:
    return None if usd_per_token is None else round(usd_per_token * 1e6, 6)
