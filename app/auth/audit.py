"""One line for each administrative action: who, what, on what, from where, and what became of it.

The logger is `tidelog.audit`, so that a handler of its own can take the lines. Attempts that were
refused are told as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from app.auth.rules import RULES

_AUDIT = logging.getLogger("tidelog.audit")

_ADMINISTRATIVE = frozenset(name for name, rule in RULES.items() if rule.is_administrative)


def audit(scope: Mapping[str, Any], operation: str, status: int) -> None:
    """Tell of a request that was answered, if it was administrative."""
    if operation not in _ADMINISTRATIVE:
        return
    caller = scope.get(CALLER_KEY)
    _AUDIT.info(
        "%s by %s: %d",
        operation,
        "nobody known" if caller is None else caller.name,
        status,
        extra={
            "principal": None if caller is None else caller.name,
            "operation": operation,
            "path": scope["path"],
            "status": status,
            "outcome": "done" if 200 <= status < 300 else "refused" if status < 500 else "failed",
            "client": (scope.get("client") or ("",))[0],
        },
    )


CALLER_KEY = "tidelog.caller"
"""Where a request's scope has its principal, once it is known."""
