"""Answers of unknown length to HTTP/1.0 clients, which know no chunks: the connection ends them.

uvicorn sends chunks to everybody, and RFC 9112 (6.1) forbids it: such a client, nginx with its
old default among them, may take the sizes of the chunks for content.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.http.answers import App, Receive, Scope, Send


def ended_by_closing(app: App) -> App:
    """Return the application, whose bodies without a length are sent as they are."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        cycle = send.__self__  # type: ignore[attr-defined]  # uvicorn's own method
        assert isinstance(cycle, RequestResponseCycle)
        is_delimited = True

        async def send_plainly(message: MutableMapping[str, Any]) -> None:
            nonlocal is_delimited
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                is_delimited = b"content-length" in names
                if not is_delimited:
                    cycle.chunked_encoding = False
                    cycle.expected_content_length = sys.maxsize
            elif not is_delimited and not message.get("more_body", False):
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plainly)

    return run
