"""`make flame MEASURE=single`: where the service's time goes while one thing is measured.

Besides the measures of `make bench` there are shapes of appends: one record a request to one log
(`append-1-connection`, `append-64-connections`), the same from 64 connections to several logs
(`append-64-logs`, `append-1000-logs`), and a thousand records a request (`append-1000-records`).

py-spy looks at the service from outside, two hundred times a second, so the figures of such a run
are worth little. It is no part of the lock: `make flame` installs it into a place of its own.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from app.client.connection import Connection
from bench.load import post
from bench.measures import MEASURES
from bench.target import Bench
from demo.children import Server, serve_arguments

_FOLDER: Final = Path("build/flame")
_PY_SPY: Final = _FOLDER / "site/bin/py-spy"
_SAMPLES_PER_S: Final = 200
_APPENDS: Final = {
    "append-1-connection": (1, 1, 1),
    "append-64-connections": (1, 64, 1),
    "append-64-logs": (64, 64, 1),
    "append-1000-logs": (1_000, 64, 1),
    "append-1000-records": (1, 8, 1_000),
}
"""The number of logs, of connections, and of records in a request."""
_RECORD: Final = b'{"value":{"n":1,"text":"%b"}}' % (b"x" * 90)


def main() -> None:
    """Measure, and leave one graph a measure, as SVG, in `build/flame`."""
    parser = argparse.ArgumentParser(prog="make flame", description=__doc__)
    parser.add_argument("measure", choices=[*MEASURES, *_APPENDS])
    parser.add_argument("--seconds", type=float, default=6.0, help="for each load")
    arguments = parser.parse_args()
    target = _FOLDER / f"{arguments.measure}.svg"
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name,
        Server(serve_arguments(Path(name, "log")), Path(name, "service.txt")) as service,
        Connection(service.url) as connection,
    ):
        bench = Bench(service, connection, Path(name), arguments.seconds)
        if arguments.measure in _APPENDS:
            measure = _appends(bench, *_APPENDS[arguments.measure])
        else:
            measure = partial(MEASURES[arguments.measure], bench)
        with _sampling(service.pid, target):
            measure()
    print(f"{target}: open it in a browser; a click goes into a frame")


def _appends(bench: Bench, logs: int, connections: int, records: int) -> Callable[[], object]:
    """Return what appends to logs that exist already, one after the other."""
    body = b'{"records":[%b]}' % b",".join([_RECORD] * records)
    bench.create_topic("flame", logs)
    paths = [f"/v1/topics/flame/partitions/{number}/records" for number in range(logs)]
    requests = [post(path, "application/json", body) for path in paths]
    return partial(bench.load, requests, connections)


@contextmanager
def _sampling(pid: int, target: Path) -> Iterator[None]:
    """Draw what holds the interpreter's lock meanwhile, by function, threads apart.

    System calls release that lock: they, and waiting, are left out. The process is not stopped for
    a sample, so that its rate stays.
    """
    command = [str(_PY_SPY), "record", "--pid", str(pid), "--output", str(target), "--threads"]
    command += [
        "--nonblocking",
        "--gil",
        "--function",
        "--rate",
        str(_SAMPLES_PER_S),
        "--duration",
        "unlimited",
    ]
    spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    yield
    spy.send_signal(signal.SIGINT)
    _, errors = spy.communicate()
    if spy.returncode != 0:
        sys.exit(f"py-spy could not look at the service, which may need root:\n{errors}")


if __name__ == "__main__":
    main()
