"""A stand between the job and the service, that sees each request before it is passed on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Watched:
    """Passes requests on to `url`; `on_request` is called for each path first, one at a time.

    A ConnectionError that it raises cuts the connection.
    """

    def __init__(self, url: str) -> None:
        self.behind = urlsplit(url)
        self.paths: list[str] = []
        """Of all requests so far."""
        self.on_request: Callable[[str], None] = lambda _path: None
        self.cut_after: Callable[[str], int | None] = lambda _path: None
        """How many bytes of the answer to a path are passed on before the connection is cut."""
        self.url = ""
        self._turn = threading.Lock()

    def tell(self, path: str) -> None:
        with self._turn:
            self.paths.append(path)
            self.on_request(path)


@contextmanager
def watching(url: str) -> Iterator[Watched]:
    """Listen on a loopback port of the system's choice until the end of the block."""
    watched = Watched(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            try:
                watched.tell(self.path)
            except ConnectionError:
                self.close_connection = True  # cut, without an answer
                return
            behind = HTTPConnection(watched.behind.hostname or "", watched.behind.port, timeout=60)
            try:
                named = ("Content-Type", "Range", "If-Match")
                headers = {name: self.headers[name] for name in named if name in self.headers}
                behind.request(self.command, self.path, body, headers)
                answer = behind.getresponse()
                data = answer.read()
            except (OSError, HTTPException):
                self.close_connection = True  # as the service's own end would have looked
                return
            finally:
                behind.close()
            try:
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "date", "server"):
                        self.send_header(name, value)
                self.end_headers()
                cut_after = watched.cut_after(self.path)
                self.wfile.write(data[:cut_after])
                self.close_connection = self.close_connection or cut_after is not None
            except OSError:
                self.close_connection = True  # who asked has been killed

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that were killed."""

    with Server(("127.0.0.1", 0), Handler) as server:
        watched.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield watched
        finally:
            server.shutdown()
            thread.join()
