"""Aborts abandoned transactions: those of writers that died and were never run again.

A stream or a named write that is run again cleans up after itself. For all others, each writer
looks now and then at what the ledger says was begun more than a day ago, and aborts what is still
open and was not decided. If its writer is alive after all, in a batch that takes longer than a day,
its commit raises DataLossError.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.documents import ProducersPage
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.records.encode import Producer
from pyspark_tidelog.sink.ledger import Ledger
from pyspark_tidelog.sink.transactions import abort_all, open_partitions

# The time after which Kafka forgets an idle producer, by default.
ABANDONED_AFTER_MS: Final = 86_400_000

# The ledger's cursor up to which abandoned transactions are aborted; no writer has this name.
SWEEPER: Final = "(abandoned)"


def abort_abandoned(endpoint: Endpoint, topic: str, *, after_ms: int = ABANDONED_AFTER_MS) -> None:
    """Abort transactions that began more than `after_ms` ago, are open and were not decided."""
    with ServiceClient(endpoint) as client:
        ledger = Ledger(client, topic, SWEEPER)
        begin = ledger.cursor(new_begins_at="log_start_offset").offset
        end = ledger.offset_at(time.time_ns() // 1_000_000 - after_ms)
        if end <= begin:
            return
        begun = ledger.entries(begin, end, of_all=True).begun
        wanted = {name for topics in begun.values() for name in topics}
        left = begun.keys() & _open_producers(client, sorted(wanted))
        if left:
            decisions = ledger.entries(begin, of_all=True).decisions.values()
            left -= {one.producer for decision in decisions for one in decision.attempts}
            abort_all(endpoint, [(producer, sorted(begun[producer])) for producer in left])
        ledger.move(end)


def _open_producers(client: ServiceClient, topics: Collection[str]) -> set[Producer]:
    """Return the producers with an open transaction in one of the topics."""
    return {
        Producer(one.producer_id, one.producer_epoch)
        for topic in topics
        for log in open_partitions(client, topic)
        for one in client.pages(f"{log.path}/producers", ProducersPage)
        if one.current_txn_start_offset is not None
    }
