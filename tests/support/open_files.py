"""A process that may open so many more files, and no others."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_files_left(count: int) -> Iterator[None]:
    """Let this process open `count` files more inside; the next one meets EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    gc.collect()  # a file that only a cycle still holds would be closed inside
    try:
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
        while True:
            try:
                held.append(os.dup(0))
            except OSError:
                break
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in held:
            os.close(number)
