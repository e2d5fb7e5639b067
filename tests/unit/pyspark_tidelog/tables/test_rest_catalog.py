"""A REST catalog that does not answer."""

from __future__ import annotations

import socket

import pytest
from pyiceberg.utils.config import Config

from pyspark_tidelog.errors import JobFailed
from pyspark_tidelog.tables import iceberg
from pyspark_tidelog.tables.iceberg import IcebergTable
from pyspark_tidelog.tables.table import Batch
from pyspark_tidelog.tables.target import parse_target


def test_a_catalog_that_accepts_and_never_answers_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyIceberg itself would wait forever."""
    monkeypatch.setattr(iceberg, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("PYICEBERG_CATALOG__SILENT__URI", uri)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read at the import
        with pytest.raises(JobFailed, match=r"catalog silent cannot be reached: .* timed out"):
            IcebergTable(parse_target("iceberg:silent.web.clicks")).has(Batch("job", 0))
