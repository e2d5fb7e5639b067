"""A quarter of an hour of requests generated from the document, each phase of schemathesis."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.http.contract.generated_hooks import PARTITIONS, TOPIC
from tests.support.generators import DOCUMENT
from tests.support.server import serving

DURATION_SECONDS = 15 * 60

FOLLOWED_LINKS = 20
"""At least this many are followed in that time; `test_links.py` follows each of our links."""

PHASES = ("examples", "coverage", "fuzzing", "stateful")
PROMISES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "only_declared_headers",
)


def requests_for(url: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Have schemathesis send requests to the service until its time is over."""
    return subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            "run",
            str(DOCUMENT),
            f"--url={url}",
            f"--max-time={DURATION_SECONDS}",
            f"--phases={','.join(PHASES)}",
            f"--checks={','.join(PROMISES)}",
            "--request-timeout=120",  # for a thousand partitions on a busy disk
            "--continue-on-failure",
            "--suppress-health-check=all",
            "--generation-database=none",
            "--no-color",
        ],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "SCHEMATHESIS_HOOKS": "tests.http.contract.generated_hooks",
        },
        capture_output=True,
        text=True,
        timeout=3 * DURATION_SECONDS,
        check=False,
    )


@pytest.mark.long
def test_a_quarter_of_an_hour_of_requests_gets_only_documented_answers(tmp_path: Path) -> None:
    """No 5xx and no answer outside the document, links included; afterwards a log still works."""
    more = (tmp_path / "second",)
    for directory in (tmp_path / "first", *more):
        directory.mkdir()
    with serving(
        tmp_path / "first", more_data_directories=more, max_wait_ms=50, max_tail_ms=50
    ) as served:
        topic = {"partitions": PARTITIONS}
        httpx.put(f"{served.url}/v1/topics/{TOPIC}", json=topic).raise_for_status()
        run = requests_for(served.url, tmp_path)
        assert run.returncode == 0, run.stdout + run.stderr
        for phase in PHASES:
            assert f"✅ {phase.title()}" in run.stdout, run.stdout
        passed = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
        assert passed is not None, run.stdout
        assert passed[1] == passed[2], run.stdout
        links = re.search(r"API Links: +(\d+) covered", run.stdout)
        assert links is not None, run.stdout
        assert int(links[1]) >= FOLLOWED_LINKS, run.stdout
        sys.stdout.write(run.stdout)
        records = f"{served.url}/v1/topics/after/partitions/0/records"
        httpx.put(f"{served.url}/v1/topics/after", json={}).raise_for_status()
        httpx.post(records, json={"records": [{"value": "whole"}]}).raise_for_status()
        assert httpx.get(records).json()["records"][0]["value"] == "whole"
