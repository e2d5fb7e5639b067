"""Which batches are decoded in search of deliveries, and what is found in them."""

from collections.abc import Callable
from typing import Any

import pytest

from app.codecs.delivery_headers import STATE_HEADER, Seal, State
from app.operations.deliveries import rebuild
from app.operations.deliveries.rebuild import Scanned, entries_in
from app.operations.deliveries.table import Entry
from engine.records import parts
from engine.records.batch import BatchView
from engine.records.builder import NewRecord, build_batch
from engine.records.header import Codec
from tests.support.builders import new_batch
from tests.support.legacy import legacy_message

MIB = 1 << 20
NOW_MS = 1_795_219_400_123
SEAL = Seal(b"secret", "topic")


def state(number: int, count: int = 1) -> State:
    return State(bytes([number]) * 16, bytes(8), NOW_MS, count, 0)


def entry(number: int, offset: int, timestamp: int, count: int = 1) -> Entry:
    return Entry(bytes([number]) * 16, bytes(8), offset, timestamp, count, NOW_MS // 1000, 3, 0)


def record(timestamp: int, header: State | bytes | None = None) -> NewRecord:
    content = header.pack(SEAL, None, b"tidelog-delivery") if isinstance(header, State) else header
    headers = [("a", b"b"), (STATE_HEADER, content)] if content is not None else []
    return timestamp, None, b"tidelog-delivery", headers


def found(data: bytes | bytearray | memoryview, start: int = 0) -> list[Entry]:
    return list(entries_in(data, start, Scanned(3, SEAL, Codec.ZSTD, MIB)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_deliveries_share_batches(
    codec: Codec, buffer: Callable[[bytearray], bytes | bytearray | memoryview]
) -> None:
    """Each has its records, the greatest time of those, and those of others between."""
    records = [
        record(5),
        record(10, state(1, 3)), record(12), record(11),
        record(99),
        record(20, state(2)), record(30, state(3)), record(70),
    ]  # fmt: skip
    data = new_batch(2) + build_batch(records, base_offset=2, codec=codec)
    data += build_batch([record(40, state(4))], base_offset=10, codec=codec)
    assert found(buffer(data)) == [
        entry(1, 3, 12, 3), entry(2, 7, 20), entry(3, 8, 30), entry(4, 10, 40),
    ]  # fmt: skip
    assert found(buffer(data), 3) == [entry(4, 10, 40)]


def test_what_has_no_delivery_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An uncompressed batch without the name, a producer's batch, and one in an old format."""
    decoded = []
    real = parts.records_of

    def records_of(batch: BatchView, **options: Any) -> Any:  # as the real one
        decoded.append(batch.header.base_offset)
        return real(batch, **options)

    monkeypatch.setattr("app.operations.deliveries.rebuild.records_of", records_of)
    marked = [record(1, state(1))]
    data = new_batch(1, base_offset=0)
    data += build_batch(marked, base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0)
    data += legacy_message(2, value=STATE_HEADER.encode())
    data += build_batch(marked, base_offset=3)
    data += new_batch(1, base_offset=4)
    assert found(data) == [entry(1, 3, 1)]
    assert decoded == [3]


@pytest.mark.parametrize("content", [b"", b"x" * 52])
def test_the_name_alone_is_no_delivery(content: bytes) -> None:
    """In a value, or in a header with other content."""
    assert found(build_batch([record(1), record(2, content)])) == []


def test_what_a_client_compressed_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own batches have the topic's codec: bombs of others cost their header only."""
    decoded: list[int] = []
    look = parts.records_of

    def counted(batch: BatchView, *, limit_bytes: int) -> object:
        decoded.append(batch.header.base_offset)
        return look(batch, limit_bytes=limit_bytes)

    monkeypatch.setattr(rebuild, "records_of", counted)
    bombs = bytearray()
    for number in range(20):
        bombs += build_batch([record(1, state(number))], base_offset=number, codec=Codec.ZSTD)
    ours = build_batch([record(2, state(50))], base_offset=20, codec=Codec.GZIP)
    log = Scanned(3, SEAL, Codec.GZIP, MIB)
    assert [one.base_offset for one in entries_in(bombs + ours, 0, log)] == [20]
    assert decoded == [20]


def test_a_batch_that_cannot_be_understood_costs_itself() -> None:
    """Neither damage nor a bomb ends the search."""
    damaged = build_batch([record(1, state(1))], codec=Codec.ZSTD)
    damaged[-4:] = b"\xff\xff\xff\xff"
    bomb = build_batch([(1, None, bytes(2 * MIB), [])], base_offset=1, codec=Codec.ZSTD)
    ours = build_batch([record(2, state(50))], base_offset=2, codec=Codec.ZSTD)
    assert [one.base_offset for one in found(damaged + bomb + ours)] == [2]
