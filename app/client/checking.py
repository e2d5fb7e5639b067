"""What `tidelog verify` and `tidelog repair` do and say; the commands load it when they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from app.client.failures import Failure
from app.client.terminal import Terminal
from engine.errors import EngineError
from engine.fs.filesystem import PosixFileSystem
from engine.tools.findings import Checked, Finding
from engine.tools.repair import carry_out, plan_repair
from engine.tools.verify import DirectoryCheck


class ProblemsFound(Failure):
    """The directory does not keep what it promises."""

    code = "problems_found"

    def __init__(self, sentence: str, advice: str) -> None:
        super().__init__(sentence)
        self.advice = advice


def check_directory(terminal: Terminal, directory: Path) -> None:
    """Tell every finding as it is met; Failure if one is a problem."""
    problems = 0
    with _readable(directory):
        check = DirectoryCheck(PosixFileSystem(), directory)
        with terminal.progress("checking") as meter:
            for finding in check.findings():
                problems += finding.is_problem
                _tell(terminal, finding, directory)
                meter.advance(1)
    told = {"kind": "summary", "problems": problems, **asdict(check.checked)}
    terminal.result(told, _summary(check.checked))
    if problems:
        raise ProblemsFound(
            f"{problems} problem(s) in {directory}",
            f"`tidelog repair --dry-run {directory}` tells what can be put right.",
        )


def repair_directory(terminal: Terminal, directory: Path, *, dry_run: bool, cut: bool) -> None:
    """Tell every step and, unless it is a dry run, take it; Failure if problems are left."""
    fs = PosixFileSystem()
    with _readable(directory):
        plan = plan_repair(fs, directory, cut=cut)
        for step in plan.steps():
            told = {"kind": "step", "file": str(step.file), "what": step.what}
            terminal.result(told, step.sentence(directory))
        if dry_run or plan.refusals:
            _leave(terminal, directory, plan.refusals or plan.beyond_repair)
            return
        for log, recovery in carry_out(fs, directory, plan).items():
            if recovery.recovered_segments:
                sentence = (
                    f"{log}: {recovery.recovered_segments} segments rebuilt, "
                    f"{recovery.truncated_bytes} bytes cut, "
                    f"{recovery.removed_segments} segments removed"
                )
                told = {"kind": "opened", "log": str(log), **asdict(recovery)}
                terminal.result(told, sentence)
        _leave(terminal, directory, plan_repair(fs, directory).problems)


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads has seen enough
    except OSError as error:
        place = error.filename or directory
        raise Failure(f"{place} cannot be read: {error.strerror or error}") from error
    except EngineError as error:
        raise Failure(str(error)) from error


def _tell(terminal: Terminal, finding: Finding, directory: Path) -> None:
    told = {
        "kind": finding.severity.value,
        "file": str(finding.file),
        "position": finding.position,
        "offset": finding.offset,
        "detail": finding.detail,
    }
    terminal.result(told, finding.sentence(directory))


def _leave(terminal: Terminal, directory: Path, left: Iterable[Finding]) -> None:
    """Tell what a repair does not put right, and fail if that is anything."""
    findings = tuple(left)
    for finding in findings:
        _tell(terminal, finding, directory)
    if findings:
        raise ProblemsFound(
            f"{len(findings)} problem(s) in {directory} need a person",
            "Restore damaged files from a copy, or use --cut and lose what lies behind damage.",
        )


def _summary(checked: Checked) -> str:
    return (
        f"{checked.partitions} partitions, {checked.segments} segments, "
        f"{checked.batches} batches, {checked.size_bytes} bytes checked"
    )
