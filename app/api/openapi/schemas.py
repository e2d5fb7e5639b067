"""The document's schemas, in the forms that every generator of clients understands.

pydantic writes `anyOf: [X, null]`, `const` and defaults on unions; FastAPI turns bounds into
floats. Each of these stops some generator, or makes its code not compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from schemas.common import INT64_MAX

Json: TypeAlias = dict[str, Any]

_REFERENCE: Final = re.compile(r"#/components/schemas/(\w+)")
_NULL: Final = {"type": "null"}
_BOUNDS: Final = ("minimum", "maximum")


class PlainSchemas(GenerateJsonSchema):
    """JSON schemas with one way to say each thing."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Null is one more type; beside a reference it is an alternative.

        An enumeration that may be null is to be a named type: a null among its values confuses.
        """
        inner = self.generate_inner(schema["schema"])
        kind = inner.get("type")
        if not isinstance(kind, str) or "enum" in inner:
            return {"anyOf": [inner, _NULL]}
        return {**inner, "type": [kind, "null"]}

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        """What is one type or another is exactly one of them: of `anyOf` Rust makes no type."""
        described = super().union_schema(schema)
        if "anyOf" in described:
            described["oneOf"] = described.pop("anyOf")
        return described

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Only a value of one type has its default in the schema; others are described in words."""
        described = super().default_schema(schema)
        if described.get("default") is None or not isinstance(described.get("type"), str):
            described.pop("default", None)
        return described

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        """A constant is an enumeration of one value."""
        described = super().literal_schema(schema)
        if "const" in described:
            described["enum"] = [described.pop("const")]
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401  # pydantic's
        """Members have no titles: generators would name types after them."""
        del schema
        return False


def component_schemas(*parts: Json) -> Json:
    """Return the schema of every model that parts of the document refer to, by its name."""
    models = {model.__name__: model for model in _models(BaseModel)}
    wanted = {*_REFERENCE.findall(str(parts))}
    found: Json = {}
    while names := sorted((wanted - found.keys()) & models.keys()):
        inputs = [(name, "validation", TypeAdapter(models[name])) for name in names]
        _, definitions = TypeAdapter.json_schemas(
            inputs,  # type: ignore[arg-type]  # a list of one mode is one of all modes
            ref_template="#/components/schemas/{model}",
            schema_generator=PlainSchemas,
        )
        found |= definitions["$defs"]
        # Schemas of text that is JSON are named in the words of their models, not in their types.
        wanted |= {*_REFERENCE.findall(str(found))}
    assert wanted == found.keys(), f"schemas without a model: {wanted - found.keys()}"
    return dict(sorted(found.items()))


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in root.__subclasses__():
        if model.__module__.startswith("schemas."):
            yield model
        yield from _models(model)


def plain_parameter(parameter: Json) -> Json:
    """Return a parameter of FastAPI's that is never null: it is left out instead."""
    schema = dict(parameter["schema"])
    alternatives = schema.pop("anyOf", None)
    if alternatives is not None:
        (only,) = (one for one in alternatives if one != _NULL)
        schema = {**only, **schema}
    for name in ("title", "description"):
        schema.pop(name, None)
    for bound in _BOUNDS:
        if bound in schema:  # 2**63 - 1 becomes 2**63 as a float
            schema[bound] = min(int(schema[bound]), INT64_MAX)
    return {**parameter, "schema": schema}
