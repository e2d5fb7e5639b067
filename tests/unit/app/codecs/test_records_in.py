"""Records in JSON: those taken in columns are what they would be one by one, bytes and faults."""

import json
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs import records_in
from app.codecs.json_parts import PIECE_BYTES
from app.codecs.records_in import read_records
from app.errors import MAX_ERRORS_LISTED, ExpiredTimestamp, MalformedRequest
from app.http.answers import Body
from engine.config import LogConfig
from engine.errors import EngineError, InvalidRecord, TooLarge
from engine.records.builder import NewRecord, RecordColumns, build_batch

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(retention_ms=-1)
USUAL: list[dict[str, Any]] = [{"key": f"k{n}", "value": {"n": n}} for n in range(60)]


def read(body: Body, *, is_ndjson: bool, config: LogConfig = CONFIG) -> Iterable[NewRecord]:
    return read_records(body, is_ndjson=is_ndjson, max_records=10_000, now_ms=NOW_MS, config=config)


def ndjson(records: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(record, ensure_ascii=False).encode() for record in records)


def outcome(body: bytes, config: LogConfig = CONFIG, *, is_ndjson: bool = True) -> object:
    """The batch of a body, or what is wrong with it."""
    try:
        return build_batch(read(body, is_ndjson=is_ndjson, config=config))
    except EngineError as error:
        return type(error), str(error), getattr(error, "errors", None)


