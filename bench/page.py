"""`python -m bench.page`: write `docs/performance.md` from the results that are committed.

What is known of them beside the figures, and what was tried, is in `docs/performance-notes.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.curves import Curve, Point
from bench.documents import COMMITTED, Machine
from bench.figures import Figure, amount

PAGE: Final = Path(__file__).parent.parent / "docs" / "performance.md"

_INTRODUCTION: Final = """\
# Performance

Written by `python -m bench.page` from `bench/committed/`; `make bench` says what has moved since.
Absolute figures drift with the machine: each is worth something beside its yardstick. Why the
curves bend, what was tried and what it was worth is in [the notes](performance-notes.md).
"""


_TITLES: Final = {
    "service.json": "The service",
    "engine.json": "The engine",
    "peers.json": "Beside its peers",
}

_BUSY_LOAD: Final = 2.0
"""Of a core; a service and what loads it are one or two."""

_BUSY: Final = (
    "**Others were at work on them:** what a request takes of a processor and the shares of the "
    "yardsticks say something, the rates do not."
)


class _Figures(msgspec.Struct):
    machine: Machine
    figures: list[Figure]


class _Curves(msgspec.Struct):
    machine: Machine
    curves: list[Curve]


def render(folder: Path = COMMITTED) -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *_sections(folder)])


def _sections(folder: Path) -> Iterator[str]:
    for name, title in _TITLES.items():
        if (folder / name).exists():
            document = msgspec.json.decode((folder / name).read_bytes(), type=_Figures)
            yield from _figures(title, document)
    growth = msgspec.json.decode((folder / "curves.json").read_bytes(), type=_Curves)
    yield f"## Growth\n\n{_measured(growth.machine)}\n"
    for curve in growth.curves:
        yield from _curve(curve)


def _measured(machine: Machine) -> str:
    said = (
        f"Measured on {machine.date}: {machine.cores} cores, Python {machine.python}, "
        f"load average {machine.load:g}, the measures themselves included."
    )
    return f"{said} {_BUSY}" if machine.load > _BUSY_LOAD * machine.cores else said


def _figures(title: str, document: _Figures) -> Iterator[str]:
    yield f"## {title}\n\n{_measured(document.machine)}\n"
    rows = []
    for figure in document.figures:
        yardstick, share = "", ""
        if figure.yardstick_value:
            yardstick = f"{figure.yardstick}: {amount(figure.yardstick_value, figure.unit)}"
            share = f"{figure.value / figure.yardstick_value:.2f}"
        bound = "≤" if figure.is_ceiling else "≥"
        asked = f"{bound} {amount(figure.target, figure.unit)}"
        met = "" if figure.is_met else "missed"
        rows.append((figure.name, amount(figure.value, figure.unit), asked, met, yardstick, share))
    yield _table(("measure", "here", "asked for", "", "yardstick", "share"), rows)
    notes = [f"* {figure.name}: {figure.note}." for figure in document.figures if figure.note]
    yield "\n".join(notes) + "\n"


def _curve(curve: Curve) -> Iterator[str]:
    yield f"### {curve.grows[0].upper()}{curve.grows[1:]}\n\n{curve.work}.\n"
    yield _chart(curve)
    yield _table((curve.grows, "per second", "µs of processor each"), map(_row, curve.points))


def _row(point: Point) -> tuple[str, str, str]:
    return f"{point.x:,}", f"{point.per_second:,.0f}", f"{point.cost_us:,.1f}"


def _chart(curve: Curve) -> str:
    """Return the costs as a chart that GitHub and others draw; places are equally far apart."""
    places = ", ".join(f'"{point.x:,}"' for point in curve.points)
    costs = ", ".join(f"{point.cost_us:.1f}" for point in curve.points)
    return (
        f'```mermaid\nxychart-beta\n    title "µs of processor for each"\n'
        f'    x-axis "{curve.grows}" [{places}]\n    y-axis "µs" 0 --> {_ceiling(curve)}\n'
        f"    bar [{costs}]\n```\n"
    )


def _ceiling(curve: Curve) -> int:
    return int(max(point.cost_us for point in curve.points) * 1.1) + 1


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render())


if __name__ == "__main__":
    main()
