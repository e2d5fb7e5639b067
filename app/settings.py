"""Environment to settings: every limit of the service has its name, default and trade-off here.

`TIDELOG_MAX_REQUEST_BYTES=1048576 tidelog serve …` sets one of them. `GET /v1/limits` prints them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.config import EngineConfig
from engine.topic_keys import canonical

MIB: Final = 1024 * 1024

_ENGINE: Final = EngineConfig()

Positive = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """What an operator may decide."""

    model_config = SettingsConfigDict(
        env_prefix="TIDELOG_", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    data_directory: Path = Path("data")
    """Holds every log; one process owns it."""

    more_data_directories: tuple[Path, ...] = ()
    """Further disks, as JSON: partitions are spread over all; one that fails goes alone."""

    log_level: str = "info"
    """debug, info, warning or error."""

    access_log: bool = False
    """One line a request; costs about a tenth of the small-append rate."""

    max_header_bytes: Positive = 64 * 1024
    """Line and headers of a request, give or take one read of the socket; beyond it 400."""

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
    """A JSON answer ends with the record that passes this."""

    default_fetch_records: Positive = 100_000
    """`max_records` of a JSON read that names none, and the most it may ask for."""

    max_wait_ms: Positive = 60_000
    """Longest long poll; a longer wait is lowered to this."""

    max_page_size: Positive = 1_000
    """Topics of one page."""

    max_in_flight_requests: Positive = 4_096
    """Requests at work at once, long polls aside; beyond it 503."""

    max_in_flight_bytes: Positive = 64 * MIB
    """Request bodies in memory at once; beyond it 503."""

    max_in_flight_answer_bytes: Positive = 128 * MIB
    """Answers in memory at once, slow readers above all; beyond it 503."""

    max_waiting_readers: Positive = 10_000
    """Long polls that wait at once; beyond it 503."""

    body_timeout_ms: Positive = 30_000
    """A body that has not arrived by then is refused."""

    commit_timeout_ms: Positive = 30_000
    """`acks=all` waits so long for the disk; then the outcome is unknown (504)."""

    inline_append_bytes: Annotated[int, Field(ge=0)] = 128 * 1024
    """Larger appends, and compressed ones, are taken apart on a worker thread."""

    inline_read_bytes: Annotated[int, Field(ge=0)] = 32 * 1024
    """JSON reads of more stored bytes are rendered on a worker thread."""

    write_threads: Positive = 2
    """Threads for large appends."""

    read_threads: Positive = 4
    """Threads for reads that miss the page cache, and for large JSON answers."""

    admin_threads: Positive = 2
    """Threads for administrative work: creating, deleting, flushing, listing."""

    commit_interval_ms: Positive = _ENGINE.commit_interval_ms
    """Latest flush after the oldest unflushed byte, whatever the acks."""

    retention_check_interval_ms: Positive = _ENGINE.retention_check_interval_ms
    """How often retention looks for segments to remove."""

    checkpoint_interval_ms: Positive = _ENGINE.checkpoint_interval_ms
    """How often recovery points are written; longer means more to scan after a crash."""

    recovery_threads: Positive = _ENGINE.recovery_threads
    """Logs opened at once."""

    max_decompressed_batch_bytes: Positive = _ENGINE.max_decompressed_batch_bytes
    """Ceiling for one decompressed batch."""

    max_partitions_per_topic: Positive = _ENGINE.max_partitions_per_topic
    """Each partition costs file descriptors and memory."""

    max_topics: Positive = _ENGINE.max_topics
    """Topics of one data directory."""

    default_topic_config: dict[str, str] = {}
    """Overrides, as JSON, for every topic that does not set the key itself."""

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
            max_partitions_per_topic=self.max_partitions_per_topic,
            max_topics=self.max_topics,
            default_topic_config=canonical(self.default_topic_config),
        )

    def limits(self) -> dict[str, int]:
        """Return every limit by its name, for people and programs to look up."""
        return {name: getattr(self, name) for name in _LIMITS}


_LIMITS: Final = tuple(
    name
    for name in Settings.model_fields
    if name.startswith(("max_", "default_fetch_")) or name.endswith("_timeout_ms")
)
