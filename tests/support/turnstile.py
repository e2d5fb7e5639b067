"""A client that hangs up while a worker works for it, and when the work ends."""

from __future__ import annotations

import threading

from app.operations.service import Service
from tests.support.wire import Connection, turn


class Turnstile:
    """Lets a worker pass once, then holds it up until the test has seen enough; counts."""

    def __init__(self) -> None:
        self.passed = 0
        self.reached = threading.Event()
        self.opened = threading.Event()

    def enter(self) -> None:
        self.passed += 1
        if self.passed == 2:
            self.reached.set()
            assert self.opened.wait(20)


async def until_idle(service: Service) -> None:
    """Return when no request is at work any more."""
    while service.admission.requests:
        await turn()


async def hang_up_meanwhile(service: Service, connection: Connection, turnstile: Turnstile) -> None:
    """Let the client go while the worker is in the turnstile."""
    while not turnstile.reached.is_set():
        await turn()
    connection.hang_up()
    await turn()
    await turn()
    turnstile.opened.set()
    await until_idle(service)
