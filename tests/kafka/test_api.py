"""The tests of the HTTP API hold on a cluster of three brokers, but for those with a reason."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.cluster import RUNNING, cluster_of

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
SUBJECTS = (
    *("append", "append_topic", "stream_append", "read", "read_topic", "fetch_many", "caching"),
    *("tail", "tail_topic", "tail_ends", "offsets", "offset_names", "splits", "topics"),
    *("groups", "group_lag", "producers", "idempotency_key", "kafka_rest_v2", "preconditions"),
    "filter",
)
EXPECTED = frozenset({"engine", "etag", "501"})
"""Outcomes that need no reason of their own: see `on_cluster.py`."""


def listed() -> set[str]:
    """Return the tests that do not apply, as `module::test`."""
    reasons = tomllib.loads((HERE / "on_cluster.toml").read_text())
    return {f"{module}::{test}" for module, tests in reasons.items() for test in tests}


def name_of(test: str) -> str:
    """Return `module::test` of `tests/http/module.py::test[parameters]`."""
    found = re.fullmatch(r"(?:.*/)?(\w+)\.py::(\w+)(?:\[.*)?", test, re.DOTALL)
    assert found is not None, test
    return f"{found[1]}::{found[2]}"


def test_each_reason_names_a_test() -> None:
    """A test that is renamed or removed takes its reason along."""
    for test in listed():
        module, _, name = test.partition("::")
        source = (CHECKOUT / "tests" / "http" / f"{module}.py").read_text()
        assert f"async def {name}(" in source, test


@pytest.mark.long
@pytest.mark.needs("java", "mvn")
@pytest.mark.timeout(7_200)
def test_the_api_does_the_same_on_a_cluster(tmp_path: Path) -> None:
    """No other test fails than those that the list names, or that ask for what is not there."""
    outcomes = tmp_path / "outcomes.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "tests.kafka.on_cluster", "-q"]
    command += ["--outcomes", str(outcomes), "--timeout", "120", "-p", "no:cacheprovider"]
    command += [f"tests/http/test_{subject}.py" for subject in SUBJECTS]
    with cluster_of(tmp_path) as cluster:
        environment = {**os.environ, RUNNING: cluster.bootstrap}
        subprocess.run(command, cwd=CHECKOUT, env=environment, check=False, capture_output=True)
    told = [json.loads(line) for line in outcomes.read_text().splitlines()]
    passed = [one for one in told if one["outcome"] == "passed"]
    unexpected = [one for one in told if one["outcome"] not in {"passed", *EXPECTED}]
    new = {one["test"]: one["error"] for one in unexpected if name_of(one["test"]) not in listed()}
    assert not new, json.dumps(new, indent=1)
    assert len(passed) > len(told) / 2
