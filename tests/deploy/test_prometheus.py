"""The shipped monitoring in the programs that read it: Prometheus and Alertmanager."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.peers.program import Program, free_ports
from tests.support.credentials import create_key
from tests.support.process import serving_process

DEPLOY = Path(__file__).parents[2] / "deploy"
SOON_S = 60
"""From the end of the service to a panel that shows it."""

pytestmark = pytest.mark.long


@pytest.mark.needs("promtool", "amtool")
@pytest.mark.parametrize(
    "command",
    [
        ("promtool", "check", "config", "prometheus.yml"),
        ("promtool", "check", "rules", "alerts.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ],
    ids=lambda command: command[-1],
)
def test_its_own_checker_finds_nothing(command: tuple[str, ...]) -> None:
    """The configuration that is shipped, as it is."""
    ran = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[httpx.Client]:
    """Run Prometheus with the shipped configuration, which scrapes `target`."""
    shipped = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    assert "tidelog:9464" in shipped
    (folder / "prometheus.yml").write_text(shipped.replace("tidelog:9464", target))
    (folder / "alerts.yml").write_bytes((DEPLOY / "alerts.yml").read_bytes())
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/metrics", f"--web.listen-address={address}"]
    url = f"http://{address}"
    with (
        Program(command, folder / "prometheus.log", url),
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client


def until(is_so: Callable[[], bool], timeout_s: float) -> float:
    """Ask until it is so; return how long that took, in seconds."""
    began = time.monotonic()
    while True:
        try:
            if is_so():
                return time.monotonic() - began
        except httpx.HTTPError:
            pass  # it starts
        assert time.monotonic() - began < timeout_s


def sample(client: httpx.Client, query: str) -> list[float]:
    answer = client.get("/api/v1/query", params={"query": query}).raise_for_status()
    found: Any = answer.json()["data"]["result"]
    return [float(one["value"][1]) for one in found]


@pytest.mark.needs("prometheus")
def test_a_service_that_is_killed_is_red_within_a_minute(tmp_path: Path) -> None:
    """With keys for its clients; every alert's expression is evaluated without an error."""
    create_key(tmp_path / "data", "ops", "admin:*")
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        serving_process(tmp_path / "data", metrics_listen=listen) as process,
        prometheus(tmp_path, listen) as client,
    ):
        until(lambda: sample(client, 'up{job="tidelog"}') == [1.0], SOON_S)
        assert sample(client, "tidelog_partitions")
        process.popen.kill()
        took_s = until(lambda: sample(client, 'up{job="tidelog"}') == [0.0], SOON_S)
        assert took_s <= SOON_S
        until(lambda: bool(sample(client, 'ALERTS{alertname="TidelogDown"}')), SOON_S)
        (group,) = client.get("/api/v1/rules").json()["data"]["groups"]
        assert {rule["name"]: rule.get("lastError", "") for rule in group["rules"]} == {
            rule["name"]: "" for rule in group["rules"]
        }
