"""The folder of the demo: one run at a time, begun afresh, kept for looking at afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOCK_NAME: Final = ".tidelog-demo"
_WAIT_S: Final = 20.0  # the children of a run that was killed are gone by then
_LOOK_AGAIN_S: Final = 0.2


class WorkspaceBusy(Exception):
    """Another run is using the folder, or it is not a folder of the demo."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where things of one run lie. `lock` is the descriptor that keeps others out.

    Children inherit it: whoever kills the demo keeps the folder until its last process has ended.
    """

    root: Path
    lock: int

    @property
    def data(self) -> Path:
        return self.root / "log"

    @property
    def service_output(self) -> Path:
        return self.root / "service.txt"

    @property
    def job_output(self) -> Path:
        return self.root / "job.txt"

    @property
    def spark_output(self) -> Path:
        return self.root / "spark.txt"

    @property
    def lake(self) -> Path:
        return self.root / "lake"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"


@contextmanager
def fresh_workspace(root: Path, *, wait_s: float = _WAIT_S) -> Iterator[Workspace]:
    """Yield the folder, emptied of an earlier run; raise WorkspaceBusy if it is not ours."""
    marker = root / _LOCK_NAME
    if root.exists() and not marker.exists() and any(root.iterdir()):
        raise WorkspaceBusy(f"{root} is there and not of the demo: remove it, or name another")
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(marker, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(lock, root, time.monotonic() + wait_s)
        _empty(root)
        yield Workspace(root, lock)
    finally:
        os.close(lock)


def _wait_for_lock(lock: int, root: Path, give_up_at: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                raise WorkspaceBusy(f"another demo is running in {root}") from None
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


def _empty(root: Path) -> None:
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK_NAME:
            entry.unlink()
