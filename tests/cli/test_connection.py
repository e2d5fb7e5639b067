"""One service over HTTP: what is tried again, for how long, and what a person reads in the end."""

from collections.abc import Callable, Iterator

import httpx
import msgspec
import pytest

from app.client.connection import Connection, Request, topic_path
from app.client.failures import Interrupted, Refused, Unreachable

Answer = httpx.Response | Exception
URL = "http://tidelog.test"


class Script:
    """Answers given one after the other, and the time that passed between the requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = iter(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []
        self.notices: list[str] = []
        self.now = 1_000.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


Connect = Callable[..., tuple[Connection, Script]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Connection] = []

    def build(*answers: Answer, patience_s: float = 60.0) -> tuple[Connection, Script]:
        script = Script(*answers)
        connection = Connection(
            URL,
            patience_s=patience_s,
            notice=script.notices.append,
            transport=httpx.MockTransport(script),
            pause=script.pause,
            now=lambda: script.now,
        )
        opened.append(connection)
        return connection, script

    yield build
    for connection in opened:
        connection.close()


def ok(value: object = None) -> httpx.Response:
    return httpx.Response(200, content=msgspec.json.encode(value or {}))


def problem(status: int, **fields: object) -> httpx.Response:
    return httpx.Response(status, content=msgspec.json.encode(fields))


GET = Request("GET", "/v1/topics")


def test_a_request_carries_what_it_was_given(connect: Connect) -> None:
    """Method, path, parameters, headers and body reach the service as they are."""
    connection, script = connect(ok({"a": 1}))
    request = Request("POST", "/v1/x", {"offset": 5}, {"Producer-Id": "7"}, b"body")
    assert connection.json(request) == {"a": 1}
    (sent,) = script.requests
    assert (sent.method, str(sent.url), sent.read()) == ("POST", f"{URL}/v1/x?offset=5", b"body")
    assert sent.headers["producer-id"] == "7"


def test_the_time_out_allows_for_a_long_poll(connect: Connect) -> None:
    """A request that asks the service to wait is given that long on top."""
    connection, script = connect(ok(), ok())
    connection.send(GET)
    connection.send(Request("GET", "/v1/topics", wait_ms=30_000))
    short, long = (sent.extensions["timeout"]["read"] for sent in script.requests)
    assert long == short + 30


def test_a_service_that_never_answered_is_not_waited_for(connect: Connect) -> None:
    """A wrong address is reported at once, with the command that starts a service."""
    connection, script = connect(httpx.ConnectError("Connection refused"))
    with pytest.raises(Unreachable, match=f"no response from {URL}: Connection refused") as caught:
        connection.send(GET)
    assert "tidelog serve" in caught.value.advice
    assert script.pauses == []


def test_an_outage_is_waited_out_and_told_once(connect: Connect) -> None:
    """After an answer, failures cost pauses that grow; a person reads of the outage and its end."""
    lost = httpx.ReadError("reset")
    connection, script = connect(ok(), lost, lost, lost, ok({"b": 2}))
    connection.send(GET)
    assert connection.json(GET) == {"b": 2}
    assert len(script.pauses) == 3
    for pause_s, longest_s in zip(script.pauses, (0.1, 0.2, 0.4), strict=True):
        assert longest_s / 2 <= pause_s <= longest_s
    first, last = script.notices
    assert "trying again" in first
    assert "responds again" in last


def test_patience_ends(connect: Connect) -> None:
    """A service that stays unreachable is given up, and the last reason is reported."""
    failures = [httpx.ReadTimeout("slow") for _ in range(100)]
    connection, script = connect(ok(), *failures, patience_s=20.0)
    connection.send(GET)
    with pytest.raises(Unreachable, match="it took too long"):
        connection.send(GET)
    assert 10 < sum(script.pauses) <= 20


def test_a_failure_without_words_is_told_by_its_kind(connect: Connect) -> None:
    """An exception with an empty message still gives a reason."""
    connection, _ = connect(httpx.RemoteProtocolError(""))
    with pytest.raises(Unreachable, match="RemoteProtocolError"):
        connection.send(GET)


@pytest.mark.parametrize(
    ("status", "code"), [(503, "overloaded"), (503, "recovering"), (429, "quota_exceeded")]
)
def test_a_busy_service_is_asked_again_no_sooner_than_it_says(
    connect: Connect, status: int, code: str
) -> None:
    """`Retry-After` is kept, also at the very first request."""
    busy = problem(status, code=code, retryable=True)
    busy.headers["retry-after"] = "2"
    connection, script = connect(busy, ok())
    connection.send(GET)
    assert script.pauses == [2.0]


@pytest.mark.parametrize("nonsense", ["soon", "-4"])
def test_a_retry_after_that_is_no_number_of_seconds_is_not_believed(
    connect: Connect, nonsense: str
) -> None:
    """A date, a word or a negative number falls back to the usual pause."""
    busy = problem(503, code="overloaded", retryable=True)
    busy.headers["retry-after"] = nonsense
    connection, script = connect(busy, ok())
    connection.send(GET)
    assert 0 < script.pauses[0] <= 0.1


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (404, {"code": "topic_not_found", "retryable": False}),
        (503, {"code": "storage_offline", "retryable": False}),
        (422, {"code": "corrupt_batch", "retryable": True}),
        (500, {}),
    ],
)
def test_what_will_not_pass_by_itself_is_told_at_once(
    connect: Connect, status: int, fields: dict[str, object]
) -> None:
    """An answer that a repetition cannot change is not asked for twice."""
    connection, script = connect(problem(status, **fields))
    with pytest.raises(Refused):
        connection.send(GET)
    assert len(script.requests) == 1


def test_a_bad_gateway_in_between_is_waited_out(connect: Connect) -> None:
    """An answer that is not the service's own and stands for an outage is tried again."""
    connection, script = connect(httpx.Response(502, text="<html>"), ok())
    connection.send(GET)
    assert len(script.requests) == 2


