"""Every operation that reads a partition, as requests; and what its answers say."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final
from urllib.parse import urlencode

import pyarrow as pa

from tests.support.logs import batches_in

OF_HEADERS: Final = {
    "log-id": "log_id",
    "log-leader-epoch": "leader_epoch",
    "log-start-offset": "log_start_offset",
    "log-high-watermark": "high_watermark",
    "log-last-stable-offset": "last_stable_offset",
    "log-end-offset": "log_end_offset",
}
MARKS: Final = tuple(OF_HEADERS.values())
ARROW: Final = "application/vnd.apache.arrow.stream"
NDJSON: Final = "application/x-ndjson"
REST_V2: Final = "application/vnd.kafka.json.v2+json"


@dataclass(frozen=True)
class Question:
    """One request that reads."""

    operation: str
    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    named: str | None = None
    """The log id that it names."""
    start: int | None = None
    """The offset from which it asks for every record."""
    is_endless: bool = False
    """Whether the answer only ends with the client."""

    def __str__(self) -> str:
        return f"{self.method} {self.url} {self.headers or ''} {self.body.decode()}".strip()


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = False
    """Whether the end of the body came; else the connection was closed before it."""


@dataclass
class Said:
    """What an answer says of a log at one moment."""

    marks: dict[str, object]
    records: list[tuple[int, int]]
    """Offsets and numbers."""
    next_offset: int | None = None
    start: int | None = None
    """From where to `next_offset` it has every record."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The object of JSON that says it, for what only some answers have."""


# -- to ask ----------------------------------------------------------------------------------------


def drawn(
    random: Random, operations: Collection[str], topic: str, log_id: str, offsets: tuple[int, int]
) -> Question:
    """Return a question of one of the operations, or of any, with an offset of the partition."""
    while True:
        question: Question = random.choice(MAKERS)(random, topic, log_id, random.randint(*offsets))
        if not operations or question.operation in operations:
            return question


def _read(
    random: Random, topic: str, log_id: str, offset: int, kind: str, **more: object
) -> Question:
    named = log_id if random.random() < 0.6 else None
    query: dict[str, object] = {"offset": offset, **more}
    if named is not None:
        query["log_id"] = named
    for name, values in {
        "end_offset": (offset + 2, offset + 9, "latest"),
        "max_bytes": (1, 200, 1_000_000),
        "isolation": ("read_committed",),
        "on_out_of_range": ("earliest", "latest"),
    }.items():
        if random.random() < 0.25 and not (kind == "tail" and name == "end_offset"):
            query[name] = random.choice(values)
    operation = {"records": "readRecords", "batches": "readBatches", "tail": "tailRecords"}[kind]
    moves = "on_out_of_range" in query
    return Question(
        operation,
        "GET",
        f"/v1/topics/{topic}/partitions/0/{kind}?{urlencode(query)}",
        named=named,
        start=None if moves else offset,
        is_endless=kind == "tail",
    )


def page(random: Random, topic: str, log_id: str, offset: int) -> Question:
    more = {"max_records": random.choice((1, 2, 9))} if random.random() < 0.3 else {}
    found = _read(random, topic, log_id, offset, "records", **more)
    accept = random.choice(("application/json", "application/json", NDJSON, ARROW))
    return replace(found, headers={"accept": accept})


def fixed_page(random: Random, topic: str, log_id: str, offset: int) -> Question:
    """One whose bytes its tag promises for ever: it names a log, and where it ends."""
    kind, operation = random.choice((("records", "readRecords"), ("batches", "readBatches")))
    query = {"offset": offset, "end_offset": offset + random.randint(1, 6), "log_id": log_id}
    url = f"/v1/topics/{topic}/partitions/0/{kind}?{urlencode(query)}"
    return Question(operation, "GET", url, named=log_id, start=offset)


