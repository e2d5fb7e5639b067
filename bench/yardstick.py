"""The yardsticks for requests: a body is taken, and nothing is done with it.

By a FastAPI route, or with `bare` by an ASGI application that is nothing else. Served as tidelog is
(uvicorn, uvloop, httptools, no access log), on a free port that is printed.
"""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

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
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    is_bare = sys.argv[1:] == ["bare"]
    config = uvicorn.Config(
        bare if is_bare else app,
        loop="uvloop",
        http="httptools",
        lifespan="off" if is_bare else "auto",
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
