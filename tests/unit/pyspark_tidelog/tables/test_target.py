"""What `--to` may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.tables.target import Target, local_folder, parse_target


def test_a_folder_may_be_written_as_an_address(tmp_path: Path) -> None:
    """Spark writes local folders as file: addresses; other file systems are refused."""
    assert local_folder("o", f"file://{tmp_path}") == local_folder("o", str(tmp_path)) == tmp_path
    assert local_folder("o", "lake") == Path.cwd() / "lake"
    for text in ("s3a://bucket/x", ""):
        with pytest.raises(OptionError, match="o must be a folder of this machine"):
            local_folder("o", text)


def test_an_object_store_takes_tables_not_files() -> None:
    """A reader that lists files there could see part of a micro-batch."""
    assert parse_target("delta:s3://b/t/") == Target("delta", "s3://b/t")
    with pytest.raises(OptionError, match="local folders; use delta:s3://b/t for an object store"):
        parse_target("parquet:s3://b/t")


def test_a_target_has_tables_below_it(tmp_path: Path) -> None:
    """A job of many topics fills one for each."""
    target = parse_target(f"delta:{tmp_path}").child("clicks")
    assert (target, str(target)) == (
        Target("delta", f"{tmp_path}/clicks"),
        f"delta:{tmp_path}/clicks",
    )
