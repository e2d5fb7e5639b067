"""What reads share: the memory in which answers are rendered, and a result with its renderings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from traceback import clear_frames
from typing import Final, NamedTuple

from app.codecs.stored import render_bytes
from app.http.answers import Answer
from app.settings import Settings
from engine.log.results import Fetched
from engine.types import Buffer


class Found(NamedTuple):
    """The data, and where the read started."""

    start: int
    fetched: Fetched
    answers: dict[bytes, Answer]
    """Its renderings, by media type."""
    lines: dict[bytes, bytes]
    """Their headers as lines, for answers that `app.wire` sent."""


SMALL_BYTES: Final = 1024 * 1024
"""Reads that need at most this are not counted: each thread runs one at a time."""


class RenderMemory:
    """The memory of one pool's threads, within `max_in_flight_render_bytes`.

    Thread-safe. Work that finds too little free memory waits, first come first served. Work that
    needs more than the limit runs alone, so that all work advances.
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
        """Reserve the memory for rendering a read's answer until the block ends.

        Rendering keeps `copies` copies of the data. On the event loop (`is_inline`) answers are
        small.
        """
        if is_inline:
            yield
            return
        settings = self._settings
        size_bytes = render_bytes(
            reads,
            max_answer_bytes=settings.max_answer_bytes,
            limit_bytes=settings.max_decompressed_batch_bytes,
            copies=copies,
        )
        with self.hold_bytes(size_bytes):
            yield

    @contextmanager
    def hold_bytes(self, size_bytes: int) -> Iterator[None]:
        """Hold so many bytes until the block ends."""
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
        except BaseException as error:
            _let_go(error)
            raise
        finally:
            with self._changed:
                self._held_bytes -= size_bytes
                self._changed.notify_all()

    def _is_free(self, size_bytes: int) -> bool:
        limit_bytes = self._settings.max_in_flight_render_bytes
        return not self._held_bytes or self._held_bytes + size_bytes <= limit_bytes


def _let_go(error: BaseException | None) -> None:
    """Clear the frames that raised an error: they have what was decoded.

    The error waits for the event loop, and the memory is given to the next read meanwhile.
    """
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
