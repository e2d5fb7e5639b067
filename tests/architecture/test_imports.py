"""The import contracts of pyproject.toml hold, and each of them breaks when it should."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ROOMS = ("app", "engine", "pyspark_tidelog", "schemas")

# A line planted at the end of a module, and the contract that must notice it.
PLANTED = [
    ("engine/log/__init__.py", "import asyncio", "engine-alone"),
    ("engine/segment/__init__.py", "import fastapi", "engine-alone"),
    ("engine/types.py", "import pydantic", "engine-alone"),
    ("engine/errors.py", "import schemas", "engine-alone"),
    ("engine/background/__init__.py", "import prometheus_client", "engine-alone"),
    ("engine/records/__init__.py", "import os", "codecs-pure"),
    ("engine/records/__init__.py", "import engine.fs", "codecs-pure"),
    ("engine/segment/__init__.py", "import engine.log", "engine-layers"),
    ("engine/index/__init__.py", "import engine.checkpoint", "engine-layers"),
    ("engine/types.py", "def late() -> None:\n    import engine.manager", "engine-layers"),
    ("engine/annex.py", "", "engine-layers"),
    ("engine/log/analyse.py", "import engine.log.state", "log-layers"),
    ("engine/log/annex.py", "", "log-layers"),
    ("schemas/__init__.py", "import engine.types", "schemas-alone"),
    ("pyspark_tidelog/__init__.py", "import schemas", "spark-alone"),
    ("pyspark_tidelog/sink/__init__.py", "import pyspark_tidelog.source.topics", "spark-layers"),
    ("pyspark_tidelog/annex.py", "", "spark-layers"),
    ("app/client/__init__.py", "import app.codecs", "client-alone"),
    ("app/client/commands/read.py", "from engine.errors import ErrorCode", "client-alone"),
    ("app/operations/read/fetch.py", "import engine.log.log", "operations-on-the-port"),
    ("app/codecs/receipts.py", "import engine.manager.manager", "operations-on-the-port"),
    ("app/api/routes/topics.py", "import engine.runtime", "operations-on-the-port"),
    ("app/operations/topics.py", "import app.store.kafka.store", "kafka-behind-the-port"),
    ("app/settings.py", "import app.operations", "service-layers"),
    ("app/annex.py", "", "service-layers"),
    ("app/store/port.py", "import app.http.answers", "http-begins-above"),
]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of the four rooms and their contracts, which a test may damage and mends.

    One for all tests: import-linter then reads again only what has changed.
    """
    copy = tmp_path_factory.mktemp("copied")
    for room in ROOMS:
        shutil.copytree(CHECKOUT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", copy)
    return copy


@contextmanager
def planted(module: Path, line: str) -> Iterator[None]:
    """Add a line to a module, made if need be, and take it out again."""
    before = module.read_text(encoding="utf-8") if module.exists() else None
    module.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        yield
    finally:
        if before is None:
            module.unlink()
        else:
            module.write_text(before, encoding="utf-8")


def lint(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter in a checkout, as `make lint` does."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-logo", *options],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_project_keeps_every_contract(copied: Path) -> None:
    """Nothing in the four rooms imports what its place forbids."""
    verdict = lint(copied)
    assert verdict.returncode == 0, verdict.stdout
    assert "Contracts: 12 kept, 0 broken." in verdict.stdout


@pytest.mark.parametrize(("path", "line", "contract"), PLANTED)
def test_a_planted_import_breaks_its_contract(
    copied: Path, path: str, line: str, contract: str
) -> None:
    """One forbidden line, planted in a copy, is enough to break the contract that forbids it."""
    with planted(copied / path, line):
        verdict = lint(copied, "--contract", contract)

    assert verdict.returncode == 1
    assert "Contracts: 0 kept, 1 broken." in verdict.stdout, verdict.stdout
