"""Leases: one process at a time uses a folder of an object store.

A lease is the document of its holder. Only conditional puts change it: of two processes that put
at once, the store refuses one. The holder renews it every ten seconds. Another process takes it
over if its holder has released it or is a dead process of the same machine, or if it has not
changed for thirty seconds by the clock of the process that waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from pyspark_tidelog.errors import JobError, JobFailed
from pyspark_tidelog.tables.holders import HOLDER_NAME, Holder
from pyspark_tidelog.tables.storage import Storage

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
