"""Parameters parsed without pydantic, which typer otherwise imports at every start.

That import takes 190 ms, more than all the rest of a short command. Where a
version of typer has other insides, its own way stays in place: slower, not wrong.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import typer

_fallback: list[Callable[[Any], Any]] = []


class PlainCoercion:
    """Stands in for typer's `RuntimeParam`: strings to numbers, paths, choices and lists."""

    def __init__(self, annotation: Any, *, least: float | None, most: float | None) -> None:
        self._annotation = annotation
        self._least = least
        self._most = most

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as its type; BadParameter, which names the option, when it can't be one."""
        if value is None:
            return None
        try:
            converted = msgspec.convert(
                value, self._annotation, strict=False, dec_hook=_decode_other
            )
        except (msgspec.ValidationError, ValueError):
            raise typer.BadParameter(self._complaint(value), ctx=ctx, param=param) from None
        for number in converted if isinstance(converted, list) else (converted,):
            if self._least is not None and number < self._least:
                message = f"{number} is less than {self._least}."
                raise typer.BadParameter(message, ctx=ctx, param=param)
            if self._most is not None and number > self._most:
                message = f"{number} is more than {self._most}."
                raise typer.BadParameter(message, ctx=ctx, param=param)
        return converted

    def _complaint(self, value: Any) -> str:
        if choices := get_args(self._annotation):
            listed = ", ".join(str(choice) for choice in choices)
            return f"{value!r} is not one of {listed}."
        kind = {int: "a whole number", float: "a number"}.get(self._annotation, "valid")
        return f"{value!r} is not {kind}."


def parse_without_pydantic() -> None:
    """Have typer build these for the types that are understood here; safe to call twice."""
    original = getattr(typer.core, "build_runtime_param", None)
    if original is None or original is _build:
        return
    _fallback.append(original)
    setattr(typer.core, "build_runtime_param", _build)  # noqa: B010 - no such name in its types


def _build(descriptor: Any) -> Any:
    if not _is_plain(descriptor.annotation):
        return _fallback[0](descriptor)
    info = descriptor.parameter_info
    return PlainCoercion(descriptor.annotation, least=info.min, most=info.max)


def _is_plain(annotation: Any) -> bool:
    parts = get_args(annotation) if get_origin(annotation) is list else (annotation,)
    return all(
        part in (str, int, float, bool, Path) or all(isinstance(x, str) for x in get_args(part))
        for part in parts
    )


def _decode_other(kind: type, value: Any) -> Any:
    return kind(value)
