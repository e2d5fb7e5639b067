"""`tidelog topics` and `tidelog create` against a real service."""

import gzip
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from app.client import connection as connections
from app.client.commands.read import read_to_end
from app.client.commands.topics import all_topics
from app.client.connection import Connection, Request, partitions_of
from app.client.failures import Failure
from tests.cli.conftest import Run, objects


def test_a_new_service_says_how_to_make_the_first_topic(run: Run) -> None:
    """An empty list is a sentence for people and nothing for programs."""
    shown = run("topics")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "tidelog create" in shown.stderr
    assert run("topics", "--json").stdout == ""


def test_create_is_as_good_the_second_time(run: Run) -> None:
    """Made or found with the same settings, the command succeeds and says which."""
    command = ("create", "made", "--partitions", "3", "--config", "retention.ms=-1")
    assert run(*command).stdout == "made created, 3 partition(s)\n"
    assert run(*command).stdout == "made exists already, 3 partition(s)\n"
    (topic,) = objects(run(*command, "--json").stdout)
    assert topic["partitions"] == 3


def test_create_does_not_change_a_topic(run: Run) -> None:
    """Other settings under the same name are refused with one sentence, and exit code 1."""
    run("create", "fixed", "--partitions", "2")
    refused = run("create", "fixed", "--partitions", "5")
    assert refused.exit_code == 1
    assert "409 topic_conflict" in refused.stderr
    assert refused.stdout == ""


def test_a_configuration_without_a_value_is_not_understood(run: Run) -> None:
    """Usage errors have the exit code 2 and reach no service."""
    for text in ("retention.ms", "=1"):
        assert run("create", "never", "--config", text).exit_code == 2
    assert run("topics", "never").exit_code == 1


def test_topics_lists_names_and_partitions(run: Run) -> None:
    """People see a table, programs an object a line."""
    run("create", "listed", "--partitions", "2")
    table = run("topics").stdout.splitlines()
    assert table[0].split() == ["topic", "partitions"]
    assert ["listed", "2"] in [row.split() for row in table]
    assert ("listed", 2) in [
        (topic["topic"], topic["partitions"]) for topic in objects(run("topics", "--json").stdout)
    ]


def test_one_topic_is_shown_with_its_offsets_and_what_was_configured(run: Run) -> None:
    """Of a single topic both forms tell where each partition begins and ends."""
    run("create", "shown", "-p", "2", "-c", "segment.bytes=1048576")
    run("append", "shown", "--partition", "1", stdin=b'{"value": 1}\n{"value": 2}')
    text = run("topics", "shown").stdout
    assert "shown: 2 partition(s), 2 records" in text
    assert "segment.bytes=1048576" in text
    assert ["1", "0", "2", "2", "2"] in [row.split() for row in text.splitlines()]
    (topic,) = objects(run("topics", "shown", "--json").stdout)
    assert isinstance(topic["offsets"], list)
    assert [each["high_watermark"] for each in topic["offsets"]] == [0, 2]


def test_a_topic_without_settings_of_its_own_shows_none(run: Run) -> None:
    """Defaults are not news."""
    run("create", "plain")
    assert "=" not in run("topics", "plain").stdout


def test_an_unknown_topic_is_told_with_advice(run: Run) -> None:
    """The sentence is the service's, the advice says which command lists what there is."""
    missing = run("topics", "nowhere")
    assert missing.exit_code == 1
    assert "404 topic_not_found" in missing.stderr
    assert "tidelog topics" in missing.stderr


def test_a_failure_is_json_for_programs(run: Run) -> None:
    """With --json the error stream carries an object, too."""
    (failure,) = objects(run("topics", "nowhere", "--json").stderr)
    assert failure["code"] == "topic_not_found"
    assert failure["status"] == 404


def test_without_a_service_the_address_is_told(run: Run) -> None:
    """A wrong address is one sentence with what to do, at once."""
    nobody = run("topics", "--server", "http://127.0.0.1:9")
    assert nobody.exit_code == 1
    assert "no response from http://127.0.0.1:9" in nobody.stderr
    (failure,) = objects(run("topics", "--server", "http://127.0.0.1:9", "--json").stderr)
    assert failure["code"] == "unreachable"


def test_every_page_of_the_list_is_read() -> None:
    """A list that comes in pages is followed to its end."""
    pages = {None: (["a", "b"], "x"), "x": (["c"], None)}

    def answer(request: httpx.Request) -> httpx.Response:
        names, token = pages[request.url.params.get("page_token")]
        body = {"topics": [{"topic": name} for name in names], "next_page_token": token}
        return httpx.Response(200, content=msgspec.json.encode(body))

    with Connection("http://127.0.0.1", transport=httpx.MockTransport(answer)) as connection:
        assert [topic["topic"] for topic in all_topics(connection)] == ["a", "b", "c"]


def hostile(*answers: httpx.Response) -> Connection:
    """Return a connection to a service that gives these answers, the last one for ever."""
    left = list(answers)

    def answer(_: httpx.Request) -> httpx.Response:
        return left.pop(0) if len(left) > 1 else left[0]

    return Connection("http://127.0.0.1", transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("document", ['{"topics": [], "next_page_token": "x"}', "{}", "[]", "["])
def test_a_list_that_is_none_or_never_ends_is_refused(document: str) -> None:
    """By a sentence, whatever an impersonated service answers."""
    with hostile(httpx.Response(200, text=document)) as connection, pytest.raises(Failure):
        list(all_topics(connection))


@pytest.mark.parametrize("count", ["50000000", "0", "-1", "1.5", '"9"', "null"])
def test_a_number_of_partitions_that_no_topic_has_is_refused(count: str) -> None:
    """It would be the length of a list."""
    answer = httpx.Response(200, text=f'{{"partitions": {count}}}')
    with hostile(answer) as connection, pytest.raises(Failure, match="says that t has"):
        partitions_of(connection, "t")


def test_a_response_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one may become large when it is decompressed."""
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 3 << 20)
    small = gzip.compress(bytes((3 << 20) + 1))
    answer = httpx.Response(200, content=small, headers={"Content-Encoding": "gzip"})
    with (
        hostile(answer) as connection,
        pytest.raises(Failure, match="more than 3 MiB in one response"),
    ):
        connection.send(Request("GET", "/v1/topics"))


def test_a_response_that_comes_too_slowly_is_given_up() -> None:
    """A byte now and then would keep the command for ever; a slow page that moves is read."""
    now_s = 0.0

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=pieces())

    def pieces() -> Iterator[bytes]:
        nonlocal now_s
        for _ in range(200):
            now_s += 1
            yield piece

    def connect() -> Connection:
        transport = httpx.MockTransport(answer)
        return Connection("http://127.0.0.1", transport=transport, now=lambda: now_s)

    piece = b"x" * 1023
    with connect() as connection, pytest.raises(Failure, match="fewer than 1024 a second"):
        connection.send(Request("GET", "/v1/topics"))
    assert now_s < 62
    piece = b"x" * 1024
    with connect() as connection:
        assert len(connection.send(Request("GET", "/v1/topics")).content) == 200 * 1024


def test_pages_of_records_that_do_not_go_on_are_refused() -> None:
    """The same offset again and again, below the end."""
    marks = {"Log-Next-Offset": "5", "Log-High-Watermark": "9"}
    with (
        hostile(httpx.Response(200, headers=marks)) as connection,
        pytest.raises(Failure, match="do not go on"),
    ):
        list(read_to_end(connection, "t", 0, "0", max_records=None))
