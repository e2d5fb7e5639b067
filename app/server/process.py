"""The process: it starts uvicorn from the settings and stops it gracefully.

Only `tidelog serve` imports this module.

At the start it warns of files that other users of the machine could read or change, and gives the
C library's allocator two heaps for all threads, with free memory returned to the system. Only the
GNU C library supports that; with another one nothing changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from app.api.application import create_api, framed
from app.http.answers import App
from app.limits.admission import Phase
from app.operations.service import Service
from app.security.keys import api_keys_path
from app.server.health_file import HealthFile
from app.server.metrics_listener import MetricsListener
from app.server.site_guard import SiteGuard, with_cors
from app.server.supervisor import Supervisor
from app.server.tls import Certificates, tls_options
from app.settings import Settings
from app.settings_sources import changed
from app.telemetry.metrics import CERTIFICATE_EXPIRY
from app.wire.connections import TlsHandshake
from app.wire.hot_appends import HotLane
from app.wire.protocol import Protocol
from engine.fs.posix import PosixFileSystem

_LOG = logging.getLogger(__name__)

_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def warn_of_open_files(settings: Settings) -> None:
    """Log a warning for an API key file that others can change, and a TLS key that they can read.

    A changed key file admits other callers; a TLS key lets another process pose as the service.
    """
    _warn(api_keys_path(settings.data_directory), _OTHERS_WRITE, "changed")
    if settings.tls_key is not None:
        _warn(settings.tls_key, _OTHERS_READ | _OTHERS_WRITE, "read")


def _warn(path: Path, bits: int, what: str) -> None:
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & bits:
            _LOG.warning(
                "%s can be %s by other users (mode %04o): chmod 600 %s", path, what, mode, path
            )


CALM_SECONDS: Final = 2.0
CALM_REQUESTS: Final = 10
"""At most this many requests in `CALM_SECONDS`, such as those of probes, count as idle."""

LARGE_BYTES: Final = 16 << 20
"""Larger blocks are mapped, not taken from a heap: freeing them returns them to the system, and the
next one faults in each of its pages again. A read of 4 MiB as JSON takes blocks of 4 and 8 MiB."""

WORTH_BYTES: Final = 16 << 20
"""Trimming is not worth its milliseconds if memory has grown by less since the last time."""

_LIBRARY: Final = ctypes.CDLL(None)
_MOST_HEAPS: Final = -8  # M_ARENA_MAX
_MAPPED_FROM: Final = -3  # M_MMAP_THRESHOLD
_KEPT_ON_TOP: Final = -1  # M_TRIM_THRESHOLD
_SIZES: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

CAN_GIVE_BACK: Final = hasattr(_LIBRARY, "malloc_trim") and _SIZES.exists()
_set_allocator: Callable[[int, int], int] = getattr(_LIBRARY, "mallopt", lambda *_: 0)


def share_heaps() -> None:
    """Make all threads share two heaps; by default the library has one for each thread.

    A heap keeps memory that one of its threads used, such as a body of a megabyte, for its own
    threads. Large blocks are therefore mapped, which the library would stop doing after it freed
    the first.
    """
    _set_allocator(_MOST_HEAPS, 2)
    _set_allocator(_MAPPED_FROM, LARGE_BYTES)
    # Otherwise it is 128 KiB from now on: large bodies and answers are faulted in again and again.
    _set_allocator(_KEPT_ON_TOP, 2 * LARGE_BYTES)


def own_bytes() -> int:
    """Return the process's memory without mapped files, from Linux's /proc."""
    _, resident, shared, *_ = map(int, _SIZES.read_text().split())
    return (resident - shared) * _PAGE_BYTES


def give_back(floor_bytes: int) -> int:
    """Return free heap memory to the system, if that may be worth it; return what remains.

    `floor_bytes` is what remained the last time. Meanwhile other allocations wait: some
    milliseconds, or some tens of them for a large heap.
    """
    if own_bytes() < floor_bytes + WORTH_BYTES:
        return floor_bytes
    _LIBRARY.malloc_trim(0)
    return own_bytes()


async def give_back_when_calm(requests: Callable[[], int]) -> None:
    """After a busy period, return its memory to the system; runs until cancelled.

    `requests` returns the number of requests so far. Without this, memory of large answers stays in
    the heap, because small blocks after it are still in use. Only if `CAN_GIVE_BACK`.
    """
    floor_bytes = await asyncio.to_thread(own_bytes)
    while True:
        before = requests()
        await asyncio.sleep(CALM_SECONDS)
        if requests() - before <= CALM_REQUESTS:
            floor_bytes = await asyncio.to_thread(give_back, floor_bytes)


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
        self._supervisor = Supervisor()
        self.metrics: MetricsListener | None = None
        """The second address, for scrapers, once the server listens."""
        self._watching: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._wanted = asyncio.Event()
        """Set by SIGHUP: keys and certificates are to be read."""
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
        _LOG.info("stopping", extra={"running_requests": self._service.admission.requests})
        self._supervisor.tell("STOPPING=1", "STATUS=closing the logs")
        for task in self._watching:
            task.cancel()
        await super().shutdown(sockets)
        if self.metrics is not None:
            await self.metrics.close()
        if self.force_exit:
            await self.lifespan.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the address: with port 0 it is not known before."""
        self._loop = asyncio.get_running_loop()
        self._take_handshakes()
        await super().startup(sockets)
        watches = []
        if self._supervisor.is_there:
            admission = self._service.admission
            watches.append(self._supervisor.watch(lambda: admission.phase is not Phase.RECOVERING))
        health_file = self._service.settings.health_file
        if health_file is not None:
            watches.append(HealthFile(health_file).keep(lambda: self._service.is_ready))
        if CAN_GIVE_BACK:
            watches.append(give_back_when_calm(lambda: self.server_state.total_requests))
        if self.certificates is not None:
            watches.append(self.certificates.watch())
        self._watching = [asyncio.create_task(watch) for watch in watches]
        self._reread_on_hangup()
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                self.addresses.append(f"http{'s' if self.config.is_ssl else ''}://{shown}:{port}")
                sys.stdout.write(f"tidelog listens on {self.addresses[-1]}\n")
        await self._listen_for_scrapers()
        sys.stdout.flush()
        _LOG.info("listening", extra={"addresses": self.addresses})

    async def _listen_for_scrapers(self) -> None:
        """Open the second address, if there is one; exits as uvicorn does if it is in use."""
        host, _, port = self._service.settings.metrics_listen.rpartition(":")
        if not host:
            return
        listener = MetricsListener(self._service, host.strip("[]"), int(port))
        try:
            await listener.open()
        except (OSError, OverflowError) as error:
            await self.lifespan.shutdown()
            raise SystemExit(1) from error
        self.metrics = listener
        sys.stdout.write(f"tidelog shows metrics on {listener.address}/metrics\n")

    def _reread_on_hangup(self) -> None:
        """Reread keys and certificates at SIGHUP, which would end the process otherwise."""
        if threading.current_thread() is threading.main_thread() and self._loop is not None:
            self._loop.add_signal_handler(signal.SIGHUP, self._wanted.set)
            self._watching.append(asyncio.create_task(self._reread()))

    async def _reread(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._supervisor.tell_reloading()
            await self._service.security.reread()
            if self.certificates is not None:
                await asyncio.to_thread(self.certificates.refresh)
            _LOG.info("keys and certificates were read again")
            self._supervisor.tell("READY=1")

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


def run(settings: Settings) -> BaseException | None:
    """Serve until a signal; return the error if the data directory could not be opened.

    Raises CannotListen after everything is closed again.
    """
    _allow_files()
    _collect_seldom()
    share_heaps()
    _LOG.info("start", extra=_described(settings))
    service = Service(settings)
    try:
        server_of(service, host=settings.listen_host, port=settings.listen_port).run()
    except SystemExit as ending:  # uvicorn exits while it handles the error
        addresses = [f"{settings.listen_host}:{settings.listen_port}", settings.metrics_listen]
        raise CannotListen(
            f"{' or '.join(filter(None, addresses))} cannot be used to listen: {ending.__context__}"
        ) from ending
    _LOG.info("stopped")
    return service.failure


def _described(settings: Settings) -> dict[str, object]:
    """Return the members of the log line `start`."""
    return {
        "version": version("tidelog"),
        "pid": os.getpid(),
        "directories": [str(one.absolute()) for one in settings.data_directories],
        "settings": changed(settings),
    }


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
        service.telemetry.gauge(*CERTIFICATE_EXPIRY, partial(getattr, certificates, "ends_s"))
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
