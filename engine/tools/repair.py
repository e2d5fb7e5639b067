"""Plans and makes the repair of data directories while the service is stopped.

Wrong derived files are removed, and opening rebuilds them from the `.log` files; every opening also
repairs torn tails and interrupted operations. A damaged `.log` file is not changed unless a cut is
requested: then the log ends before the damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.kafka_files import CleanShutdownMarker, OffsetCheckpoint
from engine.config import EngineConfig
from engine.errors import CorruptCheckpoint
from engine.fs import names
from engine.fs.directories import DirectoryLock
from engine.fs.names import parse_partition_directory
from engine.fs.port import FileSystem
from engine.log.results import Recovery
from engine.manager.membership import OfflineLog
from engine.tools.findings import Finding, Severity
from engine.tools.offline import open_logs
from engine.tools.verify import DirectoryCheck
from engine.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a repair, for a file or a partition."""

    file: Path
    what: str

    def sentence(self, root: Path) -> str:
        """Return the step as text; paths are relative to `root`."""
        file = self.file.relative_to(root) if self.file.is_relative_to(root) else self.file
        return f"{file}: {self.what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a repair, from a read-only check."""

    findings: tuple[Finding, ...]
    stale_files: tuple[Path, ...]
    """The derived files to remove, each once."""
    cut: bool
    """Whether logs are cut before their damage."""

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that an operator must resolve before the directory can be opened."""
        return tuple(one for one in self.findings if one.severity is Severity.REFUSED)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems."""
        return tuple(one for one in self.findings if one.is_problem)

    @property
    def beyond_repair(self) -> tuple[Finding, ...]:
        """The problems that the repair leaves."""
        return tuple(
            one
            for one in self.problems
            if one.severity is not Severity.DERIVED
            and not (self.cut and _is_damaged_log(one))
            and not one.is_left_to_opening
        )

    @property
    def cuts(self) -> dict[Path, Finding]:
        """The damage at which each log is cut, by partition directory."""
        cuts: dict[Path, Finding] = {}
        for one in self.findings:
            if self.cut and _is_damaged_log(one):
                cuts.setdefault(one.file.parent, one)
        return cuts

    def steps(self) -> Iterator[Step]:
        """Yield the steps in order."""
        for path in self.stale_files:
            yield Step(path, "removed, and rebuilt from the log if needed")
        for finding in self.cuts.values():
            what = f"the log is cut at byte {finding.position}: everything after it is lost"
            yield Step(finding.file, what)
        for finding in self.findings:
            if finding.is_left_to_opening:
                yield Step(finding.file, finding.detail)


class Carried(NamedTuple):
    """The result of opening the logs in a repair."""

    recovered: Mapping[TopicPartition, Recovery]
    offline: Sequence[OfflineLog]
    """The logs that still could not be opened."""


def plan_repair(
    fs: FileSystem,
    directories: Path | Sequence[Path],
    config: EngineConfig | None = None,
    *,
    cut: bool = False,
) -> Plan:
    """Plan a repair without writing anything. `config` is as in `carry_out`."""
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
    """Carry out the plan by opening and closing the directories; return the result.

    `directories` are all directories of the log. Files are rebuilt as the service would: with the
    topics' configurations over the defaults in `config`. The plan must have no refusals. Raises
    DirectoryLocked if a directory is in use, StorageError, InvalidDataDirectory.
    """
    assert not plan.refusals, plan.refusals
    paths = [directories] if isinstance(directories, Path) else directories
    with ExitStack() as locks:
        for path in paths:
            locks.enter_context(DirectoryLock(fs, path))
        # Transaction indexes are removed last: a start would trust the other indexes without one.
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
    manager = open_logs(fs, paths, config or EngineConfig())
    try:
        recovered = {log.topic_partition: log.durability.recovery for log in manager.logs()}
        return Carried(recovered, manager.offline_logs)
    finally:
        manager.close()


def _distrust(fs: FileSystem, directory: Path, damages: Iterable[Finding]) -> None:
    """Make opening scan the damaged segments, so that it cuts each log at the damage."""
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
    """Whether a recovery scan would stop at the finding; it does not stop at missing offsets."""
    is_log = finding.file.suffix == names.LOG_SUFFIX
    return is_log and finding.severity is Severity.DAMAGE and finding.position >= 0
