"""The tool that leaves out syncs, renames and locks: it changes what it says, and nothing else."""

from __future__ import annotations

import ast
import gc
import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import reached
from tests.mutants.__main__ import ROOT, reasons
from tests.mutants.live import NotLoadedError, replace_code
from tests.mutants.sites import (
    NO_LOCK,
    Kind,
    Mutant,
    all_mutants,
    any_mutants,
    instrumented_tree,
    mutated,
    mutated_tree,
)
from tests.mutants.trial import (
    ENGINE_TESTS,
    GUARD_TESTS,
    JOB_TESTS,
    SERVICE_TESTS,
    BrokenError,
    Rehearsal,
    in_fork,
    runs_for,
)


def placed(path: Path, text: str) -> Path:
    """Write a source into a folder of its own."""
    path.parent.mkdir()
    path.write_text(text)
    return path


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
    """Each statement and lock alone; a sync whose result is used is left unchanged."""
    placed(tmp_path / "engine" / "log.py", SOURCE)
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


LOADED = """
def copy(file, steps):
    file.write("a")
    file.flush()
    steps.append("done")
"""


class File(io.StringIO):
    """A file that notes when it is flushed."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self._steps = steps

    def flush(self) -> None:
        self._steps.append("flushed")


def test_a_loaded_function_is_changed_and_tells_what_reaches_it(tmp_path: Path) -> None:
    """The mutant runs without another import; what no function has cannot be judged."""
    path = placed(tmp_path / "engine" / "loaded.py", LOADED)
    loaded: dict[str, Any] = {}
    exec(compile(LOADED, str(path), "exec"), loaded)
    removed, later = all_mutants(tmp_path)

    def told() -> list[str]:
        steps: list[str] = []
        loaded["copy"](File(steps), steps)
        return steps

    assert told() == ["flushed", "done"]
    replace_code(path, mutated_tree(tmp_path, later))
    assert told() == ["done", "flushed"]
    replace_code(path, mutated_tree(tmp_path, removed))
    assert told() == ["done"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reached, "by_site", {})
        patch.setattr(reached, "run", "this test")
        replace_code(path, instrumented_tree(tmp_path, "engine/loaded.py", {removed: 7, later: 8}))
        assert told() == ["flushed", "done"]
        assert {site: [*runs] for site, runs in reached.by_site.items()} == {
            7: ["this test"],
            8: ["this test"],
        }
    loaded.clear()
    gc.collect()
    with pytest.raises(NotLoadedError):
        replace_code(path, mutated_tree(tmp_path, removed))


def test_a_mutant_meets_what_reaches_it_the_crash_tests_first() -> None:
    """What fails without a change judges nothing; only threads notice a lock that is left out."""
    seconds = {"tests/unit/a": 1, "tests/crash/b": 2, "tests/crash/c": 3, "life 1": 4, "broken": 0}
    rehearsal = Rehearsal({0: dict.fromkeys(seconds, False)}, seconds, frozenset({"broken"}))
    sync = Mutant("engine/log/x.py", "f", "sync()", 0, Kind.REMOVED)
    expected = ["tests/crash/b", "tests/crash/c", "life 1", "tests/unit/a", "schedule 1"]
    assert runs_for(sync, 0, rehearsal, 1) == expected
    lock = Mutant("engine/index/x.py", "f", "lock", 0, Kind.UNLOCKED)
    assert runs_for(lock, 0, rehearsal, 1) == ["tests/unit/a", "tests/crash/b", "tests/crash/c"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_answers_or_is_ended() -> None:
    """Its answer, its error, its death, and the time it may take."""
    assert in_fork(lambda _: {"a": 1}, 60) == {"a": 1}
    with pytest.raises(BrokenError, match="ZeroDivisionError"):
        in_fork(lambda _: 1 // 0, 60)
    with pytest.raises(BrokenError, match="the process died"):
        in_fork(lambda _: os.kill(os.getpid(), signal.SIGKILL), 60)
    with pytest.raises(TimeoutError):
        in_fork(lambda _: threading.Event().wait(), 0.1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_that_hangs_is_answered_for() -> None:
    """By a thread that watches it."""

    def hang(answer: Callable[[str], None]) -> None:
        threading.Timer(0, answer, ["it does not end"]).start()
        threading.Event().wait()

    assert in_fork(hang, 60) == "it does not end"


def test_every_folder_of_the_trials_exists() -> None:
    """A name that is gone would end pytest at once, and every mutant would count as not judged."""
    folders = [f"tests/{one}" for one in {*ENGINE_TESTS, *JOB_TESTS, *SERVICE_TESTS}]
    assert [one for one in (*folders, *GUARD_TESTS) if not (ROOT / one).exists()] == []


def test_no_reason_outlives_its_mutant() -> None:
    """A mutant that is argued away is still one of the code as it is."""
    mutants = all_mutants(ROOT)
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 200
    assert all(reasons([*mutants, *any_mutants(ROOT)]).values())


EDITED = """
async def read(self, wanted: int = 0):
    if wanted < self.end and not self.is_closed:
        self.note(wanted + 1)
    return self.rows[wanted] is None or False
"""


def test_each_expression_call_and_branch_is_changed_alone(tmp_path: Path) -> None:
    """Of what runs when a function is called: a default is evaluated when the module is loaded."""
    placed(tmp_path / "app" / "reading.py", EDITED)
    whole = ast.unparse(ast.parse(EDITED))
    expected = {
        whole.replace(before, after)
        for before, after in {
            "wanted < self.end and (not self.is_closed)": "not (wanted < self.end and "
            "(not self.is_closed))",
            "wanted < self.end": "wanted <= self.end",
            " and (not": " or (not",
            "(not self.is_closed)": "(not not self.is_closed)",
            "self.note(wanted + 1)": "pass",
            "wanted + 1": "wanted - 1",
            "+ 1": "+ 0",
            "is None": "is not None",
            " or False": " and False",
            "False": "True",
        }.items()
    }
    found = [mutated(tmp_path, mutant).strip() for mutant in any_mutants(tmp_path)]
    same = {ast.dump(ast.parse(text)) for text in found}
    assert same == {ast.dump(ast.parse(text)) for text in expected}
    assert len(found) == len(same) == 10
    assert all_mutants(tmp_path) == []
