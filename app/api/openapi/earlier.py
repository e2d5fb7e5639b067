"""The document as OpenAPI 3.0, for generators that read no 3.1: made, never written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

VERSION: Final = "3.0.3"
_NULL: Final = {"type": "null"}
_DATA: Final = frozenset({"example", "default", "enum"})
"""Members whose values are data, not schemas."""


def as_openapi_3_0(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what OpenAPI 3.0 can say of a 3.1 document.

    Null is `nullable`, and such a member is not required; one of several examples is `example`. The
    schema of JSON in a string is left out, as is the client certificate: 3.0 has no such scheme,
    and TLS asks for it anyway.
    """
    result: dict[str, Any] = _converted(document)  # a copy: what follows changes nothing else
    result["openapi"] = VERSION
    info = result["info"]
    info["description"] = f"{info.pop('summary')}. {info['description']}"
    info["license"].pop("identifier")
    schemes = result["components"]["securitySchemes"]
    unknown = {name for name, scheme in schemes.items() if scheme["type"] == "mutualTLS"}
    for name in unknown:
        del schemes[name]
    operations = (one for path in result["paths"].values() for one in path.values())
    for owner in (result, *operations):
        if "security" in owner:
            owner["security"] = [one for one in owner["security"] if not unknown & one.keys()]
    return result


def _converted(node: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(node, list):
        return [_converted(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {
        name: value if name in _DATA or _is_data(name, value) else _converted(value)
        for name, value in node.items()
        if not (name in {"contentMediaType", "contentSchema"} and _is_schema(node))
    }
    if found.get("additionalProperties") is True:
        del found["additionalProperties"]  # the default; said, swagger-codegen makes a plain dict
    if isinstance(found.get("type"), list):
        (found["type"],) = (one for one in found["type"] if one != "null")
        found["nullable"] = True
    if isinstance(found.get("anyOf"), list) and _NULL in found["anyOf"]:
        others = [one for one in found.pop("anyOf") if one != _NULL]
        found |= {"allOf" if len(others) == 1 else "anyOf": others, "nullable": True}
    if isinstance(found.get("examples"), list):
        found["example"] = found.pop("examples")[0]
    if isinstance(found.get("$ref"), str) and len(found) > 1:
        found["allOf"] = [{"$ref": found.pop("$ref")}]  # 3.0 ignores what stands beside a reference
    if isinstance(found.get("required"), list):
        # generators of 3.0 take what is required as never null: what may be null need not be there
        members = found.get("properties", {})
        found["required"] = [one for one in found["required"] if not _is_nullable(members.get(one))]
        if not found["required"]:
            del found["required"]
    return found


def _is_nullable(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("nullable") is True


def _is_data(name: str, value: object) -> bool:
    """Whether a member holds examples by name, or a list of them."""
    if name != "examples":
        return False
    return isinstance(value, list) or (
        isinstance(value, dict) and all("value" in one for one in value.values())
    )


def _is_schema(node: Mapping[str, Any]) -> bool:
    """Whether an object with a type is a schema and not a map of properties, one of them `type`."""
    return isinstance(node.get("type"), str)
