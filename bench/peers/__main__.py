"""`python -m bench.peers [MEASURE…] [--runs N] [--results FOLDER]`: measure beside the peers."""

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
from bench.figures import COMMITTED, Figure, median_run, parse_measures, report
from bench.peers.http import node, rust, s2
from bench.peers.native import native
from bench.peers.spark import spark
from bench.target import Bench
from demo.children import Server, serve_arguments

MEASURES: Final[dict[str, Callable[[Bench, int], list[Figure]]]] = {
    "rust": rust,
    "s2": s2,
    "node": node,
    "native": native,
    "spark": spark,
}

_DOCUMENT: Final = {"rust": "rust.json"}
"""The measures with a document and a table of their own."""


def main() -> None:
    """Measure what was asked for, all of it without a name."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the peers end with the `with` blocks
    console = Console(stderr=True)
    documents: dict[str, list[Figure]] = {}
    for name in arguments.measures:
        with console.status(f"measuring: {name}"):
            runs = [_run(name, arguments) for _ in range(arguments.runs)]
        figures = [median_run(same) for same in zip(*runs, strict=True)]
        documents.setdefault(_DOCUMENT.get(name, "peers.json"), []).extend(figures)
    for document, figures in documents.items():
        report(figures, console, arguments.results / document, COMMITTED / document)


def _run(name: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure once, with a service and a peer that were just started, on empty folders."""
    with tempfile.TemporaryDirectory(prefix="tidelog-peers-", dir=arguments.folder) as made:
        return _measured(name, Path(made).absolute(), arguments)


def _measured(name: str, folder: Path, arguments: argparse.Namespace) -> list[Figure]:
    log = serve_arguments(folder / "log")
    with Server(log, folder / "service.txt") as service, Connection(service.url) as connection:
        bench = Bench(service, connection, folder, arguments.seconds)
        return MEASURES[name](bench, arguments.records)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="folder")
    parser.add_argument("--runs", type=int, default=1, help="whose medians are shown")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each load of ours")
    return parse_measures(parser, MEASURES)


if __name__ == "__main__":
    main()
