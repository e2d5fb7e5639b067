"""An answer of each kind, as the OpenAPI document shows it: what the service really said.

By the name of the model. A test checks each against its model, and that none is missing.
"""

from __future__ import annotations

from typing import Any, Final

from schemas.common import Marks
from schemas.ingest_examples import INGEST_EXAMPLES
from schemas.operator_examples import OPERATOR_EXAMPLES

_SUBSCRIPTION: Final = {
    "name": "billing",
    "topics": ["flights"],
    "group": "subscription-billing",
    "url": "https://example.org/hook",
    "start": "earliest",
    "format": "ndjson",
    "batch": {"max_records": 100, "max_bytes": 1048576, "max_wait_ms": 0},
    "header_names": [],
    "signature": {"scheme": "standard-webhooks", "secrets_count": 1},
    "timeout_ms": 30000,
    "retry": {"initial_ms": 1000, "max_ms": 300000, "attempts": None},
    "dead_letter_topic": None,
    "filter": None,
    "paused": False,
    "state": "running",
    "problem": None,
    "partitions": [
        {
            "topic": "flights",
            "partition": 0,
            "offset": 2,
            "lag": 0,
            "failures": 0,
            "next_attempt_at": None,
            "last_answer": {
                "timestamp": 1788000000123,
                "duration_ms": 12,
                "status": 200,
                "problem": None,
            },
        }
    ],
}

_READ: Final[dict[str, Any]] = {
    "outcome": "read",
    "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
    "topic": "flights",
    "partition": 0,
    "records": [
        {
            "offset": 2,
            "timestamp": 1788000000125,
            "timestamp_type": "create",
            "key": "AA",
            "key_encoding": "utf8",
            "value": {"flight": 1141, "arr_delay": 33},
            "value_encoding": "json",
            "headers": [],
            "leader_epoch": 0,
        }
    ],
    "next_offset": 3,
    "log_start_offset": 0,
    "high_watermark": 3,
    "last_stable_offset": 3,
    "log_end_offset": 3,
    "leader_epoch": 0,
}
"""The entry of a partition."""

