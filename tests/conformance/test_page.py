"""The matrix of rows and tests: complete, current, and able to find what is not."""

from pathlib import Path

import pytest

from tests.conformance.page import PAGE, render
from tests.conformance.rows import Matrix, NamingTest, Row, Section, load_matrix

ROWS = (
    Row(("UnifiedLogTest.testRead", "LocalLogTest.testRead"), "Reads."),
    Row(("TimeIndexTest.testTruncate",), "Cuts the time index."),
    Row(("TransactionIndexTest.testTruncate",), "Cuts the transaction index."),
    Row(("ReplicaManagerTest.testFetch",), "Fetches.", reason="There is nobody to fetch."),
)


def matrix_of(*names: str) -> Matrix:
    """A matrix of the rows above and one test that names some."""
    return Matrix((Section("All", ROWS),), (NamingTest("tests/test_x.py", "test_x", names),))


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """The rows and the docstrings of the checkout."""
    return load_matrix()


def test_every_row_has_a_test_or_a_reason(matrix: Matrix) -> None:
    """No row is without either, and no test names a row that is not there."""
    assert list(matrix.faults()) == []


def test_the_page_is_current(matrix: Matrix) -> None:
    """The committed page is what rows and docstrings give now; `make conformance` writes it."""
    assert PAGE.read_text(encoding="utf-8") == render(matrix)


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        ((), "UnifiedLogTest.testRead has neither"),
        (
            ("TimeIndexTest.testTruncate", "TransactionIndexTest.testTruncate"),
            "UnifiedLogTest.testRead has neither",
        ),
        (("UnifiedLogTest.testWrite",), "names UnifiedLogTest.testWrite, which is not a row"),
        (
            ("ReplicaManagerTest.testFetch",),
            "ReplicaManagerTest.testFetch has a test, and a reason",
        ),
    ],
)
def test_what_is_wrong_with_rows_and_names_is_found(named: tuple[str, ...], fault: str) -> None:
    """A row without a test, a name without a row, a reason that is out of date."""
    assert any(fault in found for found in matrix_of(*named).faults())


@pytest.mark.parametrize("read", ["UnifiedLogTest.testRead", "LocalLogTest.testRead"])
def test_any_name_of_a_row_covers_it(read: str) -> None:
    """Tests of Kafka that check one behaviour are one row."""
    matrix = matrix_of(
        read,
        "TimeIndexTest.testTruncate",
        "ReplicaManagerTest.testFetch",
        "TransactionIndexTest.testTruncate",
    )
    assert [fault for fault in matrix.faults() if "ReplicaManagerTest.testFetch" not in fault] == []
    assert len(matrix.tests_of(ROWS[0])) == 1


def test_names_are_read_from_markers(tmp_path: Path) -> None:
    """Of functions and methods, with several names and among other decorators."""
    (tmp_path / "tests").mkdir()
    rows = tmp_path / "rows.toml"
    row = '{ row = "UnifiedLogTest.testA, UnifiedLogTest.testB", says = "" }'
    rows.write_text(f'[[section]]\ntitle = "All"\nrows = [{row}]\n')
    (tmp_path / "tests" / "test_x.py").write_text(
        """
@slow
@kafka("UnifiedLogTest.testA", "UnifiedLogTest.testB")
async def test_one(): ...
class TestTwo:
    @kafka("UnifiedLogTest.testA")
    def test_two(self): ...
@other("UnifiedLogTest.testA")
def test_three(): "Not marked (UnifiedLogTest.testA)."
"""
    )
    matrix = load_matrix(rows, tmp_path)
    assert sorted((test.function, test.names) for test in matrix.tests) == [
        ("test_one", ("UnifiedLogTest.testA", "UnifiedLogTest.testB")),
        ("test_two", ("UnifiedLogTest.testA",)),
    ]
    assert list(matrix.faults()) == []
