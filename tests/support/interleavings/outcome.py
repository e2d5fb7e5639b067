"""What came of one work, and what its thread may have seen of the log meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.interleavings.scene import Moment


@dataclass
class Outcome:
    """A result or an error; one moment for each time that the thread went on."""

    result: object = None
    error: Exception | None = None
    is_under_way: bool = False
    moments: list[Moment] = field(default_factory=list)
