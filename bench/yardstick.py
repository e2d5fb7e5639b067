"""The yardsticks for requests, served as tidelog is: uvicorn, uvloop, httptools, no access log.

`python -m bench.yardstick` takes a body by a FastAPI route and does nothing with it, `… bare` does
the same by an ASGI application that is nothing else, and `… durable FILE` appends it to a file, see
`durable`. The address, on a free port, is printed.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.durable import DurableAppends

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
