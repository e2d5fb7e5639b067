"""Count the lines and branches that the tests run; fail the run when too many never were.

Loaded by `make tests` with `-p`, in each worker before anything of ours is imported. SlipCover puts
a probe into the code it measures and nothing elsewhere, which costs a tenth of the time, where a
trace function costs as much again as the tests themselves. Its own plugin cannot import packages
the way pytest's `importlib` mode needs it.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import pytest
import slipcover
from slipcover.importer import SlipcoverLoader

PACKAGES = ("app", "engine", "schemas")

# What needs no test: the body of a protocol's method, what only types are checked with, and what
# depends on the version of Python, of which a run has one.
NOT_COUNTED = (
    r"\.\.\.$",
    r"assert_never\(",
    r"if __name__ == .__main__.:",
    r"if TYPE_CHECKING:",
    r"^if sys\.version_info ",
)

NEVER = 10**9  # probes stay: taking them out of running code is not worth its risk

LEAST_PERCENT = 99.9
"""A branch that only sometimes runs is named and fails nothing; a room without tests fails."""

_KEY = "tidelog_branches"
_COUNTS = pytest.StashKey[dict[str, Any]]()


class _Finder(MetaPathFinder):
    """Hand the modules of the packages to the loader that puts probes into them."""

    def __init__(self, counter: slipcover.Slipcover) -> None:
        self._counter = counter

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as Python does, if it is one of ours."""
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = SlipcoverLoader(self._counter, spec.loader, spec.origin)
        return spec


class Branches:
    """One process of the run: counts what it runs itself, and gathers what its workers counted."""

    def __init__(self, counter: slipcover.Slipcover) -> None:
        self._counter = counter

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the worker's counts to the controller; in the controller, judge the sum."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = json.dumps(self._counter.get_coverage())
            return
        counts = self._merged(session.config, self._counter.get_coverage())
        is_short = counts["summary"]["percent_covered"] < LEAST_PERCENT
        if is_short and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker counted."""
        sent = getattr(node, "workeroutput", {}).get(_KEY)
        if sent is not None:
            self._merged(node.config, json.loads(sent))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Name each line and branch that no test took."""
        counts = config.stash[_COUNTS]
        summary = counts["summary"]
        terminalreporter.write_line(
            f"{summary['covered_lines']:,} lines and {summary['covered_branches']:,} branches"
            f" of {', '.join(PACKAGES)} were run,"
            f" {summary['missing_lines']:,} and {summary['missing_branches']:,} were not"
        )
        for line in missed(counts):
            terminalreporter.write_line(line, red=True)

    def _merged(self, config: pytest.Config, counts: dict[str, Any]) -> dict[str, Any]:
        """Add counts to those of the run, and return the sum."""
        before = config.stash.get(_COUNTS, None)
        after = counts if before is None else slipcover.merge_coverage(before, counts)
        config.stash[_COUNTS] = after
        return after


def missed(counts: dict[str, Any]) -> list[str]:
    """Name by file the lines and the branches `from->to` that never ran; 0 is a function's end."""
    return [
        f"{name}: never run: "
        + ", ".join(
            [str(line) for line in file["missing_lines"]]
            + [f"{start}->{end}" for start, end in file["missing_branches"]]
        )
        for name, file in sorted(counts["files"].items())
        if file["missing_lines"] or file["missing_branches"]
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Count from now on, which is before the first conftest imports anything of ours."""
    early = [name for name in PACKAGES if name in sys.modules]
    if early:
        message = f"imported before anything could be counted: {', '.join(early)}"
        raise pytest.UsageError(message)
    in_a_worker = "PYTEST_XDIST_WORKER" in os.environ
    counter = slipcover.Slipcover(
        branch=True,
        source=[] if in_a_worker else list(PACKAGES),  # what nothing imports is missed as well
        d_miss_threshold=NEVER,
        exclude_also=list(NOT_COUNTED),
    )
    sys.meta_path.insert(0, _Finder(counter))
    early_config.pluginmanager.register(Branches(counter), "tidelog-branches")
