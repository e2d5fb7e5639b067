"""The service as it is served: uvicorn on a port of loopback, in a thread of the test's process."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.operations.service import Service
from app.server.process import Server, server_of
from app.settings import Settings
from engine.clock import Clock


@dataclass
class Served:
    """A server that answers, and where."""

    service: Service
    server: Server
    url: str


@contextmanager
def serving(
    directory: Path,
    *,
    port: int = 0,
    trusted: ssl.SSLContext | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """Serve a data directory until the block ends; its logs are open when it begins."""
    service = Service(Settings(data_directory=directory, **settings), clock=clock)
    server = server_of(service, host="127.0.0.1", port=port)
    listening = threading.Event()
    startup = server.startup

    async def announced(sockets: Any = None) -> None:
        await startup(sockets)
        listening.set()

    server.startup = announced  # type: ignore[method-assign]  # to wait for it without polling
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert listening.wait(30), "the server did not start"
    url = server.addresses[0]
    with httpx.Client(base_url=url, verify=trusted or True) as client:
        while client.get("/readyz").status_code != 200:
            assert service.failure is None, service.failure
    try:
        yield Served(service, server, url)
    finally:
        server.handle_exit(2, None)
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
