"""Failures of the command line: one sentence each, and what to do about it.

Failure
├── BadInput       a line of the input is invalid
├── Unreachable    nothing answers, or the answer broke off
├── Refused        the service answered with a problem document (RFC 9457)
└── Interrupted    the command was stopped while it waited
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

_RETRYABLE_STATUSES: Final = frozenset({429, 502, 503, 504})

# What a person can do, by the `code` of a problem document. `{name}` is a field of that document.
_ADVICE: Final = {
    "topic_not_found": "`tidelog topics` lists the topics, `tidelog create TOPIC` creates one.",
    "partition_not_found": "`tidelog topics` shows how many partitions each topic has.",
    "topic_conflict": "Take another name, or the same partitions and configuration.",
    "invalid_config": "The keys are Kafka's topic configurations, such as retention.ms=-1.",
    "invalid_record": "Nothing of that request was written: correct the record and append again.",
    "invalid_timestamp": "The topic's message.timestamp.before.max.ms limits the age of records.",
    "offset_below_log_start": "Retention removed it: the oldest offset is {log_start_offset}.",
    "offset_beyond_log_end": "The next offset to be written is {log_end_offset}.",
    "producer_fenced": "Another producer took over under the same id: start this command again.",
    "sequence_gap": "Records of this producer are missing in the log: start this command again.",
    "too_large": "The service accepts at most {limit_bytes} bytes ({limit}).",
    "overloaded": "The service is busy: try again in a moment.",
    "draining": "The service is stopping: try again when it is back.",
    "recovering": "The service is still opening its logs: /readyz shows the progress.",
    "storage_full": "Free space on the service's disk, then try again.",
    "storage_offline": "The service's disk failed: see its log, then restart it.",
    "unauthenticated": "Set TIDELOG_API_KEY; `tidelog keys create` creates a key.",
    "forbidden": "Use a key with that scope: `tidelog keys list` shows the scopes of all keys.",
    "ingest_profile_not_found": "`tidelog ingest-profile set` creates one.",
    "topic_restore_not_found": "tidelog restore --topic TOPIC --as NAME begins one.",
    "value_schema_not_found": "PUT /v1/topics/{topic}/value-schema sets one.",
    "ingest_token_not_found": "`tidelog ingest-token list` lists what there is.",
    "quota_exceeded": "Wait a moment, or ask for a larger quota ({limit} is {limit_value}).",
}


class Failure(Exception):
    """A command cannot continue; `str()` is the sentence, `advice` what helps (may be empty)."""

    code: str = "failed"
    advice: str = ""

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code

    def for_programs(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"error": str(self), "code": self.code, "advice": self.advice}


class BadInput(Failure):
    """Line `line` of the input, counted from 1, is invalid."""

    code = "bad_input"

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


_START = "Start one with `tidelog serve --data-dir data`, or name another with --server URL."
_TRUST = "If the certificate is not trusted, give its CA with --ca-file (or TIDELOG_CA_FILE)."


class Unreachable(Failure):
    """No answer from `url`; the request may have arrived."""

    code = "unreachable"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no response from {url}: {reason}")
        self.advice = _TRUST if "CERTIFICATE_VERIFY_FAILED" in reason else _START


class Interrupted(Failure):
    """The command was stopped while it waited for the service."""

    code = "interrupted"

    def __init__(self) -> None:
        super().__init__("stopped before the service responded")


class Refused(Failure):
    """The service answered with an error.

    `code` is the problem's code, or `http_<status>` if something in between answered. `problem` is
    the document; it is empty then.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", f"http_{status}"))
        super().__init__(_sentence(status, self.code, problem))
        self.advice = _ADVICE.get(self.code, "").format_map(_Fields(problem))

    def for_programs(self) -> dict[str, Any]:
        return {**super().for_programs(), "status": self.status, "problem": self.problem}

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        retryable = bool(self.problem.get("retryable", self.status in _RETRYABLE_STATUSES))
        return retryable and self.status in _RETRYABLE_STATUSES


class _Fields(dict[str, Any]):
    """The fields of a problem for `str.format_map`; a missing one reads as `?`."""

    def __missing__(self, key: str) -> str:
        return "?"


def refused(status: int, body: bytes) -> Refused:
    """Return the error of an answer, also of a proxy."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = {}
    return Refused(status, problem)


def _sentence(status: int, code: str, problem: dict[str, Any]) -> str:
    said = problem.get("detail") or problem.get("title") or "the service gave no reason"
    sentence = f"{said} ({status} {code})"
    errors = problem.get("errors") or []
    if errors:
        first = errors[0]
        line, field = first.get("line"), first.get("field")
        where = f"record {first.get('index', '?')}" if line is None else f"line {line}"
        where += f", {field}" if field else ""
        sentence += f"; first of {len(errors)}: {where}: {first.get('detail', first.get('code'))}"
    return sentence
