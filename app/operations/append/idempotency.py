"""`Idempotency-Key` on appends: a repetition is answered as the first was, and writes nothing.

For clients that keep no sequence, curl above all. The keys are in memory: the window is bounded by
count, bytes and age, and a restart begins with an empty one. What must survive a restart has a
producer's id and sequence instead. After draft-ietf-httpapi-idempotency-key-header, but that a
repetition which comes while the first is at work waits for its answer.
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
"""What an entry takes in memory besides its key and the bytes of its answer, about."""

INLINE_BYTES: Final = 256 * 1024
"""Longer bodies are hashed on a worker."""

_KEY: Final = re.compile(rb"[!-~]{1,255}")

Finish: TypeAlias = Callable[[], Awaitable[Answer]]
"""The second half of an append: waits for the disk and makes the answer. May be called again."""

Begin: TypeAlias = Callable[[], Awaitable[Finish]]
"""The first half: puts the records into the log, or raises and has written nothing."""


def key_of(head: Mapping[bytes, bytes], caller: str) -> bytes | None:
    """Return the request's key, which is the caller's own; None if it has none.

    Raises MalformedRequest for what cannot be one.
    """
    key = head.get(HEADER)
    if key is None:
        return None
    if _KEY.fullmatch(key) is None:
        raise MalformedRequest(
            "Idempotency-Key takes 1 to 255 visible ASCII characters", header="idempotency-key"
        )
    return key + b" " + caller.encode()


async def fingerprint(
    run: Callable[[Callable[[], bytes]], Awaitable[bytes]], body: Body, question: object
) -> bytes:
    """Return what two requests share only if they ask the same question with the same body.

    `run` runs what takes long on a worker.
    """

    def work() -> bytes:
        digest = hashlib.blake2b(repr(question).encode(), digest_size=32)
        digest.update(b"\0")  # no representation has one
        digest.update(body)
        return digest.digest()

    return work() if len(body) <= INLINE_BYTES else await run(work)


@dataclass(slots=True)
class _Entry:
    """What became of the first request with a key."""

    fingerprint: bytes
    ended: asyncio.Event | None
    """While it is at work: set when it is not any more."""
    answer: Answer | None = None
    finish: Finish | None = None
    """It is in the log, and the disk has not confirmed it in time: ask again."""
    kept_until_ms: int = 0
    size_bytes: int = 0


class IdempotencyWindow:
    """The latest answers to requests with a key. Belongs to the event loop.

    Requests at work are bounded by admission; what they leave here is bounded by the settings, and
    the oldest goes first.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._at_work: dict[bytes, _Entry] = {}
        self._kept: dict[bytes, _Entry] = {}  # in the order in which they ended
        self.kept_bytes = 0

    @property
    def kept_count(self) -> int:
        """How many answers can be given again."""
        return len(self._kept)

    async def answer_once(self, key: bytes, fingerprint: bytes, begin: Begin) -> Answer:
        """Return what the first request with this key was answered, and do it if this is the first.

        Only what may have written something is kept: after an error that wrote nothing the key is
        free. Raises IdempotencyKeyReused if that first request was another one.
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
