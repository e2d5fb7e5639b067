"""Kafka's scripts as pages name them, for shells of tests: the jars have no `bin` folder."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.peers.packages import class_path
from pyspark_tidelog.java import find_java

_CLASSES: Final = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def with_scripts(folder: Path, jars: Path) -> Mapping[str, str]:
    """Write the scripts, and `tidelog`, into a folder; return an environment that finds them."""
    folder.mkdir()
    java = str(find_java(os.environ).path / "bin" / "java")
    commands = {name: [java, "-cp", class_path(jars), tool] for name, tool in _CLASSES.items()}
    commands["tidelog"] = [sys.executable, "-m", "app.cli"]
    for name, command in commands.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
