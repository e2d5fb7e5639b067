"""The history of the last 15 minutes, as screens show it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Final

from app.codecs.receipts import to_json
from app.http.answers import Answer, json_answer
from app.operations.exchange import Exchange

MAX_TOPICS_SHOWN: Final = 100

_NOTHING: Final = (0, 0)


async def get_history(exchange: Exchange) -> Answer:
    """Return the points, the busiest topics, and the sums of now."""
    service, caller = exchange.service, exchange.caller
    minutes = list(service.history.minutes)
    known = service.topics.all()
    bytes_in: Counter[str] = Counter()
    for minute in minutes:
        for name, counts in minute.topics.items():
            topic = known.get(name)
            if topic is not None and not topic.is_internal and caller.may_see(name):
                bytes_in[name] += counts[1]
    named = [topic for topic in known.values() if not topic.is_internal]
    totals = await service.topics.totals()
    body = {
        "points": [asdict(point) for point in service.history.points],
        "minutes": [minute.timestamp for minute in minutes],
        "topics": [
            {
                "topic": name,
                "records_in": [minute.topics.get(name, _NOTHING)[0] for minute in minutes],
                "bytes_in": [minute.topics.get(name, _NOTHING)[1] for minute in minutes],
            }
            for name, _ in bytes_in.most_common(MAX_TOPICS_SHOWN)
        ],
        "totals": {
            "topics": len(named),
            "partitions": sum(topic.partitions for topic in named),
            **totals._asdict(),
        },
    }
    return json_answer(to_json(body))
