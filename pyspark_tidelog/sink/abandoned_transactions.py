"""What nobody came back for: transactions of writers that died and were never run again.

A stream or a named write that is run again cleans up after itself. For the others each writer, now
and then, looks at what the ledger says was begun a day ago, and aborts what of it is still open and
was not decided. A writer that is alive after all, in a batch that takes longer than a day, is told
by its commit: nothing is lost in silence.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from pyspark_tidelog.client import ServiceClient
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.records.encode import Producer
from pyspark_tidelog.sink.ledger import Ledger
from pyspark_tidelog.sink.transactions import abort_all

# As long as a producer that is idle is remembered, by Kafka's default.
ABANDONED_AFTER_MS: Final = 86_400_000

# Of the cursor up to which the ledger was looked through; no writer has this name.
SWEEPER: Final = "(abandoned)"


def sweep(endpoint: Endpoint, topic: str, *, after_ms: int = ABANDONED_AFTER_MS) -> None:
    """Abort what was begun longer ago than `after_ms`, is open, and was decided by nobody."""
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
    """Return the producers that have a transaction open in one of the topics."""
    found: set[Producer] = set()
    for topic in topics:
        path = f"/v1/topics/{quote(topic)}"
        answer = client.get(f"{path}/offsets", expected=frozenset({404}))
        if answer.status != 200:
            continue
        for marks in answer.json()["partitions"]:
            if marks["last_stable_offset"] < marks["log_end_offset"]:
                found |= _open_in(client, f"{path}/partitions/{marks['partition']}/producers")
    return found


def _open_in(client: ServiceClient, path: str) -> set[Producer]:
    found: set[Producer] = set()
    token: str | None = ""
    while token is not None:
        page = client.get(path + (f"?page_token={quote(token, safe='')}" if token else "")).json()
        found |= {
            Producer(one["producer_id"], one["producer_epoch"])
            for one in page["producers"]
            if one["current_txn_start_offset"] is not None
        }
        token = page["next_page_token"]
    return found
