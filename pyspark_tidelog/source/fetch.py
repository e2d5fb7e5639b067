"""Fetches and decodes the records of one task, on an executor.

Batch and streaming queries share it, and it keeps no state between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.errors import DamagedBatchError, DataLossError, ServiceError
from pyspark_tidelog.records.batches import BatchFrame
from pyspark_tidelog.records.decode import Decoder
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.segments import SegmentReader
from pyspark_tidelog.source.service import Gone, read_batches
from pyspark_tidelog.source.tasks import OffsetRange


@dataclass(frozen=True, slots=True)
class Chunk:
    """The whole batches of one answer, ordinary or of a segment."""

    offset: int
    """The offset asked for; the first batch may begin before it."""
    data: bytearray
    frames: Sequence[BatchFrame]


def read_ranges(
    options: Options, columns: Sequence[str], ranges: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of some ranges, one range after the other, each in order.

    While one answer is decoded, a thread fetches the next. Raises DataLossError if records of a
    range are gone, unless `failOnDataLoss` is false.
    """
    executor = ServiceClient(options.endpoint.for_executor())
    with executor as client, ThreadPoolExecutor(1) as pool:
        pieces = _pieces(client, columns, ranges, options)
        ahead = pool.submit(next, pieces, None)
        while (piece := ahead.result()) is not None:
            ahead = pool.submit(next, pieces, None)
            decoder, chunk = piece
            yield from decoder.decode(chunk.data, chunk.frames, chunk.offset)


def _pieces(
    client: ServiceClient,
    columns: Sequence[str],
    ranges: Sequence[OffsetRange],
    options: Options,
) -> Iterator[tuple[Decoder, Chunk]]:
    for wanted in ranges:
        decoder = Decoder(wanted.log, columns, wanted.end_offset, check_crcs=options.check_crcs)
        for chunk in _chunks(client, decoder, wanted, options):
            yield decoder, chunk


def _chunks(
    client: ServiceClient, decoder: Decoder, wanted: OffsetRange, options: Options
) -> Iterator[Chunk]:
    """Yield the batches of a range; only one thread at a time may ask for the next chunk."""
    offset, broken = wanted.start_offset, 0
    segments = SegmentReader(client, decoder, wanted, options)
    try:
        while offset < wanted.end_offset:
            if (piece := segments.read(offset)) is not None:
                yield Chunk(offset, piece.data, piece.frames)
                offset = piece.next_offset
                continue
            answer = read_batches(
                client, wanted, offset, max_bytes=options.fetch_bytes, isolation=options.isolation
            )
            if isinstance(answer, Gone):
                offset = _log_start_after(wanted, offset, answer.log_start_offset, options)
                continue
            frames = decoder.frames(answer.data, offset)
            next_offset = answer.next_offset
            if next_offset is None:  # the connection broke: continue after the last whole batch
                next_offset = frames[-1].next_offset if frames else offset
            else:
                _require_progress(wanted, offset, next_offset)
                _require_whole(wanted, offset, answer.data, frames)
            if next_offset > offset:
                yield Chunk(offset, answer.data, frames)
                segments.consider(next_offset, next_offset - offset, len(answer.data))
                offset, broken = next_offset, 0
                continue
            broken += 1
            if broken > options.endpoint.retries:
                raise ServiceError(
                    f"every answer of {options.endpoint.url} broke off in its first batch"
                )
    except DataLossError as error:
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{error}; set failOnDataLoss to false to continue without the missing records"
            ) from error


def _log_start_after(
    wanted: OffsetRange, offset: int, log_start_offset: int, options: Options
) -> int:
    """Return the log start if the query may continue there; raise DataLossError if not."""
    log = wanted.log
    if log_start_offset <= offset:
        raise ServiceError(
            f"the service refuses offset {offset} of {log} as below the log start, but says "
            f"that the log starts at {log_start_offset}"
        )
    if options.fail_on_data_loss:
        last = min(log_start_offset, wanted.end_offset) - 1
        raise DataLossError(
            f"offsets {offset} to {last} of {log.described} were deleted before they were read"
        )
    return log_start_offset


def _require_whole(
    wanted: OffsetRange, offset: int, data: bytearray, frames: Sequence[BatchFrame]
) -> None:
    """Raise DamagedBatchError if an answer that arrived whole ends inside a batch."""
    used_bytes = frames[-1].end_position if frames else 0
    if used_bytes != len(data):
        raise DamagedBatchError(
            f"damaged batch in {wanted.log.described}, after offset "
            f"{frames[-1].next_offset - 1 if frames else offset - 1}: the answer ends inside it"
        )


def _require_progress(wanted: OffsetRange, offset: int, next_offset: int) -> None:
    """Raise DataLossError if the log ends before the range does.

    A range is planned up to the high watermark at most, which only truncation lowers.
    """
    if next_offset <= offset:
        raise DataLossError(
            f"{wanted.log.described} ends at offset {offset}, but it had reached "
            f"{wanted.end_offset}: it was truncated, or its topic was deleted and created again"
        )
