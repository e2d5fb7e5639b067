"""The settings: every limit has its environment variable, default and trade-off here.

`TIDELOG_MAX_REQUEST_BYTES=1048576 tidelog serve …` sets one of them, `max_request_bytes = 1048576`
in `tidelog.toml` too: `app.settings_sources`. `tidelog settings` prints all of them,
docs/settings.md describes them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from engine.config import ArchiveConfig, EngineConfig, ScrubConfig
from engine.errors import InvalidConfig
from engine.records.budget import DecodeLimits
from engine.topic_keys import canonical, overrides_in, render

MIB: Final = 1024 * 1024

VARIABLE_PREFIX: Final = "TIDELOG_"

Positive = Annotated[int, Field(ge=1)]

Source = Literal["command_line", "environment", "file", "default"]


def _parsed(text: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON such as {example} ({error})") from None


def _listed(value: object) -> object:
    """Return a list that was written with commas, or as JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _parsed(value, '["one", "two"]')
    return [one.strip() for one in value.split(",") if one.strip()]


def _paired(value: object) -> object:
    """Return pairs that were written as `key=value,key=value`, as JSON, or as a table of TOML."""
    try:
        found = overrides_in(value) if isinstance(value, str) else value
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, Mapping):
        return found
    numbers = {name: one for name, one in found.items() if isinstance(one, int | float)}
    return {**found, **{name: render(one) for name, one in numbers.items()}}


def _mapped(value: object) -> object:
    """Return an object that was written as JSON: a certificate's subject has commas and `=`."""
    if not isinstance(value, str):
        return value
    return _parsed(value, '{"CN=spark": ["read:*"]}')


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_listed)]


class KafkaSettings(BaseModel):
    """Where the cluster is, and how the service connects to it."""

    kafka: str = ""
    """Brokers of a Kafka cluster, HOST:PORT[,HOST:PORT…]: it stores the logs, no data directory."""

    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How the service connects to the brokers; Kafka's security.protocol."""

    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = (
        "PLAIN"
    )
    """How the service authenticates to the brokers, with SASL."""

    kafka_sasl_username: str = ""
    """User of PLAIN and SCRAM."""

    kafka_sasl_password: SecretStr = SecretStr("")
    """Password of PLAIN and SCRAM."""

    kafka_oauth_token_file: Path | None = None
    """File with the token of OAUTHBEARER; read for each connection, so that it can be renewed."""

    kafka_tls_ca: Path | None = None
    """CAs of the brokers' certificates, PEM; without it the system's."""

    kafka_tls_cert: Path | None = None
    """Certificate of the service for the brokers, PEM."""

    kafka_tls_key: Path | None = None
    """Private key of that certificate, PEM, not encrypted."""

    kafka_replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Replicas of a topic that is created here; -1: the cluster's default.replication.factor."""

    kafka_documents_topic: Annotated[str, Field(pattern=r"^__tidelog[a-zA-Z0-9._-]{1,200}$")] = (
        "__tidelog_documents"
    )
    """Compacted topic with the ingest profiles and tokens; created at the first start. Services
    with the same topic share them. Clients see no topic whose name begins with __tidelog."""

    kafka_start_timeout_ms: Positive = 60_000
    """Longest wait at a start for a broker that answers; then the start fails."""

    kafka_request_timeout_ms: Positive = 30_000
    """Longest wait for a broker's response; then the connection is closed."""

    kafka_read_timeout_ms: Positive = 10_000
    """Longest time in which a read is repeated that no broker answers; then 503. Electing a new
    leader for a broker that died takes about 9 s (broker.session.timeout.ms)."""

    kafka_metadata_interval_ms: Positive = 5_000
    """Interval at which topics and leaders are read; changes made elsewhere are seen by then."""

    kafka_config_interval_ms: Positive = 60_000
    """Interval at which topic configurations are read; changes made elsewhere are seen by then."""

    max_kafka_produce_bytes: Positive = 64 * MIB
    """Bytes of appends that are sent to the brokers and not answered; beyond it 503."""

    max_kafka_fetch_bytes: Positive = 64 * MIB
    """Bytes of reads that are asked of the brokers and not answered, an equal share of each;
    further reads wait for their turn."""

    @model_validator(mode="after")
    def _ensure_kafka_can_be_reached(self) -> Self:
        if self.kafka:
            _ = self.kafka_addresses
        if self.kafka_tls_key is not None and self.kafka_tls_cert is None:
            raise ValueError("kafka_tls_key needs kafka_tls_cert")
        if self.kafka_security_protocol.startswith("SASL"):
            if self.kafka_sasl_mechanism == "OAUTHBEARER":
                if self.kafka_oauth_token_file is None:
                    raise ValueError("OAUTHBEARER needs kafka_oauth_token_file")
            elif not self.kafka_sasl_username:
                raise ValueError(f"{self.kafka_sasl_mechanism} needs kafka_sasl_username")
        return self

    @property
    def kafka_addresses(self) -> tuple[tuple[str, int], ...]:
        """The brokers' hosts and ports; raises ValueError."""
        return tuple(map(_address, self.kafka.split(",")))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text.strip()!r} is not the address of a broker: HOST:PORT")
    return host, int(port)


