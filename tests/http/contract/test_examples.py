"""Every JSON response has an example in the document, and each example is valid for its model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas.examples import EXAMPLES

DOCUMENT = json.loads((Path(__file__).parents[3] / "openapi" / "openapi.json").read_text())


def models_of_answers() -> set[str]:
    """The models of the successful answers in JSON."""
    schemas = (
        response["content"]["application/json"]["schema"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for status, response in operation["responses"].items()
        if status < "300" and "application/json" in response.get("content", {})
    )
    return {schema["$ref"].rpartition("/")[2] for schema in schemas if "$ref" in schema}


def test_every_model_of_an_answer_has_an_example() -> None:
    """A reader of the document sees each answer without asking the service."""
    assert models_of_answers() <= EXAMPLES.keys()


@pytest.mark.parametrize("model", sorted(EXAMPLES))
def test_an_example_is_what_its_model_says(model: str) -> None:
    """An example that drifted from its schema would mislead."""
    schema: dict[str, Any] = DOCUMENT["components"]["schemas"][model]
    validator = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    assert list(validator.iter_errors(EXAMPLES[model])) == []
    assert EXAMPLES[model].keys() >= set(schema.get("required", ()))


def shown(place: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Return each schema in the document with its examples."""
    if isinstance(place, dict) and "schema" in place:
        beside = place.get("examples", {})
        for example in [place.get("example"), *(one.get("value") for one in beside.values())]:
            if example is not None:
                yield place["schema"], example
    for inner in place.values() if isinstance(place, dict) else ():
        yield from shown(inner)


def test_every_example_in_the_document_is_what_its_schema_says() -> None:
    """As it is shown, nulls included: what makes the document may have dropped some."""
    pairs = list(shown(DOCUMENT["paths"])) + list(shown(DOCUMENT["components"]))
    assert len(pairs) > 100
    for schema, example in pairs:
        validator = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
        assert list(validator.iter_errors(example)) == [], example
