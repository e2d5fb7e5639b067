"""The page, the alert rules and the dashboard name metrics that a running service has."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.service import RECORDS, running

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:tidelog|process)_[a-z_]+[a-z]\b")
SAMPLE_ENDINGS = ("_bucket", "_sum", "_count")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shown(tmp_path: Path) -> set[str]:
    """The names at /metrics after an append, a read, an error and a roll, with an archive."""
    async with running(tmp_path / "data", archive=f"file://{tmp_path}/bucket") as api:
        await api.create()
        await api.append("one")
        await api.client.get(RECORDS)
        await api.client.get("/v1/topics/none")
        text = (await api.client.get("/metrics")).text
    lines = text.splitlines()
    declared = {line.split(" ")[2] for line in lines if line.startswith("# TYPE ")}
    return declared | {re.split("[ {]", line)[0] for line in lines if line[0] != "#"}


def unknown(text: str, shown: set[str]) -> set[str]:
    """The metrics that a text names and the service does not have."""
    known = shown | {name.removesuffix(end) for name in shown for end in SAMPLE_ENDINGS}
    return set(NAME.findall(text)) - known


async def test_every_metric_of_the_page_exists(shown: set[str]) -> None:
    """What docs/metrics.md maps to Kafka's names is at /metrics."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    named = set(NAME.findall(text))
    assert len(named) > 30
    # `…_rest` in the page goes on from the prefix before it.
    for rest in re.findall(r"`…_([a-z_]+)`", text):
        assert any(name.endswith(f"_{rest}") for name in shown), rest
    assert unknown(text, shown) == set()


async def test_every_metric_of_an_alert_exists(shown: set[str]) -> None:
    """An alert on a metric that does not exist would never fire."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 9
    for rule in rules:
        assert unknown(rule["expr"], shown) == set(), rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]


async def test_every_alert_has_its_row_and_every_row_its_alert() -> None:
    """Whoever is woken finds what to do under the name of what woke them."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (`Tidelog[^|]*) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(Tidelog\w+)`", row)]
    assert sorted(named) == sorted(rule["alert"] for rule in rules)


async def test_every_metric_of_the_dashboard_exists(shown: set[str]) -> None:
    """No panel stays empty because of a name."""
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 15
    for expression in expressions:
        assert NAME.search(expression)
        assert unknown(expression, shown) == set(), expression


async def test_metrics_that_nobody_explains_are_noticed(shown: set[str]) -> None:
    """The page lists every metric of the service, so that operators need not read the code."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    named = set(NAME.findall(text))
    rests = set(re.findall(r"`…_([a-z_]+)`", text))
    for name in shown:
        plain = re.sub("_(bucket|sum|count|created)$", "", name)
        explained = {name, plain} & named or name.endswith(tuple(f"_{rest}" for rest in rests))
        assert explained, f"{name} is not in docs/metrics.md"
