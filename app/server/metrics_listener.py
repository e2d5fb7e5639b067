"""A second address for scrapers: /metrics, /readyz and /livez, without TLS and credentials.

For the network of the machines that watch, not of the clients: whoever reaches it learns the names
of topics, directories and groups' lags, and can change nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.codecs.receipts import to_json
from app.operations.service import Service

MAX_CONNECTIONS: Final = 64
"""Further ones are answered with 503: scrapers are few."""

_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_STORE: Final = {"cache-control": "no-store"}


def metrics_app(service: Service) -> Starlette:
    """Return the application: three paths, all of them GET."""

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(service.telemetry.exposition)
        return Response(text, media_type=_METRICS, headers=_NO_STORE)

    async def ready(_: Request) -> Response:
        report = service.readiness()
        status = 200 if service.is_ready else 503
        return Response(to_json(report), status, media_type="application/json", headers=_NO_STORE)

    async def live(_: Request) -> Response:
        return Response(b'{"status":"live"}', media_type="application/json", headers=_NO_STORE)

    routes = [Route("/metrics", metrics), Route("/readyz", ready), Route("/livez", live)]
    return Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)])


class MetricsListener:
    """The address and its server. Belongs to the event loop; `open` and `close` once."""

    def __init__(self, service: Service, host: str, port: int) -> None:
        config = uvicorn.Config(
            metrics_app(service),
            host=host,
            port=port,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._running: asyncio.Task[None] | None = None
        self.address = ""
        """Where it listens, once it is open."""

    async def open(self) -> None:
        """Listen; raises OSError if the address cannot be used."""
        config = self._server.config
        host = str(config.host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, config.port))
        except OSError:
            bound.close()
            raise
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[bound])
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{bound.getsockname()[1]}"
        self._running = asyncio.create_task(self._server.main_loop())

    async def close(self) -> None:
        """Stop listening."""
        if self._running is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            await self._server.shutdown()
