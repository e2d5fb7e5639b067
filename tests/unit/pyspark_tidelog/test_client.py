"""One connection to the service: what is tried again, for how long, and what an error says."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyspark_tidelog.client import LONGEST_PAUSE_S, ServiceClient, pause_s
from pyspark_tidelog.documents import Appended, TopicsPage
from pyspark_tidelog.endpoint import Endpoint
from pyspark_tidelog.errors import ServiceError
from tests.support.log_service import LogService, Reply


@contextmanager
def client_of(
    url: str, *, retries: int = 3, token: str | None = None, pauses: list[float] | None = None
) -> Iterator[ServiceClient]:
    slept: list[float] = [] if pauses is None else pauses
    with ServiceClient(Endpoint(url, token, 5.0, retries), sleep=slept.append) as client:
        yield client


def test_an_answer_has_status_headers_and_body(service: LogService) -> None:
    """Header names are lower-case, whatever the server wrote."""
    service.fault = lambda _path: Reply(200, b'{"a": 1}', {"Log-Next-Offset": "7"})
    with client_of(service.url) as client:
        answer = client.get("/x")
    assert (answer.status, answer.is_whole, bytes(answer.body)) == (200, True, b'{"a": 1}')
    assert answer.headers["log-next-offset"] == "7"


def test_one_connection_serves_many_requests(service: LogService) -> None:
    """Keep-alive: a second request does not pay for a second connection."""
    service.make("t")
    with client_of(service.url) as client:
        client.get("/v1/topics/t/offsets")
        connection = client._connection  # noqa: SLF001 - the very connection is the point
        client.get("/v1/topics/t/offsets")
        assert client._connection is connection  # noqa: SLF001 - the same


def test_a_path_in_the_address_goes_before_every_request(service: LogService) -> None:
    """A service behind a proxy may live below a path."""
    service.fault = lambda path: Reply(200, path.encode())
    with client_of(service.url + "/logs") as client:
        assert client.get("/v1/x").body == b"/logs/v1/x"


def test_the_token_is_sent_and_its_refusal_explained(service: LogService) -> None:
    """A bearer token on every request; a 401 says which option to mend."""
    service.fault = lambda _path: Reply.of_json(401, code="unauthenticated", detail="no such key")
    refusal = r"refuses the credentials \(401 unauthenticated: no such key\): set the option token"
    with (
        client_of(service.url, token="secret") as client,
        pytest.raises(ServiceError, match=refusal),
    ):
        client.get("/x")
    assert service.authorizations == ["Bearer secret"]


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_busy_service_is_asked_again(service: LogService, status: int) -> None:
    """Refusals that pass are waited out."""
    replies = iter([Reply(status), Reply(status, headers={"Retry-After": "3"}), Reply(200, b"ok")])
    service.fault = lambda _path: next(replies)
    pauses: list[float] = []
    with client_of(service.url, pauses=pauses) as client:
        assert client.get("/x").body == b"ok"
    assert pauses[1:] == [3.0]


@pytest.mark.parametrize("status", [400, 404, 410, 416, 500, 507])
def test_a_refusal_that_does_not_pass_is_told_at_once(service: LogService, status: int) -> None:
    """What will be refused again is not asked again, unless the caller expects it."""
    service.fault = lambda _path: Reply.of_json(status, code="some_code", detail="in words")
    with client_of(service.url) as client:
        with pytest.raises(ServiceError, match=f"was refused: {status} some_code: in words"):
            client.get("/x")
        assert client.get("/x", expected=frozenset({status})).status == status


def test_an_error_page_that_is_no_json_is_told_by_its_status(service: LogService) -> None:
    """A proxy in between answers in HTML, which must not fill a Spark log."""
    service.fault = lambda _path: Reply(418, b"<html>")
    with client_of(service.url) as client, pytest.raises(ServiceError, match=r"HTTP 418$"):
        client.get("/x")


def test_json_that_is_none_is_refused(service: LogService) -> None:
    """Another program at that address is found out."""
    service.fault = lambda _path: Reply(200, b"hello")
    with (
        client_of(service.url) as client,
        pytest.raises(ServiceError, match="instead of JSON of Appended"),
    ):
        client.get("/x").to(Appended)


def test_nobody_there_is_told_after_the_last_attempt() -> None:
    """The sentence has the address, the number of attempts and the cause."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    pauses: list[float] = []
    told = (
        rf"no response from {url} after 4 attempts \(ConnectionRefusedError.*is the service running"
    )
    with client_of(url, pauses=pauses) as client, pytest.raises(ServiceError, match=told):
        client.get("/x")
    assert len(pauses) == 3


def test_a_body_that_breaks_off_is_given_as_far_as_it_came(service: LogService) -> None:
    """Its whole batches are returned, and the caller learns that there was more."""
    service.fault = lambda _path: Reply(200, b"0123456789", cut_after=4)
    with client_of(service.url) as client:
        answer = client.get("/x", may_break=True)
    assert (bytes(answer.body), answer.is_whole) == (b"0123", False)


def test_a_body_that_has_to_be_whole_is_asked_for_again(service: LogService) -> None:
    """Half a JSON document is an error, and the request is repeated."""
    replies = iter([Reply(200, b"0123", cut_after=2), Reply(200, b"0123")])
    service.fault = lambda _path: next(replies)
    with client_of(service.url) as client:
        assert client.get("/x").body == b"0123"


