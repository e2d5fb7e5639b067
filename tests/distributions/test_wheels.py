"""The two distributions: the service, and the Spark source without the service's packages."""

from __future__ import annotations

import json
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


IMPORTS = """
import importlib, pkgutil, tidelog
for one in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
    if not one.name.endswith("__main__"):
        importlib.import_module(one.name)
print("imported")
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
    """`app`, `engine` and `schemas` would meet a user's own packages: they lie below one name."""
    assert top_level(wheels["tidelog"]) == {"tidelog"}
    assert top_level(wheels["pyspark_tidelog"]) == {"pyspark_tidelog"}


@pytest.mark.needs("console")
def test_the_wheel_holds_the_console(wheels: dict[str, Path]) -> None:
    """Every file of the build, in each coding, and none of its sources."""
    built = {
        f"tidelog/{path.relative_to(ROOT).as_posix()}"
        for path in STATIC.rglob("*")
        if path.is_file()
    }
    names = set(zipfile.ZipFile(wheels["tidelog"]).namelist())
    assert built == {name for name in names if "static/" in name}
    assert not [name for name in names if name.endswith((".ts", ".tsx"))]


@pytest.fixture(scope="module")
def unpacked(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The service's wheel as pip installs it; what it depends on is here."""
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheels["tidelog"]).extractall(folder)
    return folder


def run(folder: Path, *arguments: str, cwd: Path) -> str:
    """Run Python with what was unpacked before the checkout; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), str(folder)])}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_library_page_does_what_it_says(unpacked: Path, tmp_path: Path) -> None:
    """Open, append, read and follow, from the wheel alone."""
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    said = run(unpacked, "-c", program, cwd=tmp_path).splitlines()
    assert said == ["on disk below 1", "0 b'key' b'first'", "1 None b'second'"]


def test_packages_of_the_user_are_not_ours(unpacked: Path, tmp_path: Path) -> None:
    """Somebody's own `app` is found first, and nothing of ours looks for it."""
    for name in ("app", "engine", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('not ours')\n")
    assert "serve" in run(unpacked, "-m", "tidelog", "--help", cwd=tmp_path)
    assert json.loads(run(unpacked, "-m", "tidelog", "openapi", cwd=tmp_path)) == json.loads(
        (ROOT / "openapi" / "openapi.json").read_text(encoding="utf-8")
    )
    assert run(unpacked, "-c", IMPORTS, cwd=tmp_path) == "imported\n"


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
