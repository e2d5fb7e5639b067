"""What every test shares: hypothesis profiles, the event loop, tests that need a foreign tool."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",  # the same examples on every machine and every run
    derandomize=True,
    database=None,
    deadline=None,  # two shared cores: a slow example is not a failure
    max_examples=100,
    print_blob=True,
)
settings.register_profile(
    "long",  # new examples every night; a failure prints what reproduces it
    database=None,
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")  # `--hypothesis-profile=long` is read later and wins

# A job of a shell, `make test &`, ignores these two, and a child inherits what is ignored: the
# services that tests start could not be stopped.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

CONSOLE = Path(__file__).parents[1] / "app" / "api" / "console" / "static" / "index.html"

_LEFT_OUT = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, which is what the service runs on."""
    return "asyncio"


def is_here(tool: str) -> bool:
    """Whether the machine has a program; the console counts as one once it is built."""
    if tool == "console":
        return CONSOLE.exists()
    return shutil.which(tool) is not None


def missing_tools(item: pytest.Item) -> Iterator[str]:
    """Name the programs the test asks for with `needs` that this machine does not have."""
    for marker in item.iter_markers("needs"):
        for tool in marker.args:
            if not is_here(tool):
                yield tool


@pytest.hookimpl(trylast=True)  # after -m and -k, so that only what was asked for is named
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose foreign tool is absent, and remember which tool it was."""
    left_out: dict[str, int] = {}
    kept, dropped = [], []
    for item in items:
        missing = next(missing_tools(item), None)
        if missing is None:
            kept.append(item)
            continue
        dropped.append(item)
        left_out[missing] = left_out.get(missing, 0) + 1
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    config.stash[_LEFT_OUT] = left_out


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say by name what this machine could not run."""
    for tool, count in sorted(config.stash.get(_LEFT_OUT, {}).items()):
        terminalreporter.write_line(
            f"left out: {count} test(s) that need {tool}, which is not here"
        )
