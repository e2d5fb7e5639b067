"""The deadline of a request body: it must keep moving, and be complete in time."""

from __future__ import annotations

from app.settings import Settings


class Pace:
    """The deadline of a body: it must not stall, and must be complete in time."""

    __slots__ = ("_end", "_fresh_bytes", "_settings", "deadline")

    def __init__(self, settings: Settings, now: float) -> None:
        self._settings = settings
        self._end = now + settings.body_timeout_ms / 1000
        self._fresh_bytes = 0
        self.deadline = now
        """By the loop's clock."""
        self._extend(now)

    def came(self, size_bytes: int, now: float) -> None:
        """Extend the deadline once enough bytes have arrived since the last extension."""
        self._fresh_bytes += size_bytes
        settings = self._settings
        due = settings.min_body_bytes_per_second * settings.body_stall_timeout_ms
        if self._fresh_bytes * 1000 >= due:
            self._extend(now)

    def _extend(self, now: float) -> None:
        self._fresh_bytes = 0
        self.deadline = min(self._end, now + self._settings.body_stall_timeout_ms / 1000)

    @property
    def complaint(self) -> str:
        """The error message after the deadline."""
        settings = self._settings
        if self.deadline == self._end:
            return f"the body did not arrive within {settings.body_timeout_ms} ms"
        return (
            f"less than min_body_bytes_per_second ({settings.min_body_bytes_per_second}) "
            f"of the body arrived for {settings.body_stall_timeout_ms} ms"
        )
