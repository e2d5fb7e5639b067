"""A listener of a committer for tests, and a disk whose syncs wait for the test."""

import threading
from collections.abc import Sequence
from pathlib import Path

from engine.errors import StorageError
from engine.log.log import Log
from tests.support.filesystem import ForgetfulDisk

PATIENCE_SECONDS = 30
"""How long a test waits for another thread before it calls it a failure."""


class Listener:
    """Records a committer's calls, and lets a test wait for one."""

    def __init__(self) -> None:
        self.rounds: list[list[tuple[Log, int]]] = []
        self.failures: list[tuple[list[Log], StorageError]] = []
        self._changed = threading.Condition()

    def committed(self, logs: Sequence[tuple[Log, int]]) -> None:
        with self._changed:
            self.rounds.append(list(logs))
            self._changed.notify_all()

    def failed(self, logs: Sequence[Log], error: StorageError) -> None:
        with self._changed:
            self.failures.append((list(logs), error))
            self._changed.notify_all()

    def wait_for_high_watermark(self, log: Log, offset: int) -> None:
        """Return once a round has reported that the log is committed up to `offset`."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any((log, offset) in told for told in self.rounds), PATIENCE_SECONDS
            )

    def wait_for_rounds(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.rounds) >= count, PATIENCE_SECONDS)

    def wait_for_failures(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.failures) >= count, PATIENCE_SECONDS)


class SlowDisk(ForgetfulDisk):
    """A disk whose syncs of `.log` files wait until the test lets them through, once it is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.syncs = 0
        self._arrived = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    def enter(self, name: str, path: Path) -> None:
        if name == "sync" and path.suffix == ".log":
            self.syncs += 1
            if self.is_slow:
                self._arrived.release()
                assert self._allowed.acquire(timeout=PATIENCE_SECONDS)
        super().enter(name, path)

    def wait_for_sync(self) -> None:
        """Return once a sync is on its way and waits."""
        assert self._arrived.acquire(timeout=PATIENCE_SECONDS)

    def let_through(self) -> None:
        """Let one sync, waiting or to come, reach the disk."""
        self._allowed.release()
