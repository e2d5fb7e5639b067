"""Which runs reach which site: the instrumented sources report here."""

from __future__ import annotations

import threading

run = ""
"""The test or the life that runs now."""

by_site: dict[int, dict[str, bool]] = {}
"""For each site the runs that reached it, and whether a second thread was alive then."""


def hit(site: int) -> None:
    runs = by_site.setdefault(site, {})
    runs[run] = runs.get(run, False) or threading.active_count() > 1
