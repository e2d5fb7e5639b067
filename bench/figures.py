"""A figure, its yardstick, how figures are asked for, and the two ways of showing them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.documents import moves, write_document

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

    @property
    def share(self) -> float:
        """What a change of the machine leaves alone: the share of the yardstick if there is one."""
        return self.value / self.yardstick_value if self.yardstick_value else self.value


def median_run(figures: Sequence[Figure]) -> Figure:
    """Return the run whose share is the median, with the least and the greatest in its note."""
    by_share = sorted(figures, key=lambda figure: figure.share)
    median = by_share[len(by_share) // 2]
    if len(figures) == 1:
        return median
    least, greatest = by_share[0], by_share[-1]
    if median.yardstick_value:
        spread = f"{least.share:.2f} to {greatest.share:.2f} of the yardstick"
    else:
        spread = f"{amount(least.value, median.unit)} to {amount(greatest.value, median.unit)}"
    note = f"median of {len(figures)} runs, {spread}"
    return msgspec.structs.replace(median, note="; ".join(filter(None, (note, median.note))))


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
            amount(figure.value, figure.unit),
            f"{bound} {amount(figure.target, figure.unit)}",
            "[green]met[/]" if figure.is_met else "[red]missed[/]",
            _yardstick(figure),
        )
    console.print(table)
    for figure in figures:
        if figure.note:
            console.print(f"[dim]{figure.name}: {figure.note}[/]")


def report(
    figures: Sequence[Figure], console: Console, target: Path | None, committed: Path | None = None
) -> None:
    """Print the figures, at a fixed width where nobody sees a terminal, and write them if asked.

    Beside results that were committed before it is said what has moved since.
    """
    shown = Console(width=None if console.is_terminal else _WIDTH, highlight=False)
    show(figures, shown)
    if committed is not None and committed.exists():
        lines = moves(read_json(committed), figures) or ["nothing has moved"]
        shown.print(f"\nSince {committed.name} was committed:", *lines, sep="\n  ", markup=False)
    if target:
        write_json(figures, target)


def parse_measures(
    parser: argparse.ArgumentParser, measures: Collection[str], *, by_name: Collection[str] = ()
) -> argparse.Namespace:
    """Parse the command line of a bench: names of measures, all of them if there is none.

    Those `by_name` are left out then: they need what a machine may not have.
    """
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=", ".join(measures))
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    arguments = parser.parse_args()
    usual = [measure for measure in measures if measure not in by_name]
    arguments.measures = arguments.measures or usual
    if unknown := set(arguments.measures) - set(measures):
        parser.error(f"no measure is called {', '.join(sorted(unknown))}: {', '.join(measures)}")
    return arguments


def write_json(figures: Sequence[Figure], target: Path) -> None:
    """Write the figures and the machine they belong to."""
    shown = [{**msgspec.structs.asdict(figure), "is_met": figure.is_met} for figure in figures]
    write_document({"figures": shown}, target)


def read_json(source: Path) -> list[Figure]:
    """Return the figures that `write_json` wrote."""
    return msgspec.json.decode(source.read_bytes(), type=_Document).figures


class _Document(msgspec.Struct):
    figures: list[Figure]


def _yardstick(figure: Figure) -> str:
    if figure.yardstick_value is None:
        return ""
    return f"{figure.yardstick}: {amount(figure.yardstick_value, figure.unit)}"


def amount(value: float, unit: str) -> str:
    """Return a figure as people read it."""
    return f"{value:,.0f} {unit}" if value >= _SMALL else f"{value:.1f} {unit}"
