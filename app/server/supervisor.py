"""Notifies systemd of readiness, reloads, liveness and the stop: the protocol of sd_notify(3).

Without `NOTIFY_SOCKET` in the environment nothing is sent.
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
"""Interval at which readiness is checked during a start."""


class Supervisor:
    """The supervisor that the environment names. Belongs to the event loop."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        is_mine = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        limit_us = int(os.environ.get("WATCHDOG_USEC") or 0) if is_mine else 0
        self._pause_seconds = limit_us / 2_000_000
        """Half of the watchdog's timeout; 0: there is no watchdog."""

    @property
    def is_there(self) -> bool:
        """Whether the environment names a supervisor."""
        return self._address != ""

    def tell(self, *lines: str) -> None:
        """Send assignments such as `READY=1`; errors are ignored."""
        if self.is_there:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
            ):
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)

    def tell_reloading(self) -> None:
        """Announce a reload, as `Type=notify-reload` expects it; `READY=1` ends it."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1_000}")

    async def watch(self, is_ready: Callable[[], bool]) -> None:
        """Notify of readiness, then feed the watchdog from the event loop, until cancelled.

        A recovery may take longer than the start timeout of systemd, which is extended meanwhile.
        """
        while not is_ready():
            self.tell("EXTEND_TIMEOUT_USEC=30000000", "STATUS=opening the logs", "WATCHDOG=1")
            await asyncio.sleep(LOOK_SECONDS)
        self.tell("READY=1", "STATUS=ready")
        while self._pause_seconds:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._pause_seconds)
