"""Bodies of `?stream=true`: lines in pieces, and what became of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.support.service import NDJSON, RECORDS, Api
from tests.support.wire import Listener

STREAM = f"{RECORDS}?stream=true"


def lines(count: int, *, start: int = 0) -> bytes:
    return b"".join(b'{"key":"k","value":%d}\n' % n for n in range(start, start + count))


async def pieces(body: bytes, size: int = 700) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def send(
    api: Api, content: bytes | AsyncIterator[bytes], *, path: str = STREAM, **headers: str
) -> httpx.Response:
    sent = NDJSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.client.post(path, content=content, headers=sent)


async def send_endless(
    api: Api, content: AsyncIterator[bytes], *, path: str = STREAM, **headers: str
) -> httpx.Response:
    """Send a body whose end does not come, and return what is answered meanwhile."""
    connection = Listener(api.service).connect()
    sent = {"host": "localhost", "transfer-encoding": "chunked", **NDJSON, **headers}
    fields = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    connection.send(f"POST {path} HTTP/1.1\r\n{fields}\r\n".encode())

    async def feed() -> None:
        async for piece in content:
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))

    feeding = asyncio.create_task(feed())
    try:
        reply = await connection.answer()
    finally:
        feeding.cancel()
        connection.hang_up()
    return httpx.Response(reply.status, headers=reply.headers, content=reply.body)


async def stored(api: Api, path: str = RECORDS) -> list[Any]:
    """Every value of a log, on disk or not yet."""
    api.log(path.split("/")[3]).durability.commit()
    page = (await api.client.get(path)).json()
    return [record["value"] for record in page["records"]]
