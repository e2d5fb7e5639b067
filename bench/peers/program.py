"""A peer's service in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import httpx

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.1
_TOLD: Final = 2_000


class Program:
    """A program that listens at `url`, while the `with` block runs; what it says goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path, url: str) -> None:
        self.url = url
        self._command = list(command)
        self._log = log

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, or start it again after `stop` or `kill`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it in order; kill it if that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, path: str) -> None:
        """Return once it answers there, whatever it answers; raise SystemExit if it never does."""
        give_up_at = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < give_up_at and self._process.poll() is None:
            try:
                httpx.get(self.url + path)
            except httpx.TransportError:
                time.sleep(_PAUSE_S)
            else:
                return
        raise SystemExit(f"{self._command[0]} does not answer:\n{self.told()}")

    def told(self) -> str:
        """Return the end of what it said."""
        return self._log.read_text(errors="replace")[-_TOLD:] if self._log.exists() else ""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, for programs that take no 0."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