def one_by_one(body: bytes, config: LogConfig = CONFIG, *, is_ndjson: bool = True) -> object:
    """The same without columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_in, "_FEW_BYTES", len(body))
        return outcome(body, config, is_ndjson=is_ndjson)


@pytest.mark.parametrize(
    "more",
    [
        {"key": "k", "value": 1},
        {"key": None, "value": "x"},
        {"value": [1, {"a": None}]},
        {"key": 'a"b\\cé€\U0001f600', "value": "ü"},
        {"key": "", "value": ""},
        {"key": "k", "value": True},
        {"key": "k", "value": 1.5, "timestamp": 0},
        {"key": "k", "value": {}, "timestamp": NOW_MS},
    ],
    ids=["number", "null key", "no key", "text", "empty", "true", "epoch", "now"],
)
def test_records_of_usual_form_come_in_columns(more: dict[str, Any]) -> None:
    """As lines and as one document: the batch is what it is one by one."""
    records = [*USUAL, more, *USUAL]
    lines, document = ndjson(records), json.dumps({"records": records}).encode()
    assert isinstance(read(lines, is_ndjson=True), RecordColumns)
    assert isinstance(read(document, is_ndjson=False), RecordColumns)
    assert outcome(lines) == one_by_one(lines)
    assert outcome(document, is_ndjson=False) == one_by_one(document, is_ndjson=False)


@pytest.mark.parametrize(
    "more",
    [
        {"value": 2},
        {"key": "k", "value": 2},
        {"value": 2, "timestamp": 5},
        {"value": None},
        {"value": 2, "other": 2},
        {},
    ],
    ids=["value", "key", "time", "tombstone", "unknown", "absent"],
)
def test_values_alone_are_what_they_are_one_by_one(more: dict[str, Any]) -> None:
    """Records without a key are decoded by a way of their own, until one has more."""
    records = [*({"value": {"n": number}} for number in range(200)), more]
    document = json.dumps({"records": records}).encode()
    made = outcome(document, is_ndjson=False)
    assert made == one_by_one(document, is_ndjson=False)
    compacted = LogConfig(cleanup_policy=("compact",))
    refused = outcome(document, compacted, is_ndjson=False)
    assert refused == one_by_one(document, compacted, is_ndjson=False)
    assert not isinstance(refused, bytearray)


@pytest.mark.parametrize(
    "more",
    [
        {"key": "k", "value": None},
        {"key": 7, "value": 1},
        {"key": "aGk=", "key_encoding": "base64", "value": 1},
        {"key": "k", "value": "x", "value_encoding": "utf8"},
        {"key": "k", "value": 1, "headers": [{"key": "h", "value": "v"}]},
        {"key": "k"},
        {"key": "k", "value": 1, "timestamp": -5},
        {"key": "k", "value": 1, "timestamp": 1 << 62},
        {"key": "k", "value": 1, "other": 1},
    ],
    ids=["tombstone", "number", "key", "value", "headers", "absent", "before", "late", "unknown"],
)
def test_what_needs_a_closer_look_gets_it(more: dict[str, Any]) -> None:
    """One record of another form, and all go one by one, or are refused as they were."""
    lines = ndjson([*USUAL, more])
    assert outcome(lines) == one_by_one(lines)
    if isinstance(outcome(lines), bytearray):
        assert not isinstance(read(lines, is_ndjson=True), RecordColumns)


def test_a_compacted_topic_needs_keys_in_columns_too() -> None:
    """A record without a key is named; with keys all is well."""
    compacted = LogConfig(cleanup_policy=("compact",))
    assert isinstance(outcome(ndjson(USUAL), compacted), bytearray)
    keyless = ndjson([*USUAL, {"value": 1}])
    refused = outcome(keyless, compacted)
    assert refused == one_by_one(keyless, compacted)
    assert isinstance(refused, tuple)
    assert refused[2][0]["index"] == len(USUAL)


@pytest.mark.parametrize(
    "body",
    [
        b" " * 2_000,
        ndjson(USUAL) + b"\n{",
        ndjson(USUAL) + b'\n{"key":"\xff","value":1}',
        b'{"value":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
    ids=["nothing", "cut", "not UTF-8", "deep"],
)
def test_what_is_no_record_is_refused_as_one_by_one(body: bytes) -> None:
    """The columns never have the last word on what is wrong."""
    with pytest.raises((MalformedRequest, EngineError)) as columns:
        read(body, is_ndjson=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_in, "_FEW_BYTES", len(body))
        with pytest.raises(type(columns.value)) as single:
            read(body, is_ndjson=True)
    assert str(single.value) == str(columns.value)


def test_too_many_records_are_refused_before_they_are_taken_apart() -> None:
    """The size of a body settles it only where it leaves room for no more."""
    body = b"\n".join([b'{"value":1}'] * 200)
    with pytest.raises(TooLarge):
        read_records(body, is_ndjson=True, max_records=199, now_ms=NOW_MS, config=CONFIG)
    made = read_records(body, is_ndjson=True, max_records=200, now_ms=NOW_MS, config=CONFIG)
    assert len(list(made)) == 200


@pytest.mark.parametrize("is_ndjson", [True, False])
def test_braces_within_values_are_no_records(*, is_ndjson: bool) -> None:
    """More braces than records may come: then the records themselves are counted."""
    lines = ['{"value":{"a":{}}}'] * 20
    text = "\n".join(lines) if is_ndjson else f'{{"records":[{",".join(lines)}]}}'
    made = read_records(
        text.encode(), is_ndjson=is_ndjson, max_records=20, now_ms=NOW_MS, config=CONFIG
    )
    assert len(list(made)) == 20


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2023-01-02T03:04:05.678+01:00", 1672625045678),
        ("2023-01-02t03:04:05.6789z", 1672628645678),
        ("2023-01-02 03:04:05.123456789-00:00", 1672628645123),
    ],
)
def test_a_time_may_be_text(text: str, milliseconds: int) -> None:
    """RFC 3339, rounded down to milliseconds."""
    (record,) = read(ndjson([{"value": 1, "timestamp": text}]), is_ndjson=True)
    assert record[0] == milliseconds


@pytest.mark.parametrize(
    "text",
    ["2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z", "1969-12-31T23:59:59Z", "", "7"],
)
def test_another_text_is_no_time(text: str) -> None:
    """Without an offset, or with a month that no year has, or before the epoch."""
    with pytest.raises(InvalidRecord) as refused:
        read(ndjson([{"value": 1, "timestamp": text}]), is_ndjson=True)
    assert refused.value.errors[0]["field"] == "timestamp"


@pytest.mark.parametrize("is_ndjson", [True, False])
@pytest.mark.parametrize("count", [1, 100])
def test_a_record_that_retention_would_remove_at_once_is_refused(
    *, is_ndjson: bool, count: int
) -> None:
    """Seconds instead of milliseconds, or an old event: the error says what to do."""
    week_ms = LogConfig().retention_ms
    kept, expired = NOW_MS - week_ms, NOW_MS - week_ms - 1

    def body(timestamp: int) -> bytes:
        records = [{"key": "k", "value": "x" * 20, "timestamp": timestamp}] * count
        return ndjson(records) if is_ndjson else json.dumps({"records": records}).encode()

    assert len(list(read(body(kept), is_ndjson=is_ndjson, config=LogConfig()))) == count
    with pytest.raises(ExpiredTimestamp, match=r"retention\.ms \(604800000\)") as refused:
        read(body(expired), is_ndjson=is_ndjson, config=LogConfig())
    assert refused.value.facts()["retention_ms"] == week_ms
    assert {one["code"] for one in refused.value.errors} == {"expired_timestamp"}
    for keeping in (
        LogConfig(retention_ms=-1),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(message_timestamp_type="LogAppendTime"),
    ):
        assert len(list(read(body(expired), is_ndjson=is_ndjson, config=keeping))) == count


def test_a_byte_order_mark_is_passed_over() -> None:
    """Windows programs write one in front of JSON and lines alike."""
    for body, is_ndjson in ((b'{"records":[{"value":1}]}', False), (b'{"value":1}\n', True)):
        (record,) = read(b"\xef\xbb\xbf" + body, is_ndjson=is_ndjson)
        assert record[2] == b"1"


MISFORMED = [
    ({"value": 1, "foo": 2}, "foo"),
    ({"value": 1}, None),
    ({"value": 1, "timestamp": "soon"}, "timestamp"),
    ({"value": 1, "timestamp": -1}, "timestamp"),
    (5, None),
    ({"value": 1, "value_encoding": "hex"}, "value_encoding"),
    ({"value": 1, "headers": [{"value": 1}]}, "headers[0].key"),
    ({"value": 1, "headers": [{"key": "a", "value": 1}, {"key": "a", "zz": 1}]}, "headers[1].zz"),
    ({"key": "k"}, "value"),
    ({"value": "?", "value_encoding": "base64"}, "value"),
]
"""Records and the field that is wrong with each, the second being right."""


@pytest.mark.parametrize("is_ndjson", [True, False])
def test_every_record_that_is_wrong_is_listed_with_its_field(*, is_ndjson: bool) -> None:
    """Of the wrong form or of wrong content: one errors entry each, in order."""
    records = [record for record, _ in MISFORMED]
    body = json.dumps({"records": records}).encode()
    if is_ndjson:
        body = b"\n".join(json.dumps(record).encode() for record in records)
    with pytest.raises(InvalidRecord) as caught:
        read(body, is_ndjson=is_ndjson)
    assert [(one["index"], one["field"]) for one in caught.value.errors] == [
        (index, field) for index, (_, field) in enumerate(MISFORMED) if index != 1
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"records":5}', "records"),
        (b'{"records":[],"x":1}', "x"),
        (b"{}", "records"),
        (b"[1]", None),
    ],
)
def test_what_is_wrong_around_the_records_is_named(body: bytes, field: str | None) -> None:
    """It concerns no record."""
    with pytest.raises(InvalidRecord) as caught:
        read(body, is_ndjson=False)
    (entry,) = caught.value.errors
    assert (entry["index"], entry["field"]) == (None, field)


def test_a_wrong_record_in_front_of_one_that_is_no_json_is_malformed() -> None:
    """What cannot be read cannot be judged."""
    with pytest.raises(MalformedRequest):
        read(b'{"records":[{"foo":1},{"value":"\\q"}]}', is_ndjson=False)


@pytest.mark.parametrize("record", [{"key": "k"}, {"value": 1, "foo": 2}])
def test_no_more_faults_are_listed_than_an_answer_takes(record: dict[str, Any]) -> None:
    """The first of them say enough."""
    with pytest.raises(InvalidRecord) as refused:
        read(ndjson([record] * (MAX_ERRORS_LISTED + 5)), is_ndjson=True)
    assert len(refused.value.errors) == MAX_ERRORS_LISTED


RECORDS = st.lists(
    st.fixed_dictionaries(
        {"value": st.none() | st.booleans() | st.integers() | st.text(max_size=40)},
        optional={
            "key": st.none() | st.text(max_size=20) | st.integers(),
            "timestamp": st.integers(-1, 2 * NOW_MS),
            "headers": st.lists(
                st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.text(max_size=3)}),
                max_size=2,
            ),
        },
    ),
    min_size=1,
    max_size=80,
)


@given(records=RECORDS)
def test_both_ways_make_the_same_batch_of_anything(records: list[dict[str, Any]]) -> None:
    """Whatever the records are, and whichever way is taken."""
    body = ndjson(records) + b" " * 1_024
    assert outcome(body) == one_by_one(body)


@pytest.mark.parametrize("count", [2, 20_000], ids=["few", "more than a request may have"])
@pytest.mark.parametrize("usual", [b'{"value":1}', b'{"value":1,"headers":[]}'])
def test_a_line_with_several_values_is_refused_by_its_number(usual: bytes, count: int) -> None:
    """A request could have any number of records otherwise."""
    body = b"\n".join([usual, usual * count])
    with pytest.raises(MalformedRequest, match=r"^line 2: "):
        read(body, is_ndjson=True)


def test_the_wrong_line_of_a_large_body_is_named() -> None:
    """It is decoded in pieces, and an error counts the bytes of one."""
    line = b'{"value":"%b"}' % (b"x" * 1_000)
    lines = [line] * 5_000
    assert len([*read(b"\n".join(lines), is_ndjson=True)]) == 5_000
    lines[4_321] = line[:-1]
    with pytest.raises(MalformedRequest, match=r"^line 4322: "):
        read(b"\n".join(lines), is_ndjson=True)


def test_a_long_line_of_many_values_is_refused_before_it_is_decoded() -> None:
    """Its records would take a hundred times its bytes."""
    body = b'{"value":1}\n' + b"{} " * 1_000_000
    with pytest.raises(MalformedRequest, match=r"^line 2: "):
        read(body, is_ndjson=True)


@pytest.mark.parametrize("is_ndjson", [True, False], ids=["lines", "document"])
def test_a_wrong_record_of_a_large_body_is_named(*, is_ndjson: bool) -> None:
    """Its records are found one by one, because all at once could be millions."""
    records = [{"value": "x" * 1_000}] * 3_000
    records[2_000] = {"values": "x"}
    body = ndjson(records) if is_ndjson else json.dumps({"records": records}).encode()
    with pytest.raises(InvalidRecord) as caught:
        read(body, is_ndjson=is_ndjson)
    assert [fault["index"] for fault in caught.value.errors] == [2_000]


@pytest.mark.parametrize("headers", [3, 9_000])
@pytest.mark.parametrize("is_ndjson", [False, True])
def test_headers_take_no_more_than_twenty_times_their_bytes(
    *, is_ndjson: bool, headers: int
) -> None:
    """They have no limit of their own: what bounds them is the size of the body."""
    record = b'{"value":0,"headers":[%b]}' % b",".join([b'{"key":"","value":0}'] * headers)
    records = [record] * (9_000 // headers)
    body = b"\n".join(records) if is_ndjson else b'{"records":[%b]}' % b",".join(records)
    read(body, is_ndjson=is_ndjson)  # what is built once is not the body's
    tracemalloc.start()
    try:
        made = read(body, is_ndjson=is_ndjson)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(record[3]) for record in made) == headers * len(records)
    assert peak_bytes < 20 * len(body)


def test_what_is_wrong_around_the_records_of_a_large_body_is_named() -> None:
    """Also if a record is wrong, too: its sender reads the interface first."""
    record = b'{"value":"%b","x":1}' % (b"v" * 1_000)
    body = b'{"records":[%b],"other":1}' % b",".join([record] * (2 * PIECE_BYTES // 1_000))
    with pytest.raises(InvalidRecord, match="the body is JSON, but not a body of an append"):
        read(body, is_ndjson=False)
