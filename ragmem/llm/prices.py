"""Windows and prices, from a table in the package (scripts/build_models); unknown is unknown."""

from functools import cache
from pathlib import Path

import msgspec

from ragmem.llm.base import ModelInfo

_Row = tuple[int | None, int | None, float | None, float | None, float | None, int | None]


class _Table(msgspec.Struct):
    models: dict[str, _Row]


@cache
def _rows() -> dict[str, _Row]:
    data = Path(__file__).with_name("models.json").read_bytes()
    return msgspec.json.decode(data, type=_Table).models


def model_info(name: str) -> ModelInfo:
    """What is known of `provider/model`; None in each place where nothing is."""
    row = _rows().get(name)
    if row is None:
        return ModelInfo(name=name)
    window, most, into, out, cached, tools = row
    return ModelInfo(
        name=name,
        context_window=window,
        max_output_tokens=most,
        input_usd_per_token=_per_token(into),
        output_usd_per_token=_per_token(out),
        cached_usd_per_token=_per_token(cached),
        supports_tools=tools != 0,
    )


def is_known(name: str) -> bool:
    """Whether the table has the model."""
    return name in _rows()


def known_models() -> list[str]:
    """Every `provider/model` of the table, sorted."""
    return sorted(_rows())


def _per_token(usd_per_million: float | None) -> float | None:
    return None if usd_per_million is None else usd_per_million / 1e6
