"""Ingest profiles: how the bodies of one topic become records, and who may send them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from schemas.base import Model, ResponseModel
from schemas.common import DECIMAL, INT32, INT64, Absent, Int64, TimestampMs, TopicShown

DEFAULT_WINDOW_MS: Final = 4 * 24 * 60 * 60 * 1000
DEFAULT_WINDOW_DELIVERIES: Final = 100_000
DEFAULT_TOLERANCE_MS: Final = 5 * 60 * 1000
MAX_SECRETS: Final = 8
"""Each is tried for every request: this bounds the work."""

Split = Literal["none", "array", "lines", "values"]
Scheme = Literal[
    "standard-webhooks",
    "github",
    "gitlab",
    "stripe",
    "slack",
    "zoom",
    "discord",
    "sendgrid",
    "hmac",
    "token-header",
]
Algorithm = TypeAliasType(
    "Algorithm",
    Annotated[Literal["sha256", "sha512"], Field(description="Hash function of an HMAC.")],
)
SignatureEncoding = TypeAliasType(
    "SignatureEncoding",
    Annotated[
        Literal["hex", "base64"],
        Field(
            description="How a signature is written.",
            # Go has one namespace for the values of all enumerations, and `Encoding` has `base64`.
            json_schema_extra={"x-enum-varnames": ["SIGNATURE_HEX", "SIGNATURE_BASE64"]},
        ),
    ],
)

Handshake = TypeAliasType(
    "Handshake",
    Annotated[
        Literal[
            "hub",
            "strava",
            "dropbox",
            "okta",
            "x",
            "graph",
            "event-grid",
            "asana",
            "monday",
            "firehose",
        ],
        Field(
            description="What a sender asks before it sends, or wants as an answer.",
            json_schema_extra={
                "x-enum-varnames": [
                    "HANDSHAKE_HUB",
                    "HANDSHAKE_STRAVA",
                    "HANDSHAKE_DROPBOX",
                    "HANDSHAKE_OKTA",
                    "HANDSHAKE_X",
                    "HANDSHAKE_GRAPH",
                    "HANDSHAKE_EVENT_GRID",
                    "HANDSHAKE_ASANA",
                    "HANDSHAKE_MONDAY",
                    "HANDSHAKE_FIREHOSE",
                ]
            },
        ),
    ],
)

HeaderName = Annotated[
    str,
    Field(
        pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$",
        description="Name of a request header, in any case.",
        examples=["x-github-event"],
    ),
]
Pointer = Annotated[
    str,
    Field(
        max_length=256,
        pattern=r"^(/([^/~]|~[01])*)+$",
        description="JSON Pointer (RFC 6901) into the body, or into each part of a split body.",
        examples=["/repository/full_name"],
    ),
]
Secret = Annotated[str, Field(min_length=8, max_length=512, json_schema_extra={"writeOnly": True})]
ToleranceMs = Annotated[int, Field(ge=1000, le=24 * 60 * 60 * 1000), INT64, DECIMAL]
WindowMs = Annotated[int, Field(ge=1000, le=366 * 24 * 60 * 60 * 1000), INT64, DECIMAL]
WindowDeliveries = Annotated[int, Field(ge=1, le=1_000_000), INT32, DECIMAL]
SecretsCount = Annotated[int, Field(ge=1, le=MAX_SECRETS), INT32, DECIMAL]

NEVER_STORED: Final = frozenset(
    {
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-amz-firehose-access-key",
        "x-hook-secret",
        "set-cookie",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-csrf-token",
        "x-forwarded-client-cert",
        "x-gitlab-token",
        "x-goog-iap-jwt-assertion",
    }
)
"""Request headers with credentials: none becomes a header, key or delivery id of a record, which a
reader of the topic would see."""

_OPTIONS_OF: Final = {
    "hmac": ("header", "algorithm", "encoding", "prefix"),
    "token-header": ("header",),
}
_KEY_FORMS: Final = {
    "discord": "[0-9a-f]{64}",
    # The head of a key on P-256 is the same in all of them, up to the fourth bit of a byte.
    "sendgrid": "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==",
}
_RESERVED_PREFIX: Final = "tidelog-"
_HMAC_PREFIX: Final = "whsec_"
_PUBLIC_KEY_PREFIX: Final = "whpk_"
_PRIVATE_KEY_PREFIX: Final = "whsk_"
_ED25519_KEY_BYTES: Final = 32
_MIN_HMAC_KEY_BYTES: Final = 8


class PutIngestSource(Model):
    """Where a value is found: a JSON Pointer into the body, or a request header."""

    pointer: Pointer | None = None
    """JSON Pointer; the value found is used as text. Default: none, there is `header`."""
    header: HeaderName | None = None
    """Request header. Default: none, there is `pointer`."""
    headers: Annotated[list[HeaderName], Field(min_length=2, max_length=4)] | None = None
    """For a delivery's id that is made of several request headers, all of which must be there.
    Default: none."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [one for one in (self.pointer, self.header, self.headers) if one is not None]
        if len(given) != 1:
            raise _fault("send either pointer or header, and only one of them")
        for name in self.names():
            _ensure_may_be_stored(name)
        return self

    def names(self) -> list[str]:
        """Return the request headers that are looked at."""
        return self.headers or ([] if self.header is None else [self.header])


