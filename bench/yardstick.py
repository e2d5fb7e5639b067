"""The yardstick for requests: a FastAPI route that takes a body and does nothing with it.

Served as tidelog is (uvicorn, uvloop, httptools, no access log), on a free port it prints.
"""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()


@app.post("/empty")
async def empty(request: Request) -> Response:
    """Read the body, answer, and nothing else: no model, no work, no disk."""
    await request.body()
    return Response(status_code=201)


def main() -> None:
    """Serve until told to stop."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
