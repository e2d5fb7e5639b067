"""The tool that leaves out syncs, renames and locks: it changes what it says, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.mutants.__main__ import ROOT, reasons
from tests.support.mutants.sites import NO_LOCK, Kind, all_mutants, mutated

SOURCE = """
class Log:
    def __init__(self):
        self._lock = threading.Lock()

    def commit(self):
        with self._lock, self.guard():
            self.file.sync()
            self.end = 1
        return self.file.sync()
"""


def test_each_place_is_left_out_or_moved_alone(tmp_path: Path) -> None:
    """The statement and the lock; what a sync returns is somebody's to use, so it is left."""
    path = tmp_path / "engine" / "log.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    whole = ast.unparse(ast.parse(SOURCE))
    expected = {
        Kind.REMOVED: whole.replace("self.file.sync()\n            ", "pass\n            "),
        Kind.LATER: whole.replace(
            "self.file.sync()\n            self.end = 1",
            "self.end = 1\n            self.file.sync()",
        ),
        Kind.UNLOCKED: whole.replace("with self._lock,", f"with {NO_LOCK},"),
    }
    found = {mutant.kind: mutated(tmp_path, mutant).strip() for mutant in all_mutants(tmp_path)}
    assert found == {kind: text.strip() for kind, text in expected.items()}


def test_no_reason_outlives_its_mutant() -> None:
    """A mutant that is argued away is still one of the code as it is."""
    mutants = all_mutants(ROOT)
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 200
    assert all(reasons(mutants).values())
