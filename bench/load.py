"""The load generator, in a process of its own: each connection has one request under way, always.

It costs some ten microseconds a request, so that on two cores the server is what is measured: a
request is one prepared piece of bytes, an answer is looked at for its status and its length alone.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final, cast

import msgspec
import uvloop

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)
_SHOWN_BYTES: Final = 400
_PATIENCE_S: Final = 30.0


class Load(msgspec.Struct, frozen=True):
    """What to send, warm-up first: each connection repeats its own request.

    If there are fewer requests than connections, several connections repeat the same one. If there
    are more, connection `n` of `c` sends the requests `n`, `n + c`, `n + 2c` … in turn.

    Without a `rate_per_s` each sends as soon as it is answered: that is as much as the server can
    take, and says little of latency. With one, each request is due at its time whether or not the
    one before has been answered, and what it waits for that counts (no coordinated omission).
    """

    host: str
    port: int
    requests: list[bytes]
    connections: int
    seconds: float
    warm_up_s: float
    rate_per_s: float | None = None


class LoadResult(msgspec.Struct, frozen=True):
    """What came back within the measured time; `sent` counts the warm-up, too."""

    requests: int
    sent: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def post(
    path: str, content_type: str, body: bytes, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a whole HTTP request as bytes."""
    fields = {"Host": "localhost", "Content-Type": content_type, "Content-Length": str(len(body))}
    fields |= headers or {}
    lines = (f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()))
    return "\r\n".join((*lines, "", "")).encode() + body


def run_load(load: Load) -> LoadResult:
    """Run the generator in another process; raise if an answer was anything but a success."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load"],
        input=msgspec.msgpack.encode(load),
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(done.stdout, type=LoadResult)


@dataclass(slots=True)
class _Clock:
    """What all connections share: when to count, when to stop, and what was counted."""

    count_from: float
    stop_at: float
    interval_s: float | None
    latencies: list[float]
    sent: int = 0
    failure: bytes | None = None


class _Connection(asyncio.Protocol):
    """Sends a request, waits for the answer, sends the next one, at once or when it is due."""

    def __init__(
        self, requests: Sequence[bytes], clock: _Clock, done: asyncio.Future[None], delay_s: float
    ) -> None:
        self._requests = cycle(requests)
        self._clock = clock
        self._done = done
        self._received = b""
        self._delay_s = delay_s
        self._due_at = 0.0
        self._counts_from = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._due_at = time.perf_counter() + self._delay_s
        self._send_later(self._delay_s)

    def data_received(self, data: bytes) -> None:
        if self._received:
            data = self._received + data
        size = _answer_bytes(data)
        if size is None or len(data) < size:
            self._received = data
            return
        self._received = b""
        if data[_STATUS] >= b"300":
            self._clock.failure = data[:_SHOWN_BYTES]
        now = time.perf_counter()
        if self._counts_from >= self._clock.count_from:
            self._clock.latencies.append(now - self._counts_from)
        if now >= self._clock.stop_at or self._clock.failure is not None:
            self._finish()
        elif self._clock.interval_s is None:
            self._send(now)
        else:
            self._due_at += self._clock.interval_s
            if self._due_at <= now:
                self._send(self._due_at)
            else:
                self._send_later(self._due_at - now)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if not self._done.done():
            self._clock.failure = b"the connection was closed"
            self._done.set_result(None)

    def _send_later(self, delay_s: float) -> None:
        """Send when it is due; that a timer is late is no fault of the server, and not counted."""
        asyncio.get_running_loop().call_later(delay_s, lambda: self._send(time.perf_counter()))

    def _send(self, counts_from: float) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._clock.sent += 1
        self._counts_from = counts_from
        self._transport.write(next(self._requests))

    def _finish(self) -> None:
        assert self._transport is not None
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()


def _answer_bytes(data: bytes) -> int | None:
    """Return the size of the first answer in the data, None while its head is incomplete."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    head = data[:end].lower()
    begin = head.find(_LENGTH)
    if begin < 0:
        return end + len(_HEAD_END)
    length = head[begin + len(_LENGTH) :].split(b"\r\n", 1)[0]
    return end + len(_HEAD_END) + int(length)


async def _generate(load: Load) -> LoadResult:
    loop = asyncio.get_running_loop()
    count_from = time.perf_counter() + load.warm_up_s
    interval_s = None if load.rate_per_s is None else load.connections / load.rate_per_s
    clock = _Clock(count_from, count_from + load.seconds, interval_s, [])
    endings: list[asyncio.Future[None]] = []
    for number in range(load.connections):
        done = loop.create_future()
        own = load.requests[number :: load.connections]
        requests = own or [load.requests[number % len(load.requests)]]
        delay_s = (interval_s or 0) * number / load.connections
        connection = _Connection(requests, clock, done, delay_s)
        await loop.create_connection(
            lambda connection=connection: connection,  # type: ignore[misc] # bound at once
            load.host,
            load.port,
        )
        endings.append(done)
    async with asyncio.timeout(load.warm_up_s + load.seconds + _PATIENCE_S):
        await asyncio.gather(*endings)
    if clock.failure is not None:
        raise SystemExit(f"the load was refused: {clock.failure.decode(errors='replace')}")
    return _summary(clock, time.perf_counter() - count_from)


def _summary(clock: _Clock, seconds: float) -> LoadResult:
    ordered = sorted(clock.latencies)
    return LoadResult(
        requests=len(ordered),
        sent=clock.sent,
        seconds=seconds,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
        p999_ms=ordered[len(ordered) * 999 // 1000] * 1000,
    )


def main() -> None:
    """Take a load on standard input, run it, and put the result on standard output."""
    load = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.msgpack.encode(uvloop.run(_generate(load))))


if __name__ == "__main__":
    main()
