"""The id of a delivery: where senders put it, and where a profile says it is.

Ids of different places are different: each belongs to the header, or the pointer, that it was found
with. `Idempotency-Key` is looked at last, because senders' own ids survive a proxy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.codecs.json_pointer import Pointer, pointer_of
from app.http.answers import Body
from app.http.problems import MalformedRequest
from app.operations.ingest import cloudevents
from app.operations.ingest.profile import IngestProfile
from app.operations.request_content import sent_type

MAX_ID_BYTES: Final = 1_024

HEADERS: Final = (b"webhook-id", b"x-github-delivery")
"""Where the senders of Standard Webhooks and GitHub put it, whatever the profile says."""

_EVENT_ID: Final = pointer_of("/id")
_EVENT_SOURCE: Final = pointer_of("/source")


class DeliveryIds(NamedTuple):
    """Where requests with one head have their delivery's id."""

    scope: bytes = b""
    found: bytes = b""
    """The id, if the head has it; empty if the body may."""
    pointer: Pointer | None = None
    source: Pointer | None = None
    """Of an event: the id is unique within its source."""

    def of(self, body: Body) -> tuple[bytes, bytes] | None:
        """Return the scope and the id of a delivery; None without one.

        Raises MalformedRequest for an id that is too long.
        """
        scope, found = self.scope, self.found
        if self.pointer is not None:
            found = self.pointer.find_text(body) or b""
            if self.source is not None:
                scope += self.source.find_text(body) or b""
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
    """Return where requests with this head have their id."""
    named = profile.delivery_id
    if named is not None and named.pointer is not None:
        return DeliveryIds(named.pointer.encode(), pointer=pointer_of(named.pointer))
    for header in HEADERS if named is None or named.header is None else (named.header, *HEADERS):
        if found := head.get(header):
            return DeliveryIds(header, found)
    if sent_type(head) == cloudevents.EVENT:
        return DeliveryIds(b"ce-id ", pointer=_EVENT_ID, source=_EVENT_SOURCE)
    if (found := head.get(b"ce-id")) and cloudevents.is_binary(head):
        return DeliveryIds(b"ce-id " + head.get(b"ce-source", b""), found)
    return NONE
