"""What may go wrong while something is done: power, the process, a call, space, open files."""

from __future__ import annotations

import contextlib
import enum
import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.support.filesystem import ForgetfulDisk
from tests.support.inodes import UNLIMITED, Rules


class Ending(enum.Enum):
    """How a process ends that does not end well."""

    KILL = "kill"
    POWER_CUT = "power cut"
    UNLUCKY_POWER_CUT = "power cut that takes all that was not synced"


class Kind(enum.Enum):
    """What goes wrong."""

    NOTHING = "nothing"
    CUT = "it ends before a change"
    TORN = "it ends within an append"
    FAILURE = "a call fails"
    FAILED_SYNC = "a sync fails"
    TORN_WRITE = "an append fails half-way"
    FULL = "the disk is full"
    NO_FILES = "too many files are open, or there is no memory for one more"
    READ_ONLY = "the file system turns read-only"
    BAD_PAGE = "an index cannot be read until it is written"


ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.EMFILE, errno.EIO)
ROUGH_ERRORS = (errno.EFBIG, errno.EDQUOT, errno.EROFS)
SYNC_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""btrfs and NFS find room for what was written when it is synced."""
REBUILT = (".index", ".timeindex")
"""The files that are made anew from the log wherever they cannot be read."""
WEIGHTS = {
    Kind.CUT: 8,
    Kind.TORN: 3,
    Kind.FAILURE: 8,
    Kind.FAILED_SYNC: 3,
    Kind.TORN_WRITE: 2,
    Kind.FULL: 2,
}


@dataclass(frozen=True)
class Trouble:
    """One kind of it, and when."""

    kind: Kind
    nth: int
    error: int
    ending: Ending
    sync_error: int = errno.EIO

    @classmethod
    def drawn(cls, random: Random, chance: float) -> Trouble:
        kind = Kind.NOTHING
        if random.random() < chance:
            kind = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        nth = min(random.randint(1, 12), random.randint(1, 40))
        error, ending = random.choice(ERRORS), random.choice(list(Ending))
        if kind is Kind.FAILURE and error == errno.EMFILE and nth % 3:
            kind = Kind.NO_FILES  # not drawn, or every seed that once failed would be another life
            error = errno.ENOMEM if nth % 3 == 2 else errno.EMFILE
        return cls(kind, nth, error, ending)

    def roughened(self, random: Random) -> Trouble:
        """Have it come in further ways: at limits of files or users, at a sync, or to stay."""
        if self.kind is Kind.FAILURE:
            return replace(self, error=random.choice((self.error, *ROUGH_ERRORS)))
        if self.kind is Kind.FAILED_SYNC:
            return replace(self, sync_error=random.choice(SYNC_ERRORS))
        if self.kind in {Kind.FULL, Kind.TORN_WRITE}:
            return replace(self, kind=random.choice((self.kind, Kind.READ_ONLY, Kind.BAD_PAGE)))
        return self

    @classmethod
    def none(cls) -> Trouble:
        return cls(Kind.NOTHING, 1, errno.EIO, Ending.KILL)

    @property
    def only_kills(self) -> bool:
        """Whether only the process ends, so that the page cache survives."""
        return self.ending is Ending.KILL and self.kind in {Kind.NOTHING, Kind.CUT, Kind.TORN}

    @contextlib.contextmanager
    def on(self, disk: ForgetfulDisk) -> Iterator[None]:
        """Apply it to the calls inside the block."""
        with contextlib.ExitStack() as stack:
            match self.kind:
                case Kind.CUT | Kind.TORN:
                    torn = self.kind is Kind.TORN
                    stack.enter_context(disk.power_cut_before(self.nth, torn=torn))
                case Kind.FAILURE:
                    disk.fail("", nth=self.nth, error=self.error)
                case Kind.FAILED_SYNC:
                    disk.fail("sync", nth=1 + self.nth % 3, error=self.sync_error)
                case Kind.TORN_WRITE:
                    disk.fail("append", nth=1 + self.nth % 3, torn=True)
                case Kind.FULL:
                    disk.remaining_bytes = self.nth * 37
                case Kind.NO_FILES:
                    disk.remaining_files, disk.lack = self.nth - 1, self.error
                case Kind.READ_ONLY:
                    disk.remaining_changes = self.nth
                case Kind.BAD_PAGE:
                    disk.spoil_one(self.nth, REBUILT)
                case Kind.NOTHING:
                    pass
            try:
                yield
            finally:
                self._end_it(disk)

    def end(self, disk: ForgetfulDisk, random: Random) -> None:
        """End the process in the drawn way; its trouble ends too."""
        self._end_it(disk)
        if self.ending is Ending.KILL or disk.rules is Rules.TMPFS:
            disk.restart(power_cut=False)  # without power nothing of a tmpfs is left to judge
        else:
            disk.restart(random=random if self.ending is Ending.POWER_CUT else None)

    def _end_it(self, disk: ForgetfulDisk) -> None:
        disk.forget_faults()
        disk.remaining_bytes = disk.remaining_files = disk.remaining_changes = UNLIMITED

    def __str__(self) -> str:
        if self.kind is Kind.NOTHING:
            return ""
        return f"{self.kind.value} ({self.nth}, {errno.errorcode[self.error]}); {self.ending.value}"