class _SignatureFields(Model):
    """What a request and an answer have in common."""

    scheme: Scheme
    """Signature scheme: that of a sender, `hmac` for any other HMAC of the body, or `token-header`
    for a secret in a header, with nothing signed."""
    tolerance_ms: ToleranceMs = DEFAULT_TOLERANCE_MS
    """How far a signed timestamp may be from the service's clock. `github`, `gitlab`, `hmac` and
    `token-header` have no timestamp. Default 300,000."""
    header: HeaderName | None = None
    """With `hmac` and `token-header`, and required there: the request header that has the signature
    or the secret. Default: none."""
    algorithm: Algorithm | None = None
    """With `hmac`: the hash function. Default `sha256`."""
    encoding: SignatureEncoding | None = None
    """With `hmac`: how the signature is written. Default `hex`."""
    prefix: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] | None = None
    """With `hmac`: what stands before the signature in the header, such as `sha256=`. Default:
    nothing."""


class PutIngestSignature(_SignatureFields):
    """How the requests of a sender are verified."""

    secrets: Annotated[list[Secret], Field(min_length=1, max_length=MAX_SECRETS)] | None = Field(
        default=None, repr=False
    )
    """Secrets of which any one is enough, so that a secret can be replaced while both are in use.
    Never returned. Default: those that the topic's profile has for the same scheme."""
    secrets_count: SecretsCount | None = None
    """As `getIngestProfile` returned it, so that its response can be sent back: the request is
    refused if the profile would have another number of secrets. Default: not checked."""

    @model_validator(mode="after")
    def _as_the_scheme_takes_it(self) -> Self:
        given = [name for name in _OPTIONS_OF["hmac"] if getattr(self, name) is not None]
        foreign = [name for name in given if name not in _OPTIONS_OF.get(self.scheme, ())]
        if foreign:
            raise _fault(f"{foreign[0]} is for the scheme hmac: {self.scheme} brings its own")
        if self.scheme in _OPTIONS_OF and self.header is None:
            raise _fault(
                f"the scheme {self.scheme} needs header, the request header with the signature"
            )
        for number, secret in enumerate(self.secrets or ()):
            if secret != secret.strip():
                raise _fault(f"secrets[{number}] begins or ends with white space")
            if self.scheme == "standard-webhooks":
                standard_webhooks_key(secret, number)
            if self.scheme in _KEY_FORMS and not re.fullmatch(_KEY_FORMS[self.scheme], secret):
                raise _fault(f"secrets[{number}] is not a public key of {self.scheme}")
        if len(set(self.secrets or ())) != len(self.secrets or ()):
            raise _fault("secrets has the same secret twice")
        return self


class PutIngestProfile(Model):
    """How the bodies that senders post to a topic become records."""

    split: Split = "none"
    """`none`: a body is one record; `array`: one record per element of a JSON array; `lines`: one
    per line; `values`: one per JSON value, however they are separated. With the handshake
    `firehose`, `array`: what each element of the body's `records` has as `data`, decoded; `lines`
    and `values` divide that data. Default `none`."""
    key: PutIngestSource | None = None
    """Where the key of a record is found. Default: records have no key."""
    headers: Annotated[list[HeaderName], Field(max_length=32)] = Field(default_factory=list)
    """Request headers that become record headers, besides `content-type` and those that the
    signature's scheme brings. Default: none."""
    delivery_id: PutIngestSource | None = None
    """Where a delivery's id is found. Default: where the scheme or the format of the body has
    it."""
    window_ms: WindowMs = DEFAULT_WINDOW_MS
    """How long a delivery is remembered, to the second. Default 345,600,000, four days."""
    window_deliveries: WindowDeliveries = DEFAULT_WINDOW_DELIVERIES
    """How many deliveries are remembered. Default 100,000."""
    signature: PutIngestSignature | None = None
    """How requests are verified. Default: not at all; a sender needs an API key or an ingest
    token."""
    handshake: Handshake | None = None
    """What the sender asks before it sends, or wants as an answer. Default: nothing, except what
    the schemes `slack`, `zoom` and `discord` ask."""

    @model_validator(mode="after")
    def _headers_may_be_stored(self) -> Self:
        for name in self.headers:
            _ensure_may_be_stored(name)
            if name.lower().startswith(_RESERVED_PREFIX):
                raise _fault(f"headers: names that begin with {_RESERVED_PREFIX} are reserved")
        signature = self.signature
        if signature is not None and signature.scheme == "token-header":
            stored = [
                *self.headers,
                *(n for s in (self.key, self.delivery_id) if s for n in s.names()),
            ]
            if str(signature.header).lower() in [name.lower() for name in stored]:
                raise _fault(f"{signature.header} has the sender's secret and is never stored")
        if self.key is not None and self.key.headers is not None:
            raise _fault("key: headers is for delivery_id")
        if self.handshake == "x" and (signature is None or signature.scheme != "hmac"):
            raise _fault("handshake x needs a signature: the scheme hmac, with the app's secret")
        return self


