"""What the routes have in common: dependencies, query parameters, how answers are documented."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import AsyncIterator, Collection, Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends, Header, Path, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.codecs.conditions import ensure_defined
from app.errors import MalformedRequest
from app.http.request_checks import SENDER_KEY
from app.operations.exchange import Exchange, holder_of
from app.operations.ingest.hec import token_of
from app.operations.ingest.senders import Senders
from app.operations.service import Service, local_partition
from app.security.authority import Security, peer_of, refuse_credentials_in
from app.security.principal import Principal
from app.security.rules import CALLER_KEY
from app.store.local.partition import LocalPartition
from app.store.port import Partition
from schemas.common import PartitionNumber, TopicName
from schemas.problems import Problem


def query_names(dependant: Dependant) -> Collection[str]:
    """Return the names of the parameters, those of models included."""
    names: list[str] = []
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
            fields = annotation.model_fields.items()
            names += [info.alias or name for name, info in fields]
        else:
            names.append(field.alias)
    return names


def unknown_parameter(name: str, known: Collection[str]) -> str:
    """Say that there is no such parameter, and which one was probably meant."""
    if not known:
        return "this operation takes no parameters"
    closest = difflib.get_close_matches(name, known, n=1)
    if closest:
        return f"unknown parameter; did you mean {closest[0]}?"
    return f"unknown parameter; the parameters are {', '.join(sorted(known))}"


Responses: TypeAlias = dict[int | str, dict[str, Any]]


async def _service(request: Request) -> Service:
    # Not a plain function: FastAPI would have a thread run it, before the request is let in.
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


# Dependencies below take what they need from the request: FastAPI analyses those of a dependency
# for every route again.


async def _identify(request: Request) -> None:
    """Note who asks, for `_exchange` and the audit log; raises what `Security.authorize` does.

    Every route depends on it, so it is also where a URL that says two things is refused.
    """
    scope = request.scope
    security: Security = request.app.state.service.security
    refuse_credentials_in(scope["query_string"])
    operation: str | None = scope["route"].operation_id
    caller = _sender(request, operation) or security.identify(
        operation, scope["headers"], peer_of(scope)
    )
    scope[CALLER_KEY] = caller  # before it may be refused: the audit log tells who tried
    security.admit(caller, operation, request.path_params.get("topic"))
    _ensure_understood(request)
    if scope["method"] not in _SAFE_METHODS:
        ensure_defined(dict(scope["headers"]), _conditions_of(scope["route"]))


def _sender(request: Request, operation: str | None) -> Principal | None:
    """Return who sends to an ingest URL, unless it has credentials as for any other operation."""
    if operation not in _OF_SENDERS:
        return None
    scope = request.scope
    head = dict(scope["headers"])
    senders: Senders = request.app.state.service.senders
    token = scope.get(SENDER_KEY, "") if "token" in request.path_params else None
    if operation in _OF_HEC:  # its URL names no topic
        token = token_of(head)
        request.path_params["topic"] = senders.topic_of_token(token)
    return senders.enter(
        request.path_params["topic"],
        head,
        peer=peer_of(scope),
        token=token,
        is_probe=scope["method"] in _SAFE_METHODS,
    )


_OF_HEC: Final = frozenset({"allowHec", "checkHec", "ingestHec"})
_OF_SENDERS: Final = _OF_HEC | {
    "checkIngest",
    "checkIngestWithToken",
    "ingest",
    "ingestOtlp",
    "ingestWithToken",
}

_OF_PERMISSIONS: Final = frozenset({"allowIngest", "allowIngestWithToken"})

IDENTIFIED: Final = Depends(_identify)
"""What each router begins with, so that nothing is asked before it."""


_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
_DEFINED: Final[dict[str, frozenset[bytes]]] = {}
"""The conditions that each operation documents, by its id."""


def _conditions_of(route: APIRoute) -> frozenset[bytes]:
    name = str(route.operation_id)
    if name not in _DEFINED:
        _DEFINED[name] = frozenset(_headers_of(route.dependant))
    return _DEFINED[name]


def _headers_of(dependant: Dependant) -> Iterator[bytes]:
    for header in dependant.header_params:
        yield header.alias.encode()
    for one in dependant.dependencies:
        yield from _headers_of(one)


def _ensure_understood(request: Request) -> None:
    """Refuse parameters that would be passed over in silence.

    Raises MalformedRequest for one that comes twice: of its two values one would be. Raises what
    FastAPI does for those of an operation that has none; where there are some, their model sees to
    it. Probes, the clients of proxies and senders may say what they like: many of these append to
    the URL that they were given, and give it up after a 400.
    """
    said: dict[str, None] = {}
    scope = request.scope
    known = query_names(scope["route"].dependant)
    is_sender = scope["route"].operation_id in _OF_SENDERS | _OF_PERMISSIONS
    for name, _ in request.query_params.multi_items():
        if is_sender and name not in known:
            continue
        if name in said:
            raise MalformedRequest(f"{name} is sent more than once", parameter=name)
        said[name] = None
    if said and not is_sender and scope["path"].startswith("/v1/"):
        fault = {"type": "extra_forbidden", "msg": ""}
        faults = [{"loc": ("query", name), **fault} for name in said if name not in known]
        if faults:
            raise RequestValidationError(faults)


MAX_DIGITS: Final = 10
"""Of a partition's number that is looked for; a longer one does not exist, or begins with zeros."""


