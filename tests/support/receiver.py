"""A receiver of webhooks on a real socket, which answers as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

Answer = bytes | Callable[[asyncio.StreamWriter], object]
"""What is written, or what to do with the connection."""

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def status(line: str, *headers: str) -> bytes:
    """An answer without a body."""
    return "\r\n".join([f"HTTP/1.1 {line}", "content-length: 0", *headers, "", ""]).encode()


class Received(NamedTuple):
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """The requests so far, and the answers to the next ones; afterwards all are 200."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/hook"
        self.requests: list[Received] = []
        self.answers: list[Answer] = []
        self.under_way = 0
        self.most_under_way = 0
        self._arrived = asyncio.Condition()

    async def until(self, count: int) -> list[Received]:
        """Wait for so many requests."""
        async with asyncio.timeout(30), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                lines = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in lines}
                body = await reader.readexactly(int(headers["content-length"]))
                self.under_way += 1
                self.most_under_way = max(self.under_way, self.most_under_way)
                answer = self.answers.pop(0) if self.answers else OK
                async with self._arrived:
                    self.requests.append(Received(head[0].split(" ")[1], headers, body))
                    self._arrived.notify_all()
                self.under_way -= 1
                if callable(answer):
                    answer(writer)
                else:
                    writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver: Receiver

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receiver.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    receiver = Receiver(server.sockets[0].getsockname()[1])
    try:
        yield receiver
    finally:
        server.close()
