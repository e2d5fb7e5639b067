"""The audit log: who did what, from where, with which outcome.

It has one line for each administrative request, each change of group offsets, and each request that
was refused for its credentials, scopes or origin. The logger is `tidelog.audit`, so that a handler
can select its lines.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.security.rules import RULES

_AUDIT = logging.getLogger("tidelog.audit")

_GROUP_CHANGES: Final = frozenset({"putGroupOffset", "deleteGroupOffset"})

AUDITED: Final = _GROUP_CHANGES.union(
    name for name, rule in RULES.items() if rule.is_administrative
)

REFUSED: Final = frozenset({401, 403, 421})
"""Statuses of failed logins, missing scopes, pages of other sites and foreign hosts."""


def audit(scope: Mapping[str, Any], operation: str, status: int) -> None:
    """Log an answered request: an operation of `AUDITED`, or a status of `REFUSED`."""
    caller = scope.get(CALLER_KEY)
    _AUDIT.info(
        "%s by %s: %d",
        operation,
        "unknown" if caller is None else caller.name,
        status,
        extra={
            "principal": None if caller is None else caller.name,
            "operation": operation,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "outcome": "done" if 200 <= status < 300 else "refused" if status < 500 else "failed",
            "client": (scope.get("client") or ("",))[0],
        },
    )


CALLER_KEY = "tidelog.caller"
"""The scope key of a request's principal, once it is known."""
