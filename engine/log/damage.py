"""Damaged places that reads and the scrubber found, kept until a look finds them whole or gone.

`tidelog-damage.json` in a data directory holds those of its logs, so that a restart forgets none.
It is written by the pass that writes the checkpoints: what was found since the last pass is lost
with the process, and found again by the next read of it. Nothing depends on the file: if it is
damaged, it is ignored.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from engine.checkpoint.tidelog_files import read_json, write_json
from engine.clock import Clock
from engine.errors import CorruptCheckpoint, StoredDataCorrupt
from engine.fs.names import DAMAGE_FILE
from engine.fs.port import FileSystem
from engine.log.results import DamagedPlace
from engine.types import TopicPartition

_LOG = logging.getLogger(__name__)

_VERSION: Final = 1
_LOG_FILE: Final = re.compile(r"[0-9]{20}\.log")

MAX_PLACES: Final = 1_000
"""Places that are kept for each data directory; further ones are not."""


_Key: TypeAlias = tuple[str, int, str, int]
_NOTHING: Final[Mapping[_Key, DamagedPlace]] = MappingProxyType({})


class KnownDamage:
    """The places of one data directory. Thread-safe.

    `places` is replaced under the lock and never changed. `load`, `review` and `save` are called by
    one thread at a time.
    """

    def __init__(self, fs: FileSystem, directory: Path, clock: Clock) -> None:
        self._fs = fs
        self._path = directory / DAMAGE_FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._places = _NOTHING
        self._saved = _NOTHING
        """What the file holds; nothing if there is no file."""

    @property
    def places(self) -> tuple[DamagedPlace, ...]:
        """All places, by log and place."""
        return tuple(place for _, place in sorted(self._places.items()))

    def note(self, log: TopicPartition, error: StoredDataCorrupt) -> None:
        """Remember a place, if it is not known and there is room. Does no IO."""
        folder = error.file.parent
        problem = str(error).removeprefix(f"{folder.parent}/")
        key = (log.topic, log.partition, error.file.name, error.position)
        with self._lock:
            if key in self._places or len(self._places) >= MAX_PLACES:
                return
            place = DamagedPlace(*key, error.offset, problem, self._clock.now_ms())
            self._places = MappingProxyType({**self._places, key: place})

    def load(self) -> None:
        """Read the file; without it, or if it is damaged, nothing is known."""
        try:
            found = read_json(self._fs, self._path, _VERSION, {"places"})
            listed = [] if found is None else found["places"]
            places = msgspec.convert(listed, list[DamagedPlace])
        except (CorruptCheckpoint, KeyError, msgspec.ValidationError, OSError) as error:
            _LOG.warning("%s is ignored: %s", self._path, error)
            places = []
        known = {
            (one.topic, one.partition, one.file, one.position): one
            for one in places
            if _LOG_FILE.fullmatch(one.file)  # by hand it may be anything
        }
        with self._lock:
            self._places = self._saved = MappingProxyType(known)

    def review(self, is_damaged: Callable[[DamagedPlace], bool]) -> None:
        """Forget the places that are whole or gone, then write the rest."""
        mended = [key for key, place in self._places.items() if not is_damaged(place)]
        if mended:
            with self._lock:
                left = {key: one for key, one in self._places.items() if key not in mended}
                self._places = MappingProxyType(left)
        self.save()

    def save(self) -> None:
        """Write the file if it holds something else; a failure is logged only."""
        places = self._places
        if places is self._saved or (not places and not self._saved):
            return
        try:
            write_json(self._fs, self._path, _VERSION, {"places": [*places.values()]})
        except OSError as error:
            _LOG.warning("%s was not written: %s", self._path, error)
        else:
            self._saved = places
