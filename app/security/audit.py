"""One line for each request that security is about: who, what, on what, from where, the outcome.

These are administrative requests, changes of group offsets, and every request that was refused for
its credentials, its scopes or the page it came from. The logger is `tidelog.audit`, so that a
handler of its own can take the lines.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.security.rules import RULES

_AUDIT = logging.getLogger("tidelog.audit")

_GROUP_CHANGES: Final = frozenset({"putGroupOffset", "deleteGroupOffset"})

_AUDITED: Final = _GROUP_CHANGES.union(
    name for name, rule in RULES.items() if rule.is_administrative
)

_REFUSED: Final = frozenset({401, 403, 421})
"""Statuses of failed logins, missing scopes, pages of other sites and foreign hosts."""


def audit(scope: Mapping[str, Any], operation: str, status: int) -> None:
    """Log a request that was answered, if security is about it."""
    if operation not in _AUDITED and status not in _REFUSED:
        return
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
"""Where a request's scope has its principal, once it is known."""
