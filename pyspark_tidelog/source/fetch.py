"""One task's records: fetched ahead of the decoder, resumed where a connection broke.

Runs on the executors, for batch and stream alike, and keeps no state between tasks.
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
from pyspark_tidelog.source.splits import Split


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one answer, and where to ask on."""

    offset: int
    """The one that was asked for; the first batch may begin before it."""
    data: bytearray
    frames: Sequence[BatchFrame]
    next_offset: int


def read_split(options: Options, columns: Sequence[str], split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split in order.

    While one answer is decoded the next is on its way: one thread, one request ahead. Raises
    DataLossError where records of the split are gone, unless the query prefers to go on without
    them.
    """
    decoder = Decoder(split.range, columns, check_crcs=options.check_crcs)
    executor = ServiceClient(options.endpoint.for_executor())
    with executor as client, ThreadPoolExecutor(1) as pool:
        fetcher = _Fetcher(client, decoder, split, options)
        ahead = pool.submit(fetcher.fetch, split.start_offset)
        while (chunk := ahead.result()) is not None:
            ahead = pool.submit(fetcher.fetch, chunk.next_offset)
            yield from decoder.decode(chunk.data, chunk.frames, chunk.offset)


class _Fetcher:
    """Asks for one chunk after the other; used by one thread at a time."""

    def __init__(
        self, client: ServiceClient, decoder: Decoder, split: Split, options: Options
    ) -> None:
        self._client = client
        self._decoder = decoder
        self._split = split
        self._options = options

    def fetch(self, offset: int) -> Chunk | None:
        """Return the batches from `offset` on, or None at the end of the range."""
        try:
            return self._fetch(offset)
        except DataLossError as error:
            if self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{error}; set failOnDataLoss to false to go on without the missing records"
                ) from error
            return None

    def _fetch(self, offset: int) -> Chunk | None:
        broken = 0
        while offset < self._split.end_offset:
            answer = read_batches(
                self._client,
                self._split,
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
                    f"{self._options.endpoint.url} breaks off every answer inside the first batch"
                )
        return None

    def _skip_to(self, log_start_offset: int, offset: int) -> int:
        log = self._split.range.log
        if log_start_offset <= offset:
            raise ServiceError(
                f"the service refuses offset {offset} of {log} and says that it starts there"
            )
        if self._options.fail_on_data_loss:
            last = min(log_start_offset, self._split.end_offset) - 1
            raise DataLossError(
                f"offsets {offset} to {last} of {log.described} were deleted before they were read"
            )
        return log_start_offset

    def _require_whole(self, data: bytearray, frames: Sequence[BatchFrame], offset: int) -> None:
        """Raise DamagedBatchError where an answer that came whole ends inside a batch."""
        used_bytes = frames[-1].end_position if frames else 0
        if used_bytes != len(data):
            raise DamagedBatchError(
                f"damaged batch in {self._split.range.log.described}, after offset "
                f"{frames[-1].next_offset - 1 if frames else offset - 1}: the answer ends inside it"
            )

    def _require_progress(self, next_offset: int, offset: int) -> None:
        """Raise DataLossError where the log ends early.

        The end of a range is at or below the high watermark when it is planned, and only truncation
        lowers that.
        """
        if next_offset > offset:
            return
        log = self._split.range.log
        raise DataLossError(
            f"{log.described} ends at offset {offset}, but it had reached "
            f"{self._split.end_offset}: it was truncated or its topic made again"
        )
