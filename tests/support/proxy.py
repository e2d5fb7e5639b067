"""A TCP proxy that drops, delays and cuts what passes, as a network in trouble does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_CHUNK_BYTES = 64 << 10


@dataclass(frozen=True)
class Treatment:
    """What becomes of one connection."""

    is_refused: bool = False
    """Closed as soon as it is there."""
    cut_after: int | None = None
    """Both sides are cut when so many bytes of answers have passed; None lets all of them pass."""
    delay_s: float = 0.0
    """Before each piece of an answer."""


@dataclass
class Proxy:
    """Where it listens, where it leads, and what it does to each connection by its number."""

    target: tuple[str, int]
    treat: Callable[[int], Treatment] = lambda _number: Treatment()
    port: int = 0
    connections: int = 0
    cuts: int = 0
    requests: list[bytes] = field(default_factory=list)
    """What clients sent, in the pieces in which it came."""
    on_request: Callable[[bytes], None] = lambda _piece: None
    """Called for each piece before it is passed on; an OSError that it raises cuts the
    connection."""
    _passing: set[asyncio.Task[None]] = field(default_factory=set)
    _is_over: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, is_up: threading.Event, is_over: asyncio.Event) -> None:
        """Pass connections on until it is over, then cut those that are left."""
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        is_up.set()
        await is_over.wait()
        server.close()
        self._is_over = True
        # One that was accepted a moment ago begins only now, and ends by itself.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for passing in self._passing:
                passing.cancel()
            await asyncio.wait(others)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        treatment = self.treat(self.connections)
        self.connections += 1
        writers = [writer]
        passing = asyncio.current_task()
        assert passing is not None
        self._passing.add(passing)
        # Either side may be gone at any moment: that is what this is for.
        with suppress(OSError, asyncio.CancelledError):
            if not treatment.is_refused and not self._is_over:
                upstream, to_service = await asyncio.open_connection(*self.target)
                writers.append(to_service)
                requests = asyncio.create_task(self._requests(reader, to_service))
                try:
                    await self._answers(upstream, writer, treatment)
                    await writer.drain()
                finally:
                    requests.cancel()
        for one in writers:
            one.close()
        for one in writers:
            with suppress(OSError, asyncio.CancelledError):
                await one.wait_closed()
        self._passing.discard(passing)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_CHUNK_BYTES):
                self.requests.append(piece)
                self.on_request(piece)
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
            return
        writer.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, treatment: Treatment
    ) -> None:
        passed = 0
        while piece := await reader.read(_CHUNK_BYTES):
            if treatment.delay_s:
                is_due = asyncio.Event()
                asyncio.get_running_loop().call_later(treatment.delay_s, is_due.set)
                await is_due.wait()
            if treatment.cut_after is not None and passed + len(piece) >= treatment.cut_after:
                writer.write(piece[: treatment.cut_after - passed])
                self.cuts += 1
                return
            passed += len(piece)
            writer.write(piece)
            await writer.drain()


@contextmanager
def proxy_to(
    port: int, treat: Callable[[int], Treatment] = lambda _number: Treatment()
) -> Iterator[Proxy]:
    """Run a proxy in a thread of its own until the block ends."""
    proxy = Proxy(("127.0.0.1", port), treat)
    is_up, is_over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await proxy.serve(is_up, is_over)

    thread = threading.Thread(target=asyncio.run, args=[main()])
    thread.start()
    assert is_up.wait(30)
    try:
        yield proxy
    finally:
        loops[0].call_soon_threadsafe(is_over.set)
        thread.join()
