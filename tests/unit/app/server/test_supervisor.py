"""The service and who started it: signals, the protocol of systemd, the lines of its log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.server import health_file
from app.server.health_file import HealthFile
from app.server.supervisor import Supervisor
from tests.support.certificates import Authority
from tests.support.credentials import bearer, create_key, revoke

PATIENCE_S = 60
HOUR_MS = "3600000"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    """Where systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(PATIENCE_S)
        yield listener


@contextmanager
def started(directory: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The service as systemd starts it, with a log that can be read."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir"]
    with subprocess.Popen(
        [*command, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str], message: str) -> dict[str, Any]:
    """The next line of the log that has this message."""
    assert process.stderr is not None
    lines = (json.loads(line) for line in process.stderr)
    return next(line for line in lines if line["message"] == message)


def assignments(told: socket.socket, until: str) -> list[str]:
    """What was told, up to this assignment."""
    found: list[str] = []
    while until not in found:
        found += told.recv(4096).decode().split("\n")
    return found


def test_the_log_says_what_the_process_does(tmp_path: Path) -> None:
    """A line each for start, listening, ready, stopping and stopped; a clean stop exits with 0."""
    with started(tmp_path, TIDELOG_MAX_TAILS="7", TIDELOG_KAFKA_SASL_PASSWORD="geheim") as process:
        start = next_line(process, "start")
        assert (start["directories"], start["pid"]) == ([str(tmp_path)], process.pid)
        assert start["settings"]["max_tails"] == "7"
        assert "geheim" not in str(start)
        (address,) = next_line(process, "listening")["addresses"]
        assert address.startswith("http://127.0.0.1:")
        assert next_line(process, "ready")["topics"] == 0
        process.send_signal(signal.SIGTERM)
        assert next_line(process, "stopping")["running_requests"] == 0
        next_line(process, "stopped")
        assert process.wait(PATIENCE_S) == 0


def test_a_hangup_reads_the_keys_at_once(tmp_path: Path) -> None:
    """A revoked key is refused long before the interval is over, and the service goes on."""
    key = create_key(tmp_path, "ops", "admin:*")
    with started(tmp_path, TIDELOG_API_KEYS_CHECK_INTERVAL_MS=HOUR_MS) as process:
        next_line(process, "start")
        (address,) = next_line(process, "listening")["addresses"]
        next_line(process, "ready")
        with httpx.Client(base_url=address, headers=bearer(key)) as client:
            assert client.get("/v1/keys").status_code == 200
            revoke(tmp_path, "ops")
            assert client.get("/v1/keys").status_code == 200
            process.send_signal(signal.SIGHUP)
            next_line(process, "API key revoked")
            next_line(process, "keys and certificates were read again")
            assert client.get("/v1/keys").status_code == 401


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("has_tls", [False, True])
def test_systemd_is_notified_of_readiness_watchdog_reload_and_stop(
    tmp_path: Path,
    told: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    root_logger: logging.Logger,
    *,
    has_tls: bool,
) -> None:
    """`Type=notify` waits for `READY=1`, and `WatchdogSec=` for a sign of life."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    pair = Authority(tmp_path).vouch("server")
    tls = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key)] if has_tls else []

    def systemd() -> list[str]:
        found = [*assignments(told, "READY=1"), *assignments(told, "WATCHDOG=1")]
        os.kill(os.getpid(), signal.SIGHUP)
        found += [*assignments(told, "RELOADING=1"), *assignments(told, "READY=1")]
        os.kill(os.getpid(), signal.SIGTERM)
        return found + assignments(told, "STOPPING=1")

    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(systemd)
        command = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data"), *tls]
        assert CliRunner().invoke(app, command).exit_code == 0
    assert heard.result().count("READY=1") == 2
    assert "EXTEND_TIMEOUT_USEC=30000000" in heard.result()
    assert root_logger.handlers


def test_nothing_is_sent_without_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, and with one whose socket does not exist."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not Supervisor().is_there
    Supervisor().tell("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    assert Supervisor().is_there
    Supervisor().tell("READY=1")


@pytest.mark.anyio
async def test_readiness_alone_is_sent_without_a_watchdog(
    tmp_path: Path, told: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none, or it watches another process."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    for pid, limit in (("", ""), ("1", "100000")):
        monkeypatch.setenv("WATCHDOG_PID", pid)
        monkeypatch.setenv("WATCHDOG_USEC", limit)
        await Supervisor().watch(lambda: True)
        assert assignments(told, "READY=1") == ["READY=1", "STATUS=ready"]


def test_a_name_in_the_abstract_space_is_an_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with `@` in the variable and with a zero byte for the system."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0tidelog-{os.getpid()}")
        listener.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@tidelog-{os.getpid()}")
        Supervisor().tell("READY=1", "STATUS=ready")
        assert listener.recv(100) == b"READY=1\nSTATUS=ready"


def probed(file: Path) -> int:
    """The exit code of the probe that the Dockerfile has."""
    dockerfile = (Path(__file__).parents[4] / "Dockerfile").read_text()
    (probe,) = re.findall(r'CMD (\["sh", "-c".*\])', dockerfile)
    variables = {**os.environ, "TIDELOG_HEALTH_FILE": str(file)}
    return subprocess.run(json.loads(probe), env=variables, check=False).returncode


def test_a_health_file_is_young_while_the_service_is_ready(tmp_path: Path) -> None:
    """The image's probe needs nothing else; the file goes with a stop, and is old after a kill."""
    file = tmp_path / "ready"
    assert probed(file) != 0
    with started(tmp_path / "data", TIDELOG_HEALTH_FILE=str(file)) as process:
        next_line(process, "ready")
        while not file.exists():
            assert process.poll() is None
        assert probed(file) == 0
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert not file.exists()
    with started(tmp_path / "data", TIDELOG_HEALTH_FILE=str(file)) as process:
        while not file.exists():
            assert process.poll() is None
        process.kill()
        process.wait(PATIENCE_S)
    long_ago = file.stat().st_mtime - 60
    os.utime(file, (long_ago, long_ago))
    assert probed(file) != 0


