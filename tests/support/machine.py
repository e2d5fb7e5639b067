"""The power switch of a disk in memory: what reached it, what is to fail, when the power goes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

CHANGES = frozenset(
    {
        "append",
        "create",
        "make_directory",
        "remove",
        "remove_tree",
        "rename",
        "resize",
        "set_modified_ms",
        "sync",
        "sync_directory",
        "sync_file_system",
        "truncate",
    }
)
"""The operations that can make a difference to what a restart finds."""


class PowerCut(BaseException):
    """The machine is off; raised by every operation until it restarts.

    Not an `Exception`, so that no handler of errors catches it.
    """

    def __init__(self, *, tears_append: bool = False) -> None:
        super().__init__("the power is off")
        self.tears_append = tears_append


class TornWrite(OSError):
    """A write failed half-way, and what was half written could not be cut off again."""


class Operation(NamedTuple):
    """One call that reached the disk."""

    name: str
    path: Path


@dataclass
class Fault:
    """An error that one of the coming calls will meet."""

    name: str
    """Of the operation; empty for any."""
    path_end: str
    calls_left: int
    error: OSError

    def is_about(self, name: str, path: Path) -> bool:
        return self.name in {"", name} and str(path).endswith(self.path_end)


QUICK = frozenset({"load", "store"})
"""Operations on a few bytes in memory, during which no other thread acts."""

BY_PATH = frozenset({"open", "open_index", "read", "look"})
"""Operations that are given a path, which their errors name; the others have an open file."""


class Machine:
    """Records the operations of a disk and lets them fail as ordered. Thread-safe."""

    def __init__(self) -> None:
        self.changes: list[Operation] = []
        """The operations so far that could make a difference to a restart, in order."""
        self.calls = 0
        """How many operations there were, changes or not."""
        self.generation = 0
        """How often the machine was restarted."""
        self.meanwhile: Callable[[Operation], None] | None = None
        """Called before each operation: what others do while the caller waits for the disk."""
        self.remaining_changes = sys.maxsize
        """How many changes the file system still allows before it turns read-only."""
        self._lock = threading.RLock()
        self._faults: list[Fault] = []
        self._cut_before: int | None = None
        self._is_torn = False
        self._is_off = False
        self._is_looked_at = False

    def fail(
        self,
        name: str,
        *,
        error: int = errno.EIO,
        nth: int = 1,
        path_end: str = "",
        torn: bool = False,
    ) -> None:
        """Let the nth coming operation of this name, on a path ending so, fail without effect.

        Without a name it is the nth of any. A failed sync makes the kernel mark the pages clean:
        later syncs of that file succeed and write only what is changed after it. With `torn`, an
        append that fails leaves its first half.
        """
        kind = TornWrite if torn else OSError
        self._faults.append(Fault(name, path_end, nth, kind(error, os.strerror(error))))

    def forget_faults(self) -> bool:
        """Let everything succeed from now on; return whether something was still to fail."""
        had_faults = bool(self._faults) or self._cut_before is not None
        self._faults.clear()
        self._cut_before = None
        return had_faults

    @contextlib.contextmanager
    def power_cut_before(self, change: int, *, torn: bool = False) -> Iterator[None]:
        """Cut the power before the nth change from now; 1 is the next one.

        With `torn`, half of it is written if it is an append.
        """
        self._cut_before, self._is_torn = len(self.changes) + change, torn
        try:
            yield
        finally:
            self._cut_before = None

    @contextlib.contextmanager
    def looked_at(self) -> Iterator[None]:
        """Let a test read files in between: nothing is counted, and nothing fails."""
        self._is_looked_at = True
        try:
            yield
        finally:
            self._is_looked_at = False

    def enter(self, name: str, path: Path) -> None:
        """Record an operation; raise what was ordered for it."""
        if self._is_looked_at:
            return
        if self.meanwhile is not None and name not in QUICK:
            self.meanwhile(Operation(name, path))
        with self._lock:
            if self._is_off:
                raise PowerCut
            if name in CHANGES:
                self._change(name, path)
            self.calls += 1
            for fault in self._faults:
                if fault.is_about(name, path):
                    fault.calls_left -= 1
                    if fault.calls_left == 0:
                        self._faults.remove(fault)
                        if name in BY_PATH:
                            fault.error.filename = str(path)
                        raise fault.error

    def _change(self, name: str, path: Path) -> None:
        """Record a change, unless the power is cut before it, or the file system is read-only."""
        if self.remaining_changes == 0:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        self.remaining_changes -= 1
        if self._cut_before is not None and len(self.changes) + 1 >= self._cut_before:
            self._is_off = True
            raise PowerCut(tears_append=self._is_torn and name == "append")
        self.changes.append(Operation(name, path))

    def _start_anew(self) -> None:
        self.generation += 1
        self._faults.clear()
        self._is_off = False


def os_error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
