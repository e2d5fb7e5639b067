"""The findings of a check of a data directory, one value each."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from engine.types import UNKNOWN_OFFSET, UNKNOWN_POSITION


class Severity(enum.Enum):
    """How serious a finding is, and how it can be repaired."""

    NOTE = "note"
    """Not a problem: a leftover that opening removes, or an unknown file."""
    DERIVED = "derived"
    """A file disagrees with the `.log` files and can be rebuilt from them."""
    REFUSED = "refused"
    """Opening refuses the directory until an operator has acted."""
    DAMAGE = "damage"
    """Records, or data of which there is no copy, are lost or wrong; they cannot be restored."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, as a sentence; position and offset are -1 if unknown."""

    severity: Severity
    file: Path
    detail: str
    position: int = UNKNOWN_POSITION
    offset: int = UNKNOWN_OFFSET
    stale_files: tuple[Path, ...] = ()
    """The derived files to remove, so that opening rebuilds them."""
    is_left_to_opening: bool = False
    """Whether every opening repairs it, as the detail says."""

    @property
    def is_problem(self) -> bool:
        return self.severity is not Severity.NOTE

    def sentence(self, root: Path) -> str:
        """Return the finding as text; paths are relative to `root`."""
        file = self.file.relative_to(root) if self.file.is_relative_to(root) else self.file
        place = f", byte {self.position}" if self.position != UNKNOWN_POSITION else ""
        offset = f", offset {self.offset}" if self.offset != UNKNOWN_OFFSET else ""
        return f"{self.severity.value}: {file}{place}{offset}: {self.detail}"


Findings: TypeAlias = Iterator[Finding]


@dataclass(slots=True)
class Checked:
    """How much was checked."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """The log end of each partition, by directory name."""
