"""A figure, its yardstick, how figures are asked for, and the two ways of showing them."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

COMMITTED: Final = Path(__file__).parent / "committed"
"""What the page shows, and new results are compared with."""

_NOISE: Final = 1.25
"""A figure that is less than this much better or worse has not moved: machines have moods."""


class Machine(msgspec.Struct, frozen=True):
    """Where and when something was measured; `load` is how many wanted a processor."""

    system: str
    python: str
    cores: int
    date: str = ""
    load: float = 0.0


def this_machine() -> Machine:
    """Return where this process runs, and how busy that is."""
    return Machine(
        platform.platform(),
        platform.python_version(),
        os.cpu_count() or 1,
        dt.datetime.now(dt.UTC).date().isoformat(),
        round(os.getloadavg()[0], 1),
    )


def write_document(fields: Mapping[str, object], target: Path) -> None:
    """Write results and the machine they belong to."""
    document = {"machine": this_machine(), **fields}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def moves(before: Sequence[Figure], after: Sequence[Figure]) -> list[str]:
    """Return a line for each figure that has moved, as a share of its yardstick if it has one.

    What another machine, or a busy one, changes for figure and yardstick alike is no move.
    """
    known = {figure.name: figure for figure in before}
    lines = []
    for figure in after:
        earlier = known.get(figure.name)
        if earlier is None:
            lines.append(f"{figure.name}: new")
            continue
        ratio = figure.share / earlier.share if earlier.share else 1.0
        if 1 / _NOISE <= ratio <= _NOISE:
            continue
        is_better = (ratio < 1) is figure.is_ceiling
        lines.append(
            f"{figure.name}: {'better' if is_better else 'worse'}, {ratio:.2f} of what it was"
        )
    return lines


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
