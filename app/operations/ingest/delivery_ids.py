"""The id of a delivery: where senders put it, and where a profile says it is.

Ids of different places are different: each belongs to the header, or the pointer, that it was found
with. `Idempotency-Key` is looked at last, because senders' own ids survive a proxy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.codecs.json_pointer import Pointer, pointer_of
from app.errors import MalformedRequest
from app.http.answers import Body
from app.operations.ingest import cloudevents
from app.operations.ingest.profiles import IngestProfile
from app.operations.request_content import sent_type

MAX_ID_BYTES: Final = 1_024

HEADERS: Final = ((b"webhook-id",), (b"svix-id",), (b"x-github-delivery",))
"""Where the senders of Standard Webhooks, Svix and GitHub put it, whatever the profile says."""

_NO_ID: Final = frozenset({b"null", b'""'})
_EVENT_ID: Final = pointer_of("/id")
_EVENT_SOURCE: Final = pointer_of("/source")


class DeliveryIds(NamedTuple):
    """Where requests with one head have their delivery's id."""

    scope: bytes = b""
    found: bytes = b""
    """The id in the head; empty if it has none."""
    pointer: Pointer | None = None
    """Where the body may have it: looked at first."""
    source: Pointer | None = None
    """Of an event: the id is unique within its source."""

    def of(self, body: Body) -> tuple[bytes, bytes] | None:
        """Return the scope and the id of a delivery; None without one.

        An id in the body belongs to its pointer, and to its type: `1` is not `"1"`. A body without
        one is known by the head's. Raises MalformedRequest for an id that is too long.
        """
        scope, found = self.scope, self.found
        if self.pointer is not None:
            raw = self.pointer.find(body)
            if raw is not None and raw not in _NO_ID:
                is_text = raw[:1] == b'"'
                scope = b"%b %b" % (b"text" if is_text else b"json", self.pointer.text.encode())
                found = (self.pointer.find_text(body) or b"") if is_text else raw
                if self.source is not None:
                    scope += b" " + (self.source.find_text(body) or b"")
        if len(found) > MAX_ID_BYTES:
            raise MalformedRequest(
                f"the delivery id has {len(found)} bytes, more than {MAX_ID_BYTES}"
            )
        return (scope, found) if found else None

    @property
    def is_none(self) -> bool:
        """Whether no request with this head has an id."""
        return self.pointer is None and not self.found


NONE: Final = DeliveryIds()


def delivery_ids_of(head: Mapping[bytes, bytes], profile: IngestProfile) -> DeliveryIds:
    """Return where requests with this head have their id: as the profile says, or as senders do."""
    named = profile.delivery_id
    pointer = source = None
    if named is not None and named.pointer is not None:
        pointer = pointer_of(named.pointer)
    elif sent_type(head) == cloudevents.EVENT:
        pointer, source = _EVENT_ID, _EVENT_SOURCE
    own = () if named is None or not named.headers else (named.headers,)
    for headers in (*own, *HEADERS):
        values = [head.get(header, b"") for header in headers]
        if all(values):
            if named is None or named.pointer is None:
                pointer = source = None  # a sender's own header comes before the event's id
            lengths = b"".join(b" %d" % len(value) for value in values[1:])  # none looks like two
            return DeliveryIds(b" ".join(headers) + lengths, b"".join(values), pointer, source)
    if (found := head.get(b"ce-id")) and cloudevents.is_binary(head):
        return DeliveryIds(b"ce-id " + head.get(b"ce-source", b""), found, pointer, source)
    return NONE if pointer is None else DeliveryIds(pointer=pointer, source=source)
