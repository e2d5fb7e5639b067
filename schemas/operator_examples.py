"""Answers that only operators ask for, as the OpenAPI document shows them; see `examples`."""

from __future__ import annotations

from typing import Any, Final

OPERATOR_EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "History": {
        "points": [
            {
                "timestamp": 1788000000000,
                "duration_ms": 5000,
                "requests": 420,
                "append_requests": 400,
                "records_in": 8000,
                "bytes_in": 912000,
                "bytes_out": 912000,
                "append_p50_ms": 0.42,
                "append_p99_ms": 2.1,
                "commit_p99_ms": 0.9,
                "readers": 3,
            }
        ],
        "minutes": [1787999980000],
        "topics": [
            {
                "topic": "flights",
                "records_in": [96000],
                "bytes_in": [10944000],
                "size_bytes": 218400000,
            }
        ],
        "refusals": [
            {
                "topic": "flights",
                "timestamp": 1787999990000,
                "reason": "signature_mismatch",
                "status": 401,
            }
        ],
        "totals": {
            "topics": 1,
            "partitions": 2,
            "size_bytes": 218400000,
            "is_complete": True,
            "unflushed_bytes": 0,
            "uncleanable_partitions": 0,
            "late_transaction_partitions": 0,
        },
    },
    "CompactionRange": {
        "log_start_offset": 0,
        "high_watermark": 900,
        "last_stable_offset": 900,
        "log_end_offset": 900,
        "first_dirty_offset": 500,
        "end_offset": 800,
        "clean_bytes": 1048576,
        "cleanable_bytes": 3145728,
        "dirty_ratio": 0.75,
        "is_due": True,
    },
    "Caller": {
        "name": "key:dashboard",
        "scopes": ["read:*", "metrics"],
        "expires_timestamp": None,
        "masked_fields": ["orders:value.card.number"],
    },
    "SettingList": {
        "settings": {
            "max_tails": {
                "value": "10000",
                "source": "default",
                "description": "Concurrent tails; beyond it 503.",
            }
        }
    },
    "ApiKeyList": {
        "keys": [
            {
                "id": "1f0a5c3b9d2e",
                "name": "dashboard",
                "scopes": ["read:*", "metrics"],
                "created_timestamp": 1788000000123,
                "expires_timestamp": None,
            }
        ]
    },
    "TopicConfigList": {
        "configs": [
            {
                "name": "segment.bytes",
                "default": "1073741824",
                "accepted": "an integer from 14 to 2147483647",
                "description": "largest segment file",
            }
        ]
    },
    "ServiceInfo": {
        "name": "tidelog",
        "version": "1.0.0",
        "backend": "local",
        "links": {
            "console": "/console/",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "topics": "/v1/topics",
            "limits": "/v1/limits",
            "readiness": "/readyz",
            "metrics": "/metrics",
        },
    },
    "SegmentList": {
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "topic": "flights",
        "partition": 0,
        "segments": [
            {
                "base_offset": 0,
                "next_offset": 3,
                "size_bytes": 239,
                "largest_timestamp": 1788000000123,
                "is_active": True,
                "files": {
                    "log": "/v1/topics/flights/partitions/0/segments/0/log",
                    "index": "/v1/topics/flights/partitions/0/segments/0/index",
                    "timeindex": "/v1/topics/flights/partitions/0/segments/0/timeindex",
                    "txnindex": None,
                },
            }
        ],
        "damage": [],
    },
    "RollReport": {
        "log_start_offset": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_end_offset": 5,
        "rolled": True,
        "old_base_offset": 0,
        "new_base_offset": 5,
    },
    "FlushReport": {
        "log_start_offset": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_end_offset": 5,
        "recovery_point": 5,
    },
    "DeleteRecordsReport": {
        "log_start_offset": 1,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_end_offset": 5,
    },
    "RetentionReport": {
        "log_start_offset": 1,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_end_offset": 5,
        "dry_run": True,
        "removed": [],
    },
    "TruncateReport": {
        "log_start_offset": 1,
        "high_watermark": 2,
        "last_stable_offset": 2,
        "log_end_offset": 2,
        "leader_epoch": 1,
        "log_id": "KtuN7ittTxq0YZTNXCrBbw.1",
    },
    "CompactionReport": {
        "log_start_offset": 0,
        "high_watermark": 0,
        "last_stable_offset": 0,
        "log_end_offset": 0,
        "end_offset": 0,
        "records_without_key": 0,
        "duration_ms": 0,
        "keys_count": 0,
        "first_dirty_offset": 0,
        "segments_after": 0,
        "bytes_before": 0,
        "records_read": 0,
        "records_kept": 0,
        "bytes_after": 0,
        "segments_before": 0,
    },
    "DataDirectoryList": {
        "directories": [
            {
                "path": "/var/lib/tidelog/disk-1",
                "status": "online",
                "detail": None,
                "partitions": 27,
                "size_bytes": 252,
                "total_bytes": 1099511627776,
                "free_bytes": 549755813888,
            },
            {
                "path": "/var/lib/tidelog/disk-2",
                "status": "online",
                "detail": None,
                "partitions": 26,
                "size_bytes": 100,
                "total_bytes": 1099511627776,
                "free_bytes": 549755813888,
            },
        ]
    },
    "ScrubReport": {
        "interval_ms": 86_400_000,
        "start_timestamp": 1_788_000_000_000,
        "end_timestamp": 1_788_000_004_000,
        "checked_bytes": 209_715_200,
        "damaged_count": 1,
        "damage": [
            {
                "topic": "flights",
                "partition": 0,
                "file": "/var/lib/tidelog/flights-0/00000000000000000000.log",
                "position": 4096,
                "offset": 17,
                "problem": "byte 4096: the checksum is wrong",
            }
        ],
    },
    "MoveList": {
        "moves": [
            {
                "topic": "flights",
                "partition": 0,
                "source": "/var/lib/tidelog/disk-1",
                "target": "/var/lib/tidelog/disk-2",
                "state": "copying",
                "first_offset": 0,
                "copied_offset": 1200,
                "end_offset": 3000,
                "problem": None,
            }
        ]
    },
    "TopicRestore": {
        "topic": "clicks-tuesday",
        "source": "clicks",
        "until": 1788000000123,
        "state": "restoring",
        "partitions": 4,
        "total_bytes": 734003200,
        "restored_bytes": 104857600,
        "problems": [],
    },
    "MoveReport": {
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 3,
        "topic": "flights",
        "partition": 0,
        "directory": "/var/lib/tidelog/disk-1",
        "state": "idle",
        "target": None,
        "first_offset": -1,
        "copied_offset": -1,
        "end_offset": -1,
        "problem": None,
    },
}
