"""What the service says of itself: protocol rules H1 and H7."""

import pytest
from pydantic import TypeAdapter

from schemas.service import ServiceInfo
from tests.support.service import Api

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("path", ["/", "/v1"])
async def test_programs_learn_name_version_backend_and_links(api: Api, path: str) -> None:
    """At the root and at `/v1` alike; every link is served (H7)."""
    answer = await api.client.get(path, headers={"accept": "*/*"})
    info = TypeAdapter(ServiceInfo).validate_json(answer.content, strict=True)
    assert (info.name, info.backend) == ("tidelog", "local")
    document = (await api.client.get("/openapi.json")).json()
    assert info.version == document["info"]["version"]
    for name, link in info.links:
        if name != "console":
            assert (await api.client.get(link)).status_code == 200, link
    assert (await api.client.head(path)).status_code == 200


async def test_a_browser_at_the_root_is_redirected_to_the_console(api: Api) -> None:
    """It prefers HTML; a cache keeps the two answers apart, a proxy's prefix is kept (H7)."""
    for method in ("GET", "HEAD"):
        answer = await api.client.request(method, "/", headers={"accept": BROWSER})
        assert (answer.status_code, answer.headers["location"]) == (302, "console/")
        assert answer.headers["vary"] == "accept"
    for accept in ("application/json", "application/json, text/html;q=0.9", BROWSER):
        assert (await api.client.get("/v1", headers={"accept": accept})).status_code == 200
    plain = await api.client.get("/", headers={"accept": "application/json, text/html;q=0.9"})
    assert (plain.status_code, plain.headers["vary"]) == (200, "accept")
    assert (await api.client.get("/", headers={"accept": "image/png"})).status_code == 406
