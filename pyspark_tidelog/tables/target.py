"""The table that a job writes to (`--to`): its kind, and the place where it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_tidelog.documents import TOPIC_NAME
from pyspark_tidelog.errors import OptionError

KINDS: Final = ("parquet", "delta", "iceberg", "json")
SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
"""Of object stores, as delta-rs and obstore name them."""


@dataclass(frozen=True, slots=True)
class Target:
    """The value of `--to`."""

    kind: str
    place: str
    """An absolute path, the URL of a Delta table, or an Iceberg table in its catalog."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def folder(self) -> Path:
        """The folder of a local table."""
        return Path(self.place)

    def child(self, name: str) -> Target:
        """Return the target of the same kind that is named `name` below this one.

        Raises OptionError for a name that would lead elsewhere.
        """
        if not re.fullmatch(TOPIC_NAME, name):
            raise OptionError(f"a table cannot be named {name!r}")
        if self.kind == "iceberg":
            if "." in name:
                raise OptionError(f"an Iceberg table cannot be named {name}, because of the dot")
            return Target(self.kind, f"{self.place}.{name}")
        return Target(self.kind, f"{self.place}/{name}")


def parse_target(text: str) -> Target:
    """Parse the value of `--to`; raise OptionError if it names no table."""
    kind, separator, path = text.partition(":")
    if kind not in KINDS or not separator or not path:
        raise OptionError(
            f"the sink must be parquet:PATH, json:PATH, delta:PATH, delta:URL or "
            f"iceberg:CATALOG.NAMESPACE.TABLE, not {text!r}"
        )
    if kind == "iceberg":
        return Target(kind, path)
    if kind == "delta" and is_remote(path):
        return Target(kind, path.rstrip("/"))
    if is_remote(path):
        raise OptionError(f"{kind}: writes local folders; use delta:{path} for an object store")
    return Target(kind, str(local_folder("the path of the sink", path)))


def is_remote(path: str) -> bool:
    """Whether a path is the URL of an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme in SCHEMES


def local_folder(option: str, text: str) -> Path:
    """Return the absolute path of a local path or `file:` URL; raise OptionError for others."""
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    if not path or "://" in path:
        raise OptionError(f"{option} must be a folder of this machine, not {text!r}")
    return Path(path).expanduser().absolute()
