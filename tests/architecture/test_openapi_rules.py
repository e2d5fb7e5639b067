"""The OpenAPI document keeps its rules, every rule can fail, and problems are typed."""

import ast
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.api.application import document_text
from app.api.routes import ROUTERS
from app.api.routes.shared import _local_partition
from app.errors import ServiceError
from app.http.problems import INTERNAL, KINDS
from engine.errors import EngineError
from schemas.problems import Code, Problem
from tests.architecture import openapi_rules as rules
from tests.architecture.openapi_rules import NULL, RULES, Document, Rule

ROOT = Path(__file__).parents[2]
CONTENT: dict[str, Any] = json.loads(document_text())

ROOTS: tuple[type[Exception], ...] = (EngineError, ServiceError)
NO_FACTS = {
    "errors",
    "has_begun",
    "has_written",
    "headers",
    "may_repeat",
    "offsets",
    "proxy_code",
    "tag",
}
"""What errors are constructed with besides facts; `tag` is shown as `etag`, and `offsets` and
`proxy_code` are shown by Kafka REST v2, whose errors are not problems."""

LOG = "paths|/v1/topics/{topic}/partitions/{partition}"
READ = f"{LOG}/records|get"
OFFSETS = f"{LOG}/offsets|get|responses|200"
PAGE = f"{READ}|responses|200|content|application/json|schema"
MEMBERS = "components|schemas|RecordPage|properties"
WANTED = "components|schemas|PutGroupOffset|properties|offset"

# What must be refused: the rule, a place in the document, and what stands there instead.
OFFENCES: list[tuple[Rule, str, object]] = [
    (rules.null_is_beside_a_type_or_a_reference, f"{MEMBERS}|topic", NULL),
    (
        rules.null_is_beside_a_type_or_a_reference,
        f"{MEMBERS}|topic",
        {"anyOf": [{"type": "string"}, NULL]},
    ),
    (rules.only_one_type_has_a_default, f"{WANTED}|type", ["integer", "string"]),
    (rules.bounds_are_integers_of_64_bits, f"{WANTED}|minimum", 0.0),
    (rules.bounds_are_integers_of_64_bits, f"{WANTED}|maximum", 2**63),
    (rules.bounds_are_integers_of_64_bits, f"{WANTED}|format", "uint8"),
    (rules.no_keyword_is_passed_over, f"{WANTED}|const", 1),
    (rules.parameters_keep_their_names_apart, f"{LOG}/tail|get|parameters|3|name", "offset"),
    (rules.parameters_are_described, f"{READ}|parameters|0|description", ""),
    (rules.parameters_are_described, f"{READ}|parameters|2|description", "Where to start."),
    (rules.members_are_described, f"{MEMBERS}|topic|description", ""),
    (
        rules.members_are_described,
        "components|schemas|PutGroupOffset|properties|metadata|description",
        "A note.",
    ),
    (rules.links_have_parameters_only, f"{OFFSETS}|links|truncateLog|requestBody", {}),
    (rules.headers_are_declared, f"{OFFSETS}|headers", {"traceparent": {}}),
    (rules.headers_are_declared, f"{LOG}|get|responses|200|headers", {}),
    (rules.headers_are_declared, "components|responses|Unauthorized|headers", {}),
    (rules.answers_have_one_schema, PAGE, {"oneOf": [{"type": "string"}, {"type": "integer"}]}),
    (
        rules.answers_have_one_schema,
        PAGE,
        {"oneOf": [], "discriminator": {"propertyName": "outcome"}},
    ),
    (rules.answers_have_one_schema, f"{MEMBERS}|next_offset|type", ["integer", "string"]),
    (
        rules.answers_have_one_schema,
        f"{READ}|responses|206|content",
        {"application/json": {"schema": {"type": "string", "format": "binary"}}},
    ),
    (
        rules.answers_may_grow_and_requests_may_not,
        "components|schemas|RecordPage|additionalProperties",
        False,
    ),
    (
        rules.answers_may_grow_and_requests_may_not,
        "components|schemas|PutGroupOffset|additionalProperties",
        True,
    ),
    (
        rules.enumerations_keep_their_names_apart,
        "components|schemas|SignatureEncoding|x-enum-varnames",
        ["HEX", "BASE64"],
    ),
    (
        rules.json_in_responses_has_an_example,
        f"{READ}|responses|200|content|application/json;offsets=string",
        {"schema": {}},
    ),
    (
        rules.json_in_responses_has_an_example,
        "components|responses|OtlpGatewayTimeout|content|application/json",
        {"schema": {}},
    ),
]


def named(rule: Rule) -> str:
    return rule.__name__


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_the_document_keeps_the_rule(rule: Rule) -> None:
    """The document as it is served, which is the committed one."""
    assert list(rule(Document(CONTENT))) == [], rule.__doc__


@pytest.mark.parametrize(("rule", "place", "value"), OFFENCES)
def test_an_offence_is_found(rule: Rule, place: str, value: object) -> None:
    """A rule that cannot fail keeps nothing."""
    content = deepcopy(CONTENT)
    part: Any = content
    *steps, last = place.split("|")
    for step in steps:
        part = part[int(step)] if isinstance(part, list) else part[step]
    if rule is rules.only_one_type_has_a_default:
        part["default"] = 0
    part[last] = value
    assert list(rule(Document(content))), "nothing was found"


def test_every_rule_is_seen_to_fail() -> None:
    """Every rule has an example that it refuses."""
    assert {rule for rule, _, _ in OFFENCES} == set(RULES)


def all_routes() -> Iterator[APIRoute]:
    for router in ROUTERS:
        yield from (route for route in router.routes if isinstance(route, APIRoute))


def depends_on_a_local_log(dependant: Dependant) -> bool:
    return dependant.call is _local_partition or any(
        map(depends_on_a_local_log, dependant.dependencies)
    )


def test_what_a_kafka_cluster_cannot_do_says_so() -> None:
    """Each operation on a local log, or on all data directories, declares 501 and the backend."""
    local = {
        str(route.operation_id) for route in all_routes() if depends_on_a_local_log(route.dependant)
    }
    assert local >= {"getCompaction", "rollSegment"}
    declared = {
        operation["operationId"]
        for operation in Document(CONTENT).operations
        if "501" in operation["responses"]
    }
    assert declared >= local | {"listMoves", "getScrubReport", "readRecords", "readBatches"}
    assert "`kafka`" in CONTENT["components"]["responses"]["NotImplemented"]["description"]


def classes_below(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from classes_below(child)


def facts_raised() -> Iterator[tuple[str, str]]:
    """Each fact with which an error is constructed, and where."""
    errors = {one.__name__ for root in ROOTS for one in classes_below(root)}
    for package in ("app", "engine"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                    if name in errors:
                        place = f"{path.relative_to(ROOT)}:{node.lineno}"
                        yield from ((str(one.arg), place) for one in node.keywords if one.arg)


def test_every_code_and_every_fact_of_a_problem_is_in_the_document() -> None:
    """Typed members, so that a client need not guess; what is raised is declared in `Problem`."""
    assert set(get_args(Code)) == {kind.code for kind in (*KINDS.values(), INTERNAL)}
    raised = list(facts_raised())
    assert len(raised) > 100
    assert not [one for one in raised if one[0] not in NO_FACTS | Problem.model_fields.keys()]