_ENGINE: Final = EngineConfig()

_STEP: Final = r'(?:\.[\w$-]+|\[(?:"(?:\\.|[^"\\])+"|\d+|\*)\])'
_MASKED_FIELD: Final = rf"[^\s:]+:(?:key{_STEP}*|value{_STEP}*|header{_STEP})"
_MASKED_FIELDS: Final = rf"^(?:|{_MASKED_FIELD}(?:\s+{_MASKED_FIELD})*)$"

NotNegative = Annotated[int, Field(ge=0)]

SignatureAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Asymmetric algorithms: with a shared secret, the service that verifies tokens could sign them."""


class Settings(KafkaSettings):
    """The settings of an operator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen_host: str = "127.0.0.1"
    """Address to listen on; beyond loopback only with credentials, or with `insecure`."""

    listen_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """Port to listen on; 0 selects a free one."""

    metrics_listen: str = Field("", pattern=r"^(|\[[0-9a-fA-F:]+\]:\d{1,5}|[^\s:\[\]]+:\d{1,5})$")
    """Second address, HOST:PORT, with `/metrics`, `/readyz` and `/livez` alone: without TLS and
    credentials, for a network that clients do not reach. Default: none."""

    insecure: bool = False
    """Listen beyond loopback without credentials: something in front restricts access."""

    data_directory: Path = Path("data")
    """The data directory. One process owns it."""

    more_data_directories: Paths = ()
    """More data directories, separated by commas. If one fails, the others continue."""

    gone_directories: Paths = ()
    """Data directories that are lost for good, separated by commas; otherwise startup fails without
    them."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines of the service's own log that are written."""

    access_log: bool = False
    """Log one line per request; costs about a tenth of the small-append rate."""

    tracing: bool = False
    """Create an OpenTelemetry span per request (`tidelog[otel]`), as `OTEL_…` variables say."""

    max_header_bytes: Positive = 64 * 1024
    """Size of a request's URL and headers, and of its trailers; beyond it 400."""

    max_request_bytes: Positive = 16 * MIB
    """Largest request body, before and after decoding."""

    max_records_per_request: Positive = 200_000
    """Records of one JSON or NDJSON body: each costs some 200 bytes while it is parsed."""

    max_control_bytes: Positive = MIB
    """Largest body of an administrative request."""

    default_fetch_bytes: Positive = MIB
    """Default `max_bytes` of a read."""

    max_fetch_bytes: Positive = 64 * MIB
    """A larger `max_bytes` is reduced to this."""

    max_answer_bytes: Positive = 32 * MIB
    """Largest answer with records: it ends before the record that would exceed this."""

    default_fetch_records: Positive = 100_000
    """Default and maximum of `max_records` of a JSON read."""

    max_wait_ms: Positive = 60_000
    """Longest long poll; a longer wait is reduced to this."""

    max_metric_partitions: Positive = 1_000
    """Partitions with their own series at /metrics; others are in the sums of their topics."""

    max_share_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """Largest share of each of the next five limits for one principal, or for one client address
    without credentials; smaller while others hold some. Where credentials are required, also of
    max_topics, max_groups, max_group_offsets, max_lease_workers and
    max_lease_partitions. 100 turns shares off."""

    max_in_flight_requests: Positive = 8_192
    """Concurrent requests without long polls; beyond it 503."""

    max_in_flight_bytes: Positive = 128 * MIB
    """Memory of request bodies; beyond it 503."""

    max_in_flight_answer_bytes: Positive = 256 * MIB
    """Memory of answers, mostly those of slow readers; beyond it 503."""

    max_in_flight_render_bytes: Positive = 96 * MIB
    """Memory in which reads and look-ups by time decode and render, and as much in which appends
    decode; beyond it they wait. The largest run alone."""

    max_rendered_batches_bytes: Annotated[int, Field(ge=0)] = 32 * MIB
    """Memory in which batches are kept as JSON for further readers; 0 keeps none."""

    max_waiting_readers: Positive = 20_000
    """Concurrent long polls; beyond it 503."""

    max_tails: Positive = 10_000
    """Concurrent tails; beyond it 503."""

    max_tail_ms: Positive = 3_600_000
    """Longest tail. Its client reconnects, as EventSource does: credentials are checked again."""

    max_tail_event_bytes: Positive = 48 * 1024
    """Largest event of a tail, unless its first record is larger. Go's `bufio.Scanner` and others
    read no line of 64 KiB."""

    max_fetch_partitions: Positive = 1_000
    """Partitions of one fetchMany; each costs a look at its log per wake-up."""

    tail_fetch_bytes: Positive = 64 * 1024
    """Default `max_bytes` of a tail's event; at most one event waits for a slow client."""

    tail_heartbeat_ms: Positive = 15_000
    """Interval of heartbeats of an idle tail: they show proxies and clients that it is alive."""

    tail_retry_ms: Positive = 1_000
    """Delay before EventSource reconnects."""

    tail_stall_timeout_ms: Positive = 30_000
    """A tail whose client receives nothing ends after this long, and is cut off after twice."""

    max_stream_part_bytes: Positive = MIB
    """Bytes of a `stream=true` body that are committed together; a longer line goes alone."""

    max_stream_parts_in_flight: Positive = 4
    """Parts of one such body that may wait for the disk; then the service stops receiving."""

    stream_linger_ms: Positive = 50
    """Longest time that complete lines of such a body wait for more before they are committed."""

    stream_idle_timeout_ms: Positive = 60_000
    """Time over which such a body must reach `min_stream_bytes_per_second` on average."""

    min_stream_bytes_per_second: Positive = 1
    """Slowest `stream=true` body: one line a minute is enough, one byte is not."""

    max_deliveries: Positive = 1_000_000
    """Delivery ids and idempotency keys remembered, of all topics, 60 bytes each; beyond it the
    oldest of the topic with the most are forgotten."""

    max_delivery_rebuild_bytes: Positive = 16 * 1024 * MIB
    """Newest bytes of a topic that are read, at the first delivery after a start, to find its
    delivery ids. Ids in older bytes are forgotten."""

    delivery_rebuild_timeout_ms: Positive = 5_000
    """Longest wait of a delivery for that; then 503."""

    max_connections: Positive = 20_000
    """Open connections, at most half of the files that the process may open; beyond it 503, and
    over TLS no answer. Connections in a TLS handshake count."""

    max_address_connections_percent: Annotated[int, Field(ge=1, le=100)] = 75
    """Largest share of the connections for one client address, smaller while others hold some."""

    min_free_files: NotNegative = 64
    """Files reserved for logs and keys, at most a quarter of those that the process may open."""

    max_pipelined_requests: Positive = 128
    """Pipelined requests that wait on one connection; further ones get no answer."""

    head_timeout_ms: Positive = 30_000
    """Longest time for a request's line and headers to arrive; then it is refused."""

    send_timeout_ms: Positive = 60_000
    """A client that receives nothing of its answer for this long is disconnected."""

    linger_timeout_ms: Positive = 5_000
    """Time for which the rest of a refused request's body is discarded."""

    body_timeout_ms: Positive = 30_000
    """Longest time for a body to arrive; then it is refused."""

    body_stall_timeout_ms: Positive = 5_000
    """A body that is slower than `min_body_bytes_per_second` for this long is refused."""

    min_body_bytes_per_second: Positive = 1_024
    """Slowest body; a body that is complete within `body_stall_timeout_ms` may be slower."""

    commit_timeout_ms: Positive = 30_000
    """Longest wait of `acks=all` for the disk; then the outcome is unknown (504)."""

    inline_append_bytes: Annotated[int, Field(ge=0)] = 128 * 1024
    """Appends above this size, and compressed ones, run on a worker thread."""

    inline_read_bytes: Annotated[int, Field(ge=0)] = 32 * 1024
    """JSON reads above this many stored bytes run on worker threads; so do reads of compressed
    batches above 2 KiB, 16 KiB of content or 256 records."""

    min_coded_bytes: Positive = 1024
    """Shorter JSON answers are never compressed, whatever Accept-Encoding says."""

    download_chunk_bytes: Positive = MIB
    """A download reads and holds this much of a file at a time, or one batch if that is larger."""

    max_splits: Positive = 10_000
    """Splits of one plan: each costs an index look-up and some hundred bytes."""

    cache_visibility: Literal["private", "public"] = "private"
    """Caches that may store answers. `public` caches answer without checking permissions."""

    console_masked_fields: str = Field("", pattern=_MASKED_FIELDS)
    """Fields that the console hides, such as `orders:value.card.number *:header.authorization`: a
    pattern of topics and a field as its filter writes it. The API still has them."""

    write_threads: Positive = 2
    """Threads for large appends."""

    read_threads: Positive = 4
    """Threads for reads that miss the page cache, and for large JSON answers."""

    max_compactions: Positive = 16
    """Requested compactions, running and waiting; beyond it 503."""

    commit_interval_ms: Positive = _ENGINE.commit_interval_ms
    """Longest time until an append is synced, whatever its acks."""

    max_inline_round_ms: NotNegative = _ENGINE.max_inline_round_ms
    """Longest round of syncs on the event loop, which is quicker than another thread while the disk
    is fast; after a longer one a thread syncs for some time; 0: always."""

    retention_check_interval_ms: Positive = _ENGINE.retention_check_interval_ms
    """Interval of retention passes."""

    checkpoint_interval_ms: Positive = _ENGINE.checkpoint_interval_ms
    """Interval of recovery point writes; a longer one means more to scan after a crash."""

    archive: str = ""
    """URL of the object store that gets a copy of everything committed: s3://bucket/folder,
    gs://bucket/folder, az://account/container/folder or file:///folder; see docs/backup.md."""

    archive_interval_ms: Positive = _ENGINE.archive.interval_ms
    """Interval at which new records are archived: what is younger may be lost with the disk. A
    shorter one costs more requests, two for each partition with new records."""

    archive_keep_ms: NotNegative = _ENGINE.archive.keep_ms
    """How long the archive keeps what retention, compaction, truncation or a deletion removed, for
    restores to an earlier time."""

    archive_bytes_per_second: NotNegative = 0
    """Rate at which the archive is filled; a lower one leaves more of disk and network to clients.
    0: unlimited."""

    archive_threads: Annotated[int, Field(ge=1, le=64)] = _ENGINE.archive.threads
    """Partitions that are archived at once; each waits for the store most of the time."""

    archive_cache_bytes: Annotated[int, Field(ge=MIB, le=64 * 1024 * MIB)] = (
        _ENGINE.archive.cache_bytes
    )
    """Memory for records that only the archive has. Less means that readers at different places
    fetch the same bytes again."""

    archive_take_over: bool = False
    """Continue an archive that belongs to another data directory: after a restore, once."""

    scrub_interval_ms: NotNegative = _ENGINE.scrub.interval_ms
    """Interval of scrubs, which verify all committed data; 0: never."""

    scrub_bytes_per_second: Positive = int(_ENGINE.scrub.max_bytes_per_second)
    """Read rate of a scrub; a lower one leaves more of the disk to clients."""

    recovery_threads: Positive = _ENGINE.recovery_threads
    """Logs opened in parallel at startup."""

    max_decompressed_batch_bytes: Positive = _ENGINE.max_decompressed_batch_bytes
    """Largest content of one compressed batch."""

    max_decoded_bytes: Positive = 256 * MIB
    """Decoded bytes per request: its body and the batches in it, or the batches that a read shows.
    A read ends its answer there; at least one batch is decoded."""

    max_decode_cpu_ms: Positive = 5_000
    """CPU time for decoding and checking them."""

    max_index_check_bytes: Positive = _ENGINE.max_index_check_bytes
    """After a start, `read_committed` checks each segment's index of aborted transactions once
    against the log. This many bytes per read; a read that needs more checks one segment and is 503.
    """

    max_partitions_per_topic: Positive = _ENGINE.max_partitions_per_topic
    """Each partition costs file descriptors and memory."""

    max_segments_per_partition: Positive = _ENGINE.max_segments_per_partition
    """Segments of one partition; beyond it an append that needs another is 503."""

    max_sealed_segments: Positive = _ENGINE.max_sealed_segments
    """The same for the segments of all partitions together, active ones aside."""

    max_open_sealed_segments: Positive = _ENGINE.max_open_sealed_segments
    """Sealed segments with open files; beyond it those that were opened first are closed."""

    min_segment_bytes: Annotated[int, Field(ge=14)] = 1024 * 1024
    """Smallest `segment.bytes` of a topic, as at a broker; less is for tests."""

    max_waiting_moves: Positive = _ENGINE.max_waiting_moves
    """Waiting moves of partitions between data directories; beyond it 503."""

    max_producers_per_partition: Positive = _ENGINE.max_producers_per_partition
    """Producers that a partition remembers, 600 bytes each; beyond it the idlest is forgotten."""

    max_producers: Positive = _ENGINE.max_producers
    """The same for all partitions together; until some are forgotten, a new one is 503."""

    max_topics: Positive = _ENGINE.max_topics
    """Topics of one data directory."""

    offsets_topic_partitions: Positive = 50
    """Partitions of `__consumer_offsets` when it is created; 50 in Kafka."""

    max_groups: Positive = 10_000
    """Groups with stored offsets."""

    max_group_offsets: Positive = 100_000
    """Stored offsets of all groups; each costs some 600 bytes of memory."""

    max_offsets_per_group: Positive = 10_000
    """Stored offsets of one group: listing them with their lag takes some 5 µs each."""

    max_subscriptions: Positive = 1_000
    """Subscriptions, paused ones included."""

    subscription_hosts: Names = ()
    """Hosts that subscriptions may send to although their address is not public, or by plain http:
    names, patterns with `*`, or networks such as 10.0.0.0/8."""

    subscription_ca_file: Path | None = None
    """CAs of receivers' certificates, PEM, besides the system's."""

    max_lease_workers: Positive = 10_000
    """Workers with leases, of all groups; each costs some 400 bytes of memory."""

    max_lease_partitions: Positive = 200_000
    """Partitions that groups of workers share, of all groups; each costs some 300 bytes of
    memory."""

    max_group_metadata_bytes: Annotated[int, Field(ge=0, le=32_767)] = 4_096
    """Largest metadata of a stored offset; Kafka's offset.metadata.max.bytes."""

    max_credential_bytes: Positive = 8 * 1024
    """Largest Authorization header; a longer one is refused without being parsed."""

    api_keys_check_interval_ms: Positive = 1_000
    """Interval at which the file of API keys is read: a revoked key works no longer than that."""

    api_keys_read_timeout_ms: NotNegative = 10_000
    """While the file of API keys cannot be opened, the current keys stay valid for this long; then
    every key is refused (503). A damaged file invalidates all keys at once."""

    jwks: str = ""
    """File or https address of the issuer's keys (RFC 7517); without it, no tokens."""

    jwt_issuer: str = ""
    """Required `iss` of a token; needed with `jwks`."""

    jwt_audience: str = ""
    """Required `aud` of a token, or tokens for other services would be accepted."""

    jwt_algorithms: Annotated[tuple[SignatureAlgorithm, ...], BeforeValidator(_listed)] = get_args(
        SignatureAlgorithm
    )
    """Accepted signature algorithms, separated by commas; all are asymmetric."""

    jwt_scope_claim: str = "scope"
    """The claim with the scopes: a list, or a string separated by spaces."""

    jwt_leeway_ms: NotNegative = 30_000
    """Allowed difference between the clocks of issuer and service."""

    jwks_refresh_interval_ms: Positive = 300_000
    """Interval at which the issuer's keys are fetched."""

    jwks_stale_timeout_ms: Positive = 3_600_000
    """The issuer's keys are valid for this long after the last successful fetch; then every token
    is refused (503). Otherwise a withdrawn key would be valid for ever."""

    tls_cert: Path | None = None
    """Certificate and its chain, PEM; with it the service speaks only https."""

    tls_key: Path | None = None
    """Private key of the certificate, PEM, not encrypted."""

    tls_client_ca: Path | None = None
    """CAs of client certificates, PEM. Certificates are then requested, not required:
    `client_certificates` maps them to scopes, and a key or token is accepted too."""

    tls_check_interval_ms: Positive = 10_000
    """Interval at which the TLS files are read; later connections use a renewed certificate."""

    tls_read_timeout_ms: NotNegative = 60_000
    """While the TLS files cannot be used, the current ones stay valid for this long; then no
    connection is accepted. Otherwise a withdrawn client CA would be valid for ever."""

    keep_alive_ms: Annotated[int, Field(ge=1_000)] = 75_000
    """How long a connection without a request stays open, in whole seconds; longer than a proxy
    in front keeps one: it would send a request into a connection that is just being closed."""

    tls_handshake_timeout_ms: Positive = 5_000
    """Timeout of a TLS handshake."""

    client_certificates: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_mapped)] = Field(
        default_factory=dict
    )
    """Scopes by the subject of a client certificate (RFC 4514), as JSON."""

    open_metrics: bool = False
    """Allow reading /metrics without credentials."""

    allowed_hosts: Names = ()
    """Host names under which clients reach the service (`Host` without the port), separated by
    commas, besides loopback and the address listened on. Without credentials every other name is
    refused; with credentials names are checked only if some are listed here."""

    health_file: Path | None = None
    """File that is touched every second while `/readyz` is 200, and removed otherwise: a probe
    looks at its age, whatever the port, TLS and credentials are. Put it where writing is cheap and
    nothing fills up, such as `/dev/shm`. Default: none."""

    url_prefix: str = Field("", pattern=r"^(/[A-Za-z0-9._~-]+)*$", max_length=200)
    """What a proxy puts in front of all paths, such as `/tidelog`. Responses name URLs with it;
    requests may have it or not, as the proxy passes them on."""

    cors_origins: Names = ()
    """Origins whose pages may call the service from a browser, separated by commas; `*` allows all.
    """

    quota_requests_per_second: NotNegative = 0
    """Requests per second of one principal; 0: unlimited. An API key may have its own rates."""

    quota_bytes_in_per_second: NotNegative = 0
    """Bytes of bodies per second that one principal may send; 0: unlimited."""

    quota_bytes_out_per_second: NotNegative = 0
    """Bytes of answers per second to one principal; 0: unlimited."""

    default_topic_config: Annotated[dict[str, str], BeforeValidator(_paired)] = Field(
        default_factory=dict
    )
    """Configuration of every topic that does not set the key itself, as `key=value,key=value`."""

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _ensure_archive_is_of_this_side(self) -> Self:
        if self.archive and self.kafka:
            raise ValueError("archive is for data directories; on a Kafka cluster, tier its topics")
        return self

    @model_validator(mode="after")
    def _ensure_batches_can_be_read(self) -> Self:
        if self.max_decoded_bytes < self.max_decompressed_batch_bytes:
            raise ValueError("max_decoded_bytes must be at least max_decompressed_batch_bytes")
        return self

    def note_sources(self, sources: Mapping[str, Source]) -> None:
        """Note where each setting that has no default is from. Once, by who has read them."""
        self._sources.update(sources)

    def source_of(self, name: str) -> Source:
        """Return where a setting's value is from; without a note it was given, or is default."""
        return self._sources.get(
            name, "command_line" if name in self.model_fields_set else "default"
        )

    @property
    def masked_fields(self) -> list[str]:
        """The entries of `console_masked_fields`."""
        return re.findall(_MASKED_FIELD, self.console_masked_fields)

    @property
    def data_directories(self) -> tuple[Path, ...]:
        """All data directories; between equals the first is used."""
        return (self.data_directory, *self.more_data_directories)

    def engine_config(self) -> EngineConfig:
        """Return the engine's configuration; raises InvalidConfig for a wrong topic default."""
        own = type(self).model_fields
        values = {
            field.name: getattr(self, field.name)
            for field in fields(EngineConfig)
            if field.name in own
        }
        values["default_topic_config"] = canonical(self.default_topic_config)
        values["archive"] = ArchiveConfig(
            self.archive_interval_ms,
            self.archive_keep_ms,
            self.archive_bytes_per_second or math.inf,
            self.archive_threads,
            self.archive_cache_bytes,
            self.archive_take_over,
        )
        values["scrub"] = ScrubConfig(self.scrub_interval_ms, self.scrub_bytes_per_second)
        return EngineConfig(**values)

    def decode_limits(self) -> DecodeLimits:
        """Return the limits of decoding for one request."""
        return DecodeLimits(self.max_decoded_bytes, self.max_decode_cpu_ms)

    def limits(self) -> dict[str, int]:
        """Return every limit by its name."""
        return {name: getattr(self, name) for name in _LIMITS}


_LIMITS: Final = tuple(
    name
    for name in Settings.model_fields
    if name.startswith(("max_", "min_", "default_fetch_", "quota_", "tail_"))
    or name.endswith("_timeout_ms")
)
