"""A tail that is left open: an hour of records, and the page holds no more than after minutes."""

import time

import httpx
import pytest

from tests.support.browser import Console

pytestmark = [pytest.mark.long, pytest.mark.needs("chromium", "console"), pytest.mark.timeout(4500)]

HOUR_S = 3600
WARM_S = 300
"""By then the tail holds as many messages as it ever does."""
RECORDS_A_SECOND = 100


def test_an_hour_of_tail_is_flat(console: Console, client: httpx.Client) -> None:
    """The heap, after a collection, and the nodes of the page; 360,000 records went by."""
    client.put("/v1/topics/events", json={}).raise_for_status()
    console.open("topics/events/messages?from=live")
    devtools = console.page.context.new_cdp_session(console.page)
    devtools.send("Performance.enable")
    begin = time.monotonic()
    heaps: list[float] = []
    nodes: list[float] = []
    measured_s = 0.0
    sent = 0
    while (passed_s := time.monotonic() - begin) < HOUR_S:
        values = [{"value": {"n": sent + n, "text": "x" * 200}} for n in range(RECORDS_A_SECOND)]
        client.post("/v1/topics/events/records", json={"records": values}).raise_for_status()
        sent += RECORDS_A_SECOND
        console.page.wait_for_timeout(1000)
        if passed_s - measured_s < 60:
            continue
        measured_s = passed_s
        devtools.send("HeapProfiler.collectGarbage")
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        found = {one["name"]: one["value"] for one in metrics}
        if passed_s > WARM_S:
            heaps.append(found["JSHeapUsedSize"])
            nodes.append(found["Nodes"])
    console.text("the newest 5,000 are kept").wait_for()
    quarter = len(heaps) // 4
    assert max(heaps[-quarter:]) <= 1.1 * max(heaps[:quarter])
    assert max(nodes[-quarter:]) <= 1.5 * max(nodes[:quarter])
