"""The OpenAPI document: what FastAPI generates, with shared responses for errors.

Schemas are written in the forms that every generator of clients understands. pydantic writes
`anyOf: [X, null]`, `const` and defaults on unions; FastAPI turns bounds into floats. Each of these
stops some generator, or makes its code not compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from app.api.openapi.answers import add_headers, add_links, error_headers, example_problems
from app.security.rules import RULES, Reach
from schemas.base import ResponseModel
from schemas.common import INT64_MAX
from schemas.examples import EXAMPLES

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


_SCHEMAS: Final = f"{ResponseModel.__module__.partition('.base')[0]}."


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in root.__subclasses__():
        if model.__module__.startswith(_SCHEMAS):
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


PROBLEM_TYPE: Final = "application/problem+json"
_ERRORS_OF_OTHERS: Final = {"KafkaRestError": "KafkaRest", "OtlpStatus": "Otlp", "HecResult": "Hec"}
"""Models of other errors than problem documents, and the prefix of their components."""

_DESCRIPTIONS: Final = {
    501: "With the backend `kafka`, where a Kafka cluster stores the logs: this needs a service "
    "that stores them itself (backend `local`)"
}

OTHER_TYPES: Final = "x-other-media-types"
"""The member of a response with the forms that only a request that asks for them gets."""

_ASKED_FOR: Final = frozenset({"fetchMany", "readRecords", "readTopic"})

TAGS: Final = (
    {"name": "topics", "description": "Create, describe, configure and delete topics"},
    {"name": "produce", "description": "Append records and batches"},
    {"name": "consume", "description": "Read records and batches"},
    {"name": "offsets", "description": "Log starts, high watermarks, log ends"},
    {"name": "segments", "description": "The files of a log"},
    {
        "name": "maintenance",
        "description": "Roll, flush, retention, deletion, truncation, compaction",
    },
    {"name": "producers", "description": "Producer ids, outcomes of appends, ends of transactions"},
    {"name": "groups", "description": "Stored offsets of groups, and their lag"},
    {
        "name": "kafka-rest-v2",
        "description": "For clients of Confluent REST Proxy, Karapace, Strimzi's bridge, Redpanda",
    },
    {"name": "service", "description": "What the service is, health, metrics and limits"},
)


def document(app: FastAPI) -> Json:
    """Return the OpenAPI document of the application; made once, then remembered by it."""
    if app.openapi_schema is None:
        made: Json = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
            tags=[dict(tag) for tag in TAGS],
            servers=[
                {
                    "url": app.state.service.settings.url_prefix or "/",
                    "description": "The service that served this document",
                }
            ],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        _share_problems(made)
        _plain_parameters(made)
        made["components"]["schemas"] = component_schemas(
            made["paths"], made["components"]["responses"]
        )
        _add_examples(made)
        _add_security(made)
        add_headers(made)
        add_links(made)
        _one_type_for_each_answer(made)
        app.openapi_schema = made
    return app.openapi_schema


def _one_type_for_each_answer(made: Json) -> None:
    """Move the forms of a page that only come if they are asked for to an extension.

    A generated client that does not ask, with `Accept`, `format` or `offsets`, would have to narrow
    a union of a page, text and bytes at each call.
    """
    for path in made["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                content: Json = response.get("content", {})
                if operation["operationId"] in _ASKED_FOR and len(content) > 1:
                    (first, page), *others = content.items()
                    response["content"] = {first: page}
                    response[OTHER_TYPES] = dict(others)


def _plain_parameters(made: Json) -> None:
    for path in made["paths"].values():
        for operation in path.values():
            parameters = [plain_parameter(one) for one in operation.get("parameters", ())]
            operation["parameters"] = parameters
            headers = {_letters(one) for one in parameters if one["in"] == "header"}
            for one in parameters:
                if one["in"] == "query" and _letters(one) in headers:
                    # Generators for Go make fields of one structure of both.
                    one["x-go-name"] = f"{one['name'][:1].upper()}{one['name'][1:]}InQuery"


def _letters(parameter: Json) -> str:
    return str(parameter["name"]).replace("-", "").replace("_", "").lower()


def _add_examples(made: Json) -> None:
    """Show in each JSON answer what it looks like."""
    for path in made["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    if "example" not in content:
                        content.update(_examples_of(content.get("schema", {})))


def _examples_of(schema: Json) -> Json:
    """Return what a model, a list of one, or each of several models looks like."""
    if (model := _model_of(schema)) in EXAMPLES:
        return {"example": EXAMPLES[model]}
    if (model := _model_of(schema.get("items", {}))) in EXAMPLES:
        return {"example": [EXAMPLES[model]]}
    models = map(_model_of, schema.get("anyOf", ()))
    examples = {model: {"value": EXAMPLES[model]} for model in models}
    return {"examples": examples} if examples else {}


def _model_of(schema: Json) -> str:
    reference: str = schema.get("$ref", "")
    return reference.rpartition("/")[2]


def _share_problems(made: Json) -> None:
    """Move every error response to a component, with an example for each code it can carry."""
    shared: dict[str, Json] = {}
    for path in made["paths"].values():
        for operation in path.values():
            responses: Json = operation["responses"]
            for status, response in list(responses.items()):
                content = response.get("content", {})
                if "HTTPValidationError" in str(content):
                    del responses[status]
                elif PROBLEM_TYPE in content:
                    name = _named(status)
                    shared[name] = _problem_response(int(status))
                    responses[status] = {"$ref": f"#/components/responses/{name}"}
                elif int(status) >= 400 and (prefix := _prefix_of(content)):
                    name = f"{prefix}{_named(status)}"
                    shared[name] = {**response, "headers": error_headers(status)}
                    responses[status] = {"$ref": f"#/components/responses/{name}"}
    made["components"]["responses"] = dict(sorted(shared.items()))


def _prefix_of(content: Json) -> str | None:
    """Return the prefix of an error's component, if it is not a problem document."""
    models = {_model_of(one.get("schema", {})) for one in content.values()}
    return next((_ERRORS_OF_OTHERS[one] for one in models if one in _ERRORS_OF_OTHERS), None)


def _named(status: str) -> str:
    return HTTPStatus(int(status)).phrase.replace(" ", "").replace("-", "")


def _problem_response(status: int) -> Json:
    return {
        "description": _DESCRIPTIONS.get(status) or HTTPStatus(status).phrase,
        "content": {
            PROBLEM_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": example_problems(status),
            }
        },
        "headers": error_headers(str(status)),
    }


def _add_security(made: Json) -> None:
    """Say what credentials there are, and which scope each operation asks of them."""
    made["components"]["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key (`tidelog keys create`), or a JWT of the issuer configured",
        },
        "basic": {
            "type": "http",
            "scheme": "basic",
            "description": "The API key as the password; the user name is ignored",
        },
        "apiKey": {
            "type": "apiKey",
            "in": "header",
            "name": "X-API-Key",
            "description": "An API key; a JWT is accepted as `bearer` only",
        },
        "clientCertificate": {
            "type": "mutualTLS",
            "description": "A certificate whose subject has scopes in the settings",
        },
    }
    # A service that only listens on loopback asks for none, unless they are configured.
    made["security"] = [
        {"bearer": []},
        {"basic": []},
        {"apiKey": []},
        {"clientCertificate": []},
        {},
    ]
    for path in made["paths"].values():
        for operation in path.values():
            rule = RULES[operation["operationId"]]
            if rule.reach is Reach.OPEN:
                operation["security"] = []
            elif rule.scopes:
                operation["x-required-scopes"] = list(rule.scopes)
