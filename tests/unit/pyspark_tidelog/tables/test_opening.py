"""Tables by their targets, and the packages that they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.tables import opening
from pyspark_tidelog.tables.delta import DeltaTable
from pyspark_tidelog.tables.folders import FolderTable
from pyspark_tidelog.tables.iceberg import IcebergTable
from pyspark_tidelog.tables.opening import open_table
from pyspark_tidelog.tables.target import parse_target


def test_a_table_is_opened_by_its_kind(tmp_path: Path) -> None:
    """With the columns by which a new one is partitioned."""
    kinds = {
        f"delta:{tmp_path}": DeltaTable,
        "iceberg:lake.web.clicks": IcebergTable,
        f"parquet:{tmp_path}": FolderTable,
        f"json:{tmp_path}": FolderTable,
    }
    for name, kind in kinds.items():
        target = parse_target(name)
        assert open_table(target, ["day"]) == kind(target, ("day",))


@pytest.mark.parametrize(
    ("name", "package"), [("delta:/lake", "deltalake"), ("iceberg:a.b.c", "pyiceberg")]
)
def test_a_package_that_is_missing_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    """Before the service is asked; a table of files needs none."""
    monkeypatch.setattr(opening, "find_spec", lambda _: None)
    kind = name.partition(":")[0]
    with pytest.raises(
        OptionError, match=rf"needs {package}: run pip install 'pyspark-tidelog\[{kind}\]'"
    ):
        open_table(parse_target(name))
    open_table(parse_target("parquet:/lake"))
