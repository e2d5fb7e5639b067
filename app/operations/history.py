"""The history of the last 15 minutes, as screens show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import Final

from app.codecs.receipts import to_json
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange
from app.telemetry.history import Minute

MAX_TOPICS_SHOWN: Final = 100
MAX_REFUSALS_SHOWN: Final = 20

_NOTHING: Final = (0, 0)


async def get_history(exchange: Exchange) -> Answer:
    """Return the points, the busiest and the largest topics, and the sums of now."""
    service, caller = exchange.service, exchange.caller
    minutes = list(service.history.minutes)
    named = {name: one for name, one in service.topics.all().items() if not one.is_internal}
    totals = await service.topics.totals()
    seen = {name for name in named if caller.may_see(name)}
    sizes = totals.sizes or {}
    shown = _busiest(minutes, seen)
    largest = nlargest(MAX_TOPICS_SHOWN, seen - {*shown}, key=lambda name: sizes.get(name, 0))
    shown += largest[: MAX_TOPICS_SHOWN - len(shown)]
    body = {
        "points": [asdict(point) for point in service.history.points],
        "minutes": [minute.timestamp for minute in minutes],
        "topics": [
            {
                "topic": name,
                "records_in": [minute.topics.get(name, _NOTHING)[0] for minute in minutes],
                "bytes_in": [minute.topics.get(name, _NOTHING)[1] for minute in minutes],
                "size_bytes": None if totals.sizes is None else sizes.get(name, 0),
            }
            for name in shown
        ],
        "refusals": [
            {
                "topic": topic,
                "timestamp": refusal.timestamp,
                "reason": refusal.reason,
                "status": refusal.status,
            }
            for topic, refusal in service.refusals.latest(MAX_REFUSALS_SHOWN, caller.may_see)
        ],
        "totals": {
            "topics": len(named),
            "partitions": sum(topic.partitions for topic in named.values()),
            "size_bytes": None if totals.sizes is None else sum(sizes.values()),
            "is_complete": totals.is_complete,
            "unflushed_bytes": totals.unflushed_bytes,
            "uncleanable_partitions": service.telemetry.uncleanable_count,
            "late_transaction_partitions": totals.late_transaction_partitions,
        },
    }
    return json_answer(to_json(body))


def _busiest(minutes: Sequence[Minute], seen: set[str]) -> list[str]:
    bytes_in: Counter[str] = Counter()
    for minute in minutes:
        for name, counts in minute.topics.items():
            if name in seen:
                bytes_in[name] += counts[1]
    return [name for name, _ in bytes_in.most_common(MAX_TOPICS_SHOWN)]
