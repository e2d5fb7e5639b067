"""Subscriptions: topics that are pushed to a URL."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from schemas.base import Model, ResponseModel
from schemas.common import (
    DECIMAL,
    INT32,
    Count,
    Int32,
    NextPageToken,
    OffsetOrName,
    PartitionNumber,
    TimestampMs,
    TopicName,
    TopicShown,
)
from schemas.fetch import FilterText
from schemas.groups import GroupName, GroupShown
from schemas.ingest import MAX_SECRETS, Secret, SecretsCount, standard_webhooks_key

MAX_TOPICS: Final = 100
MAX_HEADERS: Final = 32
MAX_URL_CHARACTERS: Final = 2_000

SubscriptionName = Annotated[
    str,
    Field(
        description="Name of a subscription: 1 to 100 letters, digits, `.`, `_` and `-`.",
        examples=["billing"],
        pattern=r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,99}$",
    ),
]
Format = Literal["ndjson", "json", "cloudevents", "body"]
HeaderText = Annotated[str, Field(max_length=1_000, pattern=r"^[!-~]([ -~]*[!-~])?$")]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_OURS: Final = frozenset(
    {"connection", "content-length", "content-type", "host", "transfer-encoding", "te", "upgrade"}
)
_OUR_PREFIXES: Final = ("webhook-", "tidelog-", "ce-")


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", "{message}", {"message": message})


class SubscriptionBatch(Model):
    """What one request has at most."""

    max_records: Annotated[int, Field(ge=1, le=10_000), INT32, DECIMAL] = 100
    """Records of one request. Default 100; with the format `body` always 1."""
    max_bytes: Annotated[int, Field(ge=1, le=8 << 20), INT32, DECIMAL] = 1 << 20
    """Stored bytes that are looked at for one request; one batch of the log is, whatever its size.
    Default 1,048,576."""
    max_wait_ms: Annotated[int, Field(ge=0, le=60_000), INT32, DECIMAL] = 0
    """How long to wait for more records, after the first. Default 0."""


class SubscriptionRetry(Model):
    """When a request that failed is sent again."""

    initial_ms: Annotated[int, Field(ge=10, le=600_000), INT32, DECIMAL] = 1_000
    """Pause after the first failure; each further one is twice as long. Default 1,000."""
    max_ms: Annotated[int, Field(ge=10, le=3_600_000), INT32, DECIMAL] = 300_000
    """Longest pause. Default 300,000."""
    attempts: Annotated[int, Field(ge=1, le=1_000), INT32, DECIMAL] | None = None
    """How often a request is sent before its records go to `dead_letter_topic`, or the subscription
    stops. Default: until it succeeds."""


class SubscriptionSignature(Model):
    """How requests are signed: Standard Webhooks 1.0, HMAC-SHA256."""

    scheme: Literal["standard-webhooks"] = "standard-webhooks"
    """The scheme. Default `standard-webhooks`."""
    secrets: Annotated[list[Secret], Field(min_length=1, max_length=MAX_SECRETS)] | None = Field(
        default=None, repr=False
    )
    """Secrets, `whsec_…`; each signs, so that a receiver can change from one to the other. Never
    returned. Default: those that the subscription has."""

    @model_validator(mode="after")
    def _are_keys(self) -> Self:
        for number, secret in enumerate(self.secrets or ()):
            is_public, _ = standard_webhooks_key(secret, number)
            if is_public:
                raise _fault(f"secrets[{number}] is a public key, which cannot sign: send whsec_…")
        return self


class SubscriptionOptions(Model):
    """What a subscription does, without its secrets."""

    topics: Annotated[list[TopicName], Field(min_length=1, max_length=MAX_TOPICS)]
    """Topics that are pushed."""
    group: GroupName | None = None
    """Group whose offsets say how far it is. Default: `subscription-<name>`."""
    url: Annotated[str, Field(max_length=MAX_URL_CHARACTERS, examples=["https://example.org/hook"])]
    """Where to: `https`, and a public address, unless `subscription_hosts` lists the host."""
    start: OffsetOrName = "latest"
    """Where to begin in a partition for which the group has no offset. Default `latest`."""
    format: Format = "ndjson"
    """`ndjson`: a record a line, as reads show it; `json`: one object with `records`;
    `cloudevents`: a batch of CloudEvents 1.0; `body`: the value of one record, as it is. Default
    `ndjson`."""
    batch: SubscriptionBatch = Field(default_factory=SubscriptionBatch)
    """What one request has at most. Default: as its members say."""
    headers: Annotated[dict[str, HeaderText], Field(max_length=MAX_HEADERS)] = Field(
        default_factory=dict, repr=False
    )
    """Headers of each request. They may have credentials of the receiver: values are never
    returned. Default: none."""
    timeout_ms: Annotated[int, Field(ge=100, le=300_000), INT32, DECIMAL] = 30_000
    """How long one request may take. Default 30,000."""
    retry: SubscriptionRetry = Field(default_factory=SubscriptionRetry)
    """When a request that failed is sent again. Default: as its members say."""
    dead_letter_topic: TopicName | None = None
    """Topic for records whose requests failed `attempts` times. Default: none, the subscription
    stops."""
    filter: FilterText | None = None
    """Which records are pushed, as reads take it. Default: all."""
    paused: bool = False
    """Whether nothing is sent for now. Default `false`."""

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        url = urlsplit(self.url)
        try:
            has_port = url.port is None or url.port > 0
        except ValueError:
            has_port = False
        if url.scheme not in {"https", "http"} or not url.hostname or not has_port:
            raise _fault("url is https://HOST[:PORT]/PATH")
        if url.username is not None or url.password is not None or url.fragment:
            raise _fault("url has a user, a password or a fragment: use headers for credentials")
        if not re.fullmatch(r"[!-~]+", self.url) or "\\" in self.url:
            raise _fault("url has characters that have to be percent-encoded")
        for name in self.headers:
            lower = name.lower()
            if _HEADER_NAME.fullmatch(name) is None:
                raise _fault(f"headers: {name!r} is not the name of a header")
            if lower in _OURS or lower.startswith(_OUR_PREFIXES):
                raise _fault(f"headers: {name} is set by the service")
        if len(set(self.topics)) != len(self.topics):
            raise _fault("topics has the same topic twice")
        if self.retry.initial_ms > self.retry.max_ms:
            raise _fault("retry: initial_ms is larger than max_ms")
        if self.dead_letter_topic in self.topics:
            raise _fault("dead_letter_topic is one of the topics that are pushed")
        if self.dead_letter_topic is not None and self.retry.attempts is None:
            raise _fault("dead_letter_topic needs retry.attempts")
        return self


class PutSubscription(SubscriptionOptions):
    """A subscription as it is set."""

    signature: SubscriptionSignature | None = None
    """How requests are signed. Default: they are not."""


class PatchSubscription(Model):
    """What of a subscription is changed; its secrets and headers stay as they are."""

    paused: bool
    """Whether nothing is sent from now on. `false` starts one again that was paused or stopped."""


class LastAnswer(ResponseModel):
    """What came of the last request of a partition."""

    timestamp: TimestampMs
    """When it was sent, epoch milliseconds."""
    duration_ms: Count
    """How long it took."""
    status: Int32 | None
    """Status of the response; null if there was none."""
    problem: str | None
    """Why it failed; null if it did not."""


class PushedPartition(ResponseModel):
    """How far a partition is."""

    topic: TopicShown
    partition: PartitionNumber
    offset: Count
    """Everything below is pushed, and committed or about to be."""
    lag: Count
    """Number of offsets that are not pushed yet."""
    failures: Count
    """How often the next request has failed."""
    next_attempt_at: TimestampMs | None
    """When it is sent again, epoch milliseconds; null if it has not failed."""
    last_answer: LastAnswer | None
    """The last request; null if there was none since the service started."""


State = Literal["running", "paused", "stopped"]


class ShownSignature(ResponseModel):
    """How requests are signed."""

    scheme: Literal["standard-webhooks"]
    """The scheme."""
    secrets_count: SecretsCount
    """Number of secrets."""


class ShownBatch(ResponseModel):
    """What one request has at most."""

    max_records: Int32
    """Records of one request."""
    max_bytes: Int32
    """Stored bytes that are looked at for one request."""
    max_wait_ms: Int32
    """How long to wait for more records, after the first."""


class ShownRetry(ResponseModel):
    """When a request that failed is sent again."""

    initial_ms: Int32
    """Pause after the first failure; each further one is twice as long."""
    max_ms: Int32
    """Longest pause."""
    attempts: Int32 | None
    """How often a request is sent; null until it succeeds."""


class Subscription(ResponseModel):
    """A subscription, and how it is going."""

    name: str
    """Its name."""
    topics: list[str]
    """Topics that are pushed."""
    group: GroupShown
    url: str
    """Where to."""
    start: str
    """Where it began."""
    format: Format
    """What a request has."""
    batch: ShownBatch
    """What one of its requests has at most."""
    header_names: list[str]
    """Names of the headers of each request."""
    signature: ShownSignature | None
    """How requests are signed; null if they are not."""
    timeout_ms: Count
    """How long one request may take."""
    retry: ShownRetry
    """When one of its requests that failed is sent again."""
    dead_letter_topic: str | None
    """Topic for records whose requests failed too often."""
    filter: str | None
    """Which records are pushed; null for all."""
    paused: bool
    """Whether nothing is sent for now."""
    state: State
    """`stopped`: `problem` says why; `updateSubscription` and `putSubscription` start it again."""
    problem: str | None
    """Why it was paused or stopped by itself; null if it was not."""
    partitions: list[PushedPartition]
    """What this service pushes; on a Kafka cluster its replicas share the partitions."""


class SubscriptionList(ResponseModel):
    """One page of the subscriptions."""

    subscriptions: list[Subscription]
    """Subscriptions by name."""
    next_page_token: NextPageToken


class SubscriptionTest(ResponseModel):
    """What came of a request that was sent for a test."""

    status: Int32 | None
    """Status of the response; null if there was none."""
    problem: str | None
    """Why it failed; null if it did not."""
    duration_ms: Count
    """How long it took."""
    response: str
    """The beginning of the response's body, as text."""
