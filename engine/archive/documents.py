"""Numbered documents in a bucket: the newest counts, and one writer at a time can add the next.

The names of a document are `<prefix><number>.json`, numbers count up. A writer puts the next number
only if it does not exist, so of two writers one fails, whatever store it is: nothing more is asked
of a store than "put if absent". A reader lists, takes the highest number, and looks for higher ones
until there is none, because a listing may be late. One that only shows documents that are gone, or
none although some were removed (`<prefix>begun` exists then), is not believed.

A document has a checksum; one that is damaged (a torn upload to a plain directory) is passed over
for the one before it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.archive.store import (
    ArchiveDamaged,
    ArchiveFenced,
    ObjectMissing,
    ObjectStore,
    StoreUnavailable,
)

VERSION: Final = 1
KEPT: Final = 2
"""How many documents stay: the newest, and those before it, for a reader that has just listed."""

_DIGITS: Final = 20
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Document:
    """One document that was read; `fields` without version and checksum."""

    number: int
    writer: int
    fields: Mapping[str, object]


def encode(number: int, writer: int, fields: Mapping[str, object]) -> bytes:
    """Return the bytes of a document."""
    whole = {"version": VERSION, "number": number, "writer": writer, **fields}
    return json.dumps({**whole, "checksum": _checksum(whole)}, separators=(",", ":")).encode()


def decode(content: bytes, name: str) -> Document:
    """Parse a document; ArchiveDamaged if it is not one, or of a later version."""
    try:
        fields = json.loads(content)
        checksum = fields.pop("checksum")
        is_intact = checksum == _checksum(fields)
        version, number, writer = (fields.pop(one) for one in ("version", "number", "writer"))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveDamaged(f"{name} is not a document of an archive: {error}") from error
    if not is_intact:
        raise ArchiveDamaged(f"{name} is damaged: its checksum is not {checksum}")
    if version != VERSION:
        raise ArchiveDamaged(
            f"{name} has version {version}, and this program reads {VERSION}: use a later one"
        )
    return Document(number, writer, fields)


def _checksum(fields: Mapping[str, object]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


class Documents:
    """The versions of one document. One thread at a time."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._pattern = re.compile(rf"{re.escape(prefix)}([0-9]{{{_DIGITS}}})\.json")
        self._begun = f"{prefix}begun"
        self._has_begun = False
        """Whether that object is known to exist."""
        self._found: list[int] = []
        """The numbers that exist, ascending, as far as known."""

    def name_of(self, number: int) -> str:
        """Return the name of a version."""
        return f"{self._prefix}{number:0{_DIGITS}d}.json"

    def load(self) -> Document | None:
        """Return the newest version that is not damaged; None if there is none.

        Raises ArchiveDamaged if all that exist are damaged, and StoreUnavailable if the store keeps
        listing only documents that are gone: it is too late to be believed.
        """
        for _ in range(_ATTEMPTS):
            self._found = self._listed()
            last = self._get(self.name_of(self._found[-1]) if self._found else self._begun)
            if (last is not None) == bool(self._found):
                return self._newest(last)
        raise StoreUnavailable(f"{self._store.url} lists {self._prefix}… as it was, not as it is")

    def _listed(self) -> list[int]:
        folder = self._prefix.rpartition("/")[0]
        listed = self._store.list(f"{folder}/" if folder else "")
        matches = (self._pattern.fullmatch(one.name) for one in listed)
        return sorted(int(match[1]) for match in matches if match)

    def _newest(self, content: bytes | None) -> Document | None:
        """Return the newest version; `content` is that of the highest number that was listed."""
        newest: Document | None = None
        damage: ArchiveDamaged | None = None
        for number in reversed(self._found):
            try:
                newest = decode(content or b"", self.name_of(number))
                break
            except ArchiveDamaged as error:
                damage = error
                content = self._get(self.name_of(number - 1))
        number = self.next_number
        while (content := self._get(self.name_of(number))) is not None:  # the listing was late
            self._found.append(number)
            try:
                newest = decode(content, self.name_of(number))
            except ArchiveDamaged as error:
                damage = error
            number += 1
        if newest is None and damage is not None:
            raise damage
        return newest

    @property
    def next_number(self) -> int:
        """The number that the next version gets, as far as known."""
        return self._found[-1] + 1 if self._found else 1

    def _get(self, name: str) -> bytes | None:
        try:
            return self._store.get(name)
        except ObjectMissing:
            return None

    def write(self, writer: int, fields: Mapping[str, object]) -> Document:
        """Add a version after those that are known, durably; remove old ones.

        Raises ArchiveFenced if a later writer has added one, and Overtaken if an earlier one has:
        then `load`, and decide again.
        """
        number = self.next_number
        content = encode(number, writer, fields)
        if not self._store.put_new(self.name_of(number), content):
            found = self._get(self.name_of(number))
            if found != content:  # otherwise it is ours, and the answer was lost
                self._found.append(number)
                self._refuse(number, writer, found)
        self._found.append(number)
        self._delete_old()
        return Document(number, writer, fields)

    def _delete_old(self) -> None:
        """Delete old versions, the oldest first: those that exist always have consecutive numbers.

        So from one that an old listing shows, all later ones are found.
        """
        if len(self._found) > KEPT and not self._has_begun:
            self._store.put_new(self._begun, b"")
            self._has_begun = True
        while len(self._found) > KEPT:
            self._store.delete([self.name_of(self._found[0])])
            del self._found[0]

    def _refuse(self, number: int, writer: int, content: bytes | None) -> None:
        try:
            other = decode(content or b"", self.name_of(number)).writer
        except ArchiveDamaged:
            other = 0
        if other > writer:
            raise ArchiveFenced(
                f"{self._store.url} belongs to a later writer ({other}; this one is {writer}): "
                "another data directory or process has taken the archive over"
            )
        raise Overtaken(f"{self.name_of(number)} was written by writer {other}")


class Overtaken(Exception):
    """Another version exists that this writer did not know."""
