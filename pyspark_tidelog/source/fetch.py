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
from pyspark_tidelog.source.service import Gone, read_batches
from pyspark_tidelog.source.tasks import OffsetRange


@dataclass(frozen=True, slots=True)
class Chunk:
    """The whole batches of one answer."""

    offset: int
    """The offset asked for; the first batch may begin before it."""
    data: bytearray
    frames: Sequence[BatchFrame]
    next_offset: int


def read_range(
    options: Options, columns: Sequence[str], wanted: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in order.

    While one answer is decoded, a thread fetches the next. Raises DataLossError if records of the
    range are gone, unless `failOnDataLoss` is false.
    """
    decoder = Decoder(wanted.log, columns, wanted.end_offset, check_crcs=options.check_crcs)
    executor = ServiceClient(options.endpoint.for_executor())
    with executor as client, ThreadPoolExecutor(1) as pool:
        fetcher = _Fetcher(client, decoder, wanted, options)
        ahead = pool.submit(fetcher.fetch, wanted.start_offset)
        while (chunk := ahead.result()) is not None:
            ahead = pool.submit(fetcher.fetch, chunk.next_offset)
            yield from decoder.decode(chunk.data, chunk.frames, chunk.offset)


class _Fetcher:
    """Asks for one chunk after the other; used by one thread at a time."""

    def __init__(
        self, client: ServiceClient, decoder: Decoder, wanted: OffsetRange, options: Options
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._wanted = wanted
        self._options = options

    def fetch(self, offset: int) -> Chunk | None:
        """Return the batches from `offset` on, or None at the end of the range."""
        try:
            return self._fetch(offset)
        except DataLossError as error:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{error}; set failOnDataLoss to false to continue without the missing records"
                ) from error
            return None

    def _fetch(self, offset: int) -> Chunk | None:
        broken = 0
        while offset < self._wanted.end_offset:
            answer = read_batches(
                self._client,
                self._wanted,
                offset,
                max_bytes=self._options.fetch_bytes,
                isolation=self._options.isolation,
            )
            if isinstance(answer, Gone):
                offset = self._skip_to(answer.log_start_offset, offset)
                continue
            frames = self._decoder.frames(answer.data, offset)
            if answer.next_offset is not None:
                self._require_progress(answer.next_offset, offset)
                self._require_whole(answer.data, frames, offset)
                return Chunk(offset, answer.data, frames, answer.next_offset)
            if frames and frames[-1].next_offset > offset:
                return Chunk(offset, answer.data, frames, frames[-1].next_offset)
            broken += 1
            if broken > self._options.endpoint.retries:
                raise ServiceError(
                    f"every answer of {self._options.endpoint.url} broke off in its first batch"
                )
        return None

    def _skip_to(self, log_start_offset: int, offset: int) -> int:
        log = self._wanted.log
        if log_start_offset <= offset:
            raise ServiceError(
                f"the service refuses offset {offset} of {log} as below the log start, but says "
                f"that the log starts at {log_start_offset}"
            )
        if self._options.fail_on_data_loss:
            last = min(log_start_offset, self._wanted.end_offset) - 1
            raise DataLossError(
                f"offsets {offset} to {last} of {log.described} were deleted before they were read"
            )
        return log_start_offset

    def _require_whole(self, data: bytearray, frames: Sequence[BatchFrame], offset: int) -> None:
        """Raise DamagedBatchError if an answer that arrived whole ends inside a batch."""
        used_bytes = frames[-1].end_position if frames else 0
        if used_bytes != len(data):
            raise DamagedBatchError(
                f"damaged batch in {self._wanted.log.described}, after offset "
                f"{frames[-1].next_offset - 1 if frames else offset - 1}: the answer ends inside it"
            )

    def _require_progress(self, next_offset: int, offset: int) -> None:
        """Raise DataLossError if the log ends before the range does.

        A range is planned up to the high watermark at most, which only truncation lowers.
        """
        if next_offset <= offset:
            raise DataLossError(
                f"{self._wanted.log.described} ends at offset {offset}, but it had reached "
                f"{self._wanted.end_offset}: it was truncated, or its topic was deleted and "
                f"created again"
            )
