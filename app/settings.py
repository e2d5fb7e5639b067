"""Environment to settings: every limit of the service has its name, default and trade-off here.

`TIDELOG_MAX_REQUEST_BYTES=1048576 tidelog serve …` sets one of them. `GET /v1/limits` prints them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.config import EngineConfig, ScrubConfig
from engine.records.budget import DecodeLimits
from engine.topic_keys import canonical

MIB: Final = 1024 * 1024

_ENGINE: Final = EngineConfig()

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]

SignatureAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Asymmetric ones: with a shared secret, whoever checks tokens could make them."""


class Settings(BaseSettings):
    """What an operator may decide."""

    model_config = SettingsConfigDict(env_prefix="TIDELOG_", frozen=True, extra="forbid")

    data_directory: Path = Path("data")
    """Holds every log; one process owns it."""

    more_data_directories: tuple[Path, ...] = ()
    """Further disks, as JSON: partitions are spread over all; one that fails goes alone."""

    gone_directories: tuple[Path, ...] = ()
    """Data directories, as JSON, that will not come back: without them a start is refused else."""

    log_level: str = "info"
    """debug, info, warning or error."""

    access_log: bool = False
    """One line a request; costs about a tenth of the small-append rate."""

    tracing: bool = False
    """A span a request for OpenTelemetry (`tidelog[otel]`); the `OTEL_…` variables say where to."""

    max_header_bytes: Positive = 64 * 1024
    """URL and headers of a request, and likewise its trailers; beyond it 400."""

    max_request_bytes: Positive = 16 * MIB
    """Largest request body, before and after decoding."""

    max_records_per_request: Positive = 200_000
    """Records of one JSON or NDJSON body: each costs some 200 bytes while it is taken apart."""

    max_control_bytes: Positive = MIB
    """Largest body of an administrative request."""

    default_fetch_bytes: Positive = MIB
    """`max_bytes` of a read that names none."""

    max_fetch_bytes: Positive = 64 * MIB
    """A larger `max_bytes` is lowered to this."""

    max_answer_bytes: Positive = 32 * MIB
    """No answer with records is larger: it ends before the record that would pass this."""

    default_fetch_records: Positive = 100_000
    """`max_records` of a JSON read that names none, and the most it may ask for."""

    max_wait_ms: Positive = 60_000
    """Longest long poll; a longer wait is lowered to this."""

    max_page_size: Positive = 1_000
    """Topics of one page."""

    max_metric_partitions: Positive = 1_000
    """Partitions with series of their own at /metrics; of the others only their topics' sums."""

    max_share_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """Largest share of each of the next five limits for one principal, or for one client address
    without credentials; smaller while others hold some of it. 100 turns shares off."""

    max_in_flight_requests: Positive = 8_192
    """Requests at work at once, long polls aside; beyond it 503."""

    max_in_flight_bytes: Positive = 128 * MIB
    """Request bodies in memory at once; beyond it 503."""

    max_in_flight_answer_bytes: Positive = 256 * MIB
    """Answers in memory at once, slow readers above all; beyond it 503."""

    max_in_flight_render_bytes: Positive = 96 * MIB
    """Memory in which reads decode and render; beyond it they wait. The largest run alone."""

    max_waiting_readers: Positive = 20_000
    """Long polls that wait at once; beyond it 503."""

    max_tails: Positive = 10_000
    """Clients that tail at once; beyond it 503."""

    max_tail_ms: Positive = 3_600_000
    """A tail ends then and its client comes again, as EventSource does by itself: load and
    credentials are looked at anew."""

    max_tail_event_bytes: Positive = MIB
    """An event of a tail ends before the record that would pass this, unless it is the first."""

    max_fetch_partitions: Positive = 1_000
    """Partitions of one fetchMany; each costs a look at its log for every wake-up of the wait."""

    tail_fetch_bytes: Positive = 64 * 1024
    """`max_bytes` of an event of a tail that names none; what waits for a slow client is one."""

    tail_heartbeat_ms: Positive = 15_000
    """A tail that has nothing to tell says so this often: proxies and clients see it lives."""

    tail_retry_ms: Positive = 1_000
    """How long EventSource waits before it connects again."""

    tail_stall_timeout_ms: Positive = 30_000
    """A tail that takes nothing for so long is closed, after as long again by force."""

    max_stream_part_bytes: Positive = MIB
    """Lines of a body with `stream=true` that are committed together; a longer line goes alone."""

    max_stream_parts_in_flight: Positive = 4
    """Parts of one such body that may wait for the disk; then its client waits, too."""

    stream_linger_ms: Positive = 50
    """Whole lines of such a body wait so long for more; then they are committed."""

    stream_idle_timeout_ms: Positive = 60_000
    """Such a body may be long, but is at least `min_stream_bytes_per_second` fast in this time."""

    min_stream_bytes_per_second: Positive = 1
    """Slowest body with `stream=true`: one line a minute is enough, one byte is not."""

    max_idempotency_keys: Positive = 50_000
    """Answers kept for requests with an Idempotency-Key; beyond it the oldest is forgotten."""

    max_idempotency_bytes: Positive = 32 * MIB
    """Memory of those answers; beyond it the oldest is forgotten."""

    max_idempotency_age_ms: Positive = 3_600_000
    """A repetition that comes later than this is a new request."""

    max_connections: Positive = 20_000
    """Connections open at once, never more than half of the files the process may open; beyond it
    503, and over TLS no answer. A connection whose TLS handshake is not over counts."""

    max_address_connections_percent: Annotated[int, Field(ge=1, le=100)] = 75
    """Largest share of the connections for one client address, smaller while others hold some."""

    min_free_files: NotNegative = 64
    """The last files that the process may open are not given to connections: logs and keys need
    them. Never more than a quarter of all."""

    max_pipelined_requests: Positive = 128
    """Requests that wait behind one of their connection; those beyond get no answer."""

    head_timeout_ms: Positive = 30_000
    """The line and headers of a request that have not arrived by then are refused."""

    send_timeout_ms: Positive = 60_000
    """A client that takes nothing of its answer for so long is cut off."""

    linger_timeout_ms: Positive = 5_000
    """What a client still sends of a request that was refused is passed over so long."""

    body_timeout_ms: Positive = 30_000
    """A body that has not arrived by then is refused."""

    body_stall_timeout_ms: Positive = 5_000
    """A body that arrives slower than `min_body_bytes_per_second` for so long is refused."""

    min_body_bytes_per_second: Positive = 1_024
    """Slowest body; one that ends within `body_stall_timeout_ms` may be slower."""

    commit_timeout_ms: Positive = 30_000
    """`acks=all` waits so long for the disk; then the outcome is unknown (504)."""

    inline_append_bytes: Annotated[int, Field(ge=0)] = 128 * 1024
    """Larger appends, and compressed ones, are taken apart on a worker thread."""

    inline_read_bytes: Annotated[int, Field(ge=0)] = 32 * 1024
    """JSON reads of more stored bytes are rendered by worker threads, and those of compressed
    batches beyond 4 KiB, 64 KiB of content or 256 records."""

    min_coded_bytes: Positive = 1024
    """Shorter JSON answers are never compressed, whatever Accept-Encoding says."""

    download_chunk_bytes: Positive = MIB
    """A download reads and holds so much of a file at a time, or one batch if that is larger."""

    default_split_bytes: Positive = 64 * MIB
    """`target_bytes` of a plan that says nothing of bytes or splits."""

    max_splits: Positive = 10_000
    """Splits of one plan: each costs a look into an index, and some hundred bytes."""

    cache_visibility: Literal["private", "public"] = "private"
    """Who may keep what is cacheable; `public` lets a shared cache answer without asking here who
    is allowed to read."""

    write_threads: Positive = 2
    """Threads for large appends."""

    read_threads: Positive = 4
    """Threads for reads that miss the page cache, and for large JSON answers."""

    admin_threads: Positive = 2
    """Threads for administrative work: creating, deleting, flushing, listing."""

    max_compactions: Positive = 16
    """Compactions on demand at work and waiting for each other; beyond it 503."""

    commit_interval_ms: Positive = _ENGINE.commit_interval_ms
    """Latest flush after the oldest unflushed byte, whatever the acks."""

    retention_check_interval_ms: Positive = _ENGINE.retention_check_interval_ms
    """How often retention looks for segments to remove."""

    checkpoint_interval_ms: Positive = _ENGINE.checkpoint_interval_ms
    """How often recovery points are written; longer means more to scan after a crash."""

    scrub_interval_ms: NotNegative = _ENGINE.scrub.interval_ms
    """From one search of everything committed for damage to the next; 0: never."""

    scrub_bytes_per_second: Positive = int(_ENGINE.scrub.max_bytes_per_second)
    """How fast that reads; less leaves more of the disk to appends and readers."""

    recovery_threads: Positive = _ENGINE.recovery_threads
    """Logs opened at once."""

    max_decompressed_batch_bytes: Positive = _ENGINE.max_decompressed_batch_bytes
    """Ceiling for one decompressed batch."""

    max_decoded_bytes: Positive = 256 * MIB
    """Ceiling for all that one request has decoded: its body and the batches in it, or the batches
    that a read shows. A read ends its answer there; at least one batch is decoded."""

    max_decode_cpu_ms: Positive = 5_000
    """Processor time that decoding and checking this may take."""

    max_index_check_bytes: Positive = _ENGINE.max_index_check_bytes
    """After a start, `read_committed` checks the index of aborted transactions of each segment once
    against the log. A read that needs more than this checks one segment beyond it and is 503."""

    max_partitions_per_topic: Positive = _ENGINE.max_partitions_per_topic
    """Each partition costs file descriptors and memory."""

    max_segments_per_partition: Positive = _ENGINE.max_segments_per_partition
    """Segments of one partition; beyond it an append that needs a new one is 503."""

    max_sealed_segments: Positive = _ENGINE.max_sealed_segments
    """The same for the segments of all partitions together, active ones aside."""

    max_open_sealed_segments: Positive = _ENGINE.max_open_sealed_segments
    """Sealed segments whose files are open for readers; beyond it the first opened is closed."""

    min_segment_bytes: Annotated[int, Field(ge=14)] = 1024 * 1024
    """The least `segment.bytes` that a topic may be given, as at a broker; less is for tests."""

    max_waiting_moves: Positive = _ENGINE.max_waiting_moves
    """Moves of partitions between data directories that wait at once; beyond it 503."""

    max_producers_per_partition: Positive = _ENGINE.max_producers_per_partition
    """Producer ids that a partition remembers, of 600 bytes each. Beyond it the one that has been
    idle for longest is forgotten, and its retries are not recognised any more."""

    max_producers: Positive = _ENGINE.max_producers
    """The same for all partitions together; until some are forgotten, a new one is 503."""

    max_topics: Positive = _ENGINE.max_topics
    """Topics of one data directory."""

    offsets_topic_partitions: Positive = 50
    """Of the topic that keeps group offsets, when the first is stored; 50 is Kafka's."""

    max_groups: Positive = 10_000
    """Groups with stored offsets; one more is refused."""

    max_group_offsets: Positive = 100_000
    """Stored offsets of all groups together; each costs some 600 bytes of memory."""

    max_offsets_per_group: Positive = 10_000
    """Stored offsets of one group: listing them and their lag takes some 5 µs each."""

    max_group_metadata_bytes: Annotated[int, Field(ge=0, le=32_767)] = 4_096
    """What a group may note beside one offset; Kafka's offset.metadata.max.bytes."""

    max_credential_bytes: Positive = 8 * 1024
    """Largest Authorization header; a longer one is refused unread."""

    api_keys_check_interval_ms: Positive = 1_000
    """How often the file of API keys is looked at: a revoked key works no longer than that."""

    api_keys_read_timeout_ms: NotNegative = 10_000
    """While the file of API keys cannot be opened, the keys known so far are valid for so long;
    then none is (503). A damaged file makes all of them invalid at once."""

    jwks: str = ""
    """File or https address of the keys that sign bearer tokens (RFC 7517); none: no tokens."""

    jwt_issuer: str = ""
    """The `iss` that a token must have; needed with `jwks`."""

    jwt_audience: str = ""
    """The `aud` that a token must have, so that one made for another service is not taken here;
    needed with `jwks`."""

    jwt_algorithms: tuple[SignatureAlgorithm, ...] = get_args(SignatureAlgorithm)
    """How tokens may be signed, as JSON; never with a shared secret."""

    jwt_scope_claim: str = "scope"
    """The claim with the scopes: a list, or a string with spaces between them."""

    jwt_leeway_ms: NotNegative = 30_000
    """How far the clocks of issuer and service may be apart."""

    jwks_refresh_interval_ms: Positive = 300_000
    """How often the issuer's keys are fetched, whether or not a token asks for one unknown."""

    jwks_retry_interval_ms: Positive = 10_000
    """Earliest next fetch after one that failed, or for a token with a key that is not known."""

    jwks_stale_timeout_ms: Positive = 3_600_000
    """The issuer's keys are valid for so long after they were fetched last; then no token is (503).
    A key that the issuer has withdrawn meanwhile would be valid for ever."""

    jwks_fetch_limit_ms: Positive = 5_000
    """A fetch of the issuer's keys takes no longer."""

    tls_cert: Path | None = None
    """Certificate and its chain, PEM; with it the service speaks https only."""

    tls_key: Path | None = None
    """Private key of the certificate, PEM, not encrypted."""

    tls_client_ca: Path | None = None
    """Who signs clients' certificates, PEM. A certificate is asked for then, not demanded: what is
    done with it is `client_certificates`, and a key or token will do instead."""

    tls_check_interval_ms: Positive = 10_000
    """How often the files of TLS are looked at; renewed ones count for new connections."""

    tls_read_timeout_ms: NotNegative = 60_000
    """While the files of TLS cannot be used, those before are, for so long; then none are."""

    tls_handshake_timeout_ms: Positive = 5_000
    """A connection whose TLS handshake is not over by then is closed."""

    client_certificates: dict[str, tuple[str, ...]] = {}
    """Scopes by the subject of a client's certificate (RFC 4514), as JSON."""

    open_metrics: bool = False
    """Let /metrics be read without credentials where everything else needs them."""

    allowed_hosts: tuple[str, ...] = ()
    """Names, as JSON, under which clients reach the service (`Host` without the port), besides
    loopback and the address listened on. Without credentials every other name is refused; with
    credentials names are checked only if some are listed here."""

    cors_origins: tuple[str, ...] = ()
    """Origins, as JSON, whose pages may call the service from a browser; `*` is all."""

    quota_requests_per_second: NotNegative = 0
    """Requests of one principal; 0 is no limit. An API key may have rates of its own."""

    quota_bytes_in_per_second: NotNegative = 0
    """Bytes of bodies that one principal sends; 0 is no limit."""

    quota_bytes_out_per_second: NotNegative = 0
    """Bytes of answers to one principal; 0 is no limit."""

    default_topic_config: dict[str, str] = {}
    """Overrides, as JSON, for every topic that does not set the key itself."""

    @model_validator(mode="after")
    def _ensure_batches_can_be_read(self) -> Self:
        if self.max_decoded_bytes < self.max_decompressed_batch_bytes:
            raise ValueError("max_decoded_bytes must be at least max_decompressed_batch_bytes")
        return self

    @property
    def data_directories(self) -> tuple[Path, ...]:
        """All data directories; the first is preferred where all are equal."""
        return (self.data_directory, *self.more_data_directories)

    def engine_config(self) -> EngineConfig:
        """Return what the engine works with; raises InvalidConfig for a wrong topic default."""
        return EngineConfig(
            commit_interval_ms=self.commit_interval_ms,
            retention_check_interval_ms=self.retention_check_interval_ms,
            checkpoint_interval_ms=self.checkpoint_interval_ms,
            recovery_threads=self.recovery_threads,
            max_decompressed_batch_bytes=self.max_decompressed_batch_bytes,
            max_index_check_bytes=self.max_index_check_bytes,
            max_partitions_per_topic=self.max_partitions_per_topic,
            max_producers_per_partition=self.max_producers_per_partition,
            max_segments_per_partition=self.max_segments_per_partition,
            max_sealed_segments=self.max_sealed_segments,
            max_producers=self.max_producers,
            max_open_sealed_segments=self.max_open_sealed_segments,
            min_segment_bytes=self.min_segment_bytes,
            max_topics=self.max_topics,
            default_topic_config=canonical(self.default_topic_config),
            gone_directories=self.gone_directories,
            max_waiting_moves=self.max_waiting_moves,
            scrub=ScrubConfig(
                interval_ms=self.scrub_interval_ms,
                max_bytes_per_second=self.scrub_bytes_per_second,
            ),
        )

    def decode_limits(self) -> DecodeLimits:
        """Return what decoding may cost one request."""
        return DecodeLimits(self.max_decoded_bytes, self.max_decode_cpu_ms)

    def limits(self) -> dict[str, int]:
        """Return every limit by its name, for people and programs to look up."""
        return {name: getattr(self, name) for name in _LIMITS}


_LIMITS: Final = tuple(
    name
    for name in Settings.model_fields
    if name.startswith(("max_", "min_", "default_fetch_", "quota_", "tail_"))
    or name.endswith("_timeout_ms")
)
