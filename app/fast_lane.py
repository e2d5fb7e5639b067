"""The ASGI callable in front: hot paths straight to the operations, everything else to FastAPI.

It understands what clients usually send: the append, read and offsets of one partition, with
ordinary parameters. What it is not sure about it does not judge: FastAPI's routes call the same
operations, so the answer is the same, byte for byte, and a test says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

from app.answers import Answer, Receive, Scope, Send, send_answer
from app.middleware import App, log_access
from app.operations.append import append_batches, append_records
from app.operations.exchange import Exchange
from app.operations.offsets import get_offsets
from app.operations.read import read_batches, read_records
from app.operations.service import MAX_PLACES, Service, Target
from app.problems import problem_answer
from app.tail import ClientGone
from app.translate.calls import FAST_APPEND_CALLS, fast_read_call
from app.translate.receipts import Place
from engine.errors import EngineError

_HOT: Final = frozenset({"records", "batches", "offsets"})


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
        if not partition.isdigit() or str(int(partition)) != partition:
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
        trace = head.get(b"traceparent")
        exchange: Exchange | None = None
        status = 0
        try:
            try:
                exchange = Exchange(service, head, receive)
                answer = await work.run(exchange, place, work.call)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001  # whatever it is, it has a problem document
                answer = problem_answer(error, path=scope["path"], trace=trace)
            status = answer.status
            await send_answer(send, answer, trace)
        finally:
            if exchange is not None:
                exchange.close()
            seconds = perf_counter() - started
            service.telemetry.answered(work.operation, status, seconds)
            if service.settings.access_log:
                log_access(scope, status, seconds)


class _Work(NamedTuple):
    """What is to be done: an operation's id, its function, and its parsed parameters."""

    operation: str
    run: Callable[[Exchange, Place, Any], Awaitable[Answer]]
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
    call = fast_read_call(query)
    if call is None:
        return None
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
