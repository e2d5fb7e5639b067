"""The table that a job writes to (`--to`): its kind, and the place where it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark_tidelog.errors import OptionError

KINDS: Final = ("parquet", "delta", "json")


@dataclass(frozen=True, slots=True)
class Target:
    """The value of `--to`."""

    kind: str
    place: str
    """An absolute path."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    @property
    def folder(self) -> Path:
        """The folder of a local table."""
        return Path(self.place)

    def child(self, name: str) -> Target:
        """Return the target of the same kind that is named `name` below this one."""
        return Target(self.kind, f"{self.place}/{name}")


def parse_target(text: str) -> Target:
    """Parse `parquet:PATH`, `delta:PATH` or `json:PATH`; raise OptionError for anything else."""
    kind, separator, path = text.partition(":")
    if kind not in KINDS or not separator or not path:
        raise OptionError(
            f"the sink must be {', '.join(f'{k}:PATH' for k in KINDS[:-1])} or {KINDS[-1]}:PATH, "
            f"not {text!r}"
        )
    return Target(kind, str(local_folder("the path of the sink", path)))


def local_folder(option: str, text: str) -> Path:
    """Return the absolute path of a local path or `file:` URL; raise OptionError for others."""
    path = text.removeprefix("file://") if text.startswith("file:///") else text
    if not path or "://" in path:
        raise OptionError(f"{option} must be a folder of this machine, not {text!r}")
    return Path(path).expanduser().absolute()