async def _exchange(request: Request) -> AsyncIterator[Exchange]:
    """Admit the request; what it holds is given back when its answer has been sent."""
    service: Service = request.app.state.service
    caller: Principal = request.scope[CALLER_KEY]
    head = dict(request.scope["headers"])
    exchange = Exchange(
        service, head, request.receive, caller=caller, holder=holder_of(caller, request.scope)
    )
    try:
        topic = request.path_params.get("topic")
        if topic is not None:
            number = str(request.path_params.get("partition", ""))
            is_number = number.isdecimal() and len(number) <= MAX_DIGITS
            await service.look_for(topic, int(number) if is_number else 0)
        yield exchange
    finally:
        exchange.close()


ExchangeDep = Annotated[Exchange, Depends(_exchange)]
TopicPath = Annotated[TopicName, Path()]


async def _partition(
    exchange: ExchangeDep, topic: TopicPath, partition: Annotated[PartitionNumber, Path()]
) -> Partition:
    return exchange.service.partition(topic, partition)


PartitionDep = Annotated[Partition, Depends(_partition)]


async def _local_partition(partition: PartitionDep) -> LocalPartition:
    return local_partition(partition)


LocalPartitionDep = Annotated[LocalPartition, Depends(_local_partition)]
"""For what can be asked of a log in this process alone."""


IDEMPOTENCY_KEY: Final = (
    "Any text: a repeated request with the same key gets the first offsets, another one 422. "
    "Default: none"
)


async def _append_headers(
    *,
    producer_id: Annotated[
        str | None,
        Header(description="Id for an idempotent append; with epoch and sequence. Default: none"),
    ] = None,
    producer_epoch: Annotated[
        str | None, Header(description="Epoch of the producer. Default: none")
    ] = None,
    producer_sequence: Annotated[
        str | None, Header(description="Sequence of the first record. Default: none")
    ] = None,
    if_match: Annotated[
        str | None, Header(description="ETag: 412 unless the log end has it. Default: none")
    ] = None,
    expected_offset: Annotated[
        str | None, Header(description="Offset: 412 unless it is the log end. Default: none")
    ] = None,
    content_digest: Annotated[
        str | None,
        Header(
            description="Digest of the body as sent (RFC 9530); 422 if it differs. Default: none"
        ),
    ] = None,
) -> None:
    """Document the headers of an append; the operation reads them itself."""


async def _key_header(
    idempotency_key: Annotated[str | None, Header(description=IDEMPOTENCY_KEY)] = None,
) -> None:
    """Document the header of an append of JSON or NDJSON; the operation reads it itself."""


async def _read_headers(
    if_none_match: Annotated[
        str | None,
        Header(description="ETag of an immutable page: 304 if it is still valid. Default: none"),
    ] = None,
) -> None:
    """Document the headers of a read; the operation reads them itself."""


APPEND_HEADERS: Final = Depends(_append_headers)
KEY_HEADER: Final = Depends(_key_header)
READ_HEADERS: Final = Depends(_read_headers)


EVERYWHERE: Final = (400, 401, 403, 421, 429, 500, 503)
"""The errors of every operation."""


def problems(*statuses: int) -> Responses:
    """Return documentation of errors; each status is one shared component of the document."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": ref(Problem)}},
        }
        for status in sorted({*EVERYWHERE, *statuses})
    }


def answers(status: int, model: type[BaseModel], description: str) -> Responses:
    """Return documentation of a JSON answer."""
    return {
        status: {
            "description": description,
            "content": {"application/json": {"schema": ref(model)}},
        }
    }


def ref(model: type[BaseModel]) -> dict[str, Any]:
    """Return a reference to a model in the document."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def body_of(*media_types: str, schema: dict[str, Any], example: object = None) -> dict[str, Any]:
    """Return documentation of a body that the operation reads itself."""
    content: dict[str, Any] = {}
    for media_type in media_types:
        content[media_type] = {"schema": schema}
        if example is not None:
            content[media_type]["example"] = example
    return {"requestBody": {"required": True, "content": content}}
