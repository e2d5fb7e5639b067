"""The matrix of rows and tests: complete, current, and able to find what is not."""

from pathlib import Path

import pytest

from tests.conformance.page import PAGE, PREFIXES, render
from tests.conformance.rows import Matrix, NamingTest, Row, Section, load_matrix

ROWS = (
    Row(("UL.testRead", "LO.testRead"), "Reads."),
    Row(("TI.testTruncate",), "Cuts the time index."),
    Row(("TX.testTruncate",), "Cuts the transaction index."),
    Row(("RM.testFetch",), "Fetches.", reason="There is nobody to fetch."),
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


def test_every_prefix_is_explained(matrix: Matrix) -> None:
    """The class that a name abbreviates is told on the page."""
    rows = [row for section in matrix.sections for row in section.rows]
    used = {name.partition(".")[0] for row in rows for name in row.names if "." in name}
    assert used - set(PREFIXES) == {"BrokerCompressionTest"}


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        ((), "UL.testRead has neither"),
        (("TI.testTruncate", "TX.testTruncate"), "UL.testRead has neither"),
        (("UL.testWrite",), "names UL.testWrite, which is no row"),
        (("testTruncate",), "names testTruncate, which is no row"),  # whose of the two?
        (("RM.testFetch",), "RM.testFetch has a test, and a reason"),
    ],
)
def test_what_is_wrong_with_rows_and_names_is_found(named: tuple[str, ...], fault: str) -> None:
    """A row without test, a name without row, a name that could be two, a reason out of date."""
    assert any(fault in found for found in matrix_of(*named).faults())


@pytest.mark.parametrize("read", ["UL.testRead", "LO.testRead"])
def test_any_name_of_a_row_covers_it(read: str) -> None:
    """Tests of Kafka that check one behaviour are one row."""
    matrix = matrix_of(read, "TI.testTruncate", "testFetch", "TX.testTruncate")
    assert [fault for fault in matrix.faults() if "RM.testFetch" not in fault] == []
    assert len(matrix.tests_of(ROWS[0])) == 1


def test_names_are_read_from_the_end_of_a_docstring(tmp_path: Path) -> None:
    """Only the last parentheses count, over several lines too; other words there are no names."""
    (tmp_path / "tests").mkdir()
    rows = tmp_path / "rows.toml"
    row = '{ row = "UL.testA, UL.testB", says = "" }'
    rows.write_text(f'[[section]]\ntitle = "All"\nrows = [{row}]\n')
    docstrings = {
        "test_one": "First (UL.testA).",
        "test_two": "Second (UL.testX) of two.\n\n    (UL.testA,\n    testB, 2**31)\n    ",
        "test_three": "Third (see 4.2).",
        "helper": "No test (UL.testA).",
    }
    source = "".join(f"def {name}():\n    '''{said}'''\n" for name, said in docstrings.items())
    (tmp_path / "tests" / "test_x.py").write_text(source)
    matrix = load_matrix(rows, tmp_path)
    assert [(test.function, test.names) for test in matrix.tests] == [
        ("test_one", ("UL.testA",)),
        ("test_two", ("UL.testA", "testB")),
    ]
    assert list(matrix.faults()) == []
