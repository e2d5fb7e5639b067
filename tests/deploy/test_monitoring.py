"""The profile `monitoring` of docker-compose.yml: its parts know each other."""

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def loaded(path: str) -> Any:  # YAML
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_what_is_mounted_is_there_and_what_is_named_is_mounted() -> None:
    """Files of this repository, read-only; Grafana finds the dashboard, Prometheus the rules."""
    services = loaded("docker-compose.yml")["services"]
    inside = {}
    for name in ("prometheus", "alertmanager", "grafana"):
        for source, target, *mode in (one.split(":") for one in services[name]["volumes"]):
            if source.startswith("."):
                assert ((ROOT / source).is_file(), mode) == (True, ["ro"])
                inside[target] = (
                    json.loads((ROOT / source).read_text())
                    if (source.endswith(".json"))
                    else loaded(source)
                )
    (provider,) = inside["/etc/grafana/provisioning/dashboards/tidelog.yml"]["providers"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{provider['options']['path']}/")
    assert inside[home]["uid"] == "tidelog"
    assert (
        f"--config.file={next(one for one in inside if 'alertmanager' in one)}"
        in (services["alertmanager"]["command"])
    )


def test_each_part_reaches_the_next() -> None:
    """By the names and ports that compose gives them."""
    services = loaded("docker-compose.yml")["services"]
    (source,) = loaded("deploy/grafana/datasources.yml")["datasources"]
    prometheus = loaded("deploy/prometheus.yml")
    (managers,) = prometheus["alerting"]["alertmanagers"]
    (targets,) = managers["static_configs"]
    for address in (source["url"].removeprefix("http://"), *targets["targets"]):
        host, _, port = address.partition(":")
        assert services[host]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_every_alert_has_a_receiver() -> None:
    """Of each severity that a rule has; who is down is not told off for slowness, too."""
    manager = loaded("deploy/alertmanager.yml")
    names = {one["name"] for one in manager["receivers"]}
    routes = [manager["route"], *manager["route"]["routes"]]
    assert {one["receiver"] for one in routes} <= names
    (rules,) = loaded("deploy/alerts.yml")["groups"]
    known = {one["alert"] for one in rules["rules"]}
    for rule in manager["inhibit_rules"]:
        (source,) = rule["source_matchers"]
        assert source.removeprefix("alertname=").strip('"') in known
