"""Records of one shape: whatever the columns prove, the plain decoder accepts, byte for byte."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRecord, InvalidTimestamp
from engine.records.batch import BatchView
from engine.records.builder import build_batch
from engine.records.check import MIN_RUN, TimeDeltas, TimestampBounds, check_records, prove_uniform
from engine.records.header import HEADER_BYTES
from engine.records.record import Headers, decode_record, encode_record
from engine.records.varint import encode_varint

START = 1_000


def payload_of(
    count: int,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"v" * 150,
    delta_of: Callable[[int], int] = lambda _: 0,
    first: int = 0,
    headers: Headers = (),
) -> bytearray:
    """Records of one shape, with times relative to the base by `delta_of`."""
    records = (
        encode_record(first + index, delta_of(index), key, value, headers) for index in range(count)
    )
    return bytearray(b"".join(records))


def referee(payload: bytes | bytearray, count: int, first: int = 0) -> TimeDeltas | None:
    """The plain decoder's result: the times, or None unless all is valid and in shortest form."""
    position, times = 0, []
    try:
        for index in range(count):
            record, end = decode_record(payload, position)
            shortest = encode_record(
                first + index, record.timestamp, record.key, record.value, record.headers
            )
            if len(shortest) != end - position or record.offset != first + index:
                return None
            times.append(record.timestamp)
            position = end
    except InvalidRecord:
        return None
    return TimeDeltas(min(times), max(times)) if position == len(payload) else None


@pytest.mark.parametrize("count", [MIN_RUN, 65, 200, 400, 9_000])
@pytest.mark.parametrize(
    "delta_of",
    [lambda _: 0, lambda index: index // 3, lambda index: 5_000 - index % 7, lambda _: 1 << 40],
    ids=["equal", "ascending", "mixed", "late"],
)
@pytest.mark.parametrize(
    ("key", "value"), [(b"key", b"v" * 150), (None, b""), (b"", None), (b"k" * 70, b"v" * 9_000)]
)
def test_what_is_proved_has_the_times_the_referee_finds(
    count: int, delta_of: Callable[[int], int], key: bytes | None, value: bytes | None
) -> None:
    """Runs with offsets of one and of two bytes and times of any width are proved together."""
    if count * len(value or b"") > 10_000_000:
        count = 300
    payload = payload_of(count, key=key, value=value, delta_of=delta_of)
    proved = prove_uniform(payload, count, 0, requires_keys=False)
    if count > 1 << 13:
        assert proved is None  # their offsets take three bytes
    else:
        assert proved == referee(payload, count)
        assert proved is not None


def test_a_later_part_of_a_batch_is_proved_too() -> None:
    """Offsets may begin anywhere; at the wrong number nothing is proved."""
    payload = payload_of(100, first=500)
    assert prove_uniform(payload, 100, 500, requires_keys=False) == (0, 0)
    assert prove_uniform(payload, 100, 501, requires_keys=False) is None


@pytest.mark.parametrize("row", [0, 1, 63, 64, 99])
def test_no_wrong_byte_of_a_frame_is_taken_for_right(row: int) -> None:
    """Each byte that frames a record, changed: proved only if the referee agrees."""
    payload = payload_of(100, delta_of=lambda index: 200 + index, key=b"key", value=b"v" * 80)
    begin = 0
    for _ in range(row):
        _, begin = decode_record(payload, begin)
    _, end = decode_record(payload, begin)
    value_at = payload.index(b"v" * 80, begin)
    verdicts = set()
    for place in (*range(begin, value_at), end - 1):
        if payload[place : place + 1] in b"key":
            continue
        right = payload[place]
        for wrong in {0, 1, 2, 0x7F, 0x80, 0xFF, *(right ^ 1 << bit for bit in range(8))}:
            payload[place] = wrong
            proved = prove_uniform(payload, 100, 0, requires_keys=False)
            assert proved is None or proved == referee(payload, 100), (place - begin, wrong)
            verdicts.add(proved is None)
        payload[place] = right
    assert verdicts == {True, False}


@given(st.data())
def test_what_is_proved_is_right_whatever_was_done_to_it(data: st.DataObject) -> None:
    """Bytes changed, left out or put in anywhere: no damage that the referee sees is proved."""
    count = data.draw(st.integers(MIN_RUN, 140))
    value = b"v" * data.draw(st.sampled_from([0, 5, 60, 130]))
    step = data.draw(st.sampled_from([0, 1, 130]))
    payload = payload_of(count, value=value, delta_of=lambda index: step * index)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(payload) - 1))
        removed = data.draw(st.integers(0, 2))
        payload[place : place + removed] = data.draw(st.binary(max_size=2))
    proved = prove_uniform(payload, count, 0, requires_keys=False)
    assert proved is None or proved == referee(payload, count)


ROWS = [encode_record(index, 0, None, b"v" * 175) for index in range(64)]
LONGER_ROWS = [
    encode_varint(len(row) - 1) + row[2:] for row in ROWS
]  # one byte more than they take in shortest form


@pytest.mark.parametrize(
    "payload",
    [
        payload_of(100, headers=[("h", b"v")]),
        payload_of(100, delta_of=lambda _: -1),
        payload_of(100, delta_of=lambda index: -(index % 2)),
        payload_of(100)[:-1],
        payload_of(100) + b"\0",
        payload_of(50) + payload_of(50, first=50, value=b"other"),
        payload_of(64) + payload_of(10, first=64, value=b"") + payload_of(26, first=74),
        b"\x01" + payload_of(100),
        b"\xff" * 10_000,
        b"".join(b"\xec\x82\x00" + record[2:] for record in ROWS),
        b"".join(record[:-1] + b"\x80\x00" for record in LONGER_ROWS),
        b"".join(record[:-1] + b"\x02" for record in ROWS),
    ],
    ids=[
        "headers",
        "before",
        "mixed",
        "short",
        "long",
        "two",
        "odd",
        "negative",
        "endless",
        "padded length",
        "padded count",
        "header that is not there",
    ],
)
def test_other_shapes_have_no_verdict(payload: bytes) -> None:
    """Headers, times before the base, bytes too few or too many, padding: others judge them."""
    for count in (64, 100):
        assert prove_uniform(payload, count, 0, requires_keys=False) is None


def test_keys_can_be_required() -> None:
    """Records without one are not right then."""
    for key, is_proved in ((b"", True), (None, False)):
        payload = payload_of(100, key=key)
        assert (prove_uniform(payload, 100, 0, requires_keys=True) is not None) is is_proved


def test_few_records_are_not_worth_it() -> None:
    """One record fewer than a run has no proof."""
    payload = payload_of(MIN_RUN - 1)
    assert prove_uniform(payload, MIN_RUN - 1, 0, requires_keys=False) is None


def test_a_batch_of_one_shape_is_checked_as_any_other() -> None:
    """The greatest time is found; times out of bounds are refused with the records concerned."""
    batch = build_batch([(START + index, b"key", b"value", ()) for index in range(200)])
    bounds = TimestampBounds(START, START + 199)
    view = BatchView(batch)
    assert check_records(view, requires_keys=True, timestamp_bounds=bounds).max_timestamp == 1_199
    for narrow in (TimestampBounds(START + 1, START + 199), TimestampBounds(START, START + 198)):
        with pytest.raises(InvalidTimestamp) as refusal:
            check_records(view, requires_keys=True, timestamp_bounds=narrow)
        assert len(refusal.value.errors) == 1
    batch[HEADER_BYTES + 3] ^= 2  # an offset
    with pytest.raises(InvalidRecord):
        check_records(BatchView(batch), requires_keys=True, timestamp_bounds=bounds)
