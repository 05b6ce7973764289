"""Answers as JSON that matches a schema: the instruction to the model, and the validation."""

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from ragmem.errors import UsageError
from ragmem.files import expanded
from ragmem.llm.base import finite
from ragmem.messages import Json, prompt as prompt_text
from ragmem.text import one_line

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

_FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_REASON_CHARS = 300
_HINT = """Give a file, or the schema itself, such as '{"type": "object"}'."""


class AnswerSchema(msgspec.Struct, frozen=True):
    """A JSON Schema that the answer of a turn must match."""

    schema: Json

    @classmethod
    def read(cls, given: str) -> "AnswerSchema":
        """Read a schema from JSON, or from a file with it; UsageError if it is not valid."""
        text = given if given.lstrip()[:1] in ("{", "") else _file(given)
        if not text.strip():
            raise UsageError("--json-schema is empty.", hint=_HINT)
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--json-schema is not JSON: {error}.", hint=_HINT) from None
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT202012

        try:
            validator_for(schema).check_schema(schema)
            whole = Resource.from_contents(schema, default_specification=DRAFT202012)
            _check_references(whole, Registry().crawl().resolver_with_root(whole))
        except (SchemaError, AttributeError, TypeError, RecursionError) as error:
            reason = one_line(str(getattr(error, "message", error)), _REASON_CHARS)
            raise UsageError(f"--json-schema is not a valid JSON Schema: {reason}.") from None
        if not isinstance(schema, dict):
            raise UsageError("--json-schema must be a JSON object.")
        return cls(schema)

    @property
    def rule(self) -> str:
        """The instruction that follows the prompt."""
        return prompt_text("json_answer").format(schema=json.dumps(self.schema))

    @staticmethod
    def bare(answer: str) -> str:
        """Return the answer without a code fence around it."""
        fenced = _FENCED.search(answer)
        return (fenced[1] if fenced else answer).strip()

    def parse(self, answer: str) -> Json:
        """Parse and validate the answer, without its code fence; ValueError says what is wrong."""
        from jsonschema.exceptions import best_match
        from jsonschema.validators import validator_for
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        try:
            text = self.bare(answer)
            value: Json = json.loads(text, parse_constant=finite, parse_float=finite)
        except (ValueError, RecursionError):
            raise ValueError("It is not JSON.") from None
        # An empty registry, so that references in a schema are never fetched.
        validator = validator_for(self.schema)(self.schema, registry=Registry())
        try:
            fault = best_match(validator.iter_errors(value))
        except (Unresolvable, RecursionError) as error:
            raise ValueError(one_line(str(error), _REASON_CHARS)) from None
        if fault is not None:
            reason = f"At {fault.json_path}: {fault.message}"
            raise ValueError(one_line(reason, _REASON_CHARS))
        return value


def _check_references(part: "Resource[Any]", resolver: "Resolver[Any]") -> None:
    """Raise UsageError if a schema refers to anything that is not in it."""
    from referencing.exceptions import Unresolvable

    if isinstance(part.contents, dict) and isinstance(ref := part.contents.get("$ref"), str):
        try:
            resolver.lookup(ref)
        except Unresolvable:
            shown = one_line(ref, _REASON_CHARS)
            raise UsageError(f"--json-schema refers to {shown}, which is not in it.") from None
    for each in part.subresources():
        _check_references(each, resolver.in_subresource(each))


def _file(name: str) -> str:
    shown = one_line(name, _REASON_CHARS)
    try:
        return expanded(name).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        said = f"--json-schema: {shown} can't be read: {reason}."
        raise UsageError(said, hint=_HINT) from None
