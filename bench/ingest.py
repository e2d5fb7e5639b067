"""Ingest: what a body costs as it is, beside the same records in the envelope of an append.

Processor time of the service is compared, not rates: on a busy machine both change, and their ratio
stays.
"""

from __future__ import annotations

import hmac
import random
from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

from app.client.connection import topic_path
from bench.figures import Figure
from bench.load import post
from bench.target import Bench, Loaded

_JSON: Final = "application/json"
_NDJSON: Final = "application/x-ndjson"
_VALUE_BYTES: Final = 300
_LINES: Final = 10_000
_SIGNED_BODIES: Final = 5_000
_ROUNDS: Final = 5  # in turn, so that a busy moment hits both
_MAX_BATCH_BYTES: Final = 8 << 20  # so that 10,000 lines in the envelope are one batch
_MAX_RATIO: Final = 1.15
_MAX_SIGNED_RATIO: Final = 1.5


def ingest(bench: Bench) -> list[Figure]:
    """One body of 300 bytes a request at 64 connections, and 10,000 lines a request at 4."""
    bench.create_topic("ingested", partitions=1, max_message_bytes=str(_MAX_BATCH_BYTES))
    bench.create_topic("signed", partitions=1)
    records, taken = topic_path("ingested", 0, "records"), f"{topic_path('ingested')}/ingest"
    value = json_of(random.Random(4), _VALUE_BYTES)
    lines = [json_of(random.Random(seed), _VALUE_BYTES // 2) for seed in range(_LINES)]
    one = post(records, _JSON, b'{"records":[{"value":%b}]}' % value)
    enveloped = post(records, _NDJSON, _enveloped(lines))
    return [
        _beside(
            "a body of 300 bytes ingested, 64 connections",
            _in_turn(bench, [one], [post(taken, _JSON, value)], 64),
            _MAX_RATIO,
        ),
        _beside(
            "bodies of 300 bytes signed with HMAC-SHA256, 64 connections",
            _in_turn(bench, [one], _signed(bench), 64),
            _MAX_SIGNED_RATIO,
        ),
        _beside(
            "10,000 lines of NDJSON ingested, 4 connections",
            _in_turn(bench, [enveloped], [post(taken, _NDJSON, b"\n".join(lines))], 4),
            1.0,
        ),
    ]


def _in_turn(
    bench: Bench, append: list[bytes], ingested: list[bytes], connections: int
) -> list[tuple[Loaded, Loaded]]:
    return [
        (bench.load(append, connections), bench.load(ingested, connections)) for _ in range(_ROUNDS)
    ]


def _signed(bench: Bench) -> list[bytes]:
    """Return requests with different bodies, and signatures that a topic verifies.

    They are more than the heads that the service remembers: those of real senders are all new.
    """
    secret = random.Random(5).randbytes(32).hex()
    profile = {"signature": {"scheme": "hmac", "header": "X-Signature", "secrets": [secret]}}
    path = topic_path("signed")
    bench.ask("PUT", f"{path}/ingest-profile", _JSON, msgspec.json.encode(profile))
    signed = []
    for seed in range(_SIGNED_BODIES):
        value = json_of(random.Random(seed), _VALUE_BYTES)
        mac = hmac.new(secret.encode(), value, "sha256").hexdigest()
        signed.append(post(f"{path}/ingest", _JSON, value, {"X-Signature": mac}))
    return signed


def json_of(chance: random.Random, size_bytes: int) -> bytes:
    """Return a JSON object of so many bytes, that no two lines share."""
    shell = b'{"flight":%d,"text":"%b"}'
    flight = chance.randrange(1_000, 10_000)
    room = size_bytes - len(shell % (flight, b""))
    return shell % (flight, chance.randbytes(room).hex()[:room].encode())


def _enveloped(lines: Sequence[bytes]) -> bytes:
    return b"\n".join([b'{"value":%b}' % line for line in lines])


def _beside(name: str, rounds: Sequence[tuple[Loaded, Loaded]], ceiling: float) -> Figure:
    """Return the ratio of the costs; each round has one."""
    costs = [(_cost_us(append), _cost_us(ingested)) for append, ingested in rounds]
    ratios = sorted(ingested / append for append, ingested in costs)
    append, ingested = (median(each) for each in zip(*costs, strict=True))
    return Figure(
        name,
        100 * median(ratios),
        "% of the cost of an append",
        target=100 * ceiling,
        is_ceiling=True,
        note=f"{ingested:,.0f} µs of processor a request, appendRecords {append:,.0f} µs; "
        f"{len(rounds)} rounds, ratios {ratios[0]:.2f} to {ratios[-1]:.2f}",
    )


def _cost_us(loaded: Loaded) -> float:
    return loaded.processor_s / loaded.result.sent * 1e6
