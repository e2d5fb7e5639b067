"""One tidelog service over HTTP: keep-alive connections, retries, problems as errors.

Every request of the command line may be sent twice: reads and `PUT` are idempotent, appends have
sequence numbers. So a lost answer, a restart or an overloaded service costs a retry, with growing
pauses.
"""

from __future__ import annotations

import ipaddress
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from app.client.access import EVERYBODY, Access
from app.client.failures import Failure, Interrupted, Refused, Unreachable, refused

DEFAULT_SERVER: Final = "http://127.0.0.1:8080"
DEFAULT_PATIENCE_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 5.0
_ANSWER_TIMEOUT_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_MOST_CONNECTIONS: Final = 64

MAX_ANSWER_BYTES: Final = 256 << 20
"""Of one answer, decompressed: a page of records exceeds its budget by one batch at most."""

MIN_BYTES_PER_S: Final = 1024
"""Of an answer that takes longer than its timeout, decompressed: a slower one has no end."""

MAX_PARTITIONS: Final = 1 << 20
"""Of one topic. The service has at most 65,536, a Kafka cluster may have more."""

JsonObject = dict[str, Any]
Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` begins with a slash and is percent-encoded already."""

    method: str
    path: str
    params: Params = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    wait_ms: int = 0
    """Requested `max_wait_ms`; the timeout allows for it."""


def topic_path(topic: str, partition: int | None = None, operation: str = "") -> str:
    """Return the path of a topic, of one of its partitions, or of an operation on either."""
    path = f"/v1/topics/{quote(topic, safe='')}"
    if partition is not None:
        path += f"/partitions/{partition}"
    return f"{path}/{operation}" if operation else path


def group_path(group: str, *rest: str | int) -> str:
    """Return the path of a group, or of something in it."""
    return "/".join(["/v1/groups", *(quote(str(one), safe="") for one in (group, *rest))])


class Connection:
    """A service at `url`; safe for several threads.

    A request that fails for a temporary reason is repeated for `patience_s` after its first
    failure. A service that has never answered is not waited for, so a wrong address is reported at
    once. `notice` is called at the first failure of an outage and when it is over.
    """

    def __init__(
        self,
        url: str,
        *,
        access: Access = EVERYBODY,
        patience_s: float = DEFAULT_PATIENCE_S,
        notice: Callable[[str], None] | None = None,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], object] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience_s = patience_s
        self._notice = notice or _say_nothing
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._now = now
        self.uses_environment = not _is_loopback(self.url)  # no proxy for loopback
        if access.api_key and self.uses_environment and self.url.startswith("http:"):
            self._notice(f"the API key goes to {self.url} unencrypted: use https")
        self._has_answered = False
        self._is_out = False
        self._is_closed = False
        self._requests_under_way = 0
        self._lock = threading.Lock()
        self._http = httpx.Client(
            base_url=self.url,
            transport=transport,
            trust_env=self.uses_environment,
            headers=access.headers(),
            verify=access.verification() or True,
            timeout=httpx.Timeout(_ANSWER_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_MOST_CONNECTIONS),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all waits and refuse new requests; the last open request closes the connections.

        Sockets are never closed while a thread reads from them: it would report a broken service.
        """
        self.stop_waiting()
        with self._lock:
            self._is_closed = True
            is_idle = self._requests_under_way == 0
        if is_idle:
            self._http.close()

    def stop_waiting(self) -> None:
        """Stop waiting for the service; a request that is being answered may finish."""
        self._stopped.set()

    def json(self, request: Request) -> JsonObject:
        """Send, and return the answer's JSON object."""
        return decode_object(self.send(request))

    def send(self, request: Request) -> httpx.Response:
        """Send until there is an answer; raise `Refused`, `Unreachable` or `Interrupted`."""
        give_up_at: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                response = self._send_once(request)
            except (Refused, Unreachable) as failure:
                if self._is_closed:
                    raise Interrupted from failure
                if not self._may_pass(failure):
                    raise
                give_up_at = give_up_at or self._now() + self._patience_s
                wait_s = max(_retry_after_s(failure), _jittered(pause_s))
                if self._now() + wait_s > give_up_at:
                    raise
                self._tell_outage(failure)
                self.wait(wait_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                self._tell_recovery()
                return response

    def _send_once(self, request: Request) -> httpx.Response:
        timeout = httpx.Timeout(
            _ANSWER_TIMEOUT_S + request.wait_ms / 1000, connect=_CONNECT_TIMEOUT_S
        )
        try:
            with (
                self._under_way(),
                self._http.stream(
                    request.method,
                    request.path,
                    params=request.params or None,
                    headers=request.headers,
                    content=request.content,
                    timeout=timeout,
                ) as streamed,
            ):
                response = self._whole(streamed)
        except httpx.TransportError as error:
            raise Unreachable(self.url, _reason(error)) from error
        self._has_answered = True
        if response.is_success:
            return response
        failure = refused(response.status_code, response.content)
        failure.problem.setdefault("retry_after", response.headers.get("retry-after"))
        raise failure

    def _whole(self, streamed: httpx.Response) -> httpx.Response:
        """Return the response with its body; raise `Failure` if that has no end in sight."""
        body = bytearray()
        began = self._now()
        for piece in streamed.iter_bytes():
            body += piece
            took_s = self._now() - began
            if took_s > _ANSWER_TIMEOUT_S and len(body) < MIN_BYTES_PER_S * took_s:
                raise Failure(
                    f"{self.url} has sent {len(body)} bytes of one response in {took_s:.0f} s, "
                    f"fewer than {MIN_BYTES_PER_S} a second: is it tidelog?"
                )
            if len(body) > MAX_ANSWER_BYTES:
                raise Failure(
                    f"{self.url} sends more than {MAX_ANSWER_BYTES >> 20} MiB in one response: "
                    f"is it tidelog?"
                )
        about_body = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(k, v) for k, v in streamed.headers.raw if k.lower() not in about_body]
        return httpx.Response(
            streamed.status_code, headers=headers, content=bytes(body), request=streamed.request
        )

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Keep the connections open for one request; raise `Interrupted` if they are closed."""
        with self._lock:
            if self._is_closed:
                raise Interrupted
            self._requests_under_way += 1
        try:
            yield
        finally:
            self._request_ended()

    def _request_ended(self) -> None:
        with self._lock:
            self._requests_under_way -= 1
            is_last = self._is_closed and self._requests_under_way == 0
        if is_last:
            self._http.close()

    def _may_pass(self, failure: Failure) -> bool:
        if isinstance(failure, Refused):
            return failure.is_retryable
        return self._has_answered

    def wait(self, seconds: float) -> None:
        """Pause; raise `Interrupted` if the connection was closed meanwhile."""
        self._pause(seconds)
        if self._stopped.is_set():
            raise Interrupted

    def _tell_outage(self, failure: Failure) -> None:
        if not self._is_out:
            self._is_out = True
            self._notice(f"{failure}; trying again for up to {self._patience_s:.0f} s")

    def _tell_recovery(self) -> None:
        if self._is_out:
            self._is_out = False
            self._notice(f"{self.url} responds again")


def partitions_of(connection: Connection, topic: str) -> int:
    """Return the number of partitions of a topic; raise `Failure` if no topic has so many."""
    found = connection.json(Request("GET", topic_path(topic))).get("partitions")
    if not isinstance(found, int) or not 0 < found <= MAX_PARTITIONS:
        raise Failure(f"{connection.url} says that {topic} has {found!r:.40} partitions")
    return found


def entries_of(connection: Connection, path: str, member: str) -> Iterator[Any]:
    """Yield the entries of a list, page after page."""
    params: dict[str, str | int] = {}
    while True:
        page = connection.json(Request("GET", path, params))
        yield from page[member]
        token = page.get("next_page_token")
        if not token:
            return
        if token == params.get("page_token"):
            raise Failure(f"the pages of {path} of {connection.url} do not end")
        params = {"page_token": token}


def json_request(
    method: str,
    path: str,
    body: object,
    headers: Mapping[str, str] | None = None,
    wait_ms: int = 0,
) -> Request:
    """Return a request with a JSON body."""
    return Request(
        method,
        path,
        headers={"Content-Type": "application/json", **(headers or {})},
        content=msgspec.json.encode(body),
        wait_ms=wait_ms,
    )


def decode_object(response: httpx.Response) -> JsonObject:
    """Return the JSON object an answer carries; raise `Unreachable` if there is none.

    So does a look-up of a field that it does not have.
    """
    try:
        return _Document(response)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreachable(
            str(response.url), f"the response is not a JSON object: {error}"
        ) from error


class _Document(JsonObject):
    """A JSON object of the service."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(msgspec.json.decode(response.content, type=JsonObject))
        self._url = str(response.url)

    def __missing__(self, name: str) -> NoReturn:
        raise Unreachable(self._url, f"the response lacks {name}; is it tidelog?")


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return str(error) or type(error).__name__


def _retry_after_s(failure: Failure) -> float:
    """Return the service's Retry-After in seconds; dates and invalid values count as none."""
    asked = failure.problem.get("retry_after") if isinstance(failure, Refused) else None
    try:
        return min(max(float(asked or 0), 0.0), _LONGEST_PAUSE_S)
    except (TypeError, ValueError):
        return 0.0


def _jittered(pause_s: float) -> float:
    """Spread the retries of many clients over time."""
    return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret depends on it


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _say_nothing(_: str) -> None:
    return None
