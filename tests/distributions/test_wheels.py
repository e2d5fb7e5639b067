"""The two distributions: the service, and the Spark source without the service's packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.support.process import PATIENCE_S
from tests.support.raw import until

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "app" / "api" / "console" / "static"
SPARK_PROJECT = ROOT / "distributions" / "pyspark-tidelog"

READING = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
options = {"url": sys.argv[1], "subscribe": "events", "startingOffsets": "earliest"}
rows = spark.read.format("tidelog").options(**options).load().collect()
print("values", [bytes(row.value).decode() for row in rows])
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built as `make dist` does, by the name of their distribution."""
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *options, str(ROOT), str(SPARK_PROJECT)], check=True)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def top_level(wheel: Path) -> set[str]:
    names = (name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist())
    return {name for name in names if not name.endswith(".dist-info")}


def test_each_wheel_holds_its_own_packages(wheels: dict[str, Path]) -> None:
    """`app`, `engine` and `schemas` would meet a user's own packages in a Spark environment."""
    assert top_level(wheels["tidelog"]) == {"app", "engine", "schemas"}
    assert top_level(wheels["pyspark_tidelog"]) == {"pyspark_tidelog"}


@pytest.mark.needs("console")
def test_the_wheel_holds_the_console(wheels: dict[str, Path]) -> None:
    """Every file of the build, in each coding, and none of its sources."""
    built = {path.relative_to(ROOT).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    names = set(zipfile.ZipFile(wheels["tidelog"]).namelist())
    assert built == {name for name in names if "static/" in name}
    assert not [name for name in names if name.endswith((".ts", ".tsx"))]


def test_both_have_one_version() -> None:
    """They are released together."""
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT, SPARK_PROJECT)
    ]
    assert len({project["project"]["version"] for project in projects}) == 1


def environment(folder: Path, *wheels: str) -> Path:
    """Make a clean environment with these wheels and what they ask for; return its programs."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *wheels], check=True)
    return folder / "bin"


@pytest.mark.long
def test_each_wheel_works_in_a_clean_environment(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The service takes records, and a Spark session elsewhere reads them."""
    service = environment(tmp_path / "service", str(wheels["tidelog"]))
    spark = environment(tmp_path / "spark", f"{wheels['pyspark_tidelog']}[java]")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    serve = [str(service / "tidelog"), "serve", "--port", "0", "--data-dir"]
    with subprocess.Popen(
        [*serve, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env=clean,
        cwd=tmp_path,
    ) as served:
        try:
            assert served.stdout is not None
            url = served.stdout.readline().split()[-1]
            with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
                until(lambda: client.get("/readyz").is_success)  # it listens before logs are open
                client.put("/v1/topics/events", json={}).raise_for_status()
                records = {"records": [{"value": "first"}, {"value": "second"}]}
                client.post("/v1/topics/events/records", json=records).raise_for_status()
            done = subprocess.run(
                [spark / "python", "-c", READING, url],
                capture_output=True,
                text=True,
                env=clean,
                cwd=tmp_path,
                check=False,
            )
        finally:
            served.terminate()
    assert re.findall(r"values (.*)", done.stdout) == ["['\"first\"', '\"second\"']"], done.stderr
