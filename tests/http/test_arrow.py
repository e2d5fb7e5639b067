"""Arrow reads over HTTP: protocol rule R13, and R1 to R12 for all reads."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrow_out import (
    BATCH_BYTES,
    BATCH_ROWS,
    STREAM_BYTES,
    arrow_stream,
    has_arrow,
)
from app.codecs.stored import View
from app.errors import RecordTooLarge
from engine.errors import StoredDataCorrupt
from engine.records.builder import build_batch, encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.header import CRC_POSITION, Codec, parse_header
from engine.records.record import Record
from engine.types import AppendOrigin
from tests.support.builders import new_batch
from tests.support.legacy import legacy_message, legacy_wrapper
from tests.support.service import BATCHES, RAW, RECORDS, Api, running

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
ARROW = {"accept": MEDIA_TYPE}
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


async def read(api: Api, path: str = RECORDS, **parameters: Any) -> httpx.Response:
    answer = await api.client.get(path, params=parameters, headers=ARROW)
    assert answer.status_code == 200, answer.text
    return answer


def table(answer: httpx.Response) -> pa.Table:
    with pa.ipc.open_stream(answer.content) as stream:
        found = stream.read_all()
    found.validate(full=True)
    return found


def column(answer: httpx.Response, name: str) -> list[Any]:
    values: list[Any] = table(answer)[name].to_pylist()
    return values


@pytest.mark.anyio
async def test_records_come_in_five_columns_of_exact_types(api: Api) -> None:
    """Names, order and types are the contract's, for a log without a record too (R13)."""
    await api.append({"a": 1}, key="k", headers=[{"key": "h", "value": "x"}], timestamp=7)
    for offset, rows in ((0, 1), (1, 0)):
        answer = await read(api, offset=offset)
        assert answer.headers["content-type"] == MEDIA_TYPE
        found = table(answer)
        assert [(field.name, field.type) for field in found.schema] == [
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(HEADER)),
        ]
        assert found.num_rows == rows
        assert answer.headers["log-next-offset"] == "1"
    (row,) = table(await read(api, offset=0)).to_pylist()
    assert row["timestamp"].timestamp() == 0.007
    assert (row["offset"], row["key"], row["value"]) == (0, b"k", b'{"a":1}')
    assert row["headers"] == [{"key": "h", "value": b"x"}]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.anyio
