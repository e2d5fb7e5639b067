"""A connection: uvicorn's HTTP with a hot lane, one write an answer, bounded waits.

What is no request that all of HTTP's readers would read alike is refused here, before any lane
sees it; and nobody holds a connection by sending nothing, or by taking nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from app.http.problems import MalformedRequest, RequestTimedOut, kind_of, problem_answer
from app.http.request_checks import (
    FIELD_BYTES,
    fault_of,
    size_of,
    with_joined_lists,
    without_upgrade,
)
from app.operations.read.slow_clients import CUT_OFF, SEND_NOW
from app.wire.body_receiver import DIRECT_BYTES, BodyReceiver
from app.wire.coalescing_transport import CoalescingTransport
from app.wire.connections import CountedProtocol, counted
from app.wire.hot_appends import HotAppend, HotLane
from app.wire.hot_request import HotRequest
from engine.errors import Overloaded

_NO_HTTP: Final = "Invalid HTTP request received."
_HEAD_END: Final = b"\r\n\r\n"


class Protocol(CountedProtocol):
    """uvicorn's HTTP, writing each answer once; heads are bounded, what is no HTTP is explained.

    A request that the hot lane takes takes the place of uvicorn's cycle, so that what is pipelined
    behind it waits its turn. A connection without a cycle, or with one that is complete, is idle.
    """

    def __init__(self, *, hot_lane: HotLane, max_header_bytes: int, **options: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**options)
        self._hot_lane = hot_lane
        self._application = self.app  # uvicorn hands each request to `app`
        self._settings = hot_lane.service.settings
        self._max_header_bytes = max_header_bytes
        self._head_bytes = 0
        """What came of a head, or of trailers, that are not whole."""
        self._trailers_bytes = 0
        self._has_body_come = False
        """Whether anything of a body was in what came last."""
        self._hot: HotRequest | None = None
        """The last one that the hot lane took; uvicorn's cycle may be one that waits behind it."""
        self._running: RequestResponseCycle | None = None
        """The last of uvicorn's that was begun; likewise."""
        self._has_head = False
        """Whether a request is under way that is handed on, and not yet whole."""
        self._first = b""
        """What came between two requests and is with the parser, until its first head is whole."""
        self._idle_since = 0.0
        """When the last answer was complete, on the loop's clock."""
        self._plain_head = b""
        """The head of a request that asks for an upgrade, without the question."""
        self._is_deaf = False
        """Whether nothing more is taken from this client."""
        self._last_words = b""
        """What the client is told when all before it is answered; then the connection ends."""
        self._deadline: asyncio.TimerHandle | None = None
        """For a head to be whole, or for the rest of a body that nobody wants any more."""
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
        """Write `data` and return True if the client has taken what it was sent before."""
        if self.flow.write_paused or self.transport.is_closing():
            return False
        self.transport.write(data)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection, and the request whose body will not come any more."""
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
        # What refers back to the connection would keep it until Python looks for circles, which it
        # does seldom: see `app.server.process`.
        self._hot = self._running = None
        self.cycle = None  # type: ignore[assignment]  # uvicorn's own, before the first
        self._extensions.clear()
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Take what came; hang up on what is no HTTP, or a line and headers that do not end."""
        if self._is_deaf:
            return
        is_between = self._is_idle and not (
            self._has_head or self._is_in_head or self.transport.is_closing()
        )
        if is_between and self._take_cached(data):
            return
        self._first = data if is_between else b""
        latest = self._cycle
        self._has_body_come = False
        if self._feed(data):
            self._look_at_rest(len(data), has_begun=self._cycle is not latest)

    def _take_cached(self, data: bytes) -> bool:
        """Do a request that has a head that the parser has seen; False if it is none for here.

        It is whole, or the rest of its body is received without a copy. The parser is not told: it
        stands between two requests, before and afterwards.
        """
        body_start = data.find(_HEAD_END) + len(_HEAD_END)
        cached = self._hot_lane.cached_head(data[:body_start])
        if cached is None:
            return False
        rest_bytes = cached.body_bytes - (len(data) - body_start)
        if rest_bytes and (rest_bytes < DIRECT_BYTES or self.scheme != "http"):
            return False
        self.on_message_begin()
        self.url, self.headers = cached.url, cached.headers
        self.scope["headers"] = cached.headers
        hot = self._hot_lane.admit(self, cached)
        if hot is None or (rest_bytes and not isinstance(hot, HotAppend)):
            return False  # the parser begins again: for FastAPI, or to pass over a body
        self._head_bytes = 0
        self._set_deadline(None)
        self._hot = hot
        self.cycle = cast("RequestResponseCycle", hot)
        if not rest_bytes:
            hot.take(data[body_start:])
            hot.finish()
            return True
        self._has_head = True
        assert isinstance(hot, HotAppend), "nothing else has a body"
        hot.expect(cached.body_bytes, memoryview(data)[body_start:])
        self.transport.set_protocol(BodyReceiver(self, hot, rest_bytes))
        return True

    def body_is_whole(self) -> None:
        """Take the transport back from the receiver of a body, and go on after it."""
        self.transport.set_protocol(self)
        self.on_message_complete()

    def _look_at_rest(self, size_bytes: int, *, has_begun: bool) -> None:
        """Arm the timeouts for bytes that have not arrived; `has_begun`: a head was completed."""
        is_in_head = self._is_in_head or self._cycle is None
        if has_begun or self._has_body_come or not (is_in_head or self._has_head):
            self._head_bytes = 0  # it was about something else, or most of it
        else:
            self._head_bytes += size_bytes
            if self._head_bytes > self._max_header_bytes:
                self._refuse_large_head()
                return
        if is_in_head:
            self._expect_head()
            return
        hot = self._hot_cycle
        if hot is not None:
            hot.expect_rest()
        if self._is_idle and not self._has_head and not has_begun:
            self._expect_head()  # bytes that belong to no request are to become one

    def _refuse_large_head(self) -> None:
        what = "trailers or extensions" if self._has_head else "line and headers"
        detail = f"the {what} are larger than max_header_bytes ({self._max_header_bytes})"
        self._refuse(MalformedRequest(detail))

    def _feed(self, data: bytes) -> bool:
        """Have the bytes parsed, and return whether more of them are wanted.

        A wish to upgrade is passed over (RFC 9110, 7.8).
        """
        while not self._is_deaf:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._plain_head + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                self._refuse(MalformedRequest(_NO_HTTP))
            else:
                break
        return not self._is_deaf

    @property
    def _cycle(self) -> object:
        """The latest request: one of uvicorn's, or one of the hot lane."""
        cycle: object = self.cycle
        return cycle

    @property
    def _hot_cycle(self) -> HotRequest | None:
        """The latest request if it is one of the hot lane."""
        return self._hot if self._cycle is self._hot else None

    @property
    def _is_idle(self) -> bool:
        """Whether all that was asked is answered, though a body may still come that is unwanted."""
        return self._cycle is None or self.cycle.response_complete

    @property
    def _is_in_head(self) -> bool:
        scope = cast("Mapping[str, object] | None", self.scope)
        return scope is not None and "method" not in scope  # it has one when the head is whole

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header without the blanks behind it, which the parser leaves (RFC 9110, 5.5)."""
        super().on_header(name, value.rstrip(b" \t"))
        if self._has_head:
            self._trailers_bytes += len(name) + len(value) + FIELD_BYTES
            if self._trailers_bytes > self._max_header_bytes and not self._is_deaf:
                self._refuse_large_head()

    def on_headers_complete(self) -> None:
        """Let the hot lane have the request, or else uvicorn; after the last answer, nobody."""
        self._plain_head = b""
        if self._is_deaf:
            return
        first, self._first = self._first, b""
        is_small = 0 < len(first) <= self._max_header_bytes  # the head, and all behind it
        if not is_small and size_of(self.url, self.headers) > self._max_header_bytes:
            self._refuse_large_head()
            return
        self._set_deadline(None)
        if self._is_idle and self.transport.is_closing():
            return
        if self._is_idle:
            hot = self._hot_lane.enter(self, first[: first.find(_HEAD_END) + len(_HEAD_END)])
            if hot is not None:
                self._hot = hot
                self.cycle = cast("RequestResponseCycle", hot)
                self._has_head = True
                return
        method = self.parser.get_method()
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._plain_head = without_upgrade(method, self.url, self.headers)
        else:
            self._begin()

    def _begin(self) -> None:
        """Hand a request to uvicorn, unless it cannot be served."""
        fault = fault_of(self.parser.get_http_version(), self.headers)
        if fault is not None:
            self._refuse(MalformedRequest(fault))
        elif len(self.pipeline) >= self._settings.max_pipelined_requests:
            self.cycle.keep_alive = False  # its answer tells that those behind it had none
            self._is_deaf = True
        else:
            cast("dict[str, object]", self.scope)["extensions"] = self._extensions
            self.scope["headers"] = with_joined_lists(self.headers)
            self.expect_100_continue &= self.parser.get_http_version() != "1.0"
            self.app = self._hot_lane.task_of(self) or self._application
            super().on_headers_complete()
            self._has_head = True
            if not self.pipeline:
                self._running = self.cycle
            elif len(self.pipeline) == 1:
                self.flow.resume_reading()  # who is not read from is not seen to leave

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body."""
        self._has_body_come = True
        if not self._has_head:
            return
        hot = self._hot_cycle
        if hot is not None:
            hot.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Tell that the body is whole."""
        if not self._has_head or self._is_deaf:
            return
        self._has_head = False
        self._trailers_bytes = 0
        self._set_deadline(None)
        hot = self._hot_cycle
        if hot is not None:
            hot.finish()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with what is pipelined; behind the last answer, with what is still to be said."""
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
        """Close the connection if nothing more is asked for in time.

        The timer of an earlier answer goes on: to move it with each would cost more than a parse.
        """
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._call_when_idle(self.timeout_keep_alive)

    def _call_when_idle(self, wait_seconds: float) -> None:
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(wait_seconds, handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for so long; look again later where it was not."""
        self.timeout_keep_alive_task = None
        if not self._is_idle or self._is_in_head:
            return  # the next answer begins anew, and a head has a time of its own
        left_seconds = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_seconds > 0:
            self._call_when_idle(left_seconds)
        else:
            self.transport.close()

    def _refuse(self, error: Exception) -> None:
        """Take nothing more; say why when what was asked before is answered, then hang up."""
        self._is_deaf = True
        self._set_deadline(None)
        self._hot_lane.service.telemetry.explained(kind_of(error).code)
        self._last_words = self._rendered(error)
        cycle = self._cycle
        if self._has_head and self.pipeline:
            self.pipeline.popleft()  # what is refused is a request that waits: it is never begun
        elif self._has_head and isinstance(cycle, RequestResponseCycle):
            if cycle.response_started:
                self.transport.abort()  # half an answer cannot be followed by another
                return
            cycle.disconnected = True
            cycle.message_event.set()
            self._part()
        elif cycle is None or self.cycle.response_complete:
            self._part()

    def _rendered(self, error: Exception) -> bytes:
        status, headers, body = problem_answer(error, path="/")
        defaults = self.server_state.default_headers
        length = (b"content-length", b"%d" % len(body))
        head = [*defaults, *headers, length, (b"connection", b"close")]
        lines = b"".join([b"%b: %b\r\n" % header for header in head])
        return b"".join([STATUS_LINE[status], lines, b"\r\n", body])

    def _part(self) -> None:
        """Say the last words, and wait a little: who is cut off while sending may miss them."""
        self._unset_keepalive_if_required()
        self.transport.write(self._last_words)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._set_deadline(self._settings.linger_timeout_ms, self.transport.close)
        else:
            self.transport.close()

    def _expect_head(self) -> None:
        """Give the next head its time, from now on if it is not running."""
        if self._deadline is None:
            self._set_deadline(self._settings.head_timeout_ms, self._give_up_head)

    def _give_up_head(self) -> None:
        if not self._is_in_head:
            self.transport.close()  # nothing was asked, so nothing is to be said
        else:
            wait_ms = self._settings.head_timeout_ms
            self._refuse(RequestTimedOut(f"the head did not arrive within {wait_ms} ms"))

    def _set_deadline(self, wait_ms: int | None, act: Callable[[], None] | None = None) -> None:
        """Have `act` called after a while, instead of what was to be called before."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if wait_ms is not None and act is not None:
            self._deadline = self.loop.call_later(wait_ms / 1000, act)

    def pause_writing(self) -> None:
        """Begin to look whether the client takes what it asked for."""
        super().pause_writing()
        self._end_stall()
        self._watch_client()

    def resume_writing(self) -> None:
        """End that: it does."""
        self._end_stall()
        super().resume_writing()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
            self._unsent_bytes = 0

    def _watch_client(self) -> None:
        """Cut off a client that took nothing since the last look."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if self._unsent_bytes and unsent_bytes >= self._unsent_bytes:
            self.transport.abort()
            return
        self._unsent_bytes = unsent_bytes
        wait_seconds = self._settings.send_timeout_ms / 1000
        self._stall = self.loop.call_later(wait_seconds, self._watch_client)
