"""Compares a lake with its log: every offset is there once, with the same contents.

Both sides are read once, in any order, and compared by a fingerprint of each row: 64 bits of
SipHash with a key of this process. It takes about ten bytes of memory per offset, so a large lake
is compared in several turns. The log is read with the source's decoder. If the lake has a schema,
the log's values are converted to columns as the job converts them.

A table's rows are read without Spark, as Arrow in the same types for every kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType

from pyspark_tidelog.errors import JobError
from pyspark_tidelog.lake.expected_rows import ExpectedRows, prints_of
from pyspark_tidelog.lake.layout import REASON, Layout
from pyspark_tidelog.partitions import LogSnapshot, TopicPartition
from pyspark_tidelog.records.columns import spark_schema
from pyspark_tidelog.source.fetch import read_ranges
from pyspark_tidelog.source.options import Options
from pyspark_tidelog.source.tasks import OffsetRange, cut_by_offsets
from pyspark_tidelog.tables.json_rows import arrow_type_of
from pyspark_tidelog.tables.table import Table


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a table: of rows, or of bad records."""

    table: Table
    schema: StructType
    added: tuple[str, ...] = ()
    """Columns that files of before do not have."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, in any order; raise JobError for a file of no job."""
        columns = StructType([self.schema[name] for name in names])
        wanted = pa.schema([(each.name, arrow_type_of(each.dataType)) for each in columns.fields])
        try:
            for batch in self.table.batches(columns):
                held = batch.schema.names
                arrays = [
                    pa.nulls(batch.num_rows, wanted.field(name).type)
                    if name in self.added and name not in held
                    else batch.column(name).cast(wanted.field(name).type)
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
        except (pa.ArrowException, KeyError, OSError) as error:
            raise JobError(f"{self.table.target} cannot be read: {error}") from error


TURN_OFFSETS: Final = 1 << 25
"""Offsets compared in one turn, which takes 300 MB."""


class Difference(NamedTuple):
    """One offset at which lake and log differ."""

    log: TopicPartition
    offset: int
    kind: str

    @property
    def sentence(self) -> str:
        """The difference in words."""
        what = {
            "missing": "is not in the lake",
            "repeated": "is in the lake more than once",
            "different": "is another record in the lake than in the log",
            "unknown": "is in the lake and not in the log",
        }
        return f"{self.log.described}, offset {self.offset} {what[self.kind]}"


@dataclass(slots=True)
class Verdict:
    """The result of a comparison."""

    rows: int = 0
    """Rows that are the same in lake and log."""
    quarantined: int = 0
    """Those of them that are in the table of bad records."""
    missing: int = 0
    repeated: int = 0
    different: int = 0
    unknown: int = 0
    behind: int = 0
    """Offsets of the log after the lake's last, which the job has not read yet."""
    gone: int = 0
    """Rows whose records retention has deleted from the log, so they cannot be compared."""
    first: Difference | None = None

    @property
    def is_same(self) -> bool:
        """Whether lake and log agree up to the lake's last offset."""
        return self.first is None

    def note(
        self, kind: str, log: TopicPartition, offsets: Sequence[int] | NDArray[np.int64]
    ) -> None:
        if len(offsets) == 0:
            return
        setattr(self, kind, getattr(self, kind) + len(offsets))
        found = Difference(log, int(min(offsets)), kind)
        if self.first is None or found[:2] < self.first[:2]:
            self.first = found


class Extent(NamedTuple):
    """A range of offsets; `end` is exclusive."""

    start: int
    end: int


class _StoredOffsets:
    """What the lake holds of a range of offsets that is compared in one turn."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted
        self.prints = np.zeros(wanted.offsets_count, np.uint64)
        self.counts = np.zeros(wanted.offsets_count, np.uint8)
        """How often each offset is in either table, at most 255."""
        self.is_bad = np.zeros(wanted.offsets_count, np.bool_)

    def add(self, offsets: NDArray[np.int64], prints: NDArray[np.uint64], *, is_bad: bool) -> None:
        inside = (offsets >= self.wanted.start_offset) & (offsets < self.wanted.end_offset)
        places = offsets[inside] - self.wanted.start_offset
        self.prints[places] = prints[inside]
        self.is_bad[places] |= is_bad
        more = np.bincount(places, minlength=len(self.counts)) if len(places) else 0
        self.counts[:] = np.minimum(self.counts + more, 255)


@dataclass(frozen=True, slots=True)
class Verifier:
    """Compares one lake with one log."""

    rows: StoredRows
    bad_rows: StoredRows | None
    """The table of bad records, if there is one."""
    layout: Layout
    options: Options
    snapshot: LogSnapshot
    turn_offsets: int = TURN_OFFSETS
    added: tuple[str, ...] = ()
    """Columns that the schema has gained, the oldest first."""

    def verify(self, expected: Mapping[TopicPartition, Extent] | None = None) -> Verdict:
        """Compare everything.

        `expected` are the offsets that must be in the lake, from the job's checkpoint; without it,
        those between the first and the last offset of each partition in the lake.
        """
        verdict = Verdict()
        rows = ExpectedRows(
            self.layout,
            self._content_columns(self.rows),
            None if self.bad_rows is None else self._content_columns(self.bad_rows),
            self.added,
        )
        turn: list[OffsetRange] = []
        for wanted in self._ranges(self._extents(verdict), expected or {}, verdict):
            size = sum(one.offsets_count for one in turn) + wanted.offsets_count
            if turn and size > self.turn_offsets:
                self._turn(turn, rows, verdict)
                turn = []
            turn.append(wanted)
        if turn:
            self._turn(turn, rows, verdict)
        return verdict

    def _extents(self, verdict: Verdict) -> dict[TopicPartition, Extent]:
        """Return the first and the last offset of each partition in the lake."""
        extents: dict[TopicPartition, Extent] = {}
        for stored in self._stored():
            batches = stored.batches(self._place_columns(stored))
            for log, offsets, _ in chain.from_iterable(map(_logs_in, batches)):
                marks = self.snapshot.marks.get(log)
                if marks is None:
                    verdict.note("unknown", log, offsets)
                    continue
                verdict.note("unknown", log, offsets[offsets >= marks.high_watermark])
                verdict.gone += int(np.count_nonzero(offsets < marks.log_start_offset))
                known = extents.get(log, Extent(int(offsets[0]), int(offsets[0]) + 1))
                extents[log] = Extent(
                    min(known.start, int(offsets.min())), max(known.end, int(offsets.max()) + 1)
                )
        return extents

    def _ranges(
        self,
        found: Mapping[TopicPartition, Extent],
        expected: Mapping[TopicPartition, Extent],
        verdict: Verdict,
    ) -> Iterator[OffsetRange]:
        """Yield the ranges to compare, each small enough for one turn."""
        for log, marks in sorted(self.snapshot.marks.items()):
            extents = [x for x in (found.get(log), expected.get(log)) if x is not None]
            start = min((x.start for x in extents), default=marks.end_offset)
            end = max((x.end for x in extents), default=marks.log_start_offset)
            start, end = max(start, marks.log_start_offset), min(end, marks.high_watermark)
            verdict.behind += max(marks.end_offset - max(end, marks.log_start_offset), 0)
            topic_id = self.snapshot.topic_ids.get(log.topic, "")
            whole = OffsetRange(log.topic, log.partition, start, end, topic_id)
            yield from cut_by_offsets([whole], max_records=self.turn_offsets)

    def _turn(self, ranges: Sequence[OffsetRange], rows: ExpectedRows, verdict: Verdict) -> None:
        of_log: dict[TopicPartition, list[_StoredOffsets]] = {}
        for wanted in ranges:
            of_log.setdefault(wanted.log, []).append(_StoredOffsets(wanted))
        for stored in self._stored():
            columns = [*self._place_columns(stored), *self._content_columns(stored)]
            for batch in stored.batches(columns):
                prints = prints_of(batch.select(self._content_columns(stored)))
                for log, offsets, chosen in _logs_in(batch):
                    for held in of_log.get(log, ()):
                        held.add(offsets, prints[chosen], is_bad=stored is self.bad_rows)
        for held in chain.from_iterable(of_log.values()):
            self._compare(held, rows, verdict)

    def _compare(self, held: _StoredOffsets, rows: ExpectedRows, verdict: Verdict) -> None:
        log, start = held.wanted.log, held.wanted.start_offset
        is_in_log = np.zeros(held.wanted.offsets_count, np.bool_)
        columns = spark_schema(include_headers=self.layout.has_headers).fieldNames()
        for records in read_ranges(self.options, columns, [held.wanted]):
            offsets = np.asarray(records.column("offset"))
            places = offsets - start
            is_in_log[places] = True
            counts, is_bad = held.counts[places], held.is_bad[places]
            expected = rows.prints(log, records, is_bad, held.prints[places])
            is_same = held.prints[places] == expected
            # A record without a fingerprint is neither in the lake nor in a table of bad records.
            is_elsewhere = (expected == 0) & (self.bad_rows is None)
            verdict.note("missing", log, offsets[(counts == 0) & ~is_elsewhere])
            verdict.note("repeated", log, offsets[counts > 1])
            verdict.note("different", log, offsets[(counts == 1) & ~is_same])
            is_right = (counts == 1) & is_same
            verdict.rows += int(np.count_nonzero(is_right))
            verdict.quarantined += int(np.count_nonzero(is_right & is_bad))
        verdict.note("unknown", log, np.flatnonzero((held.counts > 0) & ~is_in_log) + start)

    def _stored(self) -> list[StoredRows]:
        return [self.rows] if self.bad_rows is None else [self.rows, self.bad_rows]

    def _place_columns(self, stored: StoredRows) -> list[str]:
        if stored is self.bad_rows:
            return ["topic", "partition", "offset"]
        return [self.layout.name_of(name) for name in ("topic", "partition", "offset")]

    def _content_columns(self, stored: StoredRows) -> list[str]:
        places = {*self._place_columns(stored), REASON if stored is self.bad_rows else ""}
        return [name for name in stored.schema.fieldNames() if name not in places]


def _logs_in(
    batch: pa.RecordBatch,
) -> Iterator[tuple[TopicPartition, NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield each partition in a batch whose first columns are topic, partition and offset."""
    topics, partitions, offsets = (batch.column(index) for index in range(3))
    numbers = np.asarray(partitions)
    coded = topics.dictionary_encode()
    codes, all_offsets = np.asarray(coded.indices), np.asarray(offsets)
    for code, topic in enumerate(coded.dictionary.to_pylist()):
        for number in np.unique(numbers[codes == code]):
            chosen = (codes == code) & (numbers == number)
            yield TopicPartition(topic, int(number)), all_offsets[chosen], chosen
