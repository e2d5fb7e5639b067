"""The two record headers of a delivery, on its first record in each partition.

`tidelog-delivery-id` is the delivery id as it was sent. From `tidelog-delivery` the service
recognises a repetition after a restart: base64url of version, digest, fingerprint, time, number of
records, and number of partitions.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from struct import Struct, error
from typing import Final, NamedTuple, Self

ID_HEADER: Final = "tidelog-delivery-id"
STATE_HEADER: Final = "tidelog-delivery"
RESERVED: Final = frozenset({ID_HEADER, STATE_HEADER})

DIGEST_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 8
NOT_COMPARED: Final = bytes(FINGERPRINT_BYTES)
"""The fingerprint of a delivery whose repetitions may have another body."""

_VERSION: Final = 1
_PACKED: Final = Struct(f">B{DIGEST_BYTES}s{FINGERPRINT_BYTES}sQIH")
STATE_CHARACTERS: Final = _PACKED.size * 4 // 3

assert _PACKED.size % 3 == 0, "base64 needs no padding"


class State(NamedTuple):
    """The content of the header `tidelog-delivery`."""

    digest: bytes
    """Of the topic, the caller and the delivery id."""
    fingerprint: bytes
    """Of the request, or `NOT_COMPARED`."""
    accepted_ms: int
    records_count: int
    """The records of the delivery in this batch, from the one with the header on."""
    partitions: int
    """The partitions that the topic had, if the server chose among them; otherwise 0."""

    def pack(self) -> bytes:
        """Return the content of the header."""
        return urlsafe_b64encode(_PACKED.pack(_VERSION, *self))

    @classmethod
    def unpack(cls, content: bytes | None) -> Self | None:
        """Return the state in a header; None if it is not one of this version."""
        if content is None or len(content) != STATE_CHARACTERS:
            return None
        try:
            version, *fields = _PACKED.unpack(urlsafe_b64decode(content))
        except (binascii.Error, error):
            return None
        return cls(*fields) if version == _VERSION else None
