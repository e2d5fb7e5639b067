"""What came of one work, and what its thread may have seen of the log meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.interleavings.scene import Moment


@dataclass
class Outcome:
    """A result or an error; one moment for each time the thread continued."""

    result: object = None
    error: Exception | None = None
    is_under_way: bool = False
    moments: list[Moment] = field(default_factory=list)

    def note(self, moment: Moment) -> None:
        """Record a moment; what was appended since the previous one was uncommitted at first."""
        if self.moments:
            before = self.moments[-1]
            before.is_appending |= moment.marks.log_end_offset > before.marks.log_end_offset
        self.moments.append(moment)
