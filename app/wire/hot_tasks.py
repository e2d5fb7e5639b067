"""Hot requests that need a task: unusual headers, and tails.

An append with a content coding or an `Idempotency-Key`, a read with `If-None-Match` or `Range`:
the same operations as everywhere, without FastAPI's parsing of parameters and models.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final, TypeAlias

from app.codecs.calls import IngestCall
from app.http.answers import Answer, Message, Receive, Scope, Send, send_answer
from app.http.problems import problem_answer
from app.http.request_checks import trace_of
from app.operations.append.append_partition import append_batches, append_records
from app.operations.exchange import Exchange, holder_of
from app.operations.ingest.ingest import ingest
from app.operations.read.content_coding import coded
from app.operations.read.offsets import get_offsets
from app.operations.read.read import read_batches, read_records
from app.operations.read.slow_clients import SEND_NOW
from app.operations.read.tail import TailSession, open_tail
from app.operations.read.wait import ClientGone
from app.operations.service import Service
from app.security.audit import CALLER_KEY
from app.security.authority import peer_of
from app.security.principal import Principal
from app.store.port import Partition
from app.telemetry.refusals import count_problem
from app.wire.hot_operations import INGEST, HotOperation

OPERATION: Final = "tidelog.operation"
"""Key of the scope: the `HotOperation`, set by the connection."""

_Run: TypeAlias = Callable[[Exchange, Partition, Any], Awaitable[Answer | TailSession]]


class HotTasks:
    """The ASGI application of hot requests that need a task. It has no state but the service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run one operation and send its answer: counted, admitted and explained like any other."""
        asked: HotOperation = scope[OPERATION]
        started = perf_counter()
        service = self._service
        head: Mapping[bytes, bytes] = dict(scope["headers"])
        trace = trace_of(head)
        exchange: Exchange | None = None
        status = sent_bytes = 0
        try:
            try:
                caller = self._authorize(asked, scope)
                exchange = Exchange(
                    service, head, receive, caller=caller, holder=holder_of(caller, scope)
                )
                # Not earlier: a request pipelined before this one may replace the topic.
                partition = service.partition(asked.topic, asked.partition)
                answer = await _RUNS[asked.operation](exchange, partition, asked.call)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001  # whatever it is, it has a problem document
                answer = problem_answer(error, path=scope["path"], trace=trace)
                count_problem(service.telemetry, error, scope["path"])
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
            known: Principal | None = scope.get(CALLER_KEY)
            if known is not None:
                known.sent(sent_bytes, status)
            if exchange is not None:
                exchange.close()
            seconds = perf_counter() - started
            service.journal.answered(
                asked.operation, status, seconds, sent_bytes=sent_bytes, scope=scope
            )

    def _authorize(self, asked: HotOperation, scope: Scope) -> Principal:
        """Return the principal; it is logged and charged even if the request is refused."""
        security, headers, peer = self._service.security, scope["headers"], peer_of(scope)
        caller = None
        try:
            if asked.operation == INGEST:
                caller = self._service.senders.enter(asked.topic, dict(headers), peer=peer)
            if caller is None:
                caller = security.authorize(asked.operation, asked.topic, headers, peer)
        except Exception as error:
            if (refused := security.refused(error, asked.operation, headers, peer)) is not None:
                scope[CALLER_KEY] = refused
            raise
        scope[CALLER_KEY] = caller
        return caller


async def _stream(session: TailSession, exchange: Exchange, scope: Scope, send: Send) -> None:
    """Send a tail; bytes count for its caller as they are sent."""

    async def counted(message: Message) -> None:
        exchange.caller.sent(len(message.get("body", b"")), session.status)
        await send(message)

    trace = trace_of(exchange.head)
    if exchange.caller.meter is not None:
        await session.run(scope, counted, trace)
        return
    await session.run(scope, send, trace, scope.get("extensions", {}).get(SEND_NOW))


async def _ingest(exchange: Exchange, partition: Partition, call: IngestCall) -> Answer:
    return await ingest(exchange, partition.topic, call)


async def _get_offsets(_exchange: Exchange, partition: Partition, _call: object) -> Answer:
    return await get_offsets(partition)


_RUNS: Final[Mapping[str, _Run]] = {
    "appendRecords": append_records,
    "appendBatches": append_batches,
    "ingest": _ingest,
    "readRecords": read_records,
    "readBatches": read_batches,
    "getOffsets": _get_offsets,
    "tailRecords": open_tail,
}
