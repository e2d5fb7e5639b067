"""What peers need, fetched by the machine's own package managers into a folder that git ignores.

Addresses of registries are theirs to know, from their own configuration. What is there already is
not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

CACHE: Final = Path("build") / "peers"

_POMS: Final = Path(__file__).parent
_PYSPARK: Final = "4.2.0"  # the newest that Spark's Kafka source is published for
_LAKE_READER: Final = "4.1.4"  # the newest that Delta's and Iceberg's jars are both published for
_SAME_AS_HERE: Final = ("numpy", "pyarrow", "cramjam", "crc32c")


def jars_of(name: str) -> Path:
    """Return the folder with the jars that `<name>.pom.xml` asks for."""
    target = CACHE / name
    if not (target / "complete").exists():
        pom = _POMS / f"{name}.pom.xml"
        _run(
            "mvn",
            "--quiet",
            "--batch-mode",
            f"--file={pom}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={target.absolute()}",
        )
        (target / "complete").touch()
    return target.absolute()


def pyspark_python() -> Path:
    """Return the Python of an environment with the PySpark that both sources run on."""
    packages = [f"pyspark=={_PYSPARK}", *(f"{name}=={version(name)}" for name in _SAME_AS_HERE)]
    return _python_with("pyspark", packages)


def lake_reader_python() -> Path:
    """Return the Python of an environment with a PySpark that reads Delta and Iceberg by jars."""
    return _python_with("lake-reader", [f"pyspark=={_LAKE_READER}"])


def _python_with(name: str, packages: Sequence[str]) -> Path:
    target = CACHE / name
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(target))
        _run(str(python), "-m", "pip", "install", "--quiet", *packages)
        (target / "complete").touch()
    return python.absolute()


def crate_program(crate: str, release: str, program: str) -> Path:
    """Return a program of a Rust crate, compiled as its own lock says; that takes minutes."""
    target = CACHE / crate
    built = target / "bin" / program
    if not built.exists():
        _run("cargo", "install", crate, "--version", release, "--locked", "--root", str(target))
    return built.absolute()


def node_package(name: str, release: str) -> Path:
    """Return the folder of an npm package, its dependencies beside it."""
    target = CACHE / "node"
    if not (target / "complete").exists():
        _run("npm", "install", "--silent", "--prefix", str(target), f"{name}@{release}")
        (target / "complete").touch()
    return (target / "node_modules" / name).absolute()


def class_path(jars: Path) -> str:
    """Return what Java's `-cp` takes for a folder of jars."""
    return str(jars) + os.sep + "*"


def _run(program: str, *arguments: str) -> None:
    found = shutil.which(program)
    if found is None:
        raise SystemExit(f"{program} is needed to fetch the peers and is not on PATH")
    _check([found, *arguments])


def _check(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
