"""A connection: uvicorn's HTTP protocol, with hot requests and a timeout for every wait.

Requests that HTTP parsers could read in different ways are refused here, before any operation. A
client cannot hold a connection by sending nothing or by receiving nothing.

Answers of unknown length to HTTP/1.0 clients, which know no chunks, end with the connection.
uvicorn sends chunks to everybody, and RFC 9112 (6.1) forbids it: such a client, nginx with its old
default among them, may take the sizes of the chunks for content.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from app.errors import MalformedRequest, RequestTimedOut
from app.http.answers import App, Receive, Scope, Send
from app.http.problems import kind_of, problem_answer
from app.http.request_checks import (
    FIELD_BYTES,
    addressed,
    below_prefix,
    fault_of,
    size_of,
    with_joined_lists,
    without_upgrade,
)
from app.http.slow_clients import CUT_OFF, SEND_NOW
from app.wire.connections import CoalescingTransport, CountedProtocol, counted
from app.wire.hot_appends import HotLane
from app.wire.hot_request import HotRequest
from engine.errors import Overloaded


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


_NO_HTTP: Final = "Invalid HTTP request received."
_HEAD_END: Final = b"\r\n\r\n"


class Protocol(CountedProtocol):
    """uvicorn's HTTP protocol with one write per answer, bounded heads and explained errors.

    A hot request takes the place of uvicorn's cycle, so that pipelined requests wait for it. A
    connection without a cycle, or with a complete one, is idle.
    """

    def __init__(self, *, hot_lane: HotLane, max_header_bytes: int, **options: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**options)
        self._hot_lane = hot_lane
        self._application = self.app  # uvicorn calls `app` for each request
        self._settings = hot_lane.service.settings
        self._max_header_bytes = max_header_bytes
        self._url_prefix = self._settings.url_prefix.encode()
        self._head_bytes = 0
        """Bytes of an incomplete head, or of incomplete trailers."""
        self._trailers_bytes = 0
        self._has_body_come = False
        """Whether the last read contained bytes of a body."""
        self._hot: HotRequest | None = None
        """The last hot request; uvicorn's cycle may be one that waits after it."""
        self._running: RequestResponseCycle | None = None
        """The last started cycle of uvicorn; a hot request may come after it."""
        self._has_head = False
        """Whether an incomplete request was handed to uvicorn."""
        self._first = b""
        """Bytes after the last request, given to the parser, until the next head is complete."""
        self._idle_since = 0.0
        """When the last answer was complete, by the loop's clock."""
        self._plain_head = b""
        """The head of a request that asks for an upgrade, without that header."""
        self._is_deaf = False
        """Whether the connection reads no more requests."""
        self._last_words = b""
        """The last answer, sent after all earlier ones; then the connection closes."""
        self._deadline: asyncio.TimerHandle | None = None
        """The deadline for a complete head, or for the discarded rest of a body."""
        self._stall: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        """Begin a connection; close it at once if there are too many."""
        wrapped = CoalescingTransport(transport, self._settings.send_timeout_ms / 1000)
        super().connection_made(cast("asyncio.Transport", wrapped))
        self._extensions = {CUT_OFF: transport.abort, SEND_NOW: self._send_now}
        try:
            if self.uncount is None:
                self.uncount = counted(self._hot_lane.service.admission, transport)
        except Overloaded as error:
            self._is_deaf = True
            self._hot_lane.service.telemetry.explained(kind_of(error).code)
            self.transport.write(self._rendered(error))
            self.transport.close()
        else:
            self._expect_head()

    def _send_now(self, data: bytes) -> bool:
        """Write `data` and return True if the client has received everything sent before."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        self.transport.write(data)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection, and a request whose body is incomplete."""
        if self.uncount is not None:
            self.uncount()
        self._set_deadline(None)
        self._unset_keepalive_if_required()
        self._end_stall()
        if self._hot is not None:
            self._hot.leave()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        # Reference cycles would keep the connection until the garbage collector runs, which it does
        # rarely: see `app.server.process`.
        self._hot = self._running = None
        self.cycle = None  # type: ignore[assignment]  # uvicorn's own, before the first
        self._extensions.clear()
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; close on bytes that are not HTTP, and on too large a head."""
        if self._is_deaf:
            return
        is_between = self._is_idle and not (
            self._has_head or self._is_in_head or self.transport.is_closing()
        )
        if is_between and self._take_known(data):
            return
        self._first = data if is_between else b""
        latest = self._cycle
        self._has_body_come = False
        if self._feed(data):
            self._look_at_rest(len(data), has_begun=self._cycle is not latest)

    def _take_known(self, data: bytes) -> bool:
        """Run a whole request whose head is known; False if it is not such a request.

        The parser is not involved: it stays between two requests.
        """
        body_start = data.find(_HEAD_END) + len(_HEAD_END)
        known = self._hot_lane.known_heads.find(data[:body_start])
        if known is None or known.body_bytes != len(data) - body_start:
            return False
        self.on_message_begin()
        self.url = known.url
        self.headers = self.scope["headers"] = known.headers
        hot = self._hot_lane.admit(self, known)
        if hot is None:
            return False  # the parser starts again, for FastAPI
        self._head_bytes = 0
        if self._deadline is not None:
            self._set_deadline(None)
        self._hot = hot
        self.cycle = cast("RequestResponseCycle", hot)
        hot.take(data[body_start:])
        hot.finish()
        return True

    def _look_at_rest(self, size_bytes: int, *, has_begun: bool) -> None:
        """Arm the timeouts for bytes that have not arrived; `has_begun`: a head was completed."""
        is_in_head = self._is_in_head or self._cycle is None
        if has_begun or self._has_body_come or not (is_in_head or self._has_head):
            self._head_bytes = 0  # most of the read was not about this request
        else:
            self._head_bytes += size_bytes
            if self._head_bytes > self._max_header_bytes:
                self._refuse_large_head()
                return
        if is_in_head:
            self._expect_head()
            return
        if (hot := self._hot_cycle) is not None:
            hot.expect_rest()
        if self._is_idle and not self._has_head and not has_begun:
            self._expect_head()  # bytes of the next head

    def _refuse_large_head(self) -> None:
        what = "trailers or extensions" if self._has_head else "line and headers"
        detail = f"the {what} are larger than max_header_bytes ({self._max_header_bytes})"
        self._refuse(MalformedRequest(detail))

    def _feed(self, data: bytes) -> bool:
        """Parse the bytes; return whether the connection reads on.

        `Upgrade` is ignored (RFC 9110, 7.8).
        """
        while not self._is_deaf:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._plain_head + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                if not self._is_deaf:  # else it was refused already, for another fault
                    self._refuse(MalformedRequest(_NO_HTTP))
            else:
                break
        return not self._is_deaf

    @property
    def _cycle(self) -> object:
        """The latest request: a cycle of uvicorn, or a hot request."""
        cycle: object = self.cycle
        return cycle

    @property
    def _hot_cycle(self) -> HotRequest | None:
        """The latest request, if it is a hot one."""
        return self._hot if self._cycle is self._hot else None

    @property
    def _is_idle(self) -> bool:
        """Whether every request is answered, although a discarded body may still arrive."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    @property
    def _is_in_head(self) -> bool:
        scope = cast("Mapping[str, object] | None", self.scope)
        return scope is not None and "method" not in scope  # set when the head is complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record a header without trailing blanks, which the parser keeps (RFC 9110, 5.5)."""
        super().on_header(name, value.rstrip(b" \t"))
        if self._has_head:
            self._trailers_bytes += len(name) + len(value) + FIELD_BYTES
            if self._trailers_bytes > self._max_header_bytes and not self._is_deaf:
                self._refuse_large_head()

    def on_headers_complete(self) -> None:
        """Run the request as a hot one, or give it to uvicorn; ignore it after the last answer."""
        self._plain_head = b""
        if self._is_deaf:
            return
        if self._url_prefix:
            self.url = below_prefix(self.url, self._url_prefix)
        first, self._first = self._first, b""
        is_small = 0 < len(first) <= self._max_header_bytes  # the head, and everything after it
        if not is_small and size_of(self.url, self.headers) > self._max_header_bytes:
            self._refuse_large_head()
            return
        self._set_deadline(None)
        if self._is_idle and self.transport.is_closing():
            return
        method = self.parser.get_method()
        asked = self._hot_lane.operations[b"%b %b" % (method, self.url)]
        if asked is not None and self._is_idle:
            hot = self._hot_lane.enter(self, asked, first[: first.find(_HEAD_END) + len(_HEAD_END)])
            if hot is not None:
                self._hot = hot
                self.cycle = cast("RequestResponseCycle", hot)
                self._has_head = True
                return
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._plain_head = without_upgrade(method, self.url, self.headers)
        else:
            self._begin()

    def _begin(self) -> None:
        """Give a request to uvicorn, unless it cannot be served."""
        version = self.parser.get_http_version()
        fault = fault_of(version, self.headers)
        if fault is not None:
            self._refuse(MalformedRequest(fault))
        elif len(self.pipeline) >= self._settings.max_pipelined_requests:
            self.cycle.keep_alive = False  # its answer says `Connection: close`
            self._is_deaf = True
        else:
            is_old = version == "1.0"
            extensions = {CUT_OFF: self._extensions[CUT_OFF]} if is_old else self._extensions
            cast("dict[str, object]", self.scope)["extensions"] = extensions
            self.scope["headers"] = with_joined_lists(addressed(self.url, self.headers))
            self.expect_100_continue &= not is_old
            self.app = ended_by_closing(self._application) if is_old else self._application
            super().on_headers_complete()
            self._has_head = True
            if not self.pipeline:
                self._running = self.cycle
            elif len(self.pipeline) == 1:
                self.flow.resume_reading()  # while reading is paused, a disconnect is not noticed

    def on_body(self, body: bytes) -> None:
        """Forward a piece of the body."""
        self._has_body_come = True
        if not self._has_head:
            return
        if (hot := self._hot_cycle) is not None:
            hot.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Report that the body is complete."""
        if not self._has_head or self._is_deaf:
            return
        self._has_head = False
        self._trailers_bytes = 0
        self._set_deadline(None)
        if (hot := self._hot_cycle) is not None:
            hot.finish()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next pipelined request; after the last answer, send the refusal, if any."""
        if self.pipeline:
            self._running = self.pipeline[-1][0]
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._keep_alive()
        if self._last_words:
            self._part()
        elif self._has_head:
            self._set_deadline(self._settings.linger_timeout_ms, self.transport.close)

    def _keep_alive(self) -> None:
        """Close the connection if no request arrives in time.

        The timer of an earlier answer keeps running: moving it for each answer would cost more than
        parsing.
        """
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._call_when_idle(self.timeout_keep_alive)

    def _call_when_idle(self, wait_seconds: float) -> None:
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(wait_seconds, handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for that long; otherwise check again later."""
        self.timeout_keep_alive_task = None
        if not self._is_idle or self._is_in_head:
            return  # the next answer starts a new timer, and a head has its own deadline
        left_seconds = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_seconds > 0:
            self._call_when_idle(left_seconds)
        else:
            self.transport.close()

    def _refuse(self, error: Exception) -> None:
        """Read no more requests; after the earlier answers send the error, then close."""
        self._is_deaf = True
        self._set_deadline(None)
        self._hot_lane.service.telemetry.explained(kind_of(error).code)
        self._last_words = self._rendered(error)
        cycle: object = self.cycle
        if self._has_head and self.pipeline:
            self.pipeline.popleft()  # the refused request is queued: it never starts
        elif self._has_head and isinstance(cycle, RequestResponseCycle):
            if cycle.response_started:
                self.transport.abort()  # a partial answer cannot be followed by another
                return
            cycle.disconnected = True
            cycle.message_event.set()
            self._part()
        elif cycle is None or self.cycle.response_complete:
            self._part()

    def _rendered(self, error: Exception) -> bytes:
        status, headers, body = problem_answer(error, path="/")
        length = (b"content-length", b"%d" % len(body))
        head = [*self.server_state.default_headers, *headers, length, (b"connection", b"close")]
        lines = b"".join([b"%b: %b\r\n" % header for header in head])
        return b"".join([STATUS_LINE[status], lines, b"\r\n", body])

    def _part(self) -> None:
        """Send the last answer, then wait a little: a client that still sends might miss it."""
        self._unset_keepalive_if_required()
        self.transport.write(self._last_words)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._set_deadline(self._settings.linger_timeout_ms, self.transport.close)
        else:
            self.transport.close()

    def _expect_head(self) -> None:
        """Start the deadline of the next head, if it is not running."""
        if self._deadline is None:
            self._set_deadline(self._settings.head_timeout_ms, self._give_up_head)

    def _give_up_head(self) -> None:
        if not self._is_in_head:
            self.transport.close()  # no request has begun, so there is nothing to answer
        else:
            wait_ms = self._settings.head_timeout_ms
            self._refuse(RequestTimedOut(f"the head did not arrive within {wait_ms} ms"))

    def _set_deadline(self, wait_ms: int | None, act: Callable[[], None] | None = None) -> None:
        """Call `act` after a delay, instead of the earlier callback."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if wait_ms is not None and act is not None:
            self._deadline = self.loop.call_later(wait_ms / 1000, act)

    def pause_writing(self) -> None:
        """Begin to check whether the client receives its answer."""
        super().pause_writing()
        self._end_stall()
        self._watch_client()

    def resume_writing(self) -> None:
        """Stop checking: the client receives again."""
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
            self._unsent_bytes = 0

    def _watch_client(self) -> None:
        """Disconnect a client that has received nothing since the last check."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if self._unsent_bytes and unsent_bytes >= self._unsent_bytes:
            self.transport.abort()
            return
        self._unsent_bytes = unsent_bytes
        wait_seconds = self._settings.send_timeout_ms / 1000
        self._stall = self.loop.call_later(wait_seconds, self._watch_client)
