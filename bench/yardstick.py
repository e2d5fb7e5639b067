"""The yardsticks for requests, served as tidelog is: uvicorn, uvloop, httptools, no access log.

`python -m bench.yardstick` takes a body by a FastAPI route and does nothing with it, `… bare` does
the same by an ASGI application that is nothing else, and `… durable FILE` appends it to a file and
flushes that. The address, on a free port, is printed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec
import uvicorn
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_JSON: Final = b"application/json"
_NDJSON: Final = b"application/x-ndjson"
_UNBOUNDED: Final = 1 << 40


class _Record(msgspec.Struct, gc=False):
    value: msgspec.Raw
    key: str | None = None


class _Records(msgspec.Struct, gc=False):
    records: list[_Record]


_BODY: Final = msgspec.json.Decoder(_Records)
_LINES: Final = msgspec.json.Decoder(_Record)


class DurableAppends:
    """An ASGI application that appends whatever is posted to one file; see above."""

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "there is no lifespan"
        message = await receive()
        body: bytes = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        os.write(self._fd, _batch(dict(scope["headers"])[b"content-type"], body))
        await self._synced()
        answer = b'{"size_bytes":%d}' % len(body)
        headers = [(b"content-type", _JSON), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _synced(self) -> None:
        """Return when everything written before is on disk."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._sync_for_ever, args=(self._loop,), daemon=True).start()
        future = self._loop.create_future()
        self._waiting.append(future)
        self._wake.set()
        await future

    def _sync_for_ever(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._wake.wait():
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            os.fdatasync(self._fd)
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        future.set_result(None)


def _batch(content_type: bytes, body: bytes) -> bytes | bytearray:
    """Return the body as a batch; what is no JSON is one already."""
    if content_type == _JSON:
        records = _BODY.decode(body).records
    elif content_type == _NDJSON:
        records = _LINES.decode_lines(body)
    else:
        return body
    now_ms = int(time.time() * 1000)
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, _UNBOUNDED)
    for delta, record in enumerate(records):
        key = None if record.key is None else record.key.encode()
        builder.append(delta, now_ms, key, record.value, [])
    batch: bytearray = builder.build()
    return batch


app = FastAPI()


@app.post("/empty")
async def empty(request: Request) -> Response:
    """Read the body, answer, and nothing else: no model, no work, no disk."""
    await request.body()
    return Response(status_code=201)


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Do what `empty` does, without a framework."""
    assert scope["type"] == "http", "there is no lifespan"
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Serve until told to stop."""
    match sys.argv[1:]:
        case ["durable", file]:
            served: ASGIApp = DurableAppends(Path(file))
        case ["bare"]:
            served = bare
        case _:
            served = app
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        served,
        loop="uvloop",
        http="httptools",
        lifespan="auto" if served is app else "off",
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
