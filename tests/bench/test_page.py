"""The page of results: current, complete, and honest about what moved."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench.curves import CURVES, Curve, Point
from bench.figures import (
    COMMITTED,
    Figure,
    median_run,
    moves,
    read_json,
    report,
    write_document,
    write_json,
)
from bench.page import PAGE, render


def test_the_page_is_what_the_committed_results_say() -> None:
    """After new results are committed, the page is generated again: `python -m bench.page`."""
    assert PAGE.read_text() == render()


def test_every_curve_has_been_measured() -> None:
    """Each has a chart and a row for every point, and its costs are above zero."""
    document = msgspec.json.decode((COMMITTED / "curves.json").read_bytes())
    assert [curve["name"] for curve in document["curves"]] == list(CURVES)
    page = PAGE.read_text()
    assert page.count("```mermaid") == len(CURVES)
    for curve in document["curves"]:
        usual = CURVES[curve["name"]].usual
        assert tuple(point["x"] for point in curve["points"][: len(usual)]) == usual
        assert all(point["cost_us"] > 0 for point in curve["points"])


def test_a_page_shows_figures_and_charts(tmp_path: Path) -> None:
    """A missed target is called so, a yardstick has its share, a curve its bars."""
    figures = [
        Figure("speed", 50, "MB/s", 100, "dd", 200.0, note="busy"),
        Figure("memory", 7.5, "MiB", 200, is_ceiling=True),
    ]
    write_json(figures, tmp_path / "service.json")
    curve = Curve("log", "megabytes", "A read", [Point(10, 1_234.0, 56.7), Point(100, 1_000.0, 70)])
    write_document({"curves": [curve]}, tmp_path / "curves.json")
    page = render(tmp_path)
    assert "| speed | 50 MB/s | ≥ 100 MB/s | missed | dd: 200 MB/s | 0.25 |" in page
    assert "| memory | 7.5 MiB | ≤ 200 MiB |  |  |  |" in page
    assert "* speed: busy." in page
    assert 'x-axis "megabytes" ["10", "100"]' in page
    assert "bar [56.7, 70.0]" in page
    assert "| 10 | 1,234 | 56.7 |" in page


def test_the_rust_server_comes_first(tmp_path: Path) -> None:
    """Its table is there once it has been measured, before all others."""
    write_document({"curves": []}, tmp_path / "curves.json")
    for name in ("service.json", "peers.json"):
        write_json([Figure("speed", 1, "x", 1)], tmp_path / name)
    before = render(tmp_path)
    write_json([Figure("64 logs ÷ one log", 49, "%", 70)], tmp_path / "rust.json")
    page = render(tmp_path)
    first = page[page.index("## ") : page.index("## Beside its peers")]
    assert first.startswith("## Beside the Rust server of Durable Streams")
    assert "| 64 logs ÷ one log | 49 % | ≥ 70 % | missed |  |  |" in first
    assert page.replace(first, "") == before


def test_the_median_run_stands_for_all_of_them() -> None:
    """It is chosen by the share of the yardstick, and keeps the figures of one run together."""
    runs = [
        Figure("speed", 40, "MB/s", 100, "dd", 50.0, note="a"),
        Figure("speed", 30, "MB/s", 100, "dd", 100.0, note="b"),
        Figure("speed", 20, "MB/s", 100, "dd", 25.0, note="c"),
    ]
    said = "median of 3 runs, 0.30 to 0.80 of the yardstick; a"
    assert median_run(runs) == msgspec.structs.replace(runs[0], note=said)
    assert median_run(runs[:1]) is runs[0]
    alone = [Figure("64 ÷ 1", share, "%", 70) for share in (49, 51, 47)]
    assert median_run(alone).value == 49
    assert median_run(alone).note == "median of 3 runs, 47 % to 51 %"


@pytest.mark.parametrize(
    ("value", "yardstick", "line"),
    [
        (100, 200.0, []),
        (200, 400.0, []),
        (90, 200.0, []),
        (100, 100.0, ["speed: better, 2.00 of what it was"]),
        (50, 200.0, ["speed: worse, 0.50 of what it was"]),
    ],
)
def test_what_moves_is_the_share_of_the_yardstick(
    value: float, yardstick: float, line: list[str]
) -> None:
    """A machine that is twice as fast moves nothing, a figure beside the same yardstick does."""
    before = Figure("speed", 100, "MB/s", 100, "dd", 200.0)
    assert moves([before], [Figure("speed", value, "MB/s", 100, "dd", yardstick)]) == line


def test_less_is_better_where_there_is_a_ceiling() -> None:
    """Memory that grows is worse; a figure that was not there before is new."""
    before = Figure("memory", 100, "MiB", 200, is_ceiling=True)
    after = [Figure("memory", 150, "MiB", 200, is_ceiling=True), Figure("tails", 1, "ms", 2)]
    assert moves([before], after) == ["memory: worse, 1.50 of what it was", "tails: new"]


def test_a_report_says_what_has_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the table, if there is something to compare with."""
    committed = tmp_path / "before.json"
    console = Console(stderr=True)
    figure = Figure("speed", 100, "MB/s", 100)
    report([figure], console, committed, tmp_path / "none.json")
    assert "was committed" not in capsys.readouterr().out
    assert read_json(committed) == [figure]
    report([figure], console, None, committed)
    assert "nothing has moved" in capsys.readouterr().out
    report([msgspec.structs.replace(figure, value=10)], console, None, committed)
    assert "speed: worse, 0.10 of what it was" in capsys.readouterr().out
