"""Processes that do not outlive the one that started them, however it ends."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

_STOP_TIMEOUT_S: Final = 30.0
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+")
_TOLD_LINES: Final = 12


class ChildFailed(Exception):
    """A process of the demo ended badly or did not do its part in time."""


class Child:
    """The `main` of a module in a process of its own, told to stop when the `with` block ends.

    What it prints can be read line by line; everything, errors included, also goes to `log`. Ctrl-C
    does not reach it: the owner decides in which order processes stop. It inherits `keep_open`.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, *, keep_open: Sequence[int] = ()
    ) -> None:
        self._name = " ".join(arguments[:2])
        self.log = log
        self._lines: queue.Queue[str | None] = queue.Queue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.leash", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                pass_fds=keep_open,
            )
        self._pump = threading.Thread(target=self._keep_output, daemon=True)
        self._pump.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def lines(self, *, timeout_s: float) -> Iterator[str]:
        """Yield what it prints until it ends; raise ChildFailed when all of it takes too long."""
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(give_up_at - time.monotonic(), 0))
            except queue.Empty:
                raise self._failed(f"was not done within {timeout_s:.0f} s") from None
            if line is None:
                return
            yield line

    def wait(self) -> None:
        """Return once it has ended; raise ChildFailed unless it ended well."""
        code = self._process.wait(_STOP_TIMEOUT_S)
        if code != 0:
            raise self._failed(f"ended with code {code}")

    def stop(self) -> None:
        """Ask it to stop, wait for it, and leave nothing of it running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._pump.join()

    def _keep_output(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("ab") as log, self._process.stdout as output:
            for line in output:
                log.write(line)
                self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def _failed(self, what: str) -> ChildFailed:
        told = self.log.read_text(errors="replace").splitlines()[-_TOLD_LINES:]
        return ChildFailed("\n".join((f"{self._name} {what}; the end of {self.log}:", *told)))


class Server(Child):
    """A program that prints its address on loopback, `url`, once it listens."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        keep_open: Sequence[int] = (),
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(arguments, log, keep_open=keep_open)
        try:
            self.url = self._announced(timeout_s)
        except BaseException:
            self.stop()
            raise

    def _announced(self, timeout_s: float) -> str:
        for line in self.lines(timeout_s=timeout_s):
            if found := _ADDRESS.search(line):
                return found.group()
        raise self._failed("ended before it told its address")


def serve_arguments(data_directory: Path, port: int = 0) -> list[str]:
    """Return what starts the service on loopback, on a free port unless one is given."""
    return ["app.cli", "serve", "--data-dir", str(data_directory), "--port", str(port)]
