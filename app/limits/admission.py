"""Admission: limits on concurrent work, and whether the service accepts requests.

Everything that a request makes the process hold is counted here first: requests, bytes of bodies
and answers, waiting readers, tails. Belongs to the event loop.

A body must keep moving, and be complete in time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial

from app.errors import Draining
from app.limits.shares import Pool, network_of
from app.limits.system_limits import allowed_files
from app.settings import Settings
from engine.errors import Overloaded, Recovering


class Pace:
    """The deadline of a body: it must not stall, and must be complete in time."""

    __slots__ = ("_end", "_fresh_bytes", "_settings", "deadline")

    def __init__(self, settings: Settings, now: float) -> None:
        self._settings = settings
        self._end = now + settings.body_timeout_ms / 1000
        self._fresh_bytes = 0
        self.deadline = now
        """By the loop's clock."""
        self._extend(now)

    def came(self, size_bytes: int, now: float) -> None:
        """Extend the deadline once enough bytes have arrived since the last extension."""
        self._fresh_bytes += size_bytes
        settings = self._settings
        due = settings.min_body_bytes_per_second * settings.body_stall_timeout_ms
        if self._fresh_bytes * 1000 >= due:
            self._extend(now)

    def _extend(self, now: float) -> None:
        self._fresh_bytes = 0
        self.deadline = min(self._end, now + self._settings.body_stall_timeout_ms / 1000)

    @property
    def complaint(self) -> str:
        """The error message after the deadline."""
        settings = self._settings
        if self.deadline == self._end:
            return f"the body did not arrive within {settings.body_timeout_ms} ms"
        return (
            f"less than min_body_bytes_per_second ({settings.min_body_bytes_per_second}) "
            f"of the body arrived for {settings.body_stall_timeout_ms} ms"
        )


class Phase(enum.Enum):
    """The phase of the service."""

    RECOVERING = "recovering"
    READY = "ready"
    DRAINING = "draining"


