"""The service at an address that it keeps, and replicas of it before one Kafka cluster."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx

from bench.peers.program import free_ports

PATIENCE_S = 120


class Replica:
    """`tidelog serve` on a port that it keeps when it is started again.

    `options` say where the logs are: `--kafka`, or `--data-dir`.
    """

    def __init__(
        self, log: Path, *options: str, port: int = 0, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = [sys.executable, "-m", "app.cli", "serve", *options]
        self._command = [*command, "--port", str(self.port)]
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return once it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment
            )
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._is_ready(client):
                assert self._process.poll() is None, self.log.read_text()[-2_000:]

    def stop(self) -> None:
        """End it in order, also after `freeze`."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()

    def freeze(self) -> None:
        """Have it do nothing until it is stopped or killed; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()

    def _is_ready(self, client: httpx.Client) -> bool:
        try:
            return client.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False


class ReplicaSet(ExitStack):
    """Two replicas while the `with` block runs."""

    def __init__(self, bootstrap: str, folder: Path, *, count: int = 2) -> None:
        super().__init__()
        logs = [folder / f"replica-{number}.txt" for number in range(count)]
        self.replicas = [Replica(log, "--kafka", bootstrap) for log in logs]

    def __enter__(self) -> Self:
        super().__enter__()
        for replica in self.replicas:
            self.enter_context(replica)
        return self

    @property
    def urls(self) -> list[str]:
        return [replica.url for replica in self.replicas]
