"""How much decoding one request may cause: bytes of content, and processor time.

A few bytes can decode to gigabytes and keep a thread busy for minutes. Code that decodes for a
request takes the bytes from the request's budget, and regularly checks the time and whether the
client still waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, TypeAlias, TypeVar

from engine.errors import DecodeBudgetSpent

T = TypeVar("T")

Hold: TypeAlias = Callable[[int], AbstractContextManager[None]]
"""Blocks until that many bytes of memory are free, and reserves them until the context ends."""

DECODER_COPIES: Final = 3
"""How many copies of a batch's content decoding may need: in the decoder's window, in a buffer, and
as one record."""

CHECK_EVERY: Final = 1024
"""How often loops over blocks and frames, of about a microsecond each, check the budget."""


class DecodeLimits(NamedTuple):
    """The limits of one request, under the names in its error."""

    max_decoded_bytes: int
    max_decode_cpu_ms: int


def always_wanted() -> None:
    """Never end the work early."""


def hold_nothing(size_bytes: int) -> AbstractContextManager[None]:  # noqa: ARG001 - one signature
    """Reserve no memory."""
    return nullcontext()


class DecodeBudget:
    """The rest of one request's limits. Used by one thread at a time.

    For an append, `take` and `check` raise `DecodeBudgetSpent`. A read ends its response when the
    budget is spent. All methods raise what `ensure_wanted` raises.
    """

    __slots__ = (
        "_cpu_ns",
        "_ensure_wanted",
        "_hold",
        "_limits",
        "_mark_ns",
        "_spent_ns",
        "left_bytes",
    )

    def __init__(
        self, limits: DecodeLimits, *, cpu_ns: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self.left_bytes = limits.max_decoded_bytes
        """The bytes of content that may still be decoded."""
        self._limits = limits
        self._cpu_ns = cpu_ns
        self._ensure_wanted = always_wanted
        self._hold: Hold = hold_nothing
        self._spent_ns = 0
        self._mark_ns = cpu_ns()

    def run(
        self,
        work: Callable[[], T],
        ensure_wanted: Callable[[], None] = always_wanted,
        hold: Hold = hold_nothing,
    ) -> T:
        """Run a part of the request's work on this thread and count its processor time.

        `ensure_wanted` raises to end the work when the result is no longer needed. `hold`
        implements `decoding`.
        """
        self._ensure_wanted = ensure_wanted
        self._hold = hold
        self._mark_ns = self._cpu_ns()
        try:
            return work()
        finally:
            self._ensure_wanted = always_wanted  # breaks a reference cycle

    def decoding(self, content_bytes: int) -> AbstractContextManager[None]:
        """Reserve the memory to decode at most `content_bytes`, until the context ends."""
        return self._hold(DECODER_COPIES * content_bytes)

    def spend(self, size_bytes: int) -> None:
        """Count decoded bytes and the processor time so far."""
        self._ensure_wanted()
        self.left_bytes -= size_bytes
        now_ns = self._cpu_ns()
        self._spent_ns += now_ns - self._mark_ns
        self._mark_ns = now_ns

    @property
    def is_out_of_time(self) -> bool:
        """Whether the counted processor time exceeds the limit."""
        return self._spent_ns > self._limits.max_decode_cpu_ms * 1_000_000

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be decoded."""
        return self.left_bytes <= 0 or self.is_out_of_time

    def take(self, size_bytes: int) -> None:
        """As `spend`; raise if the budget does not have that many bytes or the time."""
        if size_bytes > self.left_bytes:
            raise self.bytes_spent()
        self.spend(size_bytes)
        if self.is_out_of_time:
            limit_ms = self._limits.max_decode_cpu_ms
            raise DecodeBudgetSpent(
                f"decoding takes more than max_decode_cpu_ms ({limit_ms} ms of processor time); "
                "send fewer or smaller batches, or ask for fewer partitions, in a request",
                limit="max_decode_cpu_ms",
                limit_ms=limit_ms,
            )

    def check(self) -> None:
        """Raise if the time is used up or the result is no longer needed."""
        self.take(0)

    def bytes_spent(self) -> DecodeBudgetSpent:
        """Return the error for content that exceeds the rest of the budget."""
        limit_bytes = self._limits.max_decoded_bytes
        return DecodeBudgetSpent(
            f"the content decodes to more than max_decoded_bytes ({limit_bytes} bytes); "
            "send fewer or smaller batches, or ask for fewer partitions, in a request",
            limit="max_decoded_bytes",
            limit_bytes=limit_bytes,
        )
