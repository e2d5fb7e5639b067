"""Unit tests mirror the sources: who knows a module knows where its tests are."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
UNIT = CHECKOUT / "tests" / "unit"
ROOMS = ("app", "engine", "pyspark_tidelog", "schemas")


def misplaced(tests: Iterable[str], modules: Collection[str]) -> Iterator[str]:
    """Yield the test files without a module: `a/test_x.py` and `a/test_x_more.py` test `a/x.py`."""
    for test in tests:
        folder, _, name = test.rpartition("/test_")
        words = name.removesuffix(".py").split("_")
        names = ("_".join(words[:count]) for count in range(1, len(words) + 1))
        if not any(f"{folder}/{module}.py" in modules for module in names):
            yield test


def test_each_unit_test_stands_where_its_module_stands() -> None:
    """The path below `tests/unit` is the path of the module; a subject may follow its name."""
    modules = {
        path.relative_to(CHECKOUT).as_posix()
        for room in ROOMS
        for path in (CHECKOUT / room).rglob("*.py")
    }
    tests = sorted(path.relative_to(UNIT).as_posix() for path in UNIT.rglob("test_*.py"))
    assert len(tests) > 100
    assert list(misplaced(tests, modules)) == []


def test_a_test_without_a_module_is_found() -> None:
    """Another folder and a name that only begins alike do not count."""
    tests = ["a/test_x.py", "a/test_x_beside_y.py", "a/test_xy.py", "b/test_x.py"]
    assert list(misplaced(tests, {"a/x.py", "b/z.py"})) == ["a/test_xy.py", "b/test_x.py"]
