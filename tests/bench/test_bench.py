"""The benchmark runs and its figures add up; how large they are is not a test."""

import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench.curves import CURVES, can_open, places_of
from bench.figures import Figure, show, write_json
from bench.load import post

MEASURES = ("single", "ndjson", "raw", "reads")


@pytest.mark.long
def test_every_measure_of_the_service_gives_figures(tmp_path: Path) -> None:
    """A short run of all but Spark ends well, with a table and the same figures as JSON."""
    target = tmp_path / "results" / "figures.json"
    options = ["--seconds", "0.3", "--folder", str(tmp_path), "--json", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *MEASURES, *options],
        capture_output=True,
        text=True,
        check=True,
    )
    document = msgspec.json.decode(target.read_bytes())
    assert document["machine"]["cores"]
    assert len(document["figures"]) == 12
    for figure in document["figures"]:
        assert figure["value"] > 0
        assert figure["name"] in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_measure_that_is_none_is_refused() -> None:
    """The error lists the measures there are."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "speed"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no measure is called speed" in done.stderr


@pytest.mark.parametrize(
    ("value", "is_ceiling", "is_met"),
    [(10, False, True), (9, False, False), (10, True, True), (11, True, False)],
)
def test_a_figure_knows_which_way_is_better(
    value: float,
    is_ceiling: bool,  # noqa: FBT001 - a parameter of the test
    is_met: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Rates are to be reached, memory not to be passed; equal is good enough."""
    assert Figure("f", value, "x", target=10, is_ceiling=is_ceiling).is_met is is_met


def test_the_table_shows_yardstick_and_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a figure stands what it is measured against, and below what else was seen."""
    figure = Figure("speed", 2_000, "MB/s", 900, "dd", 1_800.0, note="quiet machine")
    show([figure], Console(width=120))
    shown = capsys.readouterr().out
    assert "2,000 MB/s" in shown
    assert "≥ 900 MB/s" in shown
    assert "dd: 1,800 MB/s" in shown
    assert "speed: quiet machine" in shown


def test_figures_without_a_yardstick_have_none_in_json(tmp_path: Path) -> None:
    """Absent is null, not zero."""
    write_json([Figure("memory", 7.5, "MiB", 200, is_ceiling=True)], tmp_path / "f.json")
    (figure,) = msgspec.json.decode((tmp_path / "f.json").read_bytes())["figures"]
    assert figure["yardstick_value"] is None
    assert figure["is_met"] is True


def test_a_prepared_request_is_complete() -> None:
    """What the generator sends again and again is a whole HTTP request."""
    head, _, body = post("/v1/x", "text/plain", b"abc").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\n")
    assert b"Content-Length: 3" in head
    assert body == b"abc"


def test_a_curve_goes_as_far_as_it_is_asked_to() -> None:
    """Usually to its last usual place, to the one that is given, or all the way."""
    course = CURVES["log"]
    assert places_of(course, None, full=False) == [10, 100, 1_000]
    assert places_of(course, 300, full=False) == [10, 100, 300]
    assert places_of(course, 5_000, full=False) == [10, 100, 1_000, 5_000]
    assert places_of(course, None, full=True) == [10, 100, 1_000, 10_000, 20_000]


def test_what_needs_more_open_files_than_there_may_be_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some hundreds stay for connections and all else."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (20_000, 20_000))
    assert can_open(18_000)
    assert not can_open(19_900)
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert can_open(1_000_000)


@pytest.mark.long
def test_every_curve_gives_points(tmp_path: Path) -> None:
    """A short run of all curves ends well, with a table and the same points as JSON."""
    target = tmp_path / "results" / "curves.json"
    options = ["--seconds", "0.2", "--most", "10", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.curves", *options, "--json", str(target)],
        capture_output=True,
        text=True,
        check=True,
    )
    curves = msgspec.json.decode(target.read_bytes())["curves"]
    assert [curve["name"] for curve in curves] == list(CURVES)
    for curve in curves:
        assert curve["points"][-1]["x"] == 10
        assert all(point["per_second"] > 0 for point in curve["points"])
        assert curve["work"] in " ".join(done.stdout.split())
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
