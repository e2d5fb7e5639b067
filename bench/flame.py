"""`make flame MEASURE=single`: where the service's time goes while one thing is measured.

py-spy looks at the service from outside, two hundred times a second, so the figures of such a run
are worth little. It is no part of the lock: `make flame` installs it into a place of its own.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from app.client.connection import Connection
from bench.measures import MEASURES, Bench
from demo.children import Server, serve_arguments

_FOLDER: Final = Path("build/flame")
_PY_SPY: Final = _FOLDER / "site/bin/py-spy"
_SAMPLES_PER_S: Final = 200


def main() -> None:
    """Measure, and leave one graph a measure, as SVG, in `build/flame`."""
    parser = argparse.ArgumentParser(prog="make flame", description=__doc__)
    parser.add_argument("measure", choices=list(MEASURES))
    parser.add_argument("--seconds", type=float, default=6.0, help="for each load")
    arguments = parser.parse_args()
    target = _FOLDER / f"{arguments.measure}.svg"
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name,
        Server(serve_arguments(Path(name, "log")), Path(name, "service.txt")) as service,
        Connection(service.url) as connection,
        _sampling(service.pid, target),
    ):
        MEASURES[arguments.measure](Bench(service, connection, Path(name), arguments.seconds))
    print(f"{target}: open it in a browser; a click goes into a frame")


@contextmanager
def _sampling(pid: int, target: Path) -> Iterator[None]:
    """Draw what the process does meanwhile, threads apart, waiting left out."""
    command = [str(_PY_SPY), "record", "--pid", str(pid), "--output", str(target), "--threads"]
    command += ["--rate", str(_SAMPLES_PER_S), "--duration", "unlimited"]
    spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    yield
    spy.send_signal(signal.SIGINT)
    _, errors = spy.communicate()
    if spy.returncode != 0:
        sys.exit(f"py-spy could not look at the service, which may need root:\n{errors}")


if __name__ == "__main__":
    main()
