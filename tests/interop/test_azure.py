"""A Delta table in Azure's blob storage, as Microsoft's emulator Azurite serves it."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import re
import subprocess
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_tidelog.lake.maintenance import compact_table, vacuum_table
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.parquet_files import FileWriter
from pyspark_tidelog.tables.storage import Storage
from pyspark_tidelog.tables.table import Batch, Staged
from pyspark_tidelog.tables.target import Target

pytestmark = [pytest.mark.long, pytest.mark.needs("npm", "node")]

AZURITE = "azurite@3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = (  # of every Azurite, from its documentation
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
SCHEMA = StructType([StructField("offset", LongType())])


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A container named `lake`; the libraries find it."""
    folder = tmp_path_factory.mktemp("azurite")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", AZURITE], cwd=folder, check=True)
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
    running = subprocess.Popen([program, *options], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        said = (re.search(r"listens on (http://\S+)", line) for line in running.stdout)
        endpoint = next(filter(None, said))[1]
        create_container(f"{endpoint}/{ACCOUNT}")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
            environment.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
            environment.setenv("AZURITE_BLOB_STORAGE_URL", endpoint)
            yield "lake"
    finally:
        running.terminate()
        running.communicate()


def create_container(account: str) -> None:
    """Ask for it, signed as Azure's documentation says."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = f"PUT{12 * chr(10)}{signed}/{ACCOUNT}/{ACCOUNT}/lake\nrestype:container"
    proof = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(proof).decode()}"
    asked = Request(f"{account}/lake?restype=container", method="PUT", headers=headers)
    with urlopen(asked, timeout=10):
        pass


def staged(url: str, number: int) -> Staged:
    rows = pa.record_batch({"offset": pa.array([number], pa.int64())})
    writer = FileWriter(Storage.at(url).open_output, rows.schema, f"batch-{number}")
    return Staged(Batch("job", number, 7), 1, SCHEMA, tuple(writer.write(iter([rows]))))


@pytest.mark.parametrize(
    "url", ["az://{}/flights", "abfss://{}@devstoreaccount1.dfs.core.windows.net/clicks"]
)
def test_a_table_lives_in_azure(container: str, url: str) -> None:
    """Lease, identity, commits, a rival's commit, checkpoints, compaction, vacuum, takeover."""
    url = url.format(container)
    table = DeltaTable(Target("delta", url))
    with table.place.claim() as held:
        table.place.store("{}")
        assert (held.run, table.place.load()) == (1, "{}")
        for number in range(101):
            table.publish(staged(url, number))
        rival = staged(url, 101)
        DeltaTable(Target("delta", url)).publish(rival)
        table.publish(rival)
        assert table.has(rival.batch)
        assert compact_table(table).files_after == 1
        assert vacuum_table(table, "job", 0) == 102
        table.publish(staged(url, 102))
        found = [row for rows in table.batches(SCHEMA) for row in rows["offset"].to_pylist()]
        assert sorted(found) == [*range(103)]
    log = Storage.at(url).names("_delta_log")[1]
    assert sum(name.endswith(".checkpoint.parquet") for name in log) == 1
    with table.place.claim() as held:
        assert held.run == 2
