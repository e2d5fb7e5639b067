"""Which process holds a checkpoint or a table, and for how long.

The holder is a small document that lies there. It numbers the runs of a job: a table refuses a
commit of an older run than the last one that has written to it.

In an object store the document is a lease. Only conditional puts change it: of two processes that
put at once, the store refuses one. The holder renews it every ten seconds. Another process takes it
over if its holder has released it or is a dead process of the same machine, or if it has not
changed for thirty seconds by the clock of the process that waits.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.tables.storage import Storage

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


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts, and how often it is looked at."""

    expiry_s: float = 30.0
    """Without a renewal for so long, another process may take the lease."""
    renewal_s: float = 10.0
    look_s: float = 1.0
    """Between two looks of a process that waits."""


TIMES: Final = LeaseTimes()


@contextmanager
def leased(storage: Storage, times: LeaseTimes = TIMES) -> Iterator[Lease]:
    """Hold the lease of a folder; raise JobError if another process holds it."""
    lease = Lease(storage, times)
    renewing = threading.Thread(target=lease.keep, name="tidelog-lease", daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        lease.release()
        renewing.join()


class Lease:
    """The lease of this process. Threads: `keep` runs on one, the other methods on any."""

    def __init__(self, storage: Storage, times: LeaseTimes = TIMES) -> None:
        """Take the lease; raise JobError if another process holds it."""
        self._storage = storage
        self._times = times
        self._lock = threading.Lock()
        self._is_ended = threading.Event()
        self._is_lost = False
        free = self._free_tag()
        last, tag = free if free is not None else (None, None)
        self._mine = Holder.after(last)
        self._renewed_s = time.monotonic()
        taken = storage.exchange(HOLDER_NAME, self._mine.encode(), tag)
        if taken is None:
            taken = self._own_tag()
        if taken is None:
            raise JobError(f"another job is running on {storage.url}: {self._other()}")
        self._tag = taken

    @property
    def run(self) -> int:
        return self._mine.run

    @property
    def token(self) -> str:
        """By which the holder's document is recognized."""
        return self._mine.token

    def ensure_held(self) -> None:
        """Raise JobError if the lease is lost; JobFailed if it is old and the store is down."""
        with self._lock:
            if time.monotonic() - self._renewed_s > self._times.expiry_s:
                self._renew(self._mine.renewed())
            if self._is_lost:
                raise JobError(
                    f"this job was paused or cut off for more than {self._times.expiry_s:g} "
                    f"seconds, and {self._storage.url} was taken over by {self._other()}"
                )

    def keep(self) -> None:
        """Renew the lease until it is released or lost."""
        while not self._is_ended.wait(self._times.renewal_s):
            # While the store is down, no other process can take the lease either.
            with self._lock, suppress(JobFailed):
                self._renew(self._mine.renewed())

    def release(self) -> None:
        """Let the next process take the lease at once."""
        with self._lock, suppress(JobFailed):
            self._is_ended.set()
            self._renew(self._mine.released())

    def _renew(self, document: Holder) -> None:
        """Replace the document, unless another process has; call it with the lock."""
        began_s = time.monotonic()
        tag: str | None = self._tag
        while tag is not None and not self._is_lost:
            done = self._storage.exchange(HOLDER_NAME, document.encode(), tag)
            if done is not None:
                self._mine, self._tag, self._renewed_s = document, done, began_s
                return
            tag = self._own_tag()  # an earlier renewal whose answer was lost
        self._is_lost = True
        self._is_ended.set()

    def _own_tag(self) -> str | None:
        """Return the tag of the document if it is of this lease."""
        found = self._storage.load_tagged(HOLDER_NAME)
        if found is None or self._parse(found.data).token != self.token:
            return None
        return found.tag

    def _other(self) -> str:
        """Return the present holder, for people."""
        data = self._storage.load(HOLDER_NAME)
        return "another process" if data is None else str(self._parse(data))

    def _free_tag(self) -> tuple[Holder, str] | None:
        """Return the last holder and the tag of its document once it may be replaced.

        None if there is none; raises JobError if the holder renews it meanwhile.
        """
        found = self._storage.load_tagged(HOLDER_NAME)
        if found is None:
            return None
        until_s = time.monotonic() + self._times.expiry_s
        if not (holder := self._parse(found.data)).is_gone:
            _LOG.warning(
                "%s is held by %s: waiting up to %g s to see whether that still runs",
                self._storage.url,
                holder,
                self._times.expiry_s,
            )
        while True:
            holder = self._parse(found.data)
            if holder.is_gone or time.monotonic() > until_s:
                return holder, found.tag
            time.sleep(self._times.look_s)
            now = self._storage.load_tagged(HOLDER_NAME)
            if now is None or (now.tag != found.tag and not self._parse(now.data).is_gone):
                raise JobError(f"another job is running on {self._storage.url}: {self._other()}")
            found = now

    def _parse(self, data: bytes) -> Holder:
        return Holder.parse(data, self._storage.url)
