"""The service as users run it: a process of its own, ended by signals."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path

import httpx

PATIENCE_S = 60


@dataclass
class Process:
    """A process that serves, and where."""

    popen: subprocess.Popen[str]
    url: str

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop."""
        self.popen.send_signal(number)

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.popen.wait(PATIENCE_S)

    def peak_bytes(self) -> int:
        """The most memory it ever held, or since `begin_peak`."""
        return self._bytes("VmHWM")

    def begin_peak(self) -> int:
        """Forget what it held before; return what it holds now."""
        Path(f"/proc/{self.popen.pid}/clear_refs").write_text("5")
        return self._bytes("VmRSS")

    def _bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) * 1024


@contextmanager
def launched(directory: Path, *others: Path, **settings: int | str) -> Iterator[Process]:
    """Start to serve directories; it has an address when the block begins, and is killed."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0"]
    settings = {"min_segment_bytes": 14, **settings}
    env = {f"TIDELOG_{name.upper()}": str(value) for name, value in settings.items()}
    with subprocess.Popen(
        [*command, *(f"--data-dir={one}" for one in (directory, *others))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environ, **env},
    ) as popen:
        try:
            assert popen.stdout is not None
            yield Process(popen, popen.stdout.readline().split()[-1])
        finally:
            popen.kill()


@contextmanager
def serving_process(directory: Path, *others: Path, **settings: int | str) -> Iterator[Process]:
    """Serve directories until the block ends; ready when it begins."""
    with launched(directory, *others, **settings) as process:
        with httpx.Client(base_url=process.url, timeout=PATIENCE_S) as client:
            while client.get("/readyz").status_code != 200:
                assert process.popen.poll() is None
        yield process


def all_values(client: httpx.Client, records: str) -> list[str]:
    """Read everything from offset 0 on; `records` is the path of a log that has no gaps."""
    values: list[str] = []
    while True:
        answer = client.get(records, params={"offset": len(values)})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        values += [record["value"] for record in page["records"]]
        if len(values) == page["high_watermark"]:
            return values
