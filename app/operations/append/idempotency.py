"""`Idempotency-Key` on appends: a repetition gets the first answer and writes nothing.

For clients that keep no sequence, such as curl. The keys are in memory, bounded by count, bytes and
age; a restart forgets them. Clients that need more use a producer's id and sequence. This follows
draft-ietf-httpapi-idempotency-key-header, except that a repetition waits for a first request that
is still running.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.http.answers import Answer, Body
from app.http.problems import CommitTimedOut, IdempotencyKeyReused, MalformedRequest
from app.settings import Settings
from engine.clock import Clock

HEADER: Final = b"idempotency-key"
REPLAYED: Final = (b"idempotency-replayed", b"true")

ENTRY_BYTES: Final = 600
"""Approximate memory of an entry besides its key and its answer."""

INLINE_BYTES: Final = 256 * 1024
"""Longer bodies are hashed on a worker."""

_KEY: Final = re.compile(rb"[!-~]{1,255}")

Finish: TypeAlias = Callable[[], Awaitable[Answer]]
"""The second half of an append: waits for the disk and returns the answer. May be repeated."""

Begin: TypeAlias = Callable[[], Awaitable[Finish]]
"""The first half: appends the records, or raises without having written anything."""


def key_of(head: Mapping[bytes, bytes], caller: str) -> bytes | None:
    """Return the request's key, specific to the caller; None if it has none.

    Raises MalformedRequest for an invalid key.
    """
    key = head.get(HEADER)
    if key is None:
        return None
    if _KEY.fullmatch(key) is None:
        raise MalformedRequest(
            "Idempotency-Key must be 1 to 255 visible ASCII characters", header="idempotency-key"
        )
    return key + b" " + caller.encode()


async def fingerprint(
    run: Callable[[Callable[[], bytes]], Awaitable[bytes]], body: Body, question: object
) -> bytes:
    """Return a fingerprint: equal for requests with the same target, options and body.

    `run` runs long hashing on a worker.
    """

    def work() -> bytes:
        digest = hashlib.blake2b(repr(question).encode(), digest_size=32)
        digest.update(b"\0")  # no encoding contains this byte
        digest.update(body)
        return digest.digest()

    return work() if len(body) <= INLINE_BYTES else await run(work)


@dataclass(slots=True)
class _Entry:
    """The outcome of the first request with a key."""

    fingerprint: bytes
    ended: asyncio.Event | None
    """While it runs: set when it has finished."""
    answer: Answer | None = None
    finish: Finish | None = None
    """It is in the log, and the disk has not confirmed it in time: wait again."""
    kept_until_ms: int = 0
    size_bytes: int = 0


class IdempotencyWindow:
    """The latest answers to requests with a key. Belongs to the event loop.

    Admission bounds running requests; the settings bound stored answers, and the oldest is removed
    first.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._at_work: dict[bytes, _Entry] = {}
        self._kept: dict[bytes, _Entry] = {}  # in the order in which they finished
        self.kept_bytes = 0

    @property
    def kept_count(self) -> int:
        """The number of stored answers."""
        return len(self._kept)

    async def answer_once(self, key: bytes, fingerprint: bytes, begin: Begin) -> Answer:
        """Return the first answer for this key; run the request if it is the first.

        Only requests that may have written something are kept: after an error that wrote nothing
        the key is free. Raises IdempotencyKeyReused if the first request was a different one.
        """
        while (entry := self._find(key)) is not None:
            if entry.fingerprint != fingerprint:
                raise IdempotencyKeyReused(
                    "the Idempotency-Key was used for another request", header="idempotency-key"
                )
            if entry.answer is not None:
                status, headers, body = entry.answer
                return Answer(status, [*headers, REPLAYED], body)
            if entry.ended is None:
                break
            await entry.ended.wait()
        return await self._work(key, fingerprint, begin, entry)

    async def _work(
        self, key: bytes, fingerprint: bytes, begin: Begin, before: _Entry | None
    ) -> Answer:
        ended = asyncio.Event()
        self._at_work[key] = entry = _Entry(fingerprint, ended)
        try:
            finish = before.finish if before is not None else None
            if finish is None:
                finish = await begin()
            try:
                answer = await finish()
            except CommitTimedOut:
                entry.finish = finish
                self._keep(key, entry)
                raise
            entry.answer = Answer(answer.status, list(answer.headers), answer.body)
            self._keep(key, entry)
            return answer
        finally:
            del self._at_work[key]
            entry.ended = None
            ended.set()

    def _find(self, key: bytes) -> _Entry | None:
        now_ms = self._clock.monotonic_ms()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].kept_until_ms > now_ms:
                break
            self._forget(oldest)
        return self._at_work.get(key) or self._kept.get(key)

    def _keep(self, key: bytes, entry: _Entry) -> None:
        settings = self._settings
        entry.kept_until_ms = self._clock.monotonic_ms() + settings.max_idempotency_age_ms
        entry.size_bytes = ENTRY_BYTES + len(key)
        if entry.answer is not None:
            entry.size_bytes += len(entry.answer.body)
            entry.size_bytes += sum(len(name) + len(value) for name, value in entry.answer.headers)
        if key in self._kept:
            self._forget(key)
        self._kept[key] = entry
        self.kept_bytes += entry.size_bytes
        while (
            len(self._kept) > settings.max_idempotency_keys
            or self.kept_bytes > settings.max_idempotency_bytes
        ):
            self._forget(next(iter(self._kept)))

    def _forget(self, key: bytes) -> None:
        self.kept_bytes -= self._kept.pop(key).size_bytes
