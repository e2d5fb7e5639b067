"""`python -m bench.engine [MEASURE…] [--json FILE]`: measure the engine and show the figures."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.cleaner import measure as measure_cleaner
from bench.engine.appends import measure_appends
from bench.engine.logs import Sizes
from bench.engine.lookups import measure_lookups
from bench.engine.opening import measure_opening
from bench.engine.recovery import measure_recovery
from bench.figures import COMMITTED, Figure, parse_measures, report
from engine.cleaner.offset_map import SLOT_BYTES

_KAFKA_SLOT_BYTES: Final = 24


def measure_compaction(sizes: Sizes) -> list[Figure]:
    """Compact 1 KB records, once with few survivors and once with many."""
    megabytes = sizes.compacted_megabytes
    return [
        measure_cleaner("compaction of 1 KB records, few keys", 1024, 5_000, megabytes),
        measure_cleaner("compaction of 1 KB records, most stay", 1024, 200_000, megabytes),
        Figure("offset map", SLOT_BYTES, "bytes a key", _KAFKA_SLOT_BYTES, is_ceiling=True),
    ]


MEASURES: Final[Mapping[str, Callable[[Sizes], list[Figure]]]] = {
    "appends": measure_appends,
    "lookups": measure_lookups,
    "recovery": measure_recovery,
    "opening": measure_opening,
    "compaction": measure_compaction,
}


def main() -> None:
    """Measure what was asked for, all of it without a name."""
    arguments = _arguments()
    console = Console(stderr=True)
    figures: list[Figure] = []
    for name in arguments.measures:
        with (
            console.status(f"measuring: {name}"),
            tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=arguments.folder) as folder,
        ):
            figures += MEASURES[name](_sizes(arguments, Path(folder)))
    report(figures, console, arguments.json, COMMITTED / "engine.json")


def _sizes(arguments: argparse.Namespace, folder: Path) -> Sizes:
    return Sizes(
        folder,
        segments=arguments.segments,
        large_bytes=arguments.large_bytes,
        small_bytes=arguments.small_bytes,
        tail_bytes=arguments.tail_bytes,
        partitions=arguments.partitions,
        compacted_megabytes=arguments.megabytes,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    default = Sizes(Path())
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    options = (
        ("--segments", default.segments, "how far appends are followed"),
        ("--large-bytes", default.large_bytes, "the log of the look-ups; 10e9 for a release"),
        ("--small-bytes", default.small_bytes, "the log they are compared with"),
        ("--tail-bytes", default.tail_bytes, "what recovery scans"),
        ("--partitions", default.partitions, "how many are opened"),
        ("--megabytes", default.compacted_megabytes, "what is compacted, each time"),
    )
    for option, value, meaning in options:
        parser.add_argument(option, type=_count, default=value, help=f"{meaning} ({value:,})")
    arguments = parse_measures(parser, MEASURES)
    if shutil.disk_usage(arguments.folder).free < arguments.large_bytes:
        parser.error(f"the disk of {arguments.folder} has no room for --large-bytes")
    return arguments


def _count(text: str) -> int:
    """Read a number above zero, 10e9 too."""
    number = int(float(text))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


if __name__ == "__main__":
    main()