def streamed_page(random: Random, topic: str, log_id: str, offset: int) -> Question:
    found = _read(random, topic, log_id, offset, "records", stream="true")
    return replace(found, headers={"accept": NDJSON})


def long_poll(random: Random, topic: str, log_id: str, offset: int) -> Question:
    kind = random.choice(("records", "batches"))
    return _read(
        random, topic, log_id, offset, kind, max_wait_ms=60_000, min_bytes=random.choice((1, 500))
    )


def batches(random: Random, topic: str, log_id: str, offset: int) -> Question:
    return _read(random, topic, log_id, offset, "batches")


def tail(random: Random, topic: str, log_id: str, offset: int) -> Question:
    return _read(random, topic, log_id, offset, "tail")


def many(random: Random, topic: str, log_id: str, offset: int) -> Question:
    one: dict[str, object] = {"topic": topic, "partition": 0, "offset": offset}
    named = log_id if random.random() < 0.6 else None
    if named is not None:
        one["log_id"] = named
    body: dict[str, object] = {"partitions": [one]}
    if random.random() < 0.4:
        body |= {"max_wait_ms": 60_000, "min_bytes": random.choice((1, 500))}
    return Question(
        "fetchMany",
        "POST",
        "/v1/fetch",
        {"content-type": "application/json"},
        json.dumps(body).encode(),
        named=named,
        start=offset,
    )


def _plain(operation: str, suffix: str, *, method: str = "GET", body: bytes = b"") -> Any:
    def make(random: Random, topic: str, log_id: str, offset: int) -> Question:
        url = suffix.format(topic=topic, partition=f"/v1/topics/{topic}/partitions/0")
        headers = {"content-type": "application/json"} if body else {}
        return Question(operation, method, url, headers, body, is_endless=operation == "tailTopic")

    return make


def old_records(random: Random, topic: str, log_id: str, offset: int) -> Question:
    url = f"/topics/{topic}/partitions/0/records?offset={offset}&timeout=0"
    return Question("kafkaRestReadRecords", "GET", url, {"accept": REST_V2}, start=offset)


def offset_of_group(topic: str) -> Question:
    """Return what gives the group that is asked for its lag an offset."""
    url = f"/v1/groups/g-{topic}/offsets/{topic}/0"
    body = b'{"offset": 1}'
    return Question("putGroupOffset", "PUT", url, {"content-type": "application/json"}, body)


MAKERS: Final = (
    page,
    page,
    fixed_page,
    fixed_page,
    fixed_page,
    fixed_page,
    streamed_page,
    long_poll,
    long_poll,
    batches,
    tail,
    many,
    many,
    old_records,
    _plain("readTopic", "/v1/topics/{topic}/records?offset=earliest"),
    _plain("tailTopic", "/v1/topics/{topic}/tail?offset=earliest"),
    _plain("getOffsets", "{partition}/offsets"),
    _plain("getOffsets", "{partition}/offsets", method="HEAD"),
    _plain("getOffsetAt", "{partition}/offset-at?timestamp=latest"),
    _plain("getOffsetAt", "{partition}/offset-at?timestamp=earliest"),
    _plain("getOffsetAt", "{partition}/offset-at?timestamp=max_timestamp"),
    _plain("getOffsetAt", "{partition}/offset-at?timestamp=0"),
    _plain("getTopicOffsets", "/v1/topics/{topic}/offsets"),
    _plain("listPartitions", "/v1/topics/{topic}/partitions"),
    _plain("getPartition", "{partition}"),
    _plain("getTopic", "/v1/topics/{topic}"),
    _plain("planSplits", "/v1/topics/{topic}/splits", method="POST", body=b'{"max_splits": 3}'),
    _plain("listSegments", "{partition}/segments"),
    _plain("downloadSegment", "{partition}/segments/0/log"),
    _plain("getCompaction", "{partition}/compaction"),
    _plain("listProducers", "{partition}/producers"),
    _plain("getGroupLag", "/v1/groups/g-{topic}/lag"),
    _plain("kafkaRestGetOffsets", "/topics/{topic}/partitions/0/offsets"),
    _plain("kafkaRestGetPartition", "/topics/{topic}/partitions/0"),
)

