"""Problems name a file by topic, partition and file name, never by its path on the server's disk.

The log line of the same error has the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from engine.errors import InvalidDataDirectory
from engine.fs.names import parse_partition_directory

_FILES: Final = frozenset({"file", "segment"})
"""Members of errors that are a file's path or name."""


def without_paths(message: str, facts: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return an error's message and members as clients see them."""
    shown = dict(facts)
    for name in _FILES & shown.keys():
        path = Path(str(shown[name]))
        message = message.replace(f"{path.parent.parent}/", "")
        shown[name] = path.name
        try:
            log = parse_partition_directory(path.parent.name)
        except InvalidDataDirectory:
            continue  # a file of the data directory itself
        shown["topic"], shown["partition"] = log.topic, log.partition
    directory = str(shown.get("directory", ""))
    if directory.startswith("/"):
        del shown["directory"]
        message = message.replace(f"{directory}/", "").replace(directory, "a data directory")
    return message, shown


def without_directories(message: str, directories: Iterable[Path]) -> str:
    """Return a report about a file as clients see it: with its path in the data directory."""
    for directory in sorted(
        map(str, directories), key=len, reverse=True
    ):  # one may contain another
        path = rf"(?<![\w.-]){re.escape(directory)}"
        message = re.sub(rf"{path}/", "", message)
        if directory.startswith("/"):
            message = re.sub(rf"{path}(?![\w.-])", "a data directory", message)
    return message
