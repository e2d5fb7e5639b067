"""The local session: what its Python processes are made of."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_python_processes_take_the_pyspark_that_is_installed_and_compiled(
    spark: SparkSession,
) -> None:
    """Not the zip file, which each of them would compile again for a second."""

    def path_of_pyspark(_: int) -> str:
        import pyspark  # noqa: PLC0415 -- in the other process

        return str(pyspark.__file__)

    places = spark.sparkContext.parallelize([0], 1).map(path_of_pyspark).collect()
    assert [Path(place).resolve() for place in places] == [Path(pyspark.__file__).resolve()]
