"""Producer identities, what a log knows of its producers, and the ends of their transactions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Model, Parameters
from schemas.common import DECIMAL, INT32_MAX, INT64_MAX, Count, Int64, Marks, PartitionNumber

INT16_MAX = 2**15 - 1

ProducerId = Annotated[
    int, Field(ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"}), DECIMAL
]
ProducerEpoch = Annotated[int, Field(ge=0, le=INT16_MAX), DECIMAL]
Sequence = Annotated[int, Field(ge=0, le=INT32_MAX), DECIMAL]


class ProducerIdentity(Model):
    """A producer id that nobody has used, and its first epoch."""

    producer_id: Count
    producer_epoch: int


class ProducerParameters(Parameters):
    """Which page of producers."""

    page_size: Annotated[int, Field(ge=1), DECIMAL] = 100
    page_token: Annotated[str, Field(pattern=r"^[0-9]{1,19}$")] | None = None
    """`next_page_token` of the page before."""


class Producer(Model):
    """One producer as the log knows it; names as in Kafka's DescribeProducers."""

    producer_id: Count
    producer_epoch: int
    coordinator_epoch: int
    """-1 if no transaction of it has ended here."""
    last_sequence: int
    """-1 if no batch of this epoch is known."""
    last_timestamp: Int64
    current_txn_start_offset: Count | None
    """Null if it has no transaction open."""


class ProducerList(Model):
    """One page of producers in the order of their ids."""

    topic: str
    partition: PartitionNumber
    producers: list[Producer]
    next_page_token: str | None
    """Give it as `page_token` to go on; null at the end."""


class OutcomeParameters(Parameters):
    """Of which epoch the append was."""

    producer_epoch: ProducerEpoch | None = None
    """The producer's present epoch if absent."""


class AppendOutcome(Marks):
    """What became of an append. Only `absent` and `forgotten` have no offsets."""

    producer_id: Count
    producer_epoch: int
    """The present one."""
    sequence: int
    outcome: Literal["committed", "written", "absent", "forgotten"]
    """On disk; in the log and not yet on disk; not in the log; too long ago to tell."""
    base_offset: Count | None
    """Of the batch that has the sequence in it."""
    last_offset: Count | None
    next_sequence: int
    """What the log takes next from this epoch."""


class EndTransaction(Model):
    """Whose open transaction ends on this partition, and how."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    action: Literal["commit", "abort"]


class TransactionEnd(Marks):
    """The marker that ended a transaction; it is on disk."""

    topic: str
    partition: PartitionNumber
    producer_id: Count
    producer_epoch: int
    action: Literal["commit", "abort"]
    first_offset: Count
    """Where the transaction began."""
    marker_offset: Count
