"""Opens the runtime while the service already answers, and closes everything in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from app.errors import ServiceError
from app.limits.admission import Phase
from app.operations.service import Service
from engine.errors import EngineError

_LOG = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def lifespan(service: Service, on_failure: Callable[[], None]) -> AsyncIterator[None]:
    """Start opening the logs; at the end write the clean-shutdown marker.

    Recovery may take long, so the application starts at once and answers 503 with progress. If
    the logs cannot be opened the reason is kept in `service.failure` and `on_failure` is called.
    """
    opening = asyncio.create_task(_open(service, on_failure))
    try:
        yield
    finally:
        await service.close()  # which has an opening that is under way give up
        await opening


async def _open(service: Service, on_failure: Callable[[], None]) -> None:
    try:
        await service.open()
    except Exception as error:  # noqa: BLE001  # kept and logged; the process ends
        if service.admission.phase is Phase.DRAINING:
            return
        service.failure = error
        says_it_all = isinstance(error, EngineError | ServiceError | OSError)
        _LOG.error("the logs cannot be opened: %s", error, exc_info=not says_it_all)
        on_failure()
