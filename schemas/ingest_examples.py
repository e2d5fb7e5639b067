"""Answers about ingest, as the OpenAPI document shows them: what the service really said."""

from __future__ import annotations

from typing import Any, Final

INGEST_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "IngestProfile": {
        "split": "none",
        "key": {"pointer": "/repository/full_name"},
        "headers": [],
        "window_ms": 345600000,
        "window_deliveries": 100000,
        "signature": {"scheme": "github", "tolerance_ms": 300000, "secrets_count": 2},
    },
    "CreatedIngestToken": {
        "id": "5f0c7a91d2e4",
        "token": "tli_5f0c7a91d2e4_wWgD6OqZ0H6m1vJkq3bTt1yN2sXcZ8fLr5uKp9eYaHo",
        "url": "/v1/topics/flights/ingest/"
        "tli_5f0c7a91d2e4_wWgD6OqZ0H6m1vJkq3bTt1yN2sXcZ8fLr5uKp9eYaHo",
    },
    "IngestRefusalList": {
        "topic": "flights",
        "refusals": [
            {
                "timestamp": 1788000000123,
                "reason": "signature_mismatch",
                "status": 401,
                "code": "invalid_signature",
                "detail": "x-hub-signature-256 does not match the body",
            }
        ],
    },
    "IngestTokenList": {
        "tokens": [{"id": "5f0c7a91d2e4", "created_timestamp": 1788000000123}],
    },
}