def test_a_body_that_comes_to_a_halt_is_given_as_far_as_it_came(service: LogService) -> None:
    """A connection that is open and silent ends with the timeout, not with the job's patience."""
    stall = threading.Event()
    body = bytes(range(256)) * 4096
    service.fault = lambda _path: Reply(200, body, cut_after=600_000, stall=stall)
    with ServiceClient(Endpoint(service.url, timeout_s=1.0)) as client:
        answer = client.get("/x", may_break=True)
    stall.set()
    assert not answer.is_whole
    assert len(answer.body) > 500_000
    assert body.startswith(answer.body)


def test_an_answer_cut_anywhere_is_asked_for_again() -> None:
    """Inside its head, too: without its length it would look like an answer with nothing in it."""
    answer = b"HTTP/1.1 200 OK\r\nLog-Next-Offset: 1234\r\nContent-Length: 4\r\n\r\n0123"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for end in range(len(answer) + 1):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer[:end])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with client_of(url, retries=len(answer)) as client:
            whole = client.get("/x")
        thread.join()
    assert (whole.headers["log-next-offset"], bytes(whole.body)) == ("1234", b"0123")


def test_a_body_that_never_begins_is_asked_for_again(service: LogService) -> None:
    """Nothing of a body is worth nothing."""
    replies = iter([Reply(200, b"0123", cut_after=0), Reply(200, b"0123")])
    service.fault = lambda _path: next(replies)
    pauses: list[float] = []
    with client_of(service.url, pauses=pauses) as client:
        assert client.get("/x").is_whole
    assert len(pauses) == 1


def test_a_connection_closed_while_idle_costs_no_attempt(service: LogService) -> None:
    """Servers close connections that lie idle; the next request opens another at once."""
    service.fault = lambda _path: Reply(200, b"ok", {"Connection": "keep-alive"}, cut_after=2)
    pauses: list[float] = []
    with client_of(service.url, retries=0, pauses=pauses) as client:
        assert client.get("/x").body == b"ok"
        assert client.get("/x").body == b"ok"
    assert pauses == []


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (b"Content-Length: 2147483648", "sends 2147483648 bytes in one answer, of which at most 9"),
        (b"Content-Length: 10", "sends 10 bytes in one answer, of which at most 9 were asked for"),
        (b"Transfer-Encoding: chunked", "sends more than 9 bytes in one answer"),
        (b"Connection: close", "sends more than 9 bytes in one answer"),
    ],
)
def test_an_answer_larger_than_was_asked_for_is_refused(head: bytes, sentence: str) -> None:
    """It is not read, whether its size is announced or it never ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
                while True:
                    connection.sendall(b"5\r\n12345\r\n" * 1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with client_of(url) as client, pytest.raises(ServiceError, match=sentence):
            client.get("/x", max_bytes=9)
        thread.join()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000000\r\n\r\n",
    ],
)
def test_an_answer_that_comes_too_slowly_is_given_up(head: bytes) -> None:
    """A byte now and then would keep a task for ever, in a head as in a body."""
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(head)
                while not closing.wait(0.01):
                    connection.sendall(b"H")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        endpoint = Endpoint(f"http://127.0.0.1:{server.getsockname()[1]}", None, 0.2, 0)
        with (
            ServiceClient(endpoint) as client,
            pytest.raises(ServiceError, match="fewer than 1024 a second"),
        ):
            client.get("/x")
        closing.set()
        thread.join()


def test_pages_that_do_not_end_are_not_followed(service: LogService) -> None:
    """A page that names itself as the next one."""
    service.fault = lambda _path: Reply.of_json(200, topics=[{"topic": "t"}], next_page_token="x")
    with client_of(service.url) as client, pytest.raises(ServiceError, match="do not end"):
        [*client.pages("/v1/topics", TopicsPage)]
    assert service.requests == []


@pytest.mark.parametrize("name", ["../../outside", "..", "a/b", "", "a\n", "x" * 250, "ü"])
def test_a_name_that_no_topic_can_have_is_refused(service: LogService, name: str) -> None:
    """It would reach a path, of a folder or of a URL."""
    service.fault = lambda _path: Reply.of_json(200, topics=[{"topic": name}], next_page_token=None)
    with client_of(service.url) as client, pytest.raises(ServiceError, match="is it tidelog"):
        [*client.pages("/v1/topics", TopicsPage)]


def test_pauses_double_up_to_a_ceiling_and_are_never_alike() -> None:
    """Many tasks that failed together must not come back together."""
    calm = [pause_s(attempt, None, 1.0) for attempt in range(12)]
    assert calm[:4] == [0.05, 0.1, 0.2, 0.4]
    assert calm[-1] == LONGEST_PAUSE_S
    assert all(a <= b for a, b in itertools.pairwise(calm))
    assert pause_s(3, None, 0.0) == calm[3] / 2


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("86400", 60.0)])
def test_the_service_may_say_how_long_to_wait(text: str, seconds: float) -> None:
    """Retry-After in seconds is obeyed, up to a minute."""
    assert pause_s(0, text, 0.5) == seconds


def test_a_retry_after_that_is_a_date_is_not_believed() -> None:
    """Clocks differ; the pause of our own does as well."""
    assert pause_s(0, "Wed, 21 Oct 2026 07:28:00 GMT", 1.0) == 0.05
