"""A file that says by its age whether the service is ready: a health check without a request.

A probe that connects has to know the port, TLS and the names of hosts, and starts a program that
can; this one looks at a time of change. The event loop is what touches the file, so it is old, too,
when the loop stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 1.0


class HealthFile:
    """The file. Belongs to the event loop; the disk is left to a worker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_failed = False

    async def keep(self, is_ready: Callable[[], bool]) -> None:
        """Touch the file every second while the service is ready, until cancelled; then remove it.

        While it is not ready, the file is absent. A failure is logged once.
        """
        try:
            while True:
                work = self._path.touch if is_ready() else self._remove
                try:
                    await asyncio.to_thread(work)
                except OSError as error:
                    if not self._has_failed:
                        _LOG.error("the health file is not kept: %s", error)
                    self._has_failed = True
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            with contextlib.suppress(OSError):
                self._remove()

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
