"""What senders ask before they send: CloudEvents' permission, Slack's challenge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from app.codecs.receipts import to_json
from app.http.answers import NO_STORE, Answer, Body, Headers, json_answer
from app.http.problems import MalformedRequest
from app.operations.ingest.profile import IngestProfile
from app.settings import Settings
from engine.errors import TopicNotFound
from engine.fs.names import is_valid_topic_name

_ORIGIN: Final = b"webhook-request-origin"
_ORIGIN_VALUE: Final = re.compile(rb"[!-~]{1,255}")
_CHALLENGE_TYPE: Final = b"url_verification"
_MAX_CHALLENGE_BYTES: Final = 4096


class _Challenge(msgspec.Struct):
    type: str
    challenge: str


_CHALLENGE: Final = msgspec.json.Decoder(_Challenge)


def permission(topic: str, head: Mapping[bytes, bytes], settings: Settings) -> Answer:
    """Answer OPTIONS: "HTTP 1.1 Web Hooks for Event Delivery" of CloudEvents, section 4.

    Any origin may send, because the permission replaces no credentials. It does not say whether the
    topic exists. The rate is that of the quota, in requests per minute.
    """
    if not is_valid_topic_name(topic):
        raise TopicNotFound(f"{topic!r} cannot be the name of a topic", topic=topic)
    headers: Headers = [(b"allow", b"GET, HEAD, OPTIONS, POST"), NO_STORE]
    origin = head.get(_ORIGIN)
    if origin is not None:
        if _ORIGIN_VALUE.fullmatch(origin) is None:
            raise MalformedRequest(
                "WebHook-Request-Origin is not the name of a host", header=_ORIGIN.decode()
            )
        rate = settings.quota_requests_per_second * 60
        headers.append((b"webhook-allowed-origin", origin))
        headers.append((b"webhook-allowed-rate", b"%d" % rate if rate else b"*"))
    return Answer(200, headers, b"")


def challenge_answer(profile: IngestProfile, body: Body) -> Answer | None:
    """Return the answer to Slack's verified `url_verification`; None for any other body."""
    signature = profile.signature
    if signature is None or signature.scheme != "slack" or len(body) > _MAX_CHALLENGE_BYTES:
        return None
    if _CHALLENGE_TYPE not in body:
        return None
    try:
        asked = _CHALLENGE.decode(body)
    except msgspec.DecodeError:
        return None
    if asked.type.encode() != _CHALLENGE_TYPE:
        return None
    return json_answer(to_json({"challenge": asked.challenge}))
