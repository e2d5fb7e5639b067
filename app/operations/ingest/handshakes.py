"""What senders ask before they send, or want as an answer: each as its documentation says.

`slack`, `zoom` and `discord` ask with a signed request, so their scheme is enough. For others the
profile names the handshake. An answer holds what was asked, so it is text or JSON that no browser
renders, and nothing of the request is stored.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import msgspec

from app.codecs.receipts import to_json
from app.errors import Forbidden, InvalidSignature, MalformedRequest
from app.http.answers import NO_STORE, Answer, Body, Headers, json_answer
from app.operations.ingest.profiles import IngestProfile
from app.operations.ingest.signatures import HmacSignature, is_one_of
from app.settings import Settings
from engine.errors import TopicNotFound
from engine.fs.names import is_valid_topic_name
from schemas.ingest import Handshake, Scheme

_ORIGIN: Final = b"webhook-request-origin"
_ORIGIN_VALUE: Final = re.compile(rb"[!-~]{1,255}")
_MAX_CHALLENGE_BYTES: Final = 4096
_OF_A_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,256}")
"""What a challenge consists of that is answered with its HMAC: never a body that could be signed
with the same secret, which is JSON."""
_OKTA: Final = b"x-okta-verification-challenge"
_ASANA: Final = b"x-hook-secret"
_PING: Final = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that may be a handshake."""

    head: Mapping[bytes, bytes]
    query: bytes = b""
    body: Body = b""

    def parameter(self, name: str) -> str | None:
        """Return a parameter of the URL, in any case; None unless it is one short text."""
        if len(self.query) > _MAX_CHALLENGE_BYTES or name.encode() not in self.query.lower():
            return None
        parsed = parse_qs(self.query.decode("latin-1"), max_num_fields=64)
        found = [value for key, values in parsed.items() if key.lower() == name for value in values]
        return found[0] if len(found) == 1 else None

    def document(self, kind: type[Any], sign: bytes) -> Any:  # noqa: ANN401 -- of the kind
        """Return the body as a document of a kind, if it has the sign of one and is one."""
        if len(self.body) > _MAX_CHALLENGE_BYTES or sign not in bytes(self.body):
            return None
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, ValueError):
            return None


_Shake: TypeAlias = Callable[[IngestProfile, Asked], Answer | None]


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


def may_shake_hands(profile: IngestProfile) -> bool:
    """Whether a request to the topic may get another answer than a receipt."""
    signature = profile.signature
    return profile.handshake is not None or (
        signature is not None and signature.scheme in _BY_SCHEME
    )


def answer_to_get(profile: IngestProfile, asked: Asked) -> Answer | None:
    """Return the answer to a GET that is a handshake; None for a health check."""
    shake = None if profile.handshake is None else _OF_GET.get(profile.handshake)
    return None if shake is None else shake(profile, asked)


def answer_to_post(profile: IngestProfile, asked: Asked) -> Answer | None:
    """Return the answer to a POST, verified if it is signed, that is a handshake; None for others.

    Raises InvalidSignature for a body that the topic's handshake would have signed for anybody.
    """
    shake = None
    if profile.handshake is not None:
        shake = _OF_POST.get(profile.handshake)
    elif profile.signature is not None:
        shake = _BY_SCHEME.get(profile.signature.scheme)
    return None if shake is None else shake(profile, asked)


# -- GET -----------------------------------------------------------------------------------------


def _hub_challenge(profile: IngestProfile, asked: Asked) -> str | None:
    """Return the challenge of WebSub, as Meta and Strava ask it; Forbidden for a wrong token."""
    challenge = asked.parameter("hub.challenge")
    if challenge is None or asked.parameter("hub.mode") is None:
        return None
    token, signature = asked.parameter("hub.verify_token"), profile.signature
    if token is not None and isinstance(signature, HmacSignature):  # noqa: SIM102  # two matters
        if not is_one_of(token.encode(), signature.secrets):
            raise Forbidden(
                "hub.verify_token is not one of the secrets of the topic's ingest profile: add it "
                "beside the app's secret"
            )
    return challenge


def _hub(profile: IngestProfile, asked: Asked) -> Answer | None:
    return _text(_hub_challenge(profile, asked))


def _strava(profile: IngestProfile, asked: Asked) -> Answer | None:
    challenge = _hub_challenge(profile, asked)
    return None if challenge is None else json_answer(to_json({"hub.challenge": challenge}))


def _dropbox(_: IngestProfile, asked: Asked) -> Answer | None:
    return _text(asked.parameter("challenge"))


def _okta(_: IngestProfile, asked: Asked) -> Answer | None:
    challenge = asked.head.get(_OKTA)
    if challenge is None:
        return None
    return json_answer(to_json({"verification": challenge.decode("latin-1")}))


