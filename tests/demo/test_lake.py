"""What the demo reads from the lake, on small lakes of known content."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from demo.lake import Coverage, Delay, Lake, digest

Row = tuple[str, int, int, bytes]


def lake_of(folder: Path, *batches: list[Row]) -> Path:
    for rows in batches:
        topics, partitions, offsets, values = zip(*rows, strict=True)
        columns = {"topic": topics, "partition": partitions, "offset": offsets, "value": values}
        write_deltalake(folder, pa.table(columns), mode="append")
    (folder / "_tidelog-job.json").write_text("{}")
    return folder


def flight(carrier: str, delay: int | None) -> bytes:
    return b'{"carrier":"%s","arr_delay":%s,"more":1}' % (
        carrier.encode(),
        b"null" if delay is None else b"%d" % delay,
    )


def test_only_the_topic_asked_for_is_read(tmp_path: Path) -> None:
    """One lake holds several topics, and each is counted by itself."""
    rows: list[Row] = [("a", 0, 0, b"x"), ("b", 0, 0, b"y"), ("a", 1, 0, b"z")]
    lake = lake_of(tmp_path, rows)
    assert sorted(Lake(lake, "a").values()) == [b"x", b"z"]
    assert Lake(lake, "b").coverage() == Coverage(rows=1, distinct=1)


def test_a_record_that_came_twice_is_a_duplicate(tmp_path: Path) -> None:
    """The same offset of the same partition in two micro-batches is counted."""
    rows: list[Row] = [("a", 0, 0, b"x"), ("a", 0, 1, b"y"), ("a", 1, 0, b"z")]
    coverage = Lake(lake_of(tmp_path, rows, rows[:2]), "a").coverage()
    assert (coverage.rows, coverage.distinct, coverage.duplicates) == (5, 3, 2)


def test_delays_are_averaged_over_flights_that_arrived(tmp_path: Path) -> None:
    """Cancelled flights count as flights and not as delays; the latest carrier comes first."""
    values = [
        flight("AA", 10),
        flight("AA", None),
        flight("BB", 30),
        flight("BB", 31),
        flight("CC", None),
    ]
    rows: list[Row] = [("f", 0, n, value) for n, value in enumerate(values)]
    assert Lake(lake_of(tmp_path, rows), "f").delays_by_carrier() == [
        Delay("BB", 2, 30.5),
        Delay("AA", 2, 10.0),
        Delay("CC", 1, None),
    ]


@given(st.lists(st.binary(max_size=20), max_size=20), st.randoms())
def test_the_digest_does_not_depend_on_the_order(values: list[bytes], chance: object) -> None:
    """Partitions and micro-batches may shuffle the values; the digest stays."""
    shuffled = values.copy()
    chance.shuffle(shuffled)  # type: ignore[attr-defined] # a random.Random
    assert digest(shuffled) == digest(values)


@pytest.mark.parametrize(
    "others",
    [[b"a", b"b"], [b"a", b"b", b"b"], [b"a", b"b", b"d"], [b"a", b"b", b"c", b"c"], []],
)
def test_the_digest_tells_other_values(others: list[bytes]) -> None:
    """One value less, one twice, one changed: the digest differs."""
    assert digest(others) != digest([b"a", b"b", b"c"])
