"""Producer identities, what a log knows of its producers, and the ends of their transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model, Parameters, ResponseModel
from schemas.common import (
    DECIMAL,
    INT16_MAX,
    INT32,
    INT32_MAX,
    INT64,
    INT64_MAX,
    Count,
    Int32,
    Int64,
    Marks,
    NextPageToken,
    PageSize,
    PartitionNumber,
    ProducerEpochShown,
    ProducerIdShown,
    TopicShown,
)

ProducerId = Annotated[int, Field(ge=0, le=INT64_MAX, description="Producer id."), INT64, DECIMAL]
ProducerEpoch = Annotated[
    int, Field(ge=0, le=INT16_MAX, description="Producer epoch."), INT32, DECIMAL
]
Sequence = Annotated[
    int,
    Field(ge=0, le=INT32_MAX, description="Sequence of any record of the append."),
    INT32,
    DECIMAL,
]


class ProducerIdentity(ResponseModel):
    """A producer id that was never used before, and its first epoch."""

    producer_id: ProducerIdShown
    producer_epoch: ProducerEpochShown


class ProducerParameters(Parameters):
    """Which page of producers."""

    page_size: PageSize = 100
    """Entries per page. Default 100; more than 1,000 are never returned."""
    page_token: Annotated[str, Field(pattern=r"^[0-9]{1,19}$")] | None = None
    """`next_page_token` of the previous page. Default: none, the first page."""


class Producer(ResponseModel):
    """One producer of a log; names as in Kafka's DescribeProducers."""

    producer_id: ProducerIdShown
    producer_epoch: ProducerEpochShown
    coordinator_epoch: Int32
    """Coordinator epoch of its last transaction marker; -1 if there is none."""
    last_sequence: Int32
    """Sequence of its last record; -1 if no batch of this epoch is known."""
    last_timestamp: Int64
    """Largest timestamp of its last batch, epoch milliseconds."""
    current_txn_start_offset: Count | None
    """First offset of its open transaction; null if no transaction is open."""


class ProducerList(Marks):
    """One page of producers."""

    topic: TopicShown
    partition: PartitionNumber
    producers: list[Producer]
    """Producers in the order of their ids."""
    next_page_token: NextPageToken


class OutcomeParameters(Parameters):
    """Which epoch the append belongs to."""

    producer_epoch: ProducerEpoch | None = None
    """Epoch of the append. Default: the producer's current epoch."""


class AppendOutcome(Marks):
    """The outcome of an append."""

    producer_id: ProducerIdShown
    producer_epoch: Int32
    """Current epoch of the producer."""
    sequence: Int32
    """Sequence that was asked for."""
    outcome: Literal["committed", "written", "absent", "forgotten"]
    """`committed`: on disk; `written`: in the log and not yet on disk, or, on a Kafka cluster, at
    an offset that the broker does not say; `absent`: not in the log; `forgotten`: unknown, because
    the log no longer remembers the sequence."""
    base_offset: Count | None
    """First offset of the batch with this sequence; null if that is unknown."""
    last_offset: Count | None
    """Last offset of that batch, inclusive; null if that is unknown."""
    next_sequence: Int32
    """Sequence that the log expects next from this epoch."""


class EndTransaction(Model):
    """Which producer's open transaction ends on this partition, and how."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    action: Literal["commit", "abort"]
    """How the transaction ends."""


class TransactionEnd(Marks):
    """The marker that ended a transaction; it is on disk."""

    topic: TopicShown
    partition: PartitionNumber
    producer_id: ProducerIdShown
    producer_epoch: ProducerEpochShown
    action: Literal["commit", "abort"]
    """How the transaction ended."""
    first_offset: Count | None
    """First offset of the transaction; null in the response to a repeated request if the service no
    longer knows it, after a restart for example."""
    marker_offset: Count
    """Offset of the marker."""