def _x_crc(profile: IngestProfile, asked: Asked) -> Answer | None:
    token, signature = asked.parameter("crc_token"), profile.signature
    assert isinstance(signature, HmacSignature), "validated with the document"
    if token is None or _OF_A_TOKEN.fullmatch(token) is None:
        return None
    digest = hmac.digest(signature.secrets[0], token.encode(), "sha256")
    return json_answer(to_json({"response_token": f"sha256={b64encode(digest).decode()}"}))


# -- POST ----------------------------------------------------------------------------------------


def _of_x(profile: IngestProfile, asked: Asked) -> Answer | None:
    """Refuse a body that could be the token of a challenge, which anybody gets signed."""
    if bytes(asked.body[:1]) != b"{":
        assert profile.signature is not None, "validated with the document"
        raise InvalidSignature(
            "with the handshake x a body is a JSON object", header=profile.signature.name
        )
    return None


def _graph(_: IngestProfile, asked: Asked) -> Answer | None:
    return None if asked.body else _text(asked.parameter("validationtoken"))


class _Code(msgspec.Struct):
    validation_code: str = msgspec.field(name="validationCode")


class _GridEvent(msgspec.Struct):
    event_type: str = msgspec.field(name="eventType")
    data: _Code


_GRID_VALIDATION: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"


def _event_grid(_: IngestProfile, asked: Asked) -> Answer | None:
    events: list[_GridEvent] | None = asked.document(list[_GridEvent], _GRID_VALIDATION.encode())
    if events is None or len(events) != 1 or events[0].event_type != _GRID_VALIDATION:
        return None
    return json_answer(to_json({"validationResponse": events[0].data.validation_code}))


def _asana(_: IngestProfile, asked: Asked) -> Answer | None:
    secret = asked.head.get(_ASANA)
    if secret is None:
        return None
    if _ORIGIN_VALUE.fullmatch(secret) is None:
        raise MalformedRequest("X-Hook-Secret is not a secret of Asana", header=_ASANA.decode())
    return Answer(200, [NO_STORE, (_ASANA, secret)], b"")


class _OnlyChallenge(msgspec.Struct, forbid_unknown_fields=True):
    challenge: str


def _monday(_: IngestProfile, asked: Asked) -> Answer | None:
    found: _OnlyChallenge | None = asked.document(_OnlyChallenge, b'"challenge"')
    return None if found is None else json_answer(to_json({"challenge": found.challenge}))


class _SlackChallenge(msgspec.Struct):
    type: str
    challenge: str


def _slack(_: IngestProfile, asked: Asked) -> Answer | None:
    found: _SlackChallenge | None = asked.document(_SlackChallenge, b"url_verification")
    if found is None or found.type != "url_verification":
        return None
    return json_answer(to_json({"challenge": found.challenge}))


class _PlainToken(msgspec.Struct):
    plain_token: str = msgspec.field(name="plainToken")


class _ZoomEvent(msgspec.Struct):
    event: str
    payload: _PlainToken


_ZOOM_VALIDATION: Final = "endpoint.url_validation"


def _zoom(profile: IngestProfile, asked: Asked) -> Answer | None:
    found: _ZoomEvent | None = asked.document(_ZoomEvent, _ZOOM_VALIDATION.encode())
    if found is None or found.event != _ZOOM_VALIDATION:
        return None
    signature, token = profile.signature, found.payload.plain_token
    assert isinstance(signature, HmacSignature), "of the scheme"
    if _OF_A_TOKEN.fullmatch(token) is None:
        return None
    encrypted = hmac.digest(signature.secrets[0], token.encode(), "sha256").hex()
    return json_answer(to_json({"plainToken": token, "encryptedToken": encrypted}))


class _DiscordEvent(msgspec.Struct):
    type: int


def _discord(_: IngestProfile, asked: Asked) -> Answer | None:
    found: _DiscordEvent | None = asked.document(_DiscordEvent, b'"type"')
    return json_answer(to_json({"type": _PING})) if found and found.type == _PING else None


def _text(challenge: str | None) -> Answer | None:
    """Return a challenge as text; what could be a page stays text in every browser."""
    if challenge is None or not challenge.isprintable():
        return None
    headers: Headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        NO_STORE,
    ]
    return Answer(200, headers, challenge.encode())


_OF_GET: Final[Mapping[Handshake, _Shake]] = {
    "dropbox": _dropbox,
    "hub": _hub,
    "okta": _okta,
    "strava": _strava,
    "x": _x_crc,
}
_OF_POST: Final[Mapping[Handshake, _Shake]] = {
    "asana": _asana,
    "event-grid": _event_grid,
    "graph": _graph,
    "monday": _monday,
    "x": _of_x,
}
_BY_SCHEME: Final[Mapping[Scheme, _Shake]] = {
    "discord": _discord,
    "slack": _slack,
    "zoom": _zoom,
}
