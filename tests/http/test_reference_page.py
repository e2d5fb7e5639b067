"""The page at /docs: complete, readable without a network, and nothing in it runs."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from app.api import reference_page
from app.api.application import document_text
from tests.support.service import Api

pytestmark = pytest.mark.anyio

VOID = {"meta", "br"}


class Page(HTMLParser):
    """The elements of the page that a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.style = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.style += data
        else:
            self.text += f"{data} "

    def values(self, name: str) -> list[str]:
        return [value for given, value in self.attributes if given == name]


async def test_the_page_runs_nothing_and_loads_nothing(api: Api) -> None:
    """No scripts, no external files, and a policy that forbids both."""
    answer = await api.client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert all(value.startswith("#") or value == "openapi.json" for value in page.values("href"))
    assert page.values("src") == []
    assert not re.search(r"@import|url\(", page.style)
    style = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    policy = dict(
        one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; ")
    )
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{style}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_it_is_made_once_for_everybody(
    api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Anonymous callers may ask: the second one costs a comparison, or a copy of its bytes."""
    first = await api.client.get(path)
    monkeypatch.setattr("app.api.application.document", None)  # it is not asked again
    monkeypatch.setattr("app.api.reference_page.render", None)
    again = await api.client.get(path)
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert again.headers["cache-control"] == "no-cache"
    for tag, status in (
        (first.headers["etag"], 304),
        (f"W/{first.headers['etag']}", 304),
        ('"x"', 200),
    ):
        known = await api.client.get(path, headers={"if-none-match": tag})
        assert known.status_code == status


async def test_the_page_has_all_of_the_document(api: Api) -> None:
    """Each operation with its parameters, answers and scopes, and each schema with its fields."""
    document = (await api.client.get("/openapi.json")).json()
    page = Page((await api.client.get("/docs")).text)
    anchors = page.values("id")
    assert len(set(anchors)) == len(anchors)
    linked = {value[1:] for value in page.values("href") if value.startswith("#")}
    assert linked <= set(anchors)
    words = set(re.findall(r"[\w.:*{}/-]+", page.text))
    for path, methods in document["paths"].items():
        assert path in words
        for operation in methods.values():
            assert operation["operationId"] in anchors
            assert {one["name"] for one in operation.get("parameters", ())} <= words
            assert set(operation["responses"]) <= words
            assert set(operation.get("x-required-scopes", ())) <= words
    for name, schema in document["components"]["schemas"].items():
        assert f"schema-{name}" in anchors
        assert set(schema.get("properties", ())) <= words


def test_what_the_document_says_is_text() -> None:
    """Markup in names, descriptions and examples is shown, not obeyed."""
    evil = "<script>alert(1)</script>' onload='x"
    document = json.loads(document_text().replace("flights", json.dumps(evil)[1:-1]))
    document["info"]["description"] = evil
    document["tags"][0]["description"] = evil
    [operation, *_] = document["paths"]["/v1/topics"].values()
    operation["description"] = f"`{evil}`"
    operation["parameters"][0]["name"] = evil
    document["components"]["schemas"][evil] = {"properties": {evil: {"enum": [evil]}}}
    page = Page(reference_page.render(document))
    assert "script" not in page.tags
    assert page.values("onload") == []
    assert page.text.count(evil) >= 7
