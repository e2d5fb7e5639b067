"""The process: it starts uvicorn from the settings and stops it gracefully.

Only `tidelog serve` imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from app.api.application import create_api, framed
from app.api.cors import with_cors
from app.http.answers import App
from app.operations.service import Service
from app.server.file_modes import warn_of_open_files
from app.server.malloc import CAN_GIVE_BACK, give_back_when_calm, share_heaps
from app.server.site_guard import SiteGuard
from app.server.tls import Certificates, tls_options
from app.settings import Settings
from app.wire.connections import TlsHandshake
from app.wire.hot_appends import HotLane
from app.wire.protocol import Protocol
from engine.fs.posix import PosixFileSystem

GRACE_SECONDS = 30
"""Running requests have this long to end after a signal."""

SAFE_HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
]
"""Headers of every answer: browsers never interpret stored values as a page, send no URL on, and do
not load an answer into a page of another site, which could learn from its size or time."""


def compose(service: Service, on_failure: Callable[[], None] | None = None) -> App:
    """Return the ASGI application for every request that is not hot: the guard, CORS, FastAPI."""
    app = framed(create_api(service, on_failure), service)
    return SiteGuard(with_cors(app, service.settings), service)


class CannotListen(Exception):
    """The address is in use, or does not belong to this machine."""


class Server(uvicorn.Server):
    """A uvicorn server that tells the service to drain when a signal asks it to stop.

    Otherwise long polls would keep their connections, and the process, until they time out.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, certificates: Certificates | None
    ) -> None:
        super().__init__(config)
        self._service = service
        self.certificates = certificates
        """The certificates, with TLS."""
        self._watching: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self.addresses: list[str] = []
        """The addresses listened on, once the server listens."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # a handler
        """Stop accepting requests and drain; a second signal does not wait for clients.

        Unlike uvicorn's method, this does not raise the signal again at the end: a clean stop exits
        with 0.
        """
        self._service.drain_soon()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.stop()

    def stop(self) -> None:
        """End soon; safe in signal handlers."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        """Keep the date of answers until the end: uvicorn's own wakes ten times for each second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving and close the logs in order, even when clients are not waited for."""
        for task in self._watching:
            task.cancel()
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the address: with port 0 it is not known before."""
        self._loop = asyncio.get_running_loop()
        self._take_handshakes()
        await super().startup(sockets)
        watches = []
        if CAN_GIVE_BACK:
            watches.append(give_back_when_calm(lambda: self.server_state.total_requests))
        if self.certificates is not None:
            watches.append(self.certificates.watch())
        self._watching = [asyncio.create_task(watch) for watch in watches]
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                self.addresses.append(f"http{'s' if self.config.is_ssl else ''}://{shown}:{port}")
                sys.stdout.write(f"tidelog listens on {self.addresses[-1]}\n")
        sys.stdout.flush()

    def _take_handshakes(self) -> None:
        """With TLS, accept connections before their handshake, so that they are counted first."""
        config = self.config
        if config.ssl is not None:
            config.http_protocol_class = partial(  # type: ignore[assignment]  # called, as before
                TlsHandshake,
                self._service.admission,
                config.ssl,
                self._service.settings.tls_handshake_timeout_ms,
                config.http_protocol_class,  # type: ignore[arg-type]  # `_protocol_of`
            )
            config.ssl = None


def run(settings: Settings, *, host: str, port: int) -> BaseException | None:
    """Serve until a signal; return the error if the data directory could not be opened.

    Raises CannotListen after everything is closed again.
    """
    _allow_files()
    _collect_seldom()
    share_heaps()
    service = Service(settings)
    try:
        server_of(service, host=host, port=port).run()
    except SystemExit as ending:  # uvicorn exits while it handles the error
        raise CannotListen(
            f"{host}:{port} cannot be used to listen: {ending.__context__}"
        ) from ending
    return service.failure


def _collect_seldom() -> None:
    """Run the garbage collector rarely: requests leave no cycles, and loaded modules stay.

    Under load, Python's default thresholds walk every live object several times a second, and
    thousands of waiting readers are alive.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def _allow_files() -> None:
    """Raise the limit of open files as far as allowed: connections and segments need them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(
        ValueError, OSError
    ):  # the hard limit may be more than the system allows
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def server_of(service: Service, *, host: str, port: int) -> Server:
    """Return a server that is ready to run."""
    service.sites.listen_on(host)
    warn_of_open_files(service.settings)
    options = tls_options(service.settings)
    certificates = None
    if options:
        certificates = Certificates(service.settings, PosixFileSystem(), service.clock)
        options["ssl_context_factory"] = certificates.context
    protocol = partial(
        _protocol_of(options),
        hot_lane=HotLane(service),
        max_header_bytes=service.settings.max_header_bytes,
    )
    idle_s = service.settings.keep_alive_ms // 1000

    def stop() -> None:
        server.stop()

    config = uvicorn.Config(
        compose(service, stop),
        host=host,
        port=port,
        loop="uvloop",
        http=protocol,  # type: ignore[arg-type]  # called with uvicorn's arguments, not subclassed
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=idle_s,
        timeout_graceful_shutdown=GRACE_SECONDS,
        # Clients that know the time, such as Node's, use no connection that is about to be closed.
        headers=[*SAFE_HEADERS, ("keep-alive", f"timeout={idle_s}")],
        **options,
    )
    server = Server(config, service, certificates)
    return server


def _protocol_of(tls: dict[str, Any]) -> Callable[..., Protocol]:
    if "ssl_ca_certs" not in tls:
        return Protocol
    from app.server.tls_clients import CertifiedProtocol, Sessions  # noqa: PLC0415  # loads cryptography

    return partial(CertifiedProtocol, sessions=Sessions())
