"""What opening data directories would mend, and doing it: offline, with nobody served meanwhile.

What a check finds derived and wrong is removed, and opening makes it anew from the `.log` files;
torn tails and interrupted operations are what every opening deals with. Damage of a `.log` file is
left as it is unless a cut is asked for: then the log ends before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.clean_shutdown import CleanShutdownMarker
from engine.checkpoint.offsets import OffsetCheckpoint
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.errors import CorruptCheckpoint
from engine.fs import names
from engine.fs.lock import DirectoryLock
from engine.fs.names import parse_partition_directory
from engine.fs.port import FileSystem
from engine.log.results import Recovery
from engine.manager.manager import LogManager
from engine.manager.offline import OfflineLog
from engine.metrics import NullRecorder
from engine.scheduler import ThreadScheduler
from engine.tools.findings import Finding, Severity
from engine.tools.verify import DirectoryCheck
from engine.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do to one file, or to a whole partition."""

    file: Path
    what: str

    def sentence(self, root: Path) -> str:
        """Say it for a person; files are named as they lie below `root`."""
        file = self.file.relative_to(root) if self.file.is_relative_to(root) else self.file
        return f"{file}: {self.what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair does, decided by a check that wrote nothing."""

    findings: tuple[Finding, ...]
    stale_files: tuple[Path, ...]
    """The derived files to remove, each once."""
    cut: bool
    """Whether logs end before their damage."""

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """What a person has to put right before the directory can be opened at all."""
        return tuple(one for one in self.findings if one.severity is Severity.REFUSED)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is more than a note."""
        return tuple(one for one in self.findings if one.is_problem)

    @property
    def beyond_repair(self) -> tuple[Finding, ...]:
        """The problems that will still be there."""
        return tuple(
            one
            for one in self.problems
            if one.severity is not Severity.DERIVED
            and not (self.cut and _is_damaged_log(one))
            and not one.is_left_to_opening
        )

    @property
    def cuts(self) -> dict[Path, Finding]:
        """The first damage of each log that is to end there, by partition directory."""
        cuts: dict[Path, Finding] = {}
        for one in self.findings:
            if self.cut and _is_damaged_log(one):
                cuts.setdefault(one.file.parent, one)
        return cuts

    def steps(self) -> Iterator[Step]:
        """Yield what is done, in order."""
        for path in self.stale_files:
            yield Step(path, "removed, and made anew from the log where it is needed")
        for finding in self.cuts.values():
            what = f"the log is cut at byte {finding.position}: what lies behind is lost"
            yield Step(finding.file, what)
        for finding in self.findings:
            if finding.is_left_to_opening:
                yield Step(finding.file, finding.detail)


class Carried(NamedTuple):
    """What a repair did to the logs when it opened them."""

    recovered: Mapping[TopicPartition, Recovery]
    offline: Sequence[OfflineLog]
    """The logs that still cannot be opened."""


def plan_repair(
    fs: FileSystem,
    directories: Path | Sequence[Path],
    config: EngineConfig | None = None,
    *,
    cut: bool = False,
) -> Plan:
    """Return what a repair would do; nothing is written. `config` is as of `carry_out`."""
    check = DirectoryCheck(fs, directories, config)
    findings = tuple(check.findings())
    stale = dict.fromkeys(path for finding in findings for path in finding.stale_files)
    return Plan(findings, tuple(path for path in stale if fs.exists(path)), cut)


def carry_out(
    fs: FileSystem,
    directories: Path | Sequence[Path],
    plan: Plan,
    config: EngineConfig | None = None,
) -> Carried:
    """Do what the plan says by opening and closing the directories; return what opening did.

    `directories` are all those of the log. What is made anew is made as the service would make it:
    by the configuration of its topics over the defaults in `config`. The plan must have no
    refusals. Raises DirectoryLocked if a directory is in use, StorageError, InvalidDataDirectory.
    """
    assert not plan.refusals, plan.refusals
    paths = [directories] if isinstance(directories, Path) else directories
    with ExitStack() as locks:
        for path in paths:
            locks.enter_context(DirectoryLock(fs, path))
        # Without one of transactions a start would believe the other indexes: these go first.
        transactions = [one for one in plan.stale_files if one.suffix == names.TXN_INDEX_SUFFIX]
        others = [one for one in plan.stale_files if one not in transactions]
        for paths_in_order in (others, transactions):
            for path in paths_in_order:
                fs.remove(path, missing_ok=True)
            _sync(fs, {path.parent for path in paths_in_order})
        for path in paths:
            damages = [one for log, one in plan.cuts.items() if log.parent == path]
            if damages:
                _distrust(fs, path, damages)
    clock = SystemClock()
    manager = LogManager(
        paths,
        fs=fs,
        clock=clock,
        scheduler=ThreadScheduler(clock),  # never started: what can wait waits for the service
        recorder=NullRecorder(),
        config=config or EngineConfig(),
    )
    manager.open()
    try:
        recovered = {log.topic_partition: log.durability.recovery for log in manager.logs()}
        return Carried(recovered, manager.offline_logs)
    finally:
        manager.close()


def _distrust(fs: FileSystem, directory: Path, damages: Iterable[Finding]) -> None:
    """Have opening scan the damaged segments: it cuts a log where a scan meets damage."""
    checkpoint = OffsetCheckpoint(fs, directory / names.RECOVERY_POINT_CHECKPOINT)
    try:
        points = checkpoint.read()
    except CorruptCheckpoint:
        points = {}
    for damage in damages:
        log = parse_partition_directory(damage.file.parent.name).topic_partition
        base_offset = names.base_offset_of(damage.file.name)
        assert base_offset is not None, damage
        points[log] = min(points.get(log, 0), base_offset)
    checkpoint.write(points)
    CleanShutdownMarker(fs, directory).delete()


def _sync(fs: FileSystem, directories: set[Path]) -> None:
    for directory in sorted(directories):
        fs.sync_directory(directory)


def _is_damaged_log(finding: Finding) -> bool:
    """Whether there are bytes that a scan would stop at; missing offsets are none."""
    is_log = finding.file.suffix == names.LOG_SUFFIX
    return is_log and finding.severity is Severity.DAMAGE and finding.position >= 0
