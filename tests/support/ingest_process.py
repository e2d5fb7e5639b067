"""The ingestion job in a process of its own, which can be stopped and killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark_tidelog.ingest.job import IngestJob

FOLLOW = """
import dataclasses, json, sys
from pyspark_tidelog.ingest import run
from pyspark_tidelog.ingest.job import IngestJob, IngestProgress, IngestReport

def tell(event):
    if isinstance(event, (IngestProgress, IngestReport)):
        print(json.dumps(dataclasses.asdict(event)), flush=True)

tell(run(IngestJob(**json.loads(sys.argv[1])), tell))
"""


@contextmanager
def process(program: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a process group of its own, which is gone at the end whatever happened."""
    running = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def next_event(running: subprocess.Popen[str]) -> dict[str, Any]:
    assert running.stdout is not None
    event: dict[str, Any] = json.loads(running.stdout.readline())
    return event


def as_argument(job: IngestJob) -> str:
    fields = {name: getattr(job, name) for name in job.__dataclass_fields__}
    return json.dumps(fields)
