"""How much may be at work at once, and whether the service takes requests at all.

Everything that a request can make the process hold is counted here before it is held: requests,
bytes of bodies, bytes of answers, waiting readers, tails. Belongs to the event loop.
"""

from __future__ import annotations

import contextlib
import enum
import os
import resource
import sys
from pathlib import Path
from typing import Final

from app.problems import Draining
from app.settings import Settings
from engine.errors import Overloaded, PolicyViolation, Recovering

FILES_OF_PARTITION: Final = 6
"""Open files of a new partition, the first segment's, and one to spare."""

SPARE_FILES: Final = 256
"""Left to rolls, checkpoints and connections when partitions are made."""

_OPEN_FILES: Final = Path("/proc/self/fd")
"""A directory whose length is how many there are."""


class Phase(enum.Enum):
    """Where the service is in its life."""

    RECOVERING = "recovering"
    READY = "ready"
    DRAINING = "draining"


class Admission:
    """Counts what is held, against the named limits of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.phase = Phase.RECOVERING
        self.requests = 0
        self.body_bytes = 0
        self.answer_bytes = 0
        self.waiting_readers = 0
        self.tails = 0

    def admit(self) -> Ticket:
        """Let a request in; raises Recovering, Draining or Overloaded."""
        if self.phase is not Phase.READY:
            if self.phase is Phase.DRAINING:
                raise Draining("the service is stopping")
            raise Recovering("the logs are being opened; /readyz tells the progress")
        if self.requests >= self._settings.max_in_flight_requests:
            raise _full("max_in_flight_requests", self._settings.max_in_flight_requests)
        self.requests += 1
        return Ticket(self)

    def ensure_connection(self, count: int) -> None:
        """Raise Overloaded if so many connections are more than there may be.

        They leave half of the files that the process may open to the logs: one that cannot open
        its next segment takes no appends.
        """
        limit = min(self._settings.max_connections, _allowed_files() // 2)
        if count > limit:
            raise _full("max_connections", limit)

    def ensure_body_bytes(self, size_bytes: int) -> None:
        """Raise Overloaded unless so many more bytes of bodies may be held."""
        if self.body_bytes + size_bytes > self._settings.max_in_flight_bytes:
            raise _full("max_in_flight_bytes", self._settings.max_in_flight_bytes)

    def ensure_answer_bytes(self, size_bytes: int) -> None:
        """Raise Overloaded unless so many more bytes of answers may be held.

        One answer alone is always let through: at least one batch is returned, however large.
        """
        limit = self._settings.max_in_flight_answer_bytes
        if self.answer_bytes and self.answer_bytes + size_bytes > limit:
            raise _full("max_in_flight_answer_bytes", limit)

    def ensure_reader(self) -> None:
        """Raise Overloaded unless one more reader may wait."""
        if self.waiting_readers >= self._settings.max_waiting_readers:
            raise _full("max_waiting_readers", self._settings.max_waiting_readers)

    def ensure_tail(self) -> None:
        """Raise Overloaded unless one more client may tail a log."""
        if self.tails >= self._settings.max_tails:
            raise _full("max_tails", self._settings.max_tails)


def ensure_files(partitions: int, existing: int) -> None:
    """Raise PolicyViolation unless so many more partitions leave files to open for all else.

    Logs that find no more files have no next segment, and take no appends from then on.
    `existing` and the event loop: as in `spare_files`.
    """
    spare = spare_files(existing)
    if partitions * FILES_OF_PARTITION > spare:
        raise PolicyViolation(
            f"{partitions} partitions more need {FILES_OF_PARTITION} open files each, and "
            f"{max(spare, 0)} can still be opened; raise the limit of open files (ulimit -n)",
            limit="open_files",
        )


def spare_files(existing: int) -> int:
    """Return how many more files may be opened, when all existing partitions are appended to.

    Negative if not even they can be: one that rests has a single file open. May have to list the
    open files, so it is not for the event loop.
    """
    return _allowed_files() - max(_open_files(), existing * FILES_OF_PARTITION) - SPARE_FILES


def _open_files() -> int:
    """Return how many files the process has open; a list of thousands takes milliseconds."""
    with contextlib.suppress(FileNotFoundError):  # no Linux
        told = _OPEN_FILES.stat().st_size
        if told:  # since Linux 6.2
            return told
    with os.scandir("/dev/fd") as found:
        return sum(1 for _ in found)


def _allowed_files() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return files % sys.maxsize  # no limit at all is -1


class Ticket:
    """What one request holds; `close` gives all of it back."""

    __slots__ = ("_admission", "_answer_bytes", "_body_bytes", "_tails", "_waits")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._body_bytes = 0
        self._answer_bytes = 0
        self._tails = False
        self._waits = False

    def hold_body(self, size_bytes: int) -> None:
        """Count bytes of the body that are about to be held; raises Overloaded."""
        self._admission.ensure_body_bytes(size_bytes)
        self._admission.body_bytes += size_bytes
        self._body_bytes += size_bytes

    def settle_body(self, size_bytes: int) -> None:
        """Count so many bytes of the body as held from now on; raises Overloaded for more."""
        more = size_bytes - self._body_bytes
        if more > 0:
            self._admission.ensure_body_bytes(more)
        self._admission.body_bytes += more
        self._body_bytes = size_bytes

    def hold_answer(self, size_bytes: int) -> None:
        """Count bytes of the answer that are about to be held; raises Overloaded."""
        self._admission.ensure_answer_bytes(size_bytes)
        self._admission.answer_bytes += size_bytes
        self._answer_bytes += size_bytes

    def settle_answer(self, size_bytes: int) -> None:
        """Correct what `hold_answer` assumed to the answer's true size."""
        self._admission.answer_bytes += size_bytes - self._answer_bytes
        self._answer_bytes = size_bytes

    def park(self) -> None:
        """Become a waiting reader instead of a request at work; raises Overloaded."""
        if not self._waits:
            self._admission.ensure_reader()
            self._admission.waiting_readers += 1
            self._admission.requests -= 1
            self._waits = True

    def resume(self) -> None:
        """Become a request at work again, even above the limit: its reader has waited enough."""
        if self._waits:
            self._admission.waiting_readers -= 1
            self._admission.requests += 1
            self._waits = False

    def tail(self) -> None:
        """Become a tail for good instead of a request at work; raises Overloaded."""
        self._admission.ensure_tail()
        self._admission.tails += 1
        self._admission.requests -= 1
        self._tails = True

    def close(self) -> None:
        self.resume()
        if self._tails:
            self._admission.tails -= 1
        else:
            self._admission.requests -= 1
        self._admission.body_bytes -= self._body_bytes
        self._admission.answer_bytes -= self._answer_bytes


def _full(limit: str, value: int) -> Overloaded:
    return Overloaded(f"{limit} ({value}) is reached", limit=limit, limit_value=value)
