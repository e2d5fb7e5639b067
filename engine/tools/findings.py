"""What a check of a data directory finds: one value per finding, told as it is met."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from engine.types import UNKNOWN_OFFSET, UNKNOWN_POSITION


class Severity(enum.Enum):
    """What it takes to put something right."""

    NOTE = "note"
    """Nothing is wrong: a leftover that opening tidies up, a file that is not ours."""
    DERIVED = "derived"
    """A file disagrees with the `.log` files and can be made from them again."""
    REFUSED = "refused"
    """Opening refuses the directory until a person has acted."""
    DAMAGE = "damage"
    """Records, or what only one file knew, are lost or wrong; nothing here brings them back."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, in one sentence; -1 for a position or offset that it has not."""

    severity: Severity
    file: Path
    detail: str
    position: int = UNKNOWN_POSITION
    offset: int = UNKNOWN_OFFSET
    stale_files: tuple[Path, ...] = ()
    """The derived files to remove, so that opening makes them anew."""
    is_left_to_opening: bool = False
    """Whether every opening deals with it as the detail says."""

    @property
    def is_problem(self) -> bool:
        return self.severity is not Severity.NOTE

    def sentence(self, root: Path) -> str:
        """Say it for a person; files are named as they lie below `root`."""
        file = self.file.relative_to(root) if self.file.is_relative_to(root) else self.file
        place = f", byte {self.position}" if self.position != UNKNOWN_POSITION else ""
        offset = f", offset {self.offset}" if self.offset != UNKNOWN_OFFSET else ""
        return f"{self.severity.value}: {file}{place}{offset}: {self.detail}"


Findings: TypeAlias = Iterator[Finding]


@dataclass(slots=True)
class Checked:
    """How much was looked at."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """Where each partition ends, by the name of its directory."""
