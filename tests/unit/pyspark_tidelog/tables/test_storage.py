"""Files in an object store: whole or not at all, and no secret where people read."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.parquet_files import FileWriter
from pyspark_tidelog.tables.storage import Storage, sentence_of
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target
from tests.support.object_stores import SECRET, Faults, ObjectStore, bucket_at, moto


def test_a_task_on_another_machine_has_the_drivers_options(
    bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They travel inside the pickled storage; its text does not show them."""
    storage = Storage.at(f"{bucket.url}/t")
    travelled = pickle.dumps(storage)
    for name in bucket.environment:
        monkeypatch.delenv(name)
    arrived: Storage = pickle.loads(travelled)
    assert SECRET not in repr(arrived)
    rows = pa.record_batch({"a": pa.array(range(100), pa.int64())})
    (file,) = FileWriter(arrived.open_output, rows.schema, "data").write(iter([rows]))
    found = pq.read_table(pa.BufferReader(bucket.read(f"t/{file.path}")))
    assert found["a"].to_pylist() == [*range(100)]
    assert file.size_bytes == len(bucket.read(f"t/{file.path}"))


def test_an_object_is_created_once(bucket: ObjectStore) -> None:
    """Of two that create it at the same time, the second learns that it was late.

    A put that is repeated because its answer was lost finds its own object, and is content.
    """
    storage = Storage.at(f"{bucket.url}/t")
    assert storage.load("x") is None
    assert [storage.create("x", data) for data in (b"1", b"2", b"1")] == [True, False, True]
    assert storage.load("x") == b"1"
    storage.replace("x", b"3")
    assert storage.load("x") == b"3"


def test_an_object_is_exchanged_for_another_by_its_tag(bucket: ObjectStore) -> None:
    """A tag that is not the present one changes nothing, whether the object exists or not."""
    storage = Storage.at(f"{bucket.url}/t")
    first = storage.exchange("x", b"1", None)
    assert first is not None
    second = storage.exchange("x", b"2", first)
    assert storage.load_tagged("x") == (b"2", second)
    assert [storage.exchange("x", b"3", tag) for tag in (first, None)] == [None, None]
    assert storage.exchange("y", b"3", first) is None
    assert (storage.load("x"), storage.load("y")) == (b"2", None)
    storage.create("below/z", b"")
    assert (storage.names(), storage.names("below")) == ((["below"], ["x"]), ([], ["z"]))


def test_a_bucket_that_is_missing_is_named_without_secrets(bucket: ObjectStore) -> None:
    """One sentence, in black and white."""
    storage = Storage.at("s3://no-such-bucket/t")
    with pytest.raises(JobFailed, match=r"^s3://no-such-bucket/t cannot be written: ") as failed:
        storage.create("x", b"")
    assert SECRET not in str(failed.value)
    assert "\n" not in str(failed.value)
    assert sentence_of(ValueError("\x1b[31m↳\x1b[0m a\n  b")) == "a b"


def test_a_server_in_trouble_gets_each_micro_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third request is refused, torn, not answered or loses its answer, and jobs restart."""
    faults = Faults()
    with moto(faults) as endpoint:
        bucket = bucket_at(endpoint)
        for name, value in {**bucket.environment, "AWS_TIMEOUT": "500ms"}.items():
            monkeypatch.setenv(name, value)
        table = DeltaTable(Target("delta", f"{bucket.url}/t"))
        rows = pa.record_batch({"n": pa.array(range(1_000), pa.int64())})
        schema = StructType([StructField("n", LongType())])

        def add(number: int) -> None:
            storage = Storage.at(table.target.place)
            writer = FileWriter(storage.open_output, rows.schema, f"batch-{number}")
            files = tuple(writer.write(iter([rows])))
            table.publish(Staged(Batch("job", number), rows.num_rows, schema, files))

        added = faults.add_through(table, add)
        found = [n for batch in table.batches(schema) for n in batch["n"].to_pylist()]
    assert sorted(found) == sorted([*range(1_000)] * added)