class IngestSource(ResponseModel):
    """Where a value is found: a JSON Pointer into the body, or a request header."""

    pointer: Pointer | Absent = None
    """JSON Pointer, if it is not a header."""
    header: HeaderName | Absent = None
    """Request header, if it is not a pointer."""
    headers: list[HeaderName] | Absent = None
    """Request headers, if an id is made of several."""


class IngestSignature(ResponseModel, _SignatureFields):
    """How the requests of a sender are verified; its secrets are never returned."""

    header: HeaderName | Absent = None
    """With `hmac` and `token-header`: the request header that has the signature or the secret."""
    algorithm: Algorithm | Absent = None
    """With `hmac`: the hash function."""
    encoding: SignatureEncoding | Absent = None
    """With `hmac`: how the signature is written."""
    prefix: str | Absent = None
    """With `hmac`: what stands before the signature in the header."""
    secrets_count: SecretsCount
    """How many secrets are valid."""


class IngestProfile(ResponseModel):
    """How the bodies that senders post to a topic become records."""

    split: Split
    """How a body becomes records."""
    key: IngestSource | Absent = None
    """Where the key of a record is found."""
    headers: list[str]
    """Request headers that become record headers, besides those that the scheme brings."""
    delivery_id: IngestSource | Absent = None
    """Where a delivery's id is found, if not where the scheme or the body's format has it."""
    window_ms: WindowMs
    """How long a delivery is remembered."""
    window_deliveries: WindowDeliveries
    """How many deliveries are remembered."""
    signature: IngestSignature | Absent = None
    """How requests are verified."""
    handshake: Handshake | Absent = None
    """What the sender asks before it sends, or wants as an answer."""


IngestTokenId = Annotated[
    str, Field(description="Id of an ingest token: 12 characters.", examples=["5f0c7a91d2e4"])
]


class CreatedIngestToken(ResponseModel):
    """An ingest token; no other response contains it."""

    id: IngestTokenId
    token: str
    """The token. The service stores its hash only."""
    url: str
    """Path that the sender posts to, at this service's address: its last segment is the token."""


class IngestToken(ResponseModel):
    """An ingest token, without the token itself."""

    id: IngestTokenId
    created_timestamp: TimestampMs
    """When it was created, epoch milliseconds."""


class IngestTokenList(ResponseModel):
    """The ingest tokens of a topic."""

    tokens: list[IngestToken]
    """Tokens, the oldest first; at most 100."""


class IngestRefusal(ResponseModel):
    """A request to an ingest URL that was refused."""

    timestamp: Int64
    """When it was refused, epoch milliseconds."""
    reason: str
    """Why, by the reasons of `tidelog_ingest_refused_total`, such as `signature_mismatch`."""
    status: Annotated[int, INT32, Field(ge=400, le=599)]
    """HTTP status of the answer."""
    code: str
    """Code of the problem document that the sender got."""
    detail: str
    """What it said, at most 500 characters."""


class IngestRefusalList(ResponseModel):
    """The last refused requests to a topic's ingest URLs, since the start of the service."""

    topic: TopicShown
    refusals: list[IngestRefusal]
    """The newest first, at most 20."""


def standard_webhooks_key(secret: str, number: int = 0) -> tuple[bool, bytes]:
    """Return whether a secret of Standard Webhooks is an Ed25519 public key, and the key's bytes.

    Raises PydanticCustomError if it is neither `whsec_…` nor `whpk_…`; the prefix of an HMAC key
    may be missing.
    """
    name = f"secrets[{number}]"
    if secret.startswith(_PRIVATE_KEY_PREFIX):
        raise _fault(f"{name} is a private key: send the public one, whpk_…")
    is_public_key = secret.startswith(_PUBLIC_KEY_PREFIX)
    text = secret.removeprefix(_PUBLIC_KEY_PREFIX if is_public_key else _HMAC_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise _fault(f"{name} is not whsec_ or whpk_ and base64") from None
    if is_public_key and len(key) != _ED25519_KEY_BYTES:
        raise _fault(f"{name} is a public key of {len(key)} bytes; Ed25519 has 32")
    if len(key) < _MIN_HMAC_KEY_BYTES:
        raise _fault(f"{name} is a key of {len(key)} bytes; Standard Webhooks uses 24 to 64")
    return is_public_key, key


def _ensure_may_be_stored(header: str) -> None:
    if header.lower() in NEVER_STORED:
        raise _fault(f"{header} has credentials and is never stored")


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", "{message}", {"message": message})
