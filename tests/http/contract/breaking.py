"""The changes that a client of an older document would notice in a newer one."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from app.api.openapi.document import OTHER_TYPES

Json: TypeAlias = dict[str, Any]

NULL = {"type": "null"}
METHODS = ("get", "put", "post", "patch", "delete")


def breaking_changes(old: Json, new: Json) -> list[str]:
    """Return each change that could break a client, as a sentence with its place.

    Requests may become more tolerant, responses may contain more; never the opposite.
    """
    return list(_Comparison(old, new).paths())


class _Comparison:
    """Two documents side by side; schemas are compared once, however often they are met."""

    def __init__(self, old: Json, new: Json) -> None:
        self._old = old
        self._new = new
        self._met: set[tuple[str, str, bool]] = set()

    def paths(self) -> Iterator[str]:
        for path, operations in self._old["paths"].items():
            for method in METHODS:
                if method in operations:
                    place = f"{method.upper()} {path}"
                    operation = self._new["paths"].get(path, {}).get(method)
                    if operation is None:
                        yield f"{place} is gone"
                    else:
                        yield from self._operation(place, operations[method], operation)

    def _operation(self, place: str, old: Json, new: Json) -> Iterator[str]:
        if old["operationId"] != new["operationId"]:
            yield f"{place} is now called {new['operationId']}, not {old['operationId']}"
        yield from self._parameters(place, old, new)
        yield from self._contents(
            f"{place} takes", old.get("requestBody", {}), new.get("requestBody", {}), is_in=True
        )
        if new.get("requestBody", {}).get("required") and "requestBody" not in old:
            yield f"{place} now demands a body"
        for status, response in old["responses"].items():
            if int(status) >= 400:
                continue  # removing an error that can no longer happen breaks no client
            if status not in new["responses"]:
                yield f"{place} no longer answers {status}"
                continue
            where = f"{place} {status} answers"
            yield from self._contents(where, response, new["responses"][status], is_in=False)

    def _parameters(self, place: str, old: Json, new: Json) -> Iterator[str]:
        before, after = _parameters(old), _parameters(new)
        for key, parameter in before.items():
            if key not in after:
                yield f"{place} no longer takes the {key[1]} parameter {key[0]}"
                continue
            where = f"{place} {key[0]}"
            schemas = (parameter["schema"], after[key]["schema"])
            yield from self._schemas(where, *map(_without_null, schemas), is_in=True)
        for key, parameter in after.items():
            if parameter.get("required") and not before.get(key, {}).get("required"):
                yield f"{place} now demands the {key[1]} parameter {key[0]}"

    def _contents(self, place: str, old: Json, new: Json, *, is_in: bool) -> Iterator[str]:
        contents = _all_contents(new)
        for media_type, content in _all_contents(old).items():
            if media_type not in contents:
                yield f"{place} no longer {media_type}"
                continue
            schemas = (content.get("schema", {}), contents[media_type].get("schema", {}))
            yield from self._schemas(f"{place} {media_type}", *schemas, is_in=is_in)

    def _schemas(self, place: str, old: Json, new: Json, *, is_in: bool) -> Iterator[str]:
        if "$ref" in old and "$ref" in new:
            met = (old["$ref"], new["$ref"], is_in)
            if met in self._met:
                return
            self._met.add(met)
        before, after = _types(self._old, old), _types(self._new, new)
        old, new = _resolved(self._old, old), _resolved(self._new, new)
        if before and after:
            sent, taken = (before, after) if is_in else (after, before)
            if not sent <= taken | ({"integer"} if "number" in taken else set()):
                yield f"{place} was {_told(before)} and is {_told(after)}"
        yield from _values(place, old, new, is_in=is_in)
        yield from self._members(place, old, new, is_in=is_in)
        for kind in ("items", "additionalProperties"):
            if isinstance(old.get(kind), dict) and isinstance(new.get(kind), dict):
                yield from self._schemas(f"{place}[]", old[kind], new[kind], is_in=is_in)

    def _members(self, place: str, old: Json, new: Json, *, is_in: bool) -> Iterator[str]:
        members = new.get("properties", {})
        for name, schema in old.get("properties", {}).items():
            if name not in members:
                yield f"{place} no longer has {name}"
            else:
                yield from self._schemas(f"{place}.{name}", schema, members[name], is_in=is_in)
        if not old:
            return
        required = set(new.get("required", ())), set(old.get("required", ()))
        changed = required[0] - required[1] if is_in else required[1] - required[0]
        for name in sorted(changed & set(members)):
            yield f"{place}.{name} is now {'demanded' if is_in else 'not always there'}"


def _values(place: str, old: Json, new: Json, *, is_in: bool) -> Iterator[str]:
    """Yield what an enumeration or a bound no longer allows a client to send."""
    if not is_in:
        return
    if "enum" in new:
        for value in old.get("enum", ()):
            if value not in new["enum"]:
                yield f"{place} no longer takes {value!r}"
    for bound, is_tighter in (("maximum", min), ("maxLength", min), ("minimum", max)):
        if bound in new and (bound not in old or is_tighter(old[bound], new[bound]) != old[bound]):
            yield f"{place} has a tighter {bound}: {new[bound]}"


def _parameters(operation: Json) -> dict[tuple[str, str], Json]:
    return {(one["name"], one["in"]): one for one in operation.get("parameters", ())}


def _resolved(document: Json, schema: Json) -> Json:
    """Return the target of a reference; for a nullable schema, the schema without null."""
    while "$ref" in schema or len(_without_null(schema).get("anyOf", ())) == 1:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        else:
            (schema,) = _without_null(schema)["anyOf"]
    return schema


def _without_null(schema: Json) -> Json:
    """Return the schema without null: a parameter is absent instead."""
    return {**schema, "anyOf": [one for one in schema.get("anyOf", ()) if one != NULL]}


def _types(document: Json, schema: Json) -> set[str]:
    """Return the JSON types that a schema allows, if it says."""
    if "$ref" in schema:
        return _types(document, _resolved(document, schema))
    kinds = schema.get("type", ())
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found |= _types(document, alternative)
    return found


def _told(types: set[str]) -> str:
    return " or ".join(sorted(types))


def _all_contents(described: Json) -> Json:
    """Return the content of a body or an answer, with the forms that have to be asked for."""
    contents: Json = {**described.get("content", {}), **described.get(OTHER_TYPES, {})}
    return contents
