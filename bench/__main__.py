"""`python -m bench [MEASURE…] [--json FILE] [--seconds S]`: run the measures and show them."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from app.client.connection import Connection
from bench.figures import COMMITTED, Figure, parse_measures, report
from bench.measures import BY_NAME, MEASURES
from bench.memory import MemoryWatch
from bench.target import Bench
from demo.children import Server, serve_arguments

_MEMORY_CEILING_MIB = 150
_MIB = 1 << 20


def main() -> None:
    """Measure what was asked for, all of it without a name."""
    arguments = _arguments()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=arguments.folder) as folder:
        figures = measure(arguments.measures, Path(folder), arguments.seconds, console)
    report(figures, console, arguments.json, COMMITTED / "service.json")


def measure(names: list[str], folder: Path, seconds: float, console: Console) -> list[Figure]:
    """Run the measures against one service, one after the other, and watch its memory."""
    figures: list[Figure] = []
    with (
        Server(serve_arguments(folder / "log"), folder / "service.txt") as service,
        Connection(service.url) as connection,
        MemoryWatch(service.pid) as memory,
    ):
        bench = Bench(service, connection, folder, seconds)
        for name in names:
            with console.status(f"measuring: {name}"):
                figures += MEASURES[name](bench)
    figures.append(
        Figure(
            "memory of the service under all of this",
            memory.peak_bytes / _MIB,
            "MiB",
            target=_MEMORY_CEILING_MIB,
            is_ceiling=True,
        )
    )
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each load")
    return parse_measures(parser, MEASURES, by_name=BY_NAME)


if __name__ == "__main__":
    main()