def test_an_answer_that_is_no_object_is_refused(connect: Connect) -> None:
    """Another program on that port is reported as such, not as a Python error."""
    connection, _ = connect(httpx.Response(200, text="<html>"))
    with pytest.raises(Unreachable, match="not a JSON object"):
        connection.json(GET)


def test_closing_ends_a_wait() -> None:
    """A request that waits for the service stops waiting when the connection is closed."""
    connection = Connection(
        URL,
        transport=httpx.MockTransport(Script(problem(503, code="overloaded", retryable=True))),
        notice=lambda _: connection.stop_waiting(),
    )
    with connection, pytest.raises(Interrupted, match="stopped"):
        connection.send(GET)


class Line(httpx.MockTransport):
    """A transport that knows whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("answer", [ok(), httpx.ReadError("Bad file descriptor")])
def test_a_request_under_way_keeps_the_connections_open(answer: Answer) -> None:
    """Closing in the middle of a request waits for its end and reports no outage."""

    def respond(request: httpx.Request) -> httpx.Response:
        if script.requests:
            connection.close()
            assert not line.is_closed
        return script(request)

    script = Script(ok(), answer)
    line = Line(respond)
    connection = Connection(URL, transport=line, notice=script.notices.append)
    connection.send(GET)
    if isinstance(answer, Exception):
        with pytest.raises(Interrupted):
            connection.send(GET)
    else:
        assert connection.send(GET).content == answer.content
    assert (line.is_closed, script.notices) == (True, [])


def test_nothing_is_sent_over_a_closed_connection(connect: Connect) -> None:
    """A thread that continues after the end gets "stopped", not an error of the service."""
    connection, script = connect(ok())
    connection.close()
    with pytest.raises(Interrupted):
        connection.send(GET)
    assert script.requests == []


def test_without_a_listener_an_outage_is_silent() -> None:
    """Listening to the notices is optional."""
    script = Script(problem(503, retryable=True), ok())
    transport = httpx.MockTransport(script)
    with Connection(URL, transport=transport, pause=script.pause) as connection:
        connection.send(GET)
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("url", "is_direct"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://log.example:8080", False),
    ],
)
def test_a_proxy_of_the_environment_is_for_other_machines(
    url: str,
    is_direct: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service on this machine is reached directly even where HTTP_PROXY is set."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Connection(url) as connection:
        assert connection.uses_environment is not is_direct


def test_paths_quote_what_a_topic_may_not_smuggle_in() -> None:
    """A topic name stays one segment of the path, whatever it contains."""
    assert topic_path("a/../b?c") == "/v1/topics/a%2F..%2Fb%3Fc"
    assert topic_path("t", 3) == "/v1/topics/t/partitions/3"
    assert topic_path("t", 0, "records") == "/v1/topics/t/partitions/0/records"
    assert topic_path("t", operation="offsets") == "/v1/topics/t/offsets"
