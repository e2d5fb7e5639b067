"""The two record headers of a delivery, on its first record in each partition.

`tidelog-delivery-id` is the delivery id as it was sent. From `tidelog-delivery` the service
recognises a repetition after a restart: base64url of version, digest, fingerprint, time, number of
records, number of partitions, and a MAC over these, the topic, and the record's key and value.
Clients can put any header into a raw batch: what was not sealed for this record means nothing.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct, error
from typing import Final, NamedTuple, Self

from engine.types import Buffer

ID_HEADER: Final = "tidelog-delivery-id"
STATE_HEADER: Final = "tidelog-delivery"
RESERVED: Final = frozenset({ID_HEADER, STATE_HEADER})

DIGEST_BYTES: Final = 16
FINGERPRINT_BYTES: Final = 8
MAC_BYTES: Final = 12

_VERSION: Final = 2
_PACKED: Final = Struct(f">B{DIGEST_BYTES}s{FINGERPRINT_BYTES}sQIH")
_SIZE_BYTES: Final = _PACKED.size + MAC_BYTES
STATE_CHARACTERS: Final = _SIZE_BYTES * 4 // 3
_MAX_ACCEPTED_MS: Final = (2**32 - 1) * 1000
"""The table of deliveries keeps seconds in 32 bits."""

assert _SIZE_BYTES % 3 == 0, "base64 needs no padding"


class Seal(NamedTuple):
    """What authenticates the deliveries of one topic."""

    secret: bytes
    topic_id: str

    def mac(self, packed: bytes, key: Buffer | None, value: Buffer | None) -> bytes:
        """Return the MAC of a packed state that stands on a record with this key and value."""
        made = blake2b(key=self.secret, digest_size=MAC_BYTES, person=b"tidelog-deliver")
        made.update(b"%b %b" % (self.topic_id.encode(), packed))
        for content in (key, value):
            # Sizes, so that no two records have the same bytes here; -1 is null.
            made.update(b"%d " % (-1 if content is None else len(content)))
            made.update(content or b"")
        return made.digest()


class State(NamedTuple):
    """The content of the header `tidelog-delivery`."""

    digest: bytes
    """Of the topic, the sender and the delivery id."""
    fingerprint: bytes
    """Of the request."""
    accepted_ms: int
    records_count: int
    """The records of the delivery in this batch, from the one with the header on."""
    partitions: int
    """The partitions that the topic had, if the server chose among them; otherwise 0."""

    def pack(self, seal: Seal, key: Buffer | None, value: Buffer | None) -> bytes:
        """Return the content of the header for a record with this key and value."""
        packed = _PACKED.pack(_VERSION, *self)
        return urlsafe_b64encode(packed + seal.mac(packed, key, value))

    @classmethod
    def unpack(
        cls, content: bytes | None, seal: Seal, key: Buffer | None, value: Buffer | None
    ) -> Self | None:
        """Return the state in a record's header; None if the service did not write it there."""
        if content is None or len(content) != STATE_CHARACTERS:
            return None
        try:
            decoded = urlsafe_b64decode(content)
            version, *fields = _PACKED.unpack(decoded[: _PACKED.size])
        except (binascii.Error, error):
            return None
        state = cls(*fields)
        if version != _VERSION or state.accepted_ms > _MAX_ACCEPTED_MS:
            return None
        mac = seal.mac(decoded[: _PACKED.size], key, value)
        return state if compare_digest(mac, decoded[_PACKED.size :]) else None
