"""Splunk's HTTP Event Collector: senders whose path and answers are fixed.

A sender is given an ingest token in place of Splunk's, and the token says which topic it sends to.
An event is stored as it was sent, one record each; of `raw`, each line is a record. Answers and
errors are Splunk's ("Troubleshoot HTTP Event Collector" in its documentation), so that senders
repeat what they should.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from app.codecs.receipts import to_json
from app.errors import Unauthenticated
from app.http.answers import JSON, Answer, json_answer
from app.http.problems import kind_of, problem_answer, problem_as, problem_members
from app.operations.exchange import Exchange
from app.operations.ingest.bodies import Plan, json_value_cut, text_line_cut
from app.operations.ingest.ingest import append_body
from app.security.presented import CHALLENGE, password_of
from engine.records.builder import HeaderList
from schemas.produce import HecForm

PATH: Final = "/services/collector"

MAX_METADATA_BYTES: Final = 256
"""Of a value that the URL of `raw` says of its lines; longer ones are left out."""

_OF_RAW: Final = frozenset({"host", "index", "source", "sourcetype"})

_CODES: Final[Mapping[int, int]] = {
    400: 6, 401: 2, 403: 4, 404: 404, 405: 405, 413: 27, 422: 6, 429: 9, 503: 9, 507: 9,
}  # fmt: skip
"""Splunk's codes by status: "Invalid data format", "Token is required", "Invalid token", …"""

_INTERNAL: Final = 8


def is_hec(path: str) -> bool:
    """Whether a path is the collector's, whatever becomes of the request."""
    return path.startswith(PATH)


def normal_path(path: str) -> str:
    """Return the path of which the others are synonyms: without a version, and with the form."""
    path = path.rstrip("/").removesuffix("/1.0")
    return PATH + "/event" if path == PATH else path


def token_of(head: Mapping[bytes, bytes]) -> str:
    """Return the sender's token; Unauthenticated if there is none, MalformedRequest for bad Basic.

    It is sent as `Authorization: Splunk …`, or as the password of `Basic`.
    """
    scheme, _, credentials = head.get(b"authorization", b"").partition(b" ")
    kind, token = scheme.lower(), credentials.strip()
    if kind == b"basic":
        token = password_of(token)
    if kind not in {b"splunk", b"basic"} or not token:
        raise Unauthenticated(
            "a token is required: Authorization: Splunk tli_…, an ingest token of the topic",
            headers={"www-authenticate": CHALLENGE},
        )
    return token.decode("latin-1")


async def ingest_hec(exchange: Exchange, topic: str, form: HecForm, query: bytes) -> Answer:
    """Append what a sender of Splunk sends; raises as `ingest`."""

    def shape(plan: Plan) -> Plan:
        if form == "event":
            headers: HeaderList = [("content-type", JSON)]
            return plan._replace(cut=json_value_cut, headers=headers, is_event=False)
        headers = [*plan.headers, *_metadata_of(query)]
        return plan._replace(cut=text_line_cut, headers=headers, is_event=False)

    await append_body(exchange, topic, shape, form)
    return success()


def success() -> Answer:
    """Return what each accepted request is answered with: its records are on disk."""
    return json_answer(to_json({"text": "Success", "code": 0}))


def healthy() -> Answer:
    """Return the answer to a sender's health check."""
    return json_answer(to_json({"text": "HEC is healthy", "code": 17}))


def _metadata_of(query: bytes) -> HeaderList:
    """Return what the URL says of all lines of a body."""
    pairs = parse_qsl(query.decode("latin-1"), max_num_fields=64)
    return [
        (name, value.encode())
        for name, value in pairs
        if name in _OF_RAW and len(value.encode()) <= MAX_METADATA_BYTES
    ]


def code_of(status: int) -> int:
    """Return Splunk's number for an error with an HTTP status."""
    return _CODES.get(status, _INTERNAL)


def hec_error(
    error: Exception, *, path: str, trace: bytes | None, head: Mapping[bytes, bytes]
) -> Answer:
    """Return an error as Splunk tells it; what is logged is what any error logs."""
    problem = problem_answer(error, path=path, trace=trace)
    status = kind_of(error).status
    if status == 422:
        status = 400
    elif status == 401 and b"authorization" in head:
        status = 403
    body = to_json({"text": str(problem_members(error)["detail"]), "code": code_of(status)})
    return problem_as(problem, status, JSON, body)
