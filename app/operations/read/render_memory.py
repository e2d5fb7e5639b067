"""The memory in which reads decode batches and render answers, taken before it is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Final

from app.codecs.stored import render_bytes
from app.settings import Settings
from engine.types import Buffer

SMALL_BYTES: Final = 1024 * 1024
"""Reads that need no more are not counted: there is one for each thread at most."""


class RenderMemory:
    """How much all readers' threads hold at once, within `max_in_flight_render_bytes`.

    Thread-safe. A read that finds too little free waits, in the order of asking. One that needs
    more than the limit runs alone: a reader always gets on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held_bytes = 0
        self._waiting: deque[object] = deque()
        self._changed = Condition()

    @contextmanager
    def hold(
        self, reads: Sequence[Buffer], *, copies: int = 1, is_inline: bool = False
    ) -> Iterator[None]:
        """Hold until the block ends what it takes to make an answer of what was read.

        There are `copies` of it while it is made. On the event loop, `is_inline`, nothing large is.
        """
        settings = self._settings
        size_bytes = 0
        if not is_inline:
            size_bytes = render_bytes(
                reads,
                max_answer_bytes=settings.max_answer_bytes,
                limit_bytes=settings.max_decompressed_batch_bytes,
                copies=copies,
            )
        if size_bytes <= SMALL_BYTES:
            yield
            return
        turn = object()
        with self._changed:
            self._waiting.append(turn)
            self._changed.wait_for(lambda: self._waiting[0] is turn and self._is_free(size_bytes))
            self._waiting.popleft()
            self._held_bytes += size_bytes
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._held_bytes -= size_bytes
                self._changed.notify_all()

    def _is_free(self, size_bytes: int) -> bool:
        limit_bytes = self._settings.max_in_flight_render_bytes
        return not self._held_bytes or self._held_bytes + size_bytes <= limit_bytes
