"""Plans and records: keys, compacted topics, and CloudEvents that are not."""

import json

import pytest

from app.errors import MalformedRequest
from app.operations.ingest.bodies import NewRecords, parts_of, plan_of, records_of
from app.operations.ingest.cloudevents import MAX_ATTRIBUTES_BYTES
from app.operations.ingest.profiles import DEFAULT_PROFILE, IngestProfile, Source
from engine.errors import InvalidRecord
from engine.records.builder import NewRecord, RecordColumns

EVENT = {"specversion": "1.0", "id": "7", "source": "/a", "type": "b"}
HEAD = {b"content-type": b"application/cloudevents+json"}
BATCH = {b"content-type": b"application/cloudevents-batch+json"}
BINARY = {f"ce-{name}".encode(): value.encode() for name, value in EVENT.items()}


def keys_of(
    body: bytes, head: dict[bytes, bytes], profile: IngestProfile, *, compacted: bool = False
) -> list[bytes | None]:
    plan = plan_of(head, None, profile)
    records = records_of(body, plan, now_ms=1, max_records=10, requires_keys=compacted)
    return [None if key is None else bytes(key) for _, key, *_ in records]


def test_the_profile_finds_keys_first() -> None:
    """In a header or in each value; then the partition key of an event."""
    by_header = IngestProfile(key=Source(headers=(b"x-key",)))
    by_pointer = IngestProfile(split="array", key=Source(pointer="/k"))
    assert keys_of(b"x", {b"x-key": b"a"}, by_header) == [b"a"]
    assert keys_of(b"x", {}, by_header) == [None]
    assert keys_of(b'[{"k":"a"},{"k":1},{}]', {}, by_pointer) == [b"a", b"1", None]
    event = json.dumps(EVENT | {"partitionkey": "p"}).encode()
    assert keys_of(event, HEAD, by_pointer) == [b"p"]
    assert keys_of(event, HEAD | {b"x-key": b"a"}, by_header) == [b"a"]
    binary = BINARY | {b"ce-partitionkey": b"p"}
    assert keys_of(b"", binary, by_pointer) == [b"p"]
    assert keys_of(b"", binary | {b"x-key": b"a"}, by_header) == [b"a"]


def test_a_compacted_topic_needs_keys() -> None:
    """The refusal lists the records without one."""
    profile = IngestProfile(split="array", key=Source(pointer="/k"))
    assert keys_of(b'[{"k":"a"}]', {}, profile, compacted=True) == [b"a"]
    with pytest.raises(InvalidRecord) as refused:
        keys_of(b'[{"k":"a"},{}]', {}, profile, compacted=True)
    assert [entry["index"] for entry in refused.value.errors] == [1]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"id": None}, "id"),
        ({"source": ""}, "source"),
        ({"specversion": "2.0"}, "specversion"),
        ({"x": "a" * MAX_ATTRIBUTES_BYTES}, "event"),
    ],
)
def test_an_event_needs_its_attributes(event: dict[str, object], field: str) -> None:
    """Each fault is an entry with the event's index."""
    with pytest.raises(InvalidRecord) as refused:
        keys_of(json.dumps([EVENT, EVENT | event]).encode(), BATCH, DEFAULT_PROFILE)
    assert [(entry["index"], entry["field"]) for entry in refused.value.errors] == [(1, field)]
    with pytest.raises(InvalidRecord):
        keys_of(b"[%b]" % b",".join([b"1"] * 10), BATCH, DEFAULT_PROFILE)


def test_faults_are_listed_up_to_a_hundred() -> None:
    """A list of all five hundred would help no one."""
    plan = plan_of(BATCH, None, DEFAULT_PROFILE)
    with pytest.raises(InvalidRecord) as refused:
        records_of(b"[" + b"1," * 500 + b"1]", plan, now_ms=1, max_records=900, requires_keys=False)
    assert len(refused.value.errors) == 100


def test_attributes_become_headers_as_text() -> None:
    """Capitals as Debezium sends them are lowered, and a null is no attribute."""
    event: dict[str, object] = EVENT | {
        "iodebeziumtxId": 7,
        "no": None,
        "flag": True,
        "data": 1,
    }
    plan = plan_of(HEAD, None, DEFAULT_PROFILE)
    ((_, _, value, headers),) = records_of(
        json.dumps(event).encode(), plan, now_ms=1, max_records=1, requires_keys=False
    )
    assert json.loads(bytes(value or b"")) == event
    assert dict(headers[1:]) == {
        f"ce_{name}": text.encode()
        for name, text in (EVENT | {"iodebeziumtxid": "7", "flag": "true"}).items()
    }


@pytest.mark.parametrize(
    ("value", "decoded"),
    [(b'"a \\"b"', b'a "b'), (b"%C3%A9", "é".encode()), (b'"', b'"'), (b"a%", b"a%")],
)
def test_headers_of_an_event_are_decoded(value: bytes, decoded: bytes) -> None:
    """Quotes first, then one round of percent-decoding, as the HTTP binding says."""
    plan = plan_of(BINARY | {b"ce-x": value}, None, DEFAULT_PROFILE)
    assert dict(plan.headers)["ce_x"] == decoded


@pytest.mark.parametrize("wrong", [{b"ce-id": b""}, {b"ce-x": b"%ff"}, {b"ce-x": b"\xff"}])
def test_wrong_headers_of_an_event_are_refused(wrong: dict[bytes, bytes]) -> None:
    """The problem names the header."""
    with pytest.raises(MalformedRequest, match=next(iter(wrong)).decode()):
        plan_of(BINARY | wrong, None, DEFAULT_PROFILE)


def test_batches_are_cut_before_they_are_too_large() -> None:
    """Records in columns, with keys and without, and records one by one, keep their order."""
    values = [b"%d" % number * 100 for number in range(100)]
    records: list[NewRecord] = [(1, b"k", value, [("a", b"b")]) for value in values]
    keyed = RecordColumns([1] * 100, [b"k"] * 100, values, [[("a", b"b")]] * 100)
    plain = RecordColumns([1] * 100, [None] * 100, values)
    wholes: tuple[NewRecords, ...] = (records, keyed, plain)
    for whole in wholes:
        parts = list(parts_of(whole, 8_000))
        assert 3 <= len(parts) <= 8
        assert [bytes(value or b"") for part in parts for _, _, value, _ in part] == values
    assert len(list(parts_of(records, 1 << 20))) == 1