async def test_what_is_stored_comes_back_in_any_codec(api: Api, codec: Codec) -> None:
    """Nulls stay nulls, bytes stay bytes, headers stay in order, in compressed batches too."""
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (1, None, None, []),
        (2, b"", b"", [("a", None), ("a", b"\xff"), ("é", b"")]),
        (3, b"\xff\x00", b"x" * 1000, []),
    ]
    batch = build_batch(records, codec=codec)
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    rows = table(await read(api)).to_pylist()
    shown = [
        (
            int(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in rows
    ]
    assert shown == records


@pytest.mark.anyio
async def test_many_rows_are_several_batches_of_one_stream(api: Api) -> None:
    """Rows with and without headers are in order, wherever an Arrow batch ends."""
    count = 2 * BATCH_ROWS + 10
    marked = {5, BATCH_ROWS + 5}
    batch = build_batch(
        (n, None, b"%d" % n, [("n", b"%d" % n)] if n in marked else []) for n in range(count)
    )
    await api.client.post(BATCHES, content=bytes(batch), headers=RAW)
    answer = await read(api)
    assert column(answer, "value") == [b"%d" % n for n in range(count)]
    assert {n for n, headers in enumerate(column(answer, "headers")) if headers} == marked
    with pa.ipc.open_stream(answer.content) as stream:
        assert len(list(stream)) == 3


@pytest.mark.parametrize(
    ("parameters", "offsets", "next_offset"),
    [
        ({"offset": 2, "end_offset": 5}, [2, 3, 4], 5),
        ({"offset": 1, "max_records": 2}, [1, 2], 3),
        ({"offset": "latest"}, [], 6),
        ({"offset": 3, "max_bytes": 0}, [3], 4),
        ({"offset": 99, "on_out_of_range": "earliest"}, [0, 1, 2, 3, 4, 5], 6),
        ({"encoding": "base64", "offsets": "string"}, [0, 1, 2, 3, 4, 5], 6),
    ],
)
@pytest.mark.anyio
async def test_parameters_bound_it_as_any_read(
    api: Api, parameters: dict[str, Any], offsets: list[int], next_offset: int
) -> None:
    """Start, end and budgets select the same records as in JSON, and Link reads on from there."""
    await api.append(0, 1)
    await api.append(2, 3)
    await api.append(4, 5)
    answer = await read(api, **parameters)
    assert column(answer, "offset") == offsets
    assert answer.headers["log-next-offset"] == str(next_offset)
    if parameters.get("end_offset") == next_offset:
        assert "link" not in answer.headers
    else:
        assert f"offset={next_offset}" in answer.links["next"]["url"]


@pytest.mark.anyio
async def test_a_stream_ends_before_the_record_that_would_pass_the_answer_bound(
    tmp_path: Path,
) -> None:
    """max_answer_bytes is never exceeded, and the next read continues with that record (R7)."""
    limit = STREAM_BYTES + BATCH_BYTES + 1500
    async with running(tmp_path, max_answer_bytes=limit) as api:
        await api.create()
        await api.append(*["x" * 400] * 7, headers=[{"key": "h", "value": "y" * 30}])
        seen, offset, reads = [], 0, 0
        while found := column(answer := await read(api, offset=offset), "offset"):
            assert len(answer.content) <= limit
            seen += found
            offset = int(answer.headers["log-next-offset"])
            reads += 1
        assert (seen, reads) == (list(range(7)), 3)


@pytest.mark.anyio
async def test_gaps_markers_and_aborted_records_are_passed_over(api: Api) -> None:
    """Compacted records, control batches and aborted records have no row."""
    log = api.log()
    gappy = encode_batch(
        parse_header(new_batch(5)), [Record(offset, 1, None, b"kept", ()) for offset in (0, 3)]
    )
    log.append(gappy, origin=AppendOrigin.REPLICATION)
    aborted = build_batch(
        [(1, None, b"aborted", ())],
        base_sequence=0,
        is_transactional=True,
        producer_id=5,
        producer_epoch=0,
    )
    await api.client.post(BATCHES, content=bytes(aborted), headers=RAW)
    marker = build_end_marker(
        ControlType.ABORT, timestamp=2, coordinator_epoch=0, producer_id=5, producer_epoch=0
    )
    log.append(marker, origin=AppendOrigin.COORDINATOR)
    await api.append("after")
    everything = await read(api)
    assert column(everything, "offset") == [0, 3, 5, 7]
    committed = await read(api, isolation="read_committed")
    assert column(committed, "value") == [b"kept", b"kept", b'"after"']
    assert committed.headers["log-next-offset"] == "8"


@pytest.mark.anyio
async def test_append_time_is_the_time_of_every_row(api: Api) -> None:
    """On a topic with LogAppendTime rows carry the log's time."""
    await api.create("stamped", message_timestamp_type="LogAppendTime")
    path = "/v1/topics/stamped/partitions/0/records"
    receipt = await api.append(1, 2, path=path, timestamp=1)
    times = {int(time.timestamp() * 1000) for time in column(await read(api, path), "timestamp")}
    assert times == {receipt["timestamp"]}


@pytest.mark.anyio
async def test_it_is_kept_forever_under_a_tag_of_its_own(api: Api) -> None:
    """An immutable page of columns has another ETag than one of JSON; each is a 304 for itself."""
    await api.append(0, 1, 2)
    url = f"{RECORDS}?offset=0&end_offset=2&log_id={api.log().reader.log_id}"
    arrow = await api.client.get(url, headers=ARROW)
    page = await api.client.get(url)
    assert "immutable" in arrow.headers["cache-control"]
    assert arrow.headers["etag"] != page.headers["etag"]
    assert "accept" in arrow.headers["vary"]
    for tag, status in ((arrow.headers["etag"], 304), (page.headers["etag"], 200)):
        again = await api.client.get(url, headers=ARROW | {"if-none-match": tag})
        assert again.status_code == status


def test_messages_of_old_formats_are_rows() -> None:
    """Those in a wrapper one by one, with null keys and the times they have."""
    data = legacy_message(3, None, b"1", magic=0) + legacy_wrapper(4, [b"2", b"3"], timestamp=7)
    body, stopped_at, _ = arrow_stream(data, View(start=3, limit_bytes=1000))
    with pa.ipc.open_stream(body) as stream:
        found = stream.read_all()
    assert stopped_at is None
    assert found["offset"].to_pylist() == [3, 4, 5]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [-1, 7, 8]
    assert found["key"].to_pylist() == [None, b"key", b"key"]
    assert found["headers"].to_pylist() == [[], [], []]


@pytest.mark.parametrize(("room", "rows"), [(1, 1), (263, 1), (264, 2), (395, 2), (396, 3)])
def test_a_bound_inside_a_batch_ends_the_stream_there(room: int, rows: int) -> None:
    """Rows of 132 bytes: as many as there is room for besides the frame, and one at least."""
    batch = build_batch([(1, None, b"x" * 100, ())] * 3)
    bound = STREAM_BYTES + BATCH_BYTES + room
    body, stopped_at, _ = arrow_stream(batch, View(start=0, max_answer_bytes=bound))
    with pa.ipc.open_stream(body) as stream:
        assert stream.read_all().num_rows == rows
    assert stopped_at == (rows if rows < 3 else None)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=3),
            st.none() | st.integers(0, 3_000).map(bytes),
            st.lists(
                st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=9)), max_size=30
            ),
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1, 150]),
    st.sampled_from([8_000, 12_000, 100_000, 400_000]),
)
@settings(deadline=None)
def test_no_stream_passes_its_bound(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    times: int,
    bound: int,
) -> None:
    """For all records: the estimate of a stream is at least its real size."""
    records = [(1, key, value, headers) for key, value, headers in rows] * times
    for codec in (Codec.NONE, Codec.ZSTD):
        batch = build_batch(records, codec=codec)
        view = View(start=0, max_answer_bytes=bound, max_record_bytes=bound)
        body, stopped_at, stopped_by = arrow_stream(batch, view)
        assert len(body) <= bound
        with pa.ipc.open_stream(body) as stream:
            count = stream.read_all().num_rows
        assert stopped_at == (count if count < len(records) else None)
        assert stopped_by == ("" if stopped_at is None else "max_answer_bytes")


