"""`tidelog verify` and `tidelog repair`: the commands import this when they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from app.client.failures import Failure
from app.client.terminal import Terminal
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.fs.posix import PosixFileSystem
from engine.tools.findings import Checked, Finding
from engine.tools.repair import carry_out, plan_repair
from engine.tools.verify import DirectoryCheck
from engine.topic_keys import canonical, overrides_in

_NOWHERE: Final = Path("nowhere")


class ProblemsFound(Failure):
    """The directory has problems."""

    code = "problems_found"

    def __init__(self, sentence: str, advice: str) -> None:
        super().__init__(sentence)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Subject:
    """The data directories of one service, and its settings."""

    directories: tuple[Path, ...]
    gone: tuple[Path, ...] = ()
    topic_defaults: str = ""
    """Default topic configuration: `key=value,key=value`, or JSON."""

    @property
    def config(self) -> EngineConfig:
        """Failure for invalid defaults."""
        try:
            return EngineConfig(
                default_topic_config=canonical(overrides_in(self.topic_defaults)),
                gone_directories=self.gone,
            )
        except EngineError as error:
            raise Failure(f"the default topic configuration is invalid: {error}") from error

    @property
    def root(self) -> Path:
        """The directory that names are relative to; None for several directories."""
        return self.directories[0] if len(self.directories) == 1 else _NOWHERE

    def __str__(self) -> str:
        return " ".join(map(str, self.directories))


def check_directories(terminal: Terminal, subject: Subject) -> None:
    """Report every finding when it is found; Failure if one is a problem."""
    problems = 0
    with readable(subject):
        check = DirectoryCheck(PosixFileSystem(), subject.directories, subject.config)
        with terminal.progress("checking") as meter:
            for finding in check.findings():
                problems += finding.is_problem
                _tell(terminal, finding, subject)
                meter.advance(1)
    told = {"kind": "summary", "problems": problems, **asdict(check.checked)}
    terminal.result(told, _summary(check.checked))
    if problems:
        raise ProblemsFound(
            f"{problems} problem(s) in {subject}",
            f"`tidelog repair --dry-run {subject}` shows what can be repaired.",
        )


def repair_directories(terminal: Terminal, subject: Subject, *, dry_run: bool, cut: bool) -> None:
    """Report every step and, unless it is a dry run, execute it; Failure if problems remain."""
    fs = PosixFileSystem()
    directories, config = subject.directories, subject.config
    with readable(subject):
        plan = plan_repair(fs, directories, config, cut=cut)
        for step in plan.steps():
            told = {"kind": "step", "file": str(step.file), "what": step.what}
            terminal.result(told, step.sentence(subject.root))
        if dry_run or plan.refusals:
            _leave(terminal, subject, plan.refusals or plan.beyond_repair)
            return
        carried = carry_out(fs, directories, plan, config)
        for log, recovery in carried.recovered.items():
            if recovery.recovered_segments:
                sentence = (
                    f"{log}: {recovery.recovered_segments} segments rebuilt, "
                    f"{recovery.truncated_bytes} bytes cut, "
                    f"{recovery.removed_segments} segments removed"
                )
                told = {"kind": "opened", "log": str(log), **asdict(recovery)}
                terminal.result(told, sentence)
        if carried.offline:
            unopened = "; ".join(f"{one.topic_partition}: {one.problem}" for one in carried.offline)
            raise ProblemsFound(
                f"{len(carried.offline)} log(s) in {subject} cannot be opened: {unopened}",
                "Restore their files from a copy, or move their directories out of the way.",
            )
        _leave(terminal, subject, plan_repair(fs, directories, config).problems)


@contextmanager
def readable(subject: Subject) -> Iterator[None]:
    """Turn errors of the engine and of the disk into a Failure."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the pipe has closed it
    except OSError as error:
        place = error.filename or subject
        raise Failure(f"{place} cannot be read: {error.strerror or error}") from error
    except EngineError as error:
        raise Failure(str(error)) from error


def _tell(terminal: Terminal, finding: Finding, subject: Subject) -> None:
    told = {
        "kind": finding.severity.value,
        "file": str(finding.file),
        "position": finding.position,
        "offset": finding.offset,
        "detail": finding.detail,
    }
    terminal.result(told, finding.sentence(subject.root))


def _leave(terminal: Terminal, subject: Subject, left: Iterable[Finding]) -> None:
    """Report what a repair does not fix; Failure if there is anything."""
    findings = tuple(left)
    for finding in findings:
        _tell(terminal, finding, subject)
    if findings:
        raise ProblemsFound(
            f"{len(findings)} problem(s) in {subject} need a person",
            "Restore damaged files from a copy, or use --cut and lose everything after the damage.",
        )


def _summary(checked: Checked) -> str:
    return (
        f"{checked.partitions} partitions, {checked.segments} segments, "
        f"{checked.batches} batches, {checked.size_bytes} bytes checked"
    )
