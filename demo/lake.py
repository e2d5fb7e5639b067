"""What is in the Delta table, read with delta-rs alone: no Spark, no service, no log."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

_CHECKSUM_BITS = (1 << 64) - 1


class Digest(NamedTuple):
    """How many values, and a checksum of them that does not depend on their order."""

    values: int
    checksum: int


def digest(values: Iterable[bytes]) -> Digest:
    """Return the same for the same values in any order; a copy too many or a changed byte tells."""
    count = 0
    checksum = 0
    for value in values:
        count += 1
        checksum += zlib.crc32(value) * (zlib.adler32(value) | 1)
    return Digest(count, checksum & _CHECKSUM_BITS)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which offsets of the log are in the lake."""

    rows: int
    distinct: int

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct


class Delay(NamedTuple):
    """The flights of one carrier, and how late they arrived; None if none of them arrived."""

    carrier: str
    flights: int
    mean_minutes: float | None


class Lake:
    """The rows of one topic in the table at `path`."""

    def __init__(self, path: Path, topic: str) -> None:
        rows = DeltaTable(path).to_pyarrow_dataset()
        self._rows = rows.filter(pc.field("topic") == topic)

    def coverage(self) -> Coverage:
        """Count the rows, and the different offsets among them."""
        places = self._rows.to_table(columns=["partition", "offset"])
        distinct = places.group_by(["partition", "offset"]).aggregate([])
        return Coverage(places.num_rows, distinct.num_rows)

    def values(self) -> Iterator[bytes]:
        """Yield every value, in no particular order, a batch at a time in memory."""
        for batch in self._rows.to_batches(columns=["value"]):
            yield from batch.column("value").to_pylist()

    def delays_by_carrier(self) -> list[Delay]:
        """Return flights and mean arrival delay by carrier, the latest first."""
        decode = msgspec.json.Decoder(_Flight).decode
        flights = [decode(value) for value in self.values()]
        table = pa.table(
            {
                "carrier": [flight.carrier for flight in flights],
                "arr_delay": pa.array([flight.arr_delay for flight in flights], pa.int64()),
            }
        )
        grouped = table.group_by("carrier").aggregate([([], "count_all"), ("arr_delay", "mean")])
        rows = grouped.take(pc.sort_indices(grouped, [("arr_delay_mean", "descending")]))
        return [
            Delay(row["carrier"], row["count_all"], row["arr_delay_mean"])
            for row in rows.to_pylist()
        ]


class _Flight(msgspec.Struct):
    carrier: str
    arr_delay: int | None