def test_a_health_file_that_cannot_be_kept_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The service goes on; whoever looks at the file finds none."""
    monkeypatch.setattr(health_file, "PAUSE_SECONDS", 0)
    looks = 0

    def is_ready() -> bool:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise EndOfTest
        return True

    kept = HealthFile(tmp_path / "absent" / "ready")
    with pytest.raises(EndOfTest):
        asyncio.run(kept.keep(is_ready))
    assert [one.levelname for one in caplog.records] == ["ERROR"]


class EndOfTest(Exception):
    """Ends what would go on."""


def test_metrics_have_an_address_of_their_own(tmp_path: Path) -> None:
    """Without the key that clients need, and with nothing that they could do."""
    create_key(tmp_path / "data", "ops", "admin:*")
    variables = {"TIDELOG_METRICS_LISTEN": "127.0.0.1:0"}
    with started(tmp_path / "data", **variables) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        scraped = process.stdout.readline().split()[-1]
        next_line(process, "ready")
        assert httpx.get(f"{address}/metrics").status_code == 401
        answer = httpx.get(scraped)
        assert "tidelog_requests_total" in answer.text
        assert answer.headers["content-encoding"] == "gzip"
        base = scraped.removesuffix("/metrics")
        assert httpx.get(f"{base}/readyz").json() == {"status": "ready"}
        assert httpx.get(f"{base}/livez").json() == {"status": "live"}
        for path in ("/v1", "/v1/topics", "/console/", "/docs"):
            assert httpx.get(base + path).status_code == 404
        assert httpx.post(scraped).status_code == 405
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_an_address_for_metrics_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """With a sentence that names it; nothing is left locked."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with started(tmp_path, TIDELOG_METRICS_LISTEN=taken) as process:
            _, said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode not in {0, None}
            assert f"{taken} cannot be used to listen" in said
            assert "Traceback" not in said
    with started(tmp_path) as process:
        next_line(process, "ready")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("address", ["9464", "host", "a:b", "a:1:2", "::1:9464"])
def test_a_wrong_address_for_metrics_is_a_sentence(tmp_path: Path, address: str) -> None:
    """It is HOST:PORT; a bare IPv6 address needs its brackets."""
    with started(tmp_path, TIDELOG_METRICS_LISTEN=address) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode not in {0, None}
        assert "TIDELOG_METRICS_LISTEN" in said
        assert "Traceback" not in said
