"""Tells systemd how the service is: ready, alive, stopping; the protocol of sd_notify(3).

Another supervisor than systemd is told nothing: without `NOTIFY_SOCKET` there is nobody to tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

LOOK_SECONDS: Final = 0.1
"""How soon readiness is told."""


class Supervisor:
    """The supervisor of this process, as its environment names it. Belongs to the event loop."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_mine = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        limit_us = int(os.environ.get("WATCHDOG_USEC") or 0) if is_mine else 0
        self._pause_seconds = limit_us / 2_000_000
        """Half of the silence after which systemd kills the process; 0: it waits for ever."""

    @property
    def is_there(self) -> bool:
        """Whether there is somebody to tell."""
        return self._address != ""

    def tell(self, *lines: str) -> None:
        """Send assignments such as `READY=1`; nobody being there is no failure."""
        if self.is_there:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
            ):
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)

    def tell_reloading(self) -> None:
        """Say that a reload begins, as `Type=notify-reload` expects it; `READY=1` ends it."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1_000}")

    async def watch(self, is_ready: Callable[[], bool]) -> None:
        """Tell when the service is ready, then that the event loop runs; until cancelled.

        A recovery may take longer than systemd waits for a start, so it is told to wait on.
        """
        while not is_ready():
            self.tell("EXTEND_TIMEOUT_USEC=30000000", "STATUS=opening the logs", "WATCHDOG=1")
            await asyncio.sleep(LOOK_SECONDS)
        self.tell("READY=1", "STATUS=ready")
        while self._pause_seconds:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._pause_seconds)
