"""The reference at `/docs`: the OpenAPI document as one HTML page, without scripts or other files.

It needs nothing but the document, so it works offline, and its content security policy allows
nothing but its own style.

Both depend on the release alone: they are made once, and are the same bytes for everybody.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final, TypeAlias

from fastapi import FastAPI, Request, Response

from app.api.openapi.document import OTHER_TYPES
from app.codecs.selection import tags_in


class ConstantPage:
    """A page that is rendered at the first request, on its thread, and never again.

    Anonymous callers may ask for it, so a request costs a comparison or a copy of its bytes.
    """

    def __init__(self, make: Callable[[FastAPI], bytes], headers: Mapping[str, str]) -> None:
        self._make = make
        self._headers = dict(headers)
        self._making = threading.Lock()
        self._body: bytes | None = None
        """Set once, under the lock, after the tag."""

    def serve(self, request: Request) -> Response:
        """Return the page, or 304 to a client that has it."""
        with self._making:
            if self._body is None:
                body = self._make(request.app)
                etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
                self._headers |= {"etag": etag, "cache-control": "no-cache"}
                self._body = body
        known = tags_in(request.headers.get("if-none-match", "").encode("latin-1"))
        if self._headers["etag"].encode() in known:
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers=self._headers)


Json: TypeAlias = dict[str, Any]

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #8888; }
h3 { margin-top: 2.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { padding: 0.75rem; overflow-x: auto; border: 1px solid #8888; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0; }
tr { border-bottom: 1px solid #8884; }
th[scope=row] { font-weight: normal; }
td p { margin: 0; }
nav ul { columns: 3 14rem; padding-left: 1rem; }
.method { font-weight: bold; }
"""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The page's Content-Security-Policy: no script, no connection, no style but its own."""

_CODE: Final = re.compile(r"`([^`]+)`")
_BOUNDS: Final = ("format", "minimum", "maximum", "minLength", "maxLength", "pattern", "default")


def render(document: Json) -> str:
    """Return an OpenAPI document as a page; the same for the same document."""
    info = document["info"]
    operations = list(_operations(document))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}: HTTP API</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
            f"<p>{_prose(info['summary'])}. {_prose(info['description'])}</p>",
            '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
            *_contents(document, operations),
            *_sections(document, operations),
            "<h2>Schemas</h2>",
            *(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
            "</body></html>",
        ]
    )


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield method, path and description of each operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _of_tag(
    operations: Iterable[tuple[str, str, Json]], tag: str
) -> Iterator[tuple[str, str, Json]]:
    return (one for one in operations if one[2]["tags"] == [tag])


def _contents(document: Json, operations: list[tuple[str, str, Json]]) -> Iterator[str]:
    yield "<nav>"
    for tag in document["tags"]:
        links = "".join(
            f"<li><a href='#{escape(one['operationId'])}'>{escape(one['operationId'])}</a></li>"
            for _, _, one in _of_tag(operations, tag["name"])
        )
        yield f"<h4>{escape(tag['name'])}</h4><ul>{links}</ul>"
    yield "</nav>"


def _sections(document: Json, operations: list[tuple[str, str, Json]]) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>"
        for method, path, operation in _of_tag(operations, tag["name"]):
            yield from _operation(document, method, path, operation)


def _operation(document: Json, method: str, path: str, operation: Json) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f"<h3 id='{name}'>{name}</h3>"
    yield f"<p><code><span class='method'>{method}</span> {escape(path)}</code></p>"
    yield from (f"<p>{_prose(text)}</p>" for text in operation["description"].split("\n\n"))
    if scopes := operation.get("x-required-scopes"):
        yield f"<p>Needs {' or '.join(f'<code>{escape(scope)}</code>' for scope in scopes)}.</p>"
    if parameters := operation.get("parameters"):
        yield "<h4>Parameters</h4>"
        yield _table(
            (f"{one['name']} <small>({one['in']})</small>", one["schema"], one)
            for one in ({**one, "name": escape(one["name"])} for one in parameters)
        )
    if body := operation.get("requestBody"):
        yield "<h4>Body</h4>"
        yield from _content(body["content"])
    yield "<h4>Answers</h4><table>"
    for status, response in operation["responses"].items():
        yield _answer(status, _resolved(document, response))
    yield "</table>"


def _answer(status: str, response: Json) -> str:
    content = response.get("content", {}) | response.get(OTHER_TYPES, {})
    types = "<br>".join(
        f"<code>{escape(media_type)}</code> {_type(one['schema']) if 'schema' in one else ''}"
        for media_type, one in content.items()
    )
    text = _prose(response["description"])
    return f"<tr><th scope='row'>{status}</th><td>{text}</td><td>{types}</td></tr>"


def _content(content: Json) -> Iterator[str]:
    for media_type, one in content.items():
        yield f"<p><code>{escape(media_type)}</code> {_type(one.get('schema', {}))}</p>"
        if "example" in one:
            example = one["example"]
            text = example if isinstance(example, str) else json.dumps(example, indent=2)
            yield f"<pre>{escape(text)}</pre>"


def _schema(name: str, schema: Json) -> str:
    parts = [f"<h3 id='schema-{escape(name)}'>{escape(name)}</h3>"]
    parts += [f"<p>{_prose(schema['description'])}</p>"] if "description" in schema else []
    if "properties" in schema:
        required = schema.get("required", [])
        parts.append(
            _table(
                (escape(field), one, {**one, "required": field in required})
                for field, one in schema["properties"].items()
            )
        )
    else:
        parts.append(f"<p>{_type(schema)}</p>")
    return "\n".join(parts)


def _table(rows: Iterable[tuple[str, Json, Json]]) -> str:
    """Return names, types and descriptions, one a row."""
    lines = []
    for name, schema, about in rows:
        needed = "; required" if about.get("required") else ""
        bounds = ", ".join(f"{key} {schema[key]}" for key in _BOUNDS if key in schema)
        note = f"<br><small>{escape(bounds)}</small>" if bounds else ""
        lines.append(
            f"<tr><th scope='row'><code>{name}</code></th><td>{_type(schema)}{needed}{note}</td>"
            f"<td>{_prose(about.get('description', ''))}</td></tr>"
        )
    return f"<table>{''.join(lines)}</table>"


def _type(schema: Json) -> str:
    """Return the type of a schema in a few words, with links to those that have a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    for key, word in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if key in schema:
            return word.join(map(_type, schema[key]))
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    if "items" in schema:
        return f"array of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    given = schema.get("type", "any")
    return escape(given if isinstance(given, str) else " or ".join(given))


def _resolved(document: Json, response: Json) -> Json:
    """Return a response, or the shared one that it names."""
    if "$ref" not in response:
        return response
    name = response["$ref"].rpartition("/")[2]
    shared: Json = document["components"]["responses"][name]
    return shared


def _prose(text: str) -> str:
    """Return text with what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
