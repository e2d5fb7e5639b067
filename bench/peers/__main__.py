"""`python -m bench.peers [MEASURE…] [--records N] [--json FILE]`: measure beside the peers."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from app.client.connection import Connection
from bench.figures import Figure, show, write_json
from bench.measures import Bench
from bench.peers.native import native
from bench.peers.spark import spark
from demo.children import Server, serve_arguments

MEASURES: Final[dict[str, Callable[[Bench, int], list[Figure]]]] = {
    "native": native,
    "spark": spark,
}
_WIDTH: Final = 140


def main() -> None:
    """Measure what was asked for, all of it without a name."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the peers end with the `with` blocks
    console = Console(stderr=True)
    figures: list[Figure] = []
    for name in arguments.measures:
        with (
            tempfile.TemporaryDirectory(prefix="tidelog-peers-", dir=arguments.folder) as made,
            console.status(f"measuring: {name}"),
        ):
            figures += _measured(name, Path(made).absolute(), arguments)
    show(figures, Console(width=None if console.is_terminal else _WIDTH, highlight=False))
    write_json(figures, arguments.json)


def _measured(name: str, folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    log = serve_arguments(folder / "log")
    with Server(log, folder / "service.txt") as service, Connection(service.url) as connection:
        bench = Bench(service, connection, folder, arguments.seconds)
        return MEASURES[name](bench, arguments.records)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument("--json", type=Path, default=Path("bench/results/peers.json"))
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each load of ours")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    arguments = parser.parse_args()
    arguments.measures = arguments.measures or list(MEASURES)
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(f"no measure is called {', '.join(sorted(unknown))}: {', '.join(MEASURES)}")
    return arguments


if __name__ == "__main__":
    main()
