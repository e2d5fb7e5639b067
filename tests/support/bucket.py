"""A bucket in memory that fails, loses answers, lists late and dies under a writer, from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random

from engine.archive.store import ObjectMissing, StoredObject, StoreUnavailable
from engine.types import Buffer


class Killed(BaseException):
    """The process ends here, as by kill -9."""


class Bucket:
    """An object store; `random` decides what goes wrong, nothing without it."""

    url = "memory://bucket"

    def __init__(self, random: Random | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble = 0.0
        """How often an operation fails, before or after it has had its effect."""
        self.is_down = False
        self.operations = 0
        self.kill_at: int | None = None
        """The operation before or in which the process ends."""
        self._random = random or Random(0)
        self._late: list[StoredObject] = []
        self.is_late = False
        """Whether a listing may be an earlier one."""

    def put(self, name: str, content: Iterable[Buffer], size_bytes: int) -> None:
        self._enter()
        whole = b"".join(content)
        assert len(whole) == size_bytes, (name, len(whole), size_bytes)
        assert self.objects.get(name, whole) == whole, f"{name} would get other content"
        self._leave(lambda: self.objects.__setitem__(name, whole))

    def put_new(self, name: str, content: bytes) -> bool:
        self._enter()
        if name in self.objects:
            return False
        self._leave(lambda: self.objects.__setitem__(name, content))
        return True

    def get(self, name: str) -> bytes:
        self._enter()
        if name not in self.objects:
            raise ObjectMissing(f"{name} does not exist")
        return self.objects[name]

    def read(self, name: str) -> Iterator[Buffer]:
        content = self.get(name)
        for start in range(0, len(content), 300):
            yield content[start : start + 300]

    def read_range(self, name: str, position: int, length: int) -> bytes:
        return self.get(name)[position : position + length]

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._enter()
        objects = list(self.objects.items())  # at once: another thread may put one
        present = [StoredObject(name, len(one), 0) for name, one in objects]
        listed = self._late if self.is_late and self._random.random() < 0.5 else present
        if self._random.random() < 0.3:
            self._late = present
        return iter([one for one in listed if one.name.startswith(prefix)])

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._enter()
            self._leave(partial(self.objects.pop, name, None))

    def _enter(self) -> None:
        self.operations += 1
        if self.operations == self.kill_at:
            raise Killed
        if self.is_down or self._random.random() < self.trouble:
            raise StoreUnavailable("503 Slow Down")

    def _leave(self, effect: Callable[[], object]) -> None:
        """Have the effect, unless the process ends before; the answer may be lost after it."""
        if self.kill_at == -self.operations:
            effect()
            raise Killed
        effect()
        if self._random.random() < self.trouble:
            raise StoreUnavailable("the answer was lost")
