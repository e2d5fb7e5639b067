"""A figure, its yardstick, how figures are asked for, and the two ways of showing them."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

_SMALL: Final = 10
_WIDTH: Final = 140


class Figure(msgspec.Struct, frozen=True):
    """One thing measured; `target` is what is asked for, in the same unit."""

    name: str
    value: float
    unit: str
    target: float
    yardstick: str = ""
    yardstick_value: float | None = None
    is_ceiling: bool = False
    """Whether less is better, as with memory."""
    note: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.target if self.is_ceiling else self.value >= self.target


def show(figures: Sequence[Figure], console: Console) -> None:
    """Print the table for people, and the notes below it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure")
    for heading in ("here", "asked for", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("yardstick")
    for figure in figures:
        bound = "≤" if figure.is_ceiling else "≥"
        table.add_row(
            figure.name,
            _amount(figure.value, figure.unit),
            f"{bound} {_amount(figure.target, figure.unit)}",
            "[green]met[/]" if figure.is_met else "[red]missed[/]",
            _yardstick(figure),
        )
    console.print(table)
    for figure in figures:
        if figure.note:
            console.print(f"[dim]{figure.name}: {figure.note}[/]")


def report(figures: Sequence[Figure], console: Console, target: Path | None) -> None:
    """Print the figures, at a fixed width where nobody sees a terminal, and write them if asked."""
    show(figures, Console(width=None if console.is_terminal else _WIDTH, highlight=False))
    if target:
        write_json(figures, target)


def parse_measures(
    parser: argparse.ArgumentParser, measures: Collection[str]
) -> argparse.Namespace:
    """Parse the command line of a bench: names of measures, all of them if there is none."""
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(measures))
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    arguments = parser.parse_args()
    arguments.measures = arguments.measures or list(measures)
    if unknown := set(arguments.measures) - set(measures):
        parser.error(f"no measure is called {', '.join(sorted(unknown))}: {', '.join(measures)}")
    return arguments


def write_json(figures: Sequence[Figure], target: Path) -> None:
    """Write the figures and the machine they belong to."""
    document = {
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
        "figures": [
            {**msgspec.structs.asdict(figure), "is_met": figure.is_met} for figure in figures
        ],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def _yardstick(figure: Figure) -> str:
    if figure.yardstick_value is None:
        return ""
    return f"{figure.yardstick}: {_amount(figure.yardstick_value, figure.unit)}"


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= _SMALL else f"{value:.1f} {unit}"
