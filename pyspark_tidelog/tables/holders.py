"""Which process holds a checkpoint or a table, as a small document that lies there.

The document numbers the runs of a job. A table refuses a commit of an older run than the last one
that has written to it.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from pyspark_tidelog.errors import JobError

HOLDER_NAME: Final = "_tidelog-holder.json"


class Claim(Protocol):
    """The right of this process to write to a place."""

    @property
    def run(self) -> int:
        """The number of this run; each one at the place has a higher number. 0 if unknown."""

    def ensure_held(self) -> None:
        """Raise JobError if another process has taken the place over."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that cannot be lost while this process lives."""

    run: int = 0

    def ensure_held(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a place, or the last one that did."""

    run: int
    host: str
    pid: int
    since: str
    """For people. No program compares the clocks of two machines."""
    machine: str
    """The boot and the process namespace in which the number of the process is valid."""
    token: str
    """Unique; a process recognizes its own document by it."""
    renewals: int = 0
    is_released: bool = False

    @classmethod
    def after(cls, last: Holder | None) -> Holder:
        """Return this process as the next holder."""
        return cls(
            run=1 if last is None else last.run + 1,
            host=socket.gethostname(),
            pid=os.getpid(),
            since=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            machine=_machine(),
            token=str(uuid.uuid4()),
        )

    @classmethod
    def parse(cls, data: bytes, place: str) -> Holder:
        """Parse a document; raise JobError if it is damaged."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise JobError(f"{HOLDER_NAME} in {place} is damaged: {error}") from error

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    def encode(self) -> bytes:
        """Return the document."""
        return json.dumps(asdict(self)).encode()

    def renewed(self) -> Holder:
        """Return the document of the next renewal."""
        return replace(self, renewals=self.renewals + 1)

    def released(self) -> Holder:
        """Return the document of a holder that is done."""
        return replace(self, is_released=True)

    @property
    def is_gone(self) -> bool:
        """Whether the process is done, or was one of this machine and is dead."""
        if self.is_released:
            return True
        if not self.machine or self.machine != _machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


def _machine() -> str:
    """Return a name for all processes that share process numbers; empty if the system has none."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""
