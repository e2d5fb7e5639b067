"""The second address, beside a service that runs in this process."""

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from app.operations.service import Service
from app.server.metrics_listener import MetricsListener
from app.server.process import server_of
from app.settings import Settings
from tests.support.credentials import create_key
from tests.support.server import serving


def test_it_shows_three_paths_to_anybody(tmp_path: Path) -> None:
    """Metrics, readiness and liveness; what clients need a key for is not there."""
    create_key(tmp_path, "ops", "admin:*")
    with serving(tmp_path, metrics_listen="127.0.0.1:0") as served:
        assert served.server.metrics is not None
        with httpx.Client(base_url=served.server.metrics.address) as client:
            metrics = client.get("/metrics")
            assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert metrics.headers["cache-control"] == "no-store"
            assert "tidelog_requests_total" in metrics.text
            assert client.get("/readyz").json() == {"status": "ready"}
            assert client.get("/livez").json() == {"status": "live"}
            assert client.get("/v1/topics").status_code == 404
            served.service.drain()
            draining = client.get("/readyz")
            assert (draining.status_code, draining.json()["status"]) == (503, "draining")
        address = served.server.metrics.address
    try:
        httpx.get(f"{address}/livez")
    except httpx.ConnectError:
        return
    raise AssertionError("it listens after the end of the service")


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    """And what was never opened can be closed all the same."""
    with serving(tmp_path) as served, socket.create_server(("127.0.0.1", 0)) as other:
        listener = MetricsListener(served.service, "127.0.0.1", other.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            asyncio.run(listener.open())
        asyncio.run(listener.close())


def test_a_service_is_stopped_before_it_listens(tmp_path: Path) -> None:
    """It ends as soon as it would begin, and gives its directory up."""
    server = server_of(Service(Settings(data_directory=tmp_path)), host="127.0.0.1", port=0)
    server.stop()
    server.run()
    with serving(tmp_path):
        pass


def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    """Its address has brackets, as URLs have them."""
    with serving(tmp_path, metrics_listen="[::1]:0") as served:
        assert served.server.metrics is not None
        assert served.server.metrics.address.startswith("http://[::1]:")
        assert httpx.get(f"{served.server.metrics.address}/livez").status_code == 200


def test_a_health_file_is_kept_beside_it(tmp_path: Path) -> None:
    """It goes when the service does."""
    file = tmp_path / "ready"
    with serving(tmp_path / "data", health_file=file):
        while not file.exists():
            pass  # it is touched every second
    assert not file.exists()
