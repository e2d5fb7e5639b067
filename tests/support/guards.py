"""Which lock guards what, checked while the engine runs; after Clang's GUARDED_BY and AssertHeld.

A guard names functions that are called, and attributes that are set, with locks held only. Inside
`guarded` each call and each assignment is checked on the thread that makes it. So a lock that is
left out is found whichever threads there are, and without luck.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

import pytest

from tests.interleavings.locks import TurnLock, engine_locks

Locks: TypeAlias = Callable[[Any], Sequence[Sequence[Any]]]
"""Return, for each owner of an object, the locks that guard it; none before it is shared."""


class OwnedLock(TurnLock):
    """`threading.Lock` that can tell whether the calling thread holds it."""

    __slots__ = ("_owner",)

    def __init__(self) -> None:
        super().__init__()
        self._owner = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as the real one
        is_held = super().acquire(blocking, timeout)
        if is_held:
            self._owner = threading.get_ident()
        return is_held

    def release(self) -> None:
        self._owner = 0
        super().release()

    @property
    def is_mine(self) -> bool:
        return self._owner == threading.get_ident()


@dataclass(frozen=True)
class Guard:
    """The functions, properties and assigned attributes of a class that need locks.

    Of a module, functions of what their first argument guards.
    """

    owner: type | ModuleType
    names: Sequence[str]
    locks: Locks
    only_set: bool = False
    """Whether the names are attributes, checked when they are assigned."""
    not_in: frozenset[str] = frozenset()
    """Functions that call or assign without a lock, before the object is shared."""


@dataclass
class Watch:
    """What was checked, and what was done without its lock."""

    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    broken: list[str] = field(default_factory=list)

    def check(self, guard: Guard, name: str, guarded: Any) -> None:
        frame = _caller()
        if frame.f_code.co_name in guard.not_in or _is_being_made(guarded, frame):
            return
        owners = guard.locks(guarded)
        if not owners:
            return
        said = f"{guard.owner.__name__}.{name}"
        self.checked[said] += 1
        if not any(all(map(_is_mine, locks)) for locks in owners):
            self.broken.append(f"{said} in {frame.f_code.co_qualname}:{frame.f_lineno}")


def _caller() -> FrameType:
    frame = sys._getframe()  # noqa: SLF001 - as a debugger
    while frame.f_code.co_filename == __file__:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


def _is_mine(lock: Any) -> bool:
    lock = getattr(lock, "_lock", lock) if not isinstance(lock, OwnedLock) else lock
    return lock.is_mine if isinstance(lock, OwnedLock) else lock.locked()


def _is_being_made(guarded: Any, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is guarded:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def guarded(guards: Sequence[Guard]) -> Iterator[Watch]:
    """Check the guards of all objects that are made inside."""
    watch = Watch()
    with engine_locks(OwnedLock), pytest.MonkeyPatch.context() as patch:
        for guard in guards:
            if guard.only_set:
                _check_assignments(patch, watch, guard)
            else:
                for name in guard.names:
                    _check_calls(patch, watch, guard, name)
        yield watch


def _check_calls(patch: pytest.MonkeyPatch, watch: Watch, guard: Guard, name: str) -> None:
    found = inspect.getattr_static(guard.owner, name)
    function: Callable[..., Any] = getattr(found, "fget", found)

    def checked(self: Any, *arguments: Any, **options: Any) -> Any:
        watch.check(guard, name, self)
        return function(self, *arguments, **options)

    patch.setattr(guard.owner, name, property(checked) if function is not found else checked)


def _check_assignments(patch: pytest.MonkeyPatch, watch: Watch, guard: Guard) -> None:
    names: Final = frozenset(guard.names)
    assign: Callable[[Any, str, Any], None] = vars(guard.owner).get(
        "__setattr__", object.__setattr__
    )

    def checked(self: Any, name: str, value: Any) -> None:
        if name in names:
            watch.check(guard, name, self)
        assign(self, name, value)

    patch.setattr(guard.owner, "__setattr__", checked, raising=False)
