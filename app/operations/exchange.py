"""One request during an operation: its headers, its admission ticket, and its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from app.codecs.arrow_out import has_arrow
from app.codecs.body_stream import IDENTITY, decode_body
from app.errors import Draining, MalformedRequest
from app.http.answers import ARROW, JSON, Body, Message, Receive, Scope
from app.limits.admission import Ticket
from app.limits.shares import EVERYBODY, network_of
from app.operations.request_content import (
    BATCH_TYPES,
    RECORD_TYPES,
    check_digest,
    collect_body,
    media_type_of,
    negotiate,
)
from app.operations.service import Service
from app.operations.wait import ClientGone, DisconnectWatcher
from app.security.principal import UNKNOWN, Principal
from app.store.port import Run
from engine.errors import Overloaded, Recovering
from engine.records.budget import DecodeBudget

T = TypeVar("T")

CONTROL_TYPES: Final = (JSON, b"application/merge-patch+json")


class Exchange:
    """The argument of every operation. Call `close` when the answer has been sent."""

    __slots__ = ("_budget", "_receive", "caller", "head", "service", "ticket")

    def __init__(
        self,
        service: Service,
        head: Mapping[bytes, bytes],
        receive: Receive | None = None,
        *,
        caller: Principal,
        holder: str = "",
    ) -> None:
        """Admit the request; raises Recovering, Draining or Overloaded.

        Without `receive` there is no body: `app.wire` collects it from the parser. `holder` is what
        the request counts for: see `holder_of`.
        """
        try:
            self.ticket: Ticket = service.admission.admit(holder)
        except (Draining, Overloaded, Recovering):
            caller.refund()  # it was counted when it was authorized, before admission
            raise
        self.service = service
        self.head = head
        self.caller = caller
        self._receive = receive
        self._budget: DecodeBudget | None = None

    @property
    def maker(self) -> str:
        """Who makes what this request makes, for its share of a limit."""
        return self.caller.name if self.service.security.asks else EVERYBODY

    @property
    def budget(self) -> DecodeBudget:
        """The decoding budget of this request."""
        if self._budget is None:
            self._budget = DecodeBudget(self.service.settings.decode_limits())
        return self._budget

    def renew_budget(self) -> None:
        """Give the next part of an answer without end a decoding budget of its own."""
        self._budget = None

    async def decode(
        self,
        run: Run,
        work: Callable[[], T],
        ensure_wanted: Callable[[], None] | None = None,
    ) -> T:
        """Run decoding work on a worker: `run` is `write` or `read`.

        `ensure_wanted` raises to end it. Without it, ClientGone ends the work soon after the client
        disconnects; then the body must have been received.
        """
        service = self.service
        memory = service.append_memory if run == self.write else service.render_memory
        hold = memory.hold_bytes
        if ensure_wanted is not None:
            wanted = ensure_wanted
            return await run(lambda: self.budget.run(work, wanted, hold))
        with DisconnectWatcher(self.receive) as departure:

            def ensure_connected() -> None:
                if departure.is_gone:
                    raise ClientGone

            return await run(lambda: self.budget.run(work, ensure_connected, hold))

    async def look_up(self, work: Callable[[DecodeBudget], T], *, in_archive: bool = False) -> T:
        """Run a look-up by time on a worker, within the budget; as `decode`."""
        run = partial(self.read, in_archive=in_archive)
        return await self.decode(run, lambda: work(self.budget))

    def decoding(self, run: Run, ensure_wanted: Callable[[], None] | None = None) -> Run:
        """Return what runs work as `decode` does."""

        def decode(work: Callable[[], T]) -> Awaitable[T]:
            return self.decode(run, work, ensure_wanted)

        return decode

    @property
    def receive(self) -> Receive:
        assert self._receive is not None, "`app.wire` collects the body itself"
        return self._receive if self.caller.meter is None else self._receive_metered

    async def _receive_metered(self) -> Message:
        assert self._receive is not None, "checked before"
        message = await self._receive()
        self.caller.received(len(message.get("body", b"")))
        return message

    def close(self) -> None:
        """Release everything that the request holds."""
        if self.ticket.is_refused:
            self.caller.refund()
        self.ticket.close()

    async def write(self, work: Callable[[], T]) -> T:
        """Run an append that is too large for the event loop, when it is the client's turn."""
        return await self.service.workers.write(work, self.ticket.holder)

    async def read(self, work: Callable[[], T], *, in_archive: bool = False) -> T:
        """Run a read that touches the disk, or renders much, when it is the client's turn."""
        return await self.service.workers.read(work, self.ticket.holder, in_archive=in_archive)

    async def body(self) -> Body:
        """Return the complete, decoded body, after the check of its digest."""
        return await self.unpacked(await self.body_as_sent())

    async def body_as_sent(self) -> Body:
        """Return the complete body, which is what a sender has signed."""
        return await self._collect(self._body_limit)

    async def unpacked(self, body: Body) -> Body:
        """Return a body as sent decoded, after the check of its digest."""
        head = self.head
        if b"content-digest" in head or b"content-encoding" in head:
            return await self._unpack(body, self._body_limit)
        return body

    @property
    def _body_limit(self) -> tuple[str, int]:
        return ("max_request_bytes", self.service.settings.max_request_bytes)

    async def control_body(self) -> Body:
        """Return the body of an administrative request: JSON, and small."""
        media_type_of(self.head, CONTROL_TYPES)
        settings = self.service.settings
        limit = ("max_control_bytes", settings.max_control_bytes)
        return await self._unpack(await self._collect(limit), limit)

    async def _collect(self, limit: tuple[str, int]) -> Body:
        assert self._receive is not None, "`app.wire` collects the body itself"
        body = await collect_body(
            self._receive,
            self._hold,
            self.service.settings,
            declared=_declared_bytes(self.head),
            limit=limit,
        )
        self.caller.ensure_valid(self.service.clock)  # the body took several reads
        return body

    def _hold(self, size_bytes: int) -> None:
        """Count received bytes of the body; for the quota, those that were admitted."""
        self.ticket.hold_body(size_bytes)
        self.caller.received(size_bytes)

    async def _unpack(self, body: Body, limit: tuple[str, int]) -> Body:
        digest = self.head.get(b"content-digest")
        encoding = self.head.get(b"content-encoding", IDENTITY)
        is_plain = encoding.strip().lower() == IDENTITY

        def unpack() -> Body:
            if digest is not None:
                check_digest(body, digest.decode("latin-1"))
            if is_plain:
                return body
            return decode_body(body, encoding, limit=limit, budget=self.budget)

        if is_plain and len(body) <= self.service.settings.inline_append_bytes:
            return unpack()
        unpacked = await self.decode(self.write, unpack)
        if unpacked is not body:
            self.ticket.hold_body(len(unpacked))
        return unpacked

    def wanted_records(self, wanted: bytes | None) -> bytes:
        """Return the media type for records; raises NotAcceptable if there is none.

        The URL's format overrides Accept.
        """
        offered = (*RECORD_TYPES, ARROW) if has_arrow() else RECORD_TYPES
        return negotiate(wanted or self.head.get(b"accept"), offered)

    def ensure_takes_batches(self) -> None:
        """Raise NotAcceptable if the client does not accept record batches."""
        negotiate(self.head.get(b"accept"), BATCH_TYPES)


def holder_of(caller: Principal, scope: Scope) -> str:
    """Return the holder of a request's shares: its principal, or its client address."""
    if caller.name not in UNKNOWN:
        return caller.name
    client = scope.get("client")
    return network_of(client[0]) if client else ""


def _declared_bytes(head: Mapping[bytes, bytes]) -> int | None:
    text = head.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 19:
        raise MalformedRequest("Content-Length is not a number", header="content-length")
    return int(text)
