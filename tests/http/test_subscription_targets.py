"""Where subscriptions may send to: never where only this machine can."""

import asyncio
import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest

from app.operations.subscriptions.targets import Hosts, is_public
from tests.support.fake_kafka import eventually
from tests.support.receiver import Receiver
from tests.support.service import running

pytestmark = pytest.mark.anyio

URL = "/v1/subscriptions/s"


PRIVATE = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.5.5",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:7f00:1::1",
    "fec0::1",
    "100::1",
    "2001:2::1",
    "2001:10::1",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001:82a::200e"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_not_reached(address: str) -> None:
    """Nor one that stands for such an address; unless its network is listed."""
    assert not is_public(ipaddress.ip_address(address))
    assert not Hosts(()).may_be_reached("example.org", address)
    assert Hosts([address]).may_be_reached("example.org", address)
    assert Hosts(["*.org"]).may_be_reached("example.org", address)
    assert not Hosts(["*.com"]).may_be_reached("example.org", address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_reached(address: str) -> None:
    """Whatever is listed, and without a list."""
    assert Hosts(()).may_be_reached("example.org", address)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://localhost./",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://0/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[fe80::1%25eth0]/",
        "http://93.184.216.34/",
        "http://example.org/",
    ],
)
async def test_a_url_that_leads_inside_is_refused(tmp_path: Path, url: str) -> None:
    """However it is spelled, and everything that is not https."""
    async with running(tmp_path) as api:
        await api.create()
        answer = await api.client.put(URL, json={"topics": ["events"], "url": url})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
        assert answer.json()["errors"][0]["field"].endswith("url") or "url" in answer.text


async def test_a_name_that_means_something_else_at_the_connection_is_refused(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that is connected to is the one that was judged (Q6)."""
    port = int(receiver.url.split(":")[2].split("/")[0])
    asked: list[str] = []

    async def rebinding(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async with running(tmp_path) as api:
        await api.create()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
        body = {
            "topics": ["events"],
            "url": f"https://rebinds.example:{port}/",
            "start": "earliest",
            "retry": {"initial_ms": 10},
        }
        assert (await api.client.put(URL, json=body)).status_code == 201
        await api.append(1)
        one = api.service.subscriptions.all()["s"]
        await eventually(lambda: any(push.last for push in one.pushes.values()))
        (partition,) = (await api.client.get(URL)).json()["partitions"]
        assert "127.0.0.1, which is not public" in partition["last_answer"]["problem"]
        monkeypatch.undo()
    assert receiver.requests == []