_EXAMPLES: Final[dict[str, dict[str, Any]]] = OPERATOR_EXAMPLES | {
    **INGEST_EXAMPLES,
    "Topic": {
        "topic": "flights",
        "topic_id": "KtuN7ittTxq0YZTNXCrBbw",
        "partitions": 2,
        "adopted": False,
        "config": {
            "retention.ms": {"value": "-1", "source": "topic"},
            "segment.bytes": {"value": "1073741824", "source": "default"},
        },
    },
    "TopicList": {
        "topics": [
            {
                "topic": "flights",
                "topic_id": "KtuN7ittTxq0YZTNXCrBbw",
                "partitions": 2,
                "overrides": {"retention.ms": "-1"},
                "etag": '"9bd7a02c4e0f6b4e8c7d1a55"',
                "offline_partitions": [],
                "has_ingest_profile": False,
                "has_value_schema": False,
                "size_bytes": 218400000,
                "newest_timestamp": 1788000000123,
            }
        ],
        "next_page_token": None,
    },
    "ValueSchema": {
        "format": "avro",
        "definition": '{"type": "record", "name": "Order", "fields": []}',
        "message_type": None,
        "framing": "none",
    },
    "IngestReceipt": {"topic": "flights", "partition": 1, "offset": 41, "count": 1},
    "IngestEndpoint": {"topic": "flights"},
    "HecResult": {"text": "Success", "code": 0},
    "OtlpResponse": {},
    "OtlpStatus": {"code": 5, "message": "there is no topic 'flights'"},
    "AppendReceipt": {
        "topic": "flights",
        "partition": 0,
        "base_offset": 0,
        "last_offset": 1,
        "count": 2,
        "timestamp": 1788000000123,
        "duplicate": False,
        "acks": "all",
        "log_start_offset": 0,
        "high_watermark": 2,
        "log_end_offset": 2,
    },
    "TopicAppendReceipt": {
        "topic": "flights",
        "count": 2,
        "acks": "all",
        "partitions": [
            {
                "topic": "flights",
                "partition": 0,
                "base_offset": 2,
                "last_offset": 2,
                "count": 1,
                "timestamp": 1788000000123,
                "duplicate": False,
                "acks": "all",
                "log_start_offset": 0,
                "high_watermark": 3,
                "log_end_offset": 3,
            },
            {
                "topic": "flights",
                "partition": 1,
                "base_offset": 0,
                "last_offset": 0,
                "count": 1,
                "timestamp": 1788000000123,
                "duplicate": False,
                "acks": "all",
                "log_start_offset": 0,
                "high_watermark": 1,
                "log_end_offset": 1,
            },
        ],
        "records": [{"partition": 0, "offset": 2}, {"partition": 1, "offset": 0}],
    },
    "RecordPage": {
        "topic": "flights",
        "partition": 0,
        "records": [
            {
                "offset": 0,
                "timestamp": 1788000000123,
                "timestamp_type": "create",
                "key": "UA",
                "key_encoding": "utf8",
                "value": {"flight": 1545, "arr_delay": 11},
                "value_encoding": "json",
                "headers": [],
                "leader_epoch": 0,
            }
        ],
        "next_offset": 1,
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "leader_epoch": 0,
    },
    "FetchPage": {
        "partitions": [
            _READ,
            {
                "outcome": "failed",
                "topic": "flights",
                "partition": 9,
                "problem": {
                    "type": "urn:tidelog:problem:partition_not_found",
                    "title": "No such partition",
                    "status": 404,
                    "detail": "partition flights-9 does not exist",
                    "code": "partition_not_found",
                    "retryable": False,
                    "side_effects": "none",
                    "kafka_error_code": 3,
                    "kafka_error": "UNKNOWN_TOPIC_OR_PARTITION",
                    "instance": "/v1/topics/flights/partitions/9",
                    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
                },
            },
        ]
    },
    "TopicPage": {
        "topic": "flights",
        "partitions": [_READ],
        "next_page_token": "S3R1TjdpdHRUeHEwWVpUTlhDckJidy8wOjMsMTow",
        "is_at_end": True,
    },
    "PartitionList": {
        "topic": "flights",
        "partitions": [
            {
                "log_start_offset": 0,
                "high_watermark": 3,
                "last_stable_offset": 3,
                "log_end_offset": 3,
                "topic": "flights",
                "partition": 0,
                "leader_epoch": 0,
                "recovery_point": 0,
                "size_bytes": 239,
                "segments": 1,
                "active_producers": 0,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
            {
                "log_start_offset": 0,
                "high_watermark": 1,
                "last_stable_offset": 1,
                "log_end_offset": 1,
                "topic": "flights",
                "partition": 1,
                "leader_epoch": 0,
                "recovery_point": 0,
                "size_bytes": 100,
                "segments": 1,
                "active_producers": 0,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
        ],
        "offline_partitions": [],
    },
    "Partition": {
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "topic": "flights",
        "partition": 0,
        "leader_epoch": 0,
        "recovery_point": 0,
        "size_bytes": 239,
        "segments": 1,
        "active_producers": 0,
        "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
    },
    "Offsets": {
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "leader_epoch": 0,
        "recovery_point": 0,
        "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
    },
    "OffsetAtTime": {"offset": 0, "timestamp": None, "leader_epoch": 0},
    "TopicOffsets": {
        "topic": "flights",
        "partitions": [
            {
                "partition": 0,
                "log_start_offset": 0,
                "high_watermark": 3,
                "last_stable_offset": 3,
                "log_end_offset": 3,
                "leader_epoch": 0,
                "recovery_point": 0,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
            {
                "partition": 1,
                "log_start_offset": 0,
                "high_watermark": 1,
                "last_stable_offset": 1,
                "log_end_offset": 1,
                "leader_epoch": 0,
                "recovery_point": 0,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
        ],
    },
    "ProducerIdentity": {"producer_id": 0, "producer_epoch": 0},
    "ProducerList": {
        "log_start_offset": 0,
        "high_watermark": 4,
        "last_stable_offset": 3,
        "log_end_offset": 4,
        "topic": "flights",
        "partition": 0,
        "producers": [
            {
                "producer_id": 0,
                "producer_epoch": 0,
                "coordinator_epoch": -1,
                "last_sequence": 0,
                "last_timestamp": 1788000000123,
                "current_txn_start_offset": 3,
            }
        ],
        "next_page_token": None,
    },
    "AppendOutcome": {
        "log_start_offset": 0,
        "high_watermark": 4,
        "last_stable_offset": 3,
        "log_end_offset": 4,
        "producer_id": 0,
        "producer_epoch": 0,
        "sequence": 0,
        "outcome": "committed",
        "base_offset": 3,
        "last_offset": 3,
        "next_sequence": 1,
    },
    "TransactionEnd": {
        "log_start_offset": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_end_offset": 5,
        "topic": "flights",
        "partition": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "action": "commit",
        "first_offset": 3,
        "marker_offset": 4,
    },
    "GroupOffset": {
        "group": "lake",
        "topic": "flights",
        "partition": 0,
        "offset": 2,
        "leader_epoch": None,
        "metadata": "",
        "commit_timestamp": 1788000000123,
    },
    "GroupList": {"groups": ["lake"], "next_page_token": None},
    "GroupOffsetList": {
        "group": "lake",
        "offsets": [
            {
                "group": "lake",
                "topic": "flights",
                "partition": 0,
                "offset": 2,
                "leader_epoch": None,
                "metadata": "",
                "commit_timestamp": 1788000000123,
            }
        ],
        "next_page_token": None,
    },
    "GroupLagList": {
        "isolation": "read_uncommitted",
        "groups": [
            {
                "group": "dashboards",
                "partitions": 2,
                "topics": ["flights"],
                "total_lag": 1240,
                "max_lag_ms": 93000,
                "missed": 0,
            }
        ],
        "groups_count": 1,
    },
    "GroupLag": {
        "group": "lake",
        "isolation": "read_uncommitted",
        "partitions": [
            {
                "topic": "flights",
                "partition": 0,
                "offset": 2,
                "log_start_offset": 1,
                "end_offset": 2,
                "lag": 0,
                "lag_ms": None,
                "missed": 0,
            }
        ],
        "total_lag": 0,
        "max_lag_ms": None,
    },
    "Lease": {
        "group": "lake",
        "worker": "w-17",
        "generation": 12,
        "expires_at": 1788000030123,
        "renew_in_ms": 9000,
        "waiting": 0,
        "partitions": [{"topic": "flights", "partition": 0, "offset": 2, "fence": 12}],
        "revoking": [],
    },
    "LeaseList": {
        "group": "lake",
        "generation": 12,
        "workers": [
            {
                "worker": "w-17",
                "topics": ["flights"],
                "expires_at": 1788000030123,
                "waiting": 0,
                "partitions": [
                    {
                        "topic": "flights",
                        "partition": 0,
                        "fence": 12,
                        "expires_at": 1788000030123,
                        "revoking": False,
                    }
                ],
            }
        ],
        "next_page_token": None,
    },
    "Subscription": _SUBSCRIPTION,
    "SubscriptionList": {"subscriptions": [_SUBSCRIPTION], "next_page_token": None},
    "SubscriptionTest": {"status": 200, "problem": None, "duration_ms": 12, "response": "ok"},
    "Liveness": {"status": "live"},
    "Readiness": {"status": "ready"},
    "Limits": {
        "backend": "local",
        "durability": "fsync",
        "limits": {"max_request_bytes": 16777216, "max_wait_ms": 60000},
    },
    "SplitPlan": {
        "topic": "flights",
        "partitions": [
            {
                "partition": 0,
                "start_offset": 1,
                "end_offset": 2,
                "size_bytes": 139,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.1",
            },
            {
                "partition": 1,
                "start_offset": 0,
                "end_offset": 1,
                "size_bytes": 100,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
        ],
        "splits": [
            {
                "partition": 0,
                "start_offset": 1,
                "end_offset": 2,
                "size_bytes": 139,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.1",
            },
            {
                "partition": 1,
                "start_offset": 0,
                "end_offset": 1,
                "size_bytes": 100,
                "log_id": "KtuN7ittTxq0YZTNXCrBbw.0",
            },
        ],
    },
    "KafkaRestBrokers": {"brokers": [0]},
    "KafkaRestOffsets": {"beginning_offset": 0, "end_offset": 42},
    "KafkaRestTopic": {
        "name": "flights",
        "configs": {"retention.ms": "604800000", "cleanup.policy": "delete"},
        "partitions": [
            {
                "partition": 0,
                "leader": 0,
                "replicas": [{"broker": 0, "leader": True, "in_sync": True}],
            }
        ],
    },
    "KafkaRestPartition": {
        "partition": 0,
        "leader": 0,
        "replicas": [{"broker": 0, "leader": True, "in_sync": True}],
    },
    "KafkaRestRecord": {
        "topic": "flights",
        "key": "VUE=",
        "value": "eyJmbGlnaHQiOjE1NDV9",
        "partition": 0,
        "offset": 0,
        "timestamp": 1788000000123,
        "headers": [],
    },
    "KafkaRestProduced": {
        "offsets": [{"partition": 0, "offset": 42, "error_code": None, "error": None}],
        "key_schema_id": None,
        "value_schema_id": None,
    },
}

_OFFSETS: Final = frozenset({*Marks.model_fields, "offset", "next_offset"})


def _with_string_offsets(example: Any) -> Any:  # noqa: ANN401  # JSON
    """Return an example as `application/json;offsets=string` writes it."""
    if isinstance(example, list):
        return [_with_string_offsets(one) for one in example]
    if isinstance(example, dict):
        return {
            name: str(value) if name in _OFFSETS else _with_string_offsets(value)
            for name, value in example.items()
        }
    return example


EXAMPLES: Final = _EXAMPLES | {
    name: _with_string_offsets(_EXAMPLES[name.removesuffix("WithStringOffsets")])
    for name in (
        "RecordPageWithStringOffsets",
        "FetchPageWithStringOffsets",
        "TopicPageWithStringOffsets",
    )
}
"""What each answer looks like, by the name of its model."""
