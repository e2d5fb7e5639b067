"""Every mistake of the table in docs/ingest.md: its sentence, and the exit code for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from app.client.commands.session import EXIT_REFUSED
from pyspark_tidelog.ingest import runner
from pyspark_tidelog.lake.checkpoint import Checkpoint
from pyspark_tidelog.lake.identity import Terms, claimed
from pyspark_tidelog.tables.places import FolderPlace
from tests.cli.conftest import Run
from tests.cli.test_ingest_command import no_spark

PAGE: Final = Path(__file__).parents[2] / "docs" / "ingest.md"
ROWS: Final = dict(
    re.findall(
        r"^\| (.+?) \| (.+) \|$",
        PAGE.read_text()
        .partition("| mistake | sentence |\n| --- | --- |\n")[2]
        .partition("\n\n")[0],
        re.MULTILINE,
    )
)


def words(*, topic: str = "quays", to: str = "", more: tuple[str, ...] = ()) -> list[str]:
    """The words of a command; `to` has a place below the test's folder as `{}`."""
    return ["--topic", topic, "--to", to or "parquet:{}/lake", *more]


MISTAKES: Final[dict[str, list[str]]] = {
    "a topic that does not exist": words(topic="nowhere"),
    "a topic for bad records that does not exist": words(
        more=("--schema", "id INT", "--bad-records", "topic:dead")
    ),
    "a name that no topic can have": words(topic="a b"),
    "a wrong pattern": ["--topic-pattern", "[", "--to", "parquet:{}/lake"],
    "a wrong start": words(more=("--from", "yesterday")),
    "an unknown option of the source": words(more=("--option", "fetchByte=1")),
    "an unknown kind of table": words(to="csv:lake"),
    "Parquet in an object store": words(to="parquet:s3://bucket/lake"),
    "a folder that is a file": words(to="parquet:{}/file"),
    "a folder with other files": words(to="parquet:{}/foreign"),
    "table and checkpoint in one folder": words(to="parquet:{}/state"),
    "a folder that cannot be made": words(to="parquet:/proc/lake"),
    "a column that does not exist": words(more=("--partition-by", "nothing")),
    "a column that cannot partition": words(
        more=("--schema", "delay DOUBLE", "--partition-by", "delay")
    ),
    "a schema that is none": words(more=("--schema", "id")),
    "a file of a schema that is not there": words(more=("--schema", "{}/no.ddl")),
    "a schema to infer without a JSON object": words(more=("--schema", "infer")),
    "a rescue column without a schema": words(more=("--rescue", "more")),
    "bad records without a schema": words(more=("--bad-records", "parquet:{}/bad")),
    "a rescue column that is a field": words(more=("--schema", "id INT", "--rescue", "id")),
    "an object store without credentials": words(to="delta:s3://bucket/lake"),
    "an Iceberg name without a namespace": words(to="iceberg:lake"),
    "an Iceberg catalog that is not configured": words(to="iceberg:nowhere.ns.t"),
    "a database of a catalog that cannot be opened": words(to="iceberg:sql.ns.t"),
    "a catalog without a warehouse": words(to="iceberg:bare.ns.t"),
    "a file of metrics that cannot be written": words(more=("--metrics-file", "{}/none/job.prom")),
    "a log of Spark that cannot be written": words(more=("--spark-log", "{}/none/spark.log")),
    "another table with the same checkpoint": words(to="parquet:{}/second"),
    "an address that is none": words(more=("--server", "ftp://log")),
}


def make_foreign_files(folder: Path) -> None:
    (folder / "foreign").mkdir()
    (folder / "foreign" / "x.parquet").touch()


def make_another_job(folder: Path) -> None:
    terms = Terms(f"parquet:{folder / 'first'}", {"quays": "any"})
    places = [FolderPlace(folder / "first")]
    with claimed(Checkpoint(str(folder / "state")), places, terms):
        pass


BEFORE: Final[dict[str, Callable[[Path], object]]] = {
    "a folder that is a file": lambda folder: (folder / "file").touch(),
    "a folder with other files": make_foreign_files,
    "another table with the same checkpoint": make_another_job,
}


def test_every_mistake_of_the_page_is_made() -> None:
    """And each that is made is on the page."""
    assert list(ROWS) == list(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_with_its_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """As the page has it, in one line, with the code for what has to be changed first."""
    monkeypatch.setattr(runner, "local_session", no_spark)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1/169.254.169.254")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("PYICEBERG_CATALOG__SQL__URI", "sqlite:////nowhere/at/all.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SQL__WAREHOUSE", f"file://{tmp_path}")
    monkeypatch.setenv("PYICEBERG_CATALOG__BARE__URI", f"sqlite:///{tmp_path}/bare.db")
    run("create", "quays")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it was read at the import
    if mistake in BEFORE:
        BEFORE[mistake](tmp_path)
    given = [word.replace("{}", str(tmp_path)) for word in MISTAKES[mistake]]
    told = run("ingest", *given, "--checkpoint", str(tmp_path / "state"))
    assert told.exit_code == EXIT_REFUSED, told.stderr
    (line,) = [one for one in told.stderr.splitlines() if one.startswith("error: ")]
    parts = map(re.escape, ROWS[mistake].replace(r"\|", "|").split("…"))
    assert re.fullmatch("error: " + ".*".join(parts), line), line
