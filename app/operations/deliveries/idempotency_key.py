"""`Idempotency-Key` on appends: the delivery id of clients that keep no sequence, such as curl.

This follows draft-ietf-httpapi-idempotency-key-header, except that a repetition waits for a first
request that is still running.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from app.errors import MalformedRequest
from app.http.answers import Answer, Body
from app.operations.deliveries.claim import Delivery, delivery_of, fingerprint_of
from app.operations.exchange import Exchange
from app.store.port import Partition

HEADER: Final = b"idempotency-key"
REPLAYED: Final = (b"idempotency-replayed", b"true")

INLINE_BYTES: Final = 256 * 1024
"""Longer bodies are hashed on a worker."""

_KEY: Final = re.compile(rb"[!-~]{1,255}")


def key_of(head: Mapping[bytes, bytes]) -> bytes | None:
    """Return the request's key; None if it has none. Raises MalformedRequest for an invalid key."""
    key = head.get(HEADER)
    if key is not None and _KEY.fullmatch(key) is None:
        raise MalformedRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters", header="idempotency-key"
        )
    return key


async def keyed_delivery(
    exchange: Exchange, partition: Partition, key: bytes, body: Body, question: object
) -> Delivery:
    """Return the delivery of a request with this key to the topic of a partition.

    Requests that differ in body or question have different fingerprints. `question` consists of
    plain values.
    """
    asked = repr(question).encode()

    def work() -> bytes:
        return fingerprint_of(asked, body)

    fingerprint = work() if len(body) <= INLINE_BYTES else await exchange.write(work)
    scope = b"key " + exchange.caller.name.encode()
    return delivery_of(partition, scope, key, fingerprint)._replace(header=HEADER.decode())


async def run_to_end(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the answer of an append that goes on if its request is cancelled.

    Otherwise its claim could be released although a worker still writes its records.
    """
    return await asyncio.shield(asyncio.create_task(work))


def replayed(answer: Answer) -> Answer:
    """Return the answer to a repetition."""
    return Answer(answer.status, [*answer.headers, REPLAYED], answer.body)
