"""The ASGI callable in front: hot paths straight to the operations, everything else to FastAPI.

It understands what clients usually send: the append, read, tail and offsets of one partition, with
ordinary parameters. What it is not sure about it does not judge: FastAPI's routes call the same
operations, so the answer is the same, byte for byte, and a test says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

from app.api.frame import App
from app.codecs.calls import (
    FAST_APPEND_CALLS,
    PARTITION,
    fast_read_call,
)
from app.codecs.receipts import Place
from app.http.answers import Answer, Message, Receive, Scope, Send, send_answer
from app.http.problems import Forbidden, kind_of, problem_answer
from app.http.request_checks import trace_of
from app.operations.append.append import append_batches, append_records
from app.operations.exchange import Exchange, holder_of
from app.operations.read.content_coding import coded
from app.operations.read.offsets import get_offsets
from app.operations.read.read import read_batches, read_records
from app.operations.read.slow_clients import SEND_NOW
from app.operations.read.tail import TailSession, open_tail
from app.operations.read.wait import ClientGone
from app.operations.service import MAX_PLACES, Service, Target
from app.security.audit import CALLER_KEY
from app.security.authority import peer_of
from engine.errors import EngineError

_HOT: Final = frozenset({"records", "batches", "offsets", "tail"})


class FastLane:
    """Serves hot requests itself and hands all others on."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        self._targets = service.targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            target = self._targets.get(scope["path"]) or self._look_up(scope)
            if target is not None and b"%" not in scope["raw_path"]:
                work = _work_of(target.kind, scope["method"], scope["query_string"])
                if work is not None:
                    await self._serve(work, target.place, scope, receive, send)
                    return
        await self._app(scope, receive, send)

    def _look_up(self, scope: Scope) -> Target | None:
        """Return what the path stands for, and remember it; None if it is not a hot one."""
        path: str = scope["path"]
        pieces = path.split("/")
        if len(pieces) != 7 or pieces[6] not in _HOT:
            return None
        root, version, topics, topic, partitions, partition, kind = pieces
        if (root, version, topics, partitions) != ("", "v1", "topics", "partitions"):
            return None
        # Only the one spelling that Link and Location use; FastAPI takes care of the others.
        if PARTITION.fullmatch(partition) is None:
            return None
        try:
            place = self._service.place(topic, int(partition))
        except EngineError:
            return None
        if len(self._targets) >= MAX_PLACES:
            self._targets.clear()
        target = self._targets[path] = Target(kind, place)
        return target

    async def _serve(
        self, work: _Work, place: Place, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run one operation and send its answer: counted, admitted and explained as any other."""
        started = perf_counter()
        service = self._service
        head: Mapping[bytes, bytes] = dict(scope["headers"])
        trace = trace_of(head)
        exchange: Exchange | None = None
        status = sent_bytes = 0
        try:
            try:
                caller = service.security.authorize(
                    work.operation, place.topic, scope["headers"], peer_of(scope)
                )
                scope[CALLER_KEY] = caller
                exchange = Exchange(
                    service, head, receive, caller=caller, holder=holder_of(caller, scope)
                )
                answer = await work.run(exchange, place, work.call)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001  # whatever it is, it has a problem document
                if isinstance(error, Forbidden):  # the audit log names who tried
                    scope[CALLER_KEY] = service.security.identify(
                        work.operation, scope["headers"], peer_of(scope)
                    )
                answer = problem_answer(error, path=scope["path"], trace=trace)
                service.telemetry.explained(kind_of(error).code)
            if isinstance(answer, TailSession):
                assert exchange is not None, "a tail was opened with it"
                status = answer.status
                await _stream(answer, exchange, scope, send)
                return
            status = answer.status
            answer = await coded(service, head, answer)
            sent_bytes = len(answer.body)
            await send_answer(send, answer, trace)
        finally:
            if exchange is not None:
                exchange.caller.sent(sent_bytes, status)
                exchange.close()
            seconds = perf_counter() - started
            service.journal.answered(
                work.operation, status, seconds, sent_bytes=sent_bytes, scope=scope
            )


async def _stream(session: TailSession, exchange: Exchange, scope: Scope, send: Send) -> None:
    """Send a tail; what goes out counts for its caller as it goes."""

    async def counted(message: Message) -> None:
        exchange.caller.sent(len(message.get("body", b"")), session.status)
        await send(message)

    trace = trace_of(exchange.head)
    if exchange.caller.meter is not None:
        await session.run(scope, counted, trace)
        return
    await session.run(scope, send, trace, scope.get("extensions", {}).get(SEND_NOW))


class _Work(NamedTuple):
    """What is to be done: an operation's id, its function, and its parsed parameters."""

    operation: str
    run: Callable[[Exchange, Place, Any], Awaitable[Answer | TailSession]]
    call: object


async def _get_offsets(_exchange: Exchange, place: Place, _call: object) -> Answer:
    return get_offsets(place)


def _work_of(kind: str, method: str, query: bytes) -> _Work | None:
    """Return the work of a hot path, or None if FastAPI had better look at it."""
    if method == "POST":
        return _APPENDS.get((kind, query))
    if method != "GET":
        return None
    if kind == "offsets":
        return None if query else _GET_OFFSETS
    call = fast_read_call(kind, query)
    if call is None:
        return None
    if kind == "tail":
        return _Work("tailRecords", open_tail, call)
    if kind == "records":
        return _Work("readRecords", read_records, call)
    return _Work("readBatches", read_batches, call)


_APPENDS: Final[Mapping[tuple[str, bytes], _Work]] = {
    (kind, query): _Work(operation, run, call)
    for query, call in FAST_APPEND_CALLS.items()
    for kind, operation, run in (
        ("records", "appendRecords", append_records),
        ("batches", "appendBatches", append_batches),
    )
}
_GET_OFFSETS: Final = _Work("getOffsets", _get_offsets, None)
