"""The works of a seed on their threads, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from engine.errors import Overloaded, Recovering, StorageOffline
from tests.interleavings.history import History
from tests.interleavings.scene import Scene
from tests.interleavings.turns import Turns
from tests.interleavings.works import PLANS, WEIGHTS, Work

ALL_WORKS: Final = tuple(WEIGHTS)


@dataclass
class Schedule:
    """The works of a seed, on their threads."""

    history: History
    threads: list[list[Work]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    @classmethod
    def drawn(cls, random: Random, names: Sequence[str], leaves_out: frozenset[int]) -> Schedule:
        """Draw works of these names, and leave those of these numbers out."""
        schedule = cls(History(Scene(random)))
        history = schedule.history
        weights = [WEIGHTS[name] for name in names]
        number = 0
        for _ in range(random.choice((2, 2, 3))):
            works: list[Work] = []
            for _ in range(random.randint(1, 3)):
                work = PLANS[random.choices(names, weights)[0]](history, random)
                if work is not None and number not in leaves_out:
                    work.name = f"{number} {work.name}"
                    schedule.numbers.append(number)
                    works.append(work)
                number += work is not None
            schedule.threads.append(works)
        return schedule

    @property
    def works(self) -> list[Work]:
        return [work for thread in self.threads for work in thread]

    def told(self) -> list[str]:
        return [
            f"  {name}: {', then '.join(work.name for work in works)}"
            for name, works in zip(self.names, self.threads, strict=True)
        ]

    @property
    def names(self) -> Sequence[str]:
        return "ABC"[: len(self.threads)]

    def play(self, turns: Turns) -> None:
        """Have each thread do its works, one after another, and all of them interleaved."""
        errors = turns.run([self._runner(number, turns) for number in range(len(self.threads))])
        for error in errors:
            if error is not None:
                raise error

    def _runner(self, number: int, turns: Turns) -> Callable[[], None]:
        def run() -> None:
            for work in self.threads[number]:
                work.outcome.is_under_way = True
                turns.look()
                try:
                    work.outcome.result = work.act()
                except Exception as error:  # noqa: BLE001 - judged later
                    work.outcome.error = error
                work.outcome.is_under_way = False

        return run

    def went_on(self, thread: int) -> None:
        """Record the state that the thread may see from now on."""
        for work in self.threads[thread]:
            if work.outcome.is_under_way:
                work.outcome.note(self.history.moment())

    def judge(self) -> None:
        """Fail unless every result is possible, and the log is the result of the works."""
        self.history.conclude()
        for work in self.works:
            was_told = isinstance(work.outcome.error, StorageOffline | Recovering | Overloaded)
            if not (self.history.is_closing and was_told):
                work.judge(self.history, work.outcome)