# -- to understand ---------------------------------------------------------------------------------


def said_by(question: Question, answer: Answer) -> list[Said]:
    """Return what an answer of status 200 says, by partition."""
    of_headers: dict[str, object] = {}
    for header, name in OF_HEADERS.items():
        if header in answer.headers:
            value = answer.headers[header]
            of_headers[name] = value if name == "log_id" else int(value)
    next_offset = int(answer.headers["log-next-offset"]) if _is_read(question, answer) else None
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    if media_type == "text/event-stream":
        return list(_of_events(answer))
    if not answer.body:
        return [Said(of_headers, [], next_offset, question.start)]
    if media_type == NDJSON:
        lines = [json.loads(line) for line in answer.body.splitlines()]
        return [Said(of_headers, list(_records(lines)), next_offset, question.start)]
    if media_type == ARROW:
        table = pa.ipc.open_stream(answer.body).read_all().to_pylist()
        found = [(row["offset"], int(row["value"])) for row in table]
        return [Said(of_headers, found, next_offset, question.start)]
    if media_type.endswith("json"):
        return _of_json(question, json.loads(answer.body), of_headers, next_offset)
    return [Said(of_headers, _of_batches(answer.body, question.start), next_offset, question.start)]


def _is_read(question: Question, answer: Answer) -> bool:
    return question.start is not None and "log-next-offset" in answer.headers


def _of_json(
    question: Question,
    body: Any,
    of_headers: dict[str, object],
    next_offset: int | None,
) -> list[Said]:
    if isinstance(body, list):  # REST v2
        return [Said(of_headers, list(_records(body)), next_offset, question.start)]
    parts = body.get("partitions")
    if not isinstance(parts, list):
        return [_said(body, of_headers, next_offset, question.start)]
    parts = [
        one for one in (*parts, *body.get("splits", ())) if one.get("outcome", "read") == "read"
    ]
    return [_said(one, {}, None, question.start) for one in parts]


def _said(
    one: dict[str, Any], of_headers: dict[str, object], next_offset: int | None, start: int | None
) -> Said:
    names = MARKS if "timestamp" not in one else ()  # a record's epoch is not the log's
    marks = {**of_headers, **{name: one[name] for name in names if one.get(name) is not None}}
    disagree = {name for name in of_headers if marks[name] != of_headers[name]}
    assert not disagree, f"headers and body disagree on {disagree}"
    records = list(_records(one.get("records", ())))
    if next_offset is None and "records" in one:
        next_offset = int(one["next_offset"])
    return Said(marks, records, next_offset, start, one)


def _records(rows: Any) -> Iterator[tuple[int, int]]:
    for row in rows:
        if "offset" in row and "value" in row:
            value = row["value"]
            if row.get("value_encoding") == "base64":
                value = base64.b64decode(value)
            yield int(row["offset"]), int(value)


def _of_batches(data: bytes, start: int | None) -> list[tuple[int, int]]:
    return [
        (record.offset, int(record.value or b"-1"))
        for batch in batches_in(data)
        for record in batch.records()
        if start is None or record.offset >= start
    ]


def _of_events(answer: Answer) -> Iterator[Said]:
    """Each event says a page, or only where the tail is; its id says of which log."""
    next_offset = None
    for block in answer.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields.get("event") not in {"offsets", "records"}:
            continue
        data = json.loads(fields["data"])
        log_id = fields["id"].rpartition(":")[0].replace(";0", "")  # of the one partition 0
        for one in data.get("partitions", (data,)):
            said = _said(one, {"log_id": log_id}, None, next_offset if one is data else None)
            next_offset = one["next_offset"]
            yield said