class Admission:
    """Counts what requests hold against the limits of the settings, and in shares of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.phase = Phase.RECOVERING
        self.requests_pool = self._pool("max_in_flight_requests")
        self.body_bytes_pool = self._pool("max_in_flight_bytes")
        self.answer_bytes_pool = self._pool("max_in_flight_answer_bytes")
        self.waiting_readers_pool = self._pool("max_waiting_readers")
        self.tails_pool = self._pool("max_tails")
        self.connections_pool = Pool(
            "max_connections",
            settings.max_connections,
            settings.max_address_connections_percent,
            share_name="max_address_connections_percent",
        )

    def _pool(self, limit: str) -> Pool:
        return Pool(limit, getattr(self._settings, limit), self._settings.max_share_percent)

    def admit(self, holder: str) -> Ticket:
        """Admit a request of the principal or address; raises Recovering, Draining, Overloaded."""
        if self.phase is not Phase.READY:
            if self.phase is Phase.DRAINING:
                raise Draining("the service is stopping")
            raise Recovering("the logs are being opened; /readyz shows the progress")
        self.requests_pool.take(holder, 1)
        return Ticket(self, holder)

    @property
    def requests(self) -> int:
        """The number of running requests."""
        return self.requests_pool.held

    @property
    def body_bytes(self) -> int:
        return self.body_bytes_pool.held

    @property
    def answer_bytes(self) -> int:
        return self.answer_bytes_pool.held

    @property
    def waiting_readers(self) -> int:
        return self.waiting_readers_pool.held

    @property
    def tails(self) -> int:
        return self.tails_pool.held

    def connect(self, host: str, descriptor: int) -> Callable[[], None]:
        """Count a connection of a client; return a function to call once it has ended.

        Raises Overloaded if there are too many. Connections leave half of the files that the
        process may open to the logs, and the last `min_free_files` in any case: a log that cannot
        open its next segment refuses appends, and a revoked key is not noticed. A new descriptor is
        the lowest free number, so it shows how many are in use.
        """
        settings, pool = self._settings, self.connections_pool
        allowed = allowed_files()
        min_free = min(settings.min_free_files, allowed // 4)
        if descriptor >= allowed - min_free:
            raise Overloaded(
                f"fewer than min_free_files ({min_free}) can still be opened",
                limit="min_free_files",
                limit_value=min_free,
            )
        pool.limit = min(settings.max_connections, allowed // 2)
        holder = network_of(host)
        pool.take(holder, 1)
        return partial(pool.add, holder, -1)


class Ticket:
    """What one request holds; `close` releases all of it."""

    __slots__ = (
        "_admission",
        "_answer_bytes",
        "_body_bytes",
        "_tails",
        "_waits",
        "holder",
        "is_refused",
    )

    def __init__(self, admission: Admission, holder: str) -> None:
        self.holder = holder
        """The principal, or the client's address, that the request counts for."""
        self._admission = admission
        self._body_bytes = 0
        self._answer_bytes = 0
        self._tails = False
        self._waits = False
        self.is_refused = False
        """Whether the request exceeded a limit."""

    def _take(self, pool: Pool, amount: int) -> None:
        try:
            pool.take(self.holder, amount)
        except Overloaded:
            self.is_refused = True
            raise

    def hold_body(self, size_bytes: int) -> None:
        """Count bytes of the body before they are held; raises Overloaded."""
        try:
            self._admission.body_bytes_pool.take(self.holder, size_bytes)
        except Overloaded:
            self.is_refused = True
            raise
        self._body_bytes += size_bytes

    def settle_body(self, size_bytes: int) -> None:
        """Set the number of held bytes of the body; raises Overloaded for more."""
        more = size_bytes - self._body_bytes
        if more > 0:
            self._take(self._admission.body_bytes_pool, more)
        else:
            self._admission.body_bytes_pool.add(self.holder, more)
        self._body_bytes = size_bytes

    def hold_answer(self, size_bytes: int) -> None:
        """Count bytes of the answer before they are held; raises Overloaded.

        A single answer is always admitted: at least one batch is returned, however large.
        """
        answers = self._admission.answer_bytes_pool
        if answers.held:
            self._take(answers, size_bytes)
        else:
            answers.add(self.holder, size_bytes)
        self._answer_bytes += size_bytes

    def settle_answer(self, size_bytes: int) -> None:
        """Replace the estimate of `hold_answer` with the answer's true size."""
        if size_bytes != self._answer_bytes:
            self._admission.answer_bytes_pool.add(self.holder, size_bytes - self._answer_bytes)
            self._answer_bytes = size_bytes

    def exchange_answer(self, size_bytes: int) -> None:
        """Count an answer instead of its input; raises Overloaded, as `hold_answer`."""
        self.settle_answer(0)
        self.hold_answer(size_bytes)

    def park(self) -> None:
        """Count as a waiting reader instead of a running request; raises Overloaded."""
        if not self._waits:
            self._take(self._admission.waiting_readers_pool, 1)
            self._admission.requests_pool.add(self.holder, -1)
            self._waits = True

    def resume(self) -> None:
        """Count as a running request again, even above the limit: the reader has waited already."""
        if self._waits:
            self._admission.waiting_readers_pool.add(self.holder, -1)
            self._admission.requests_pool.add(self.holder, 1)
            self._waits = False

    def tail(self) -> None:
        """Count as a tail from now on; raises Overloaded."""
        self._take(self._admission.tails_pool, 1)
        self._admission.requests_pool.add(self.holder, -1)
        self._tails = True

    def close(self) -> None:
        if self._waits:
            self.resume()
        admission, holder = self._admission, self.holder
        (admission.tails_pool if self._tails else admission.requests_pool).add(holder, -1)
        if self._body_bytes:
            admission.body_bytes_pool.add(holder, -self._body_bytes)
        if self._answer_bytes:
            admission.answer_bytes_pool.add(holder, -self._answer_bytes)