def test_a_record_alone_may_be_larger_than_the_bound_where_the_view_says_so() -> None:
    """A batch of one record is shown whole; with a bound for records it is refused."""
    batch = build_batch([(1, None, b"x" * 10_000, ())])
    view = View(start=0, max_answer_bytes=5_000)
    body, stopped_at, _ = arrow_stream(batch, view)
    assert (len(body) > 5_000, stopped_at) == (True, None)
    with pytest.raises(RecordTooLarge):
        arrow_stream(batch, replace(view, max_record_bytes=5_000))


def test_damage_is_never_a_row() -> None:
    """A batch whose checksum is wrong is an error that names its offset."""
    batch = build_batch([(1, None, b"x", ())], base_offset=7)
    batch[CRC_POSITION] ^= 1
    with pytest.raises(StoredDataCorrupt, match="offset 7"):
        arrow_stream(batch, View(start=0))


@pytest.fixture
def _without_arrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "nanoarrow", None)
    has_arrow.cache_clear()
    yield
    has_arrow.cache_clear()


@pytest.mark.usefixtures("_without_arrow")
@pytest.mark.anyio
async def test_without_the_extra_it_cannot_be_made(api: Api) -> None:
    """406 lists what can: the service itself needs no Arrow."""
    await api.append(1)
    answer = await api.client.get(RECORDS, headers=ARROW)
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
    assert answer.json()["accepted"] == ["application/json", "application/x-ndjson"]
    either = await api.client.get(RECORDS, headers={"accept": f"{MEDIA_TYPE}, application/json"})
    assert either.headers["content-type"] == "application/json"
