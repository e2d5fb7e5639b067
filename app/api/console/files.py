"""The console's files, compressed when they were built, and the page for when they were not."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import RouteNotFound

DIRECTORY: Final = Path(__file__).parent / "static"
"""Where the build goes: console/vite.config.ts names it too."""

ROOT: Final = "/console/"
INDEX: Final = "index.html"
HASHED: Final = "assets/"
"""Files below have a hash of their content in their names."""

CODINGS: Final = {"br": ".br", "gzip": ".gz", "identity": ""}
"""Content codings in order of preference, and how the file's name ends."""

CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

SECURITY: Final = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
}
"""No inline script or style, no eval, no other origin, no frame; text cannot become HTML."""

NOT_BUILT: Final = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>tidelog</title>
<h1>The console is not built</h1>
<p>The service works without it: see <a href="../docs">the reference</a>.
In a checkout, <code>make console</code> builds it, with Node 20.19 or newer from this machine
or from PyPI, and packages from npm. Then load this page again.</p>
"""


class File(NamedTuple):
    """One file of the build in every coding."""

    content_type: str
    etag: str
    bodies: Mapping[str, bytes]

    def preferred(self, accept_encoding: str) -> str:
        """Return the best coding that the client accepts; `identity` if it names none."""
        accepted = {
            name.strip().lower()
            for name, _, weight in (one.partition(";") for one in accept_encoding.split(","))
            if weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
        }
        return next((one for one in self.bodies if one in accepted), "identity")


def read_files(directory: Path, url_prefix: str) -> dict[str, File]:
    """Return each file of the build by its path; empty if there is none.

    Only the page names the prefix of a proxy; it then has no compressed form.
    """
    files = {}
    for path in sorted(directory.rglob("*")):
        if path.suffix in CONTENT_TYPES:
            bodies = {
                coding: Path(f"{path}{ending}").read_bytes() for coding, ending in CODINGS.items()
            }
            if path.name == INDEX and url_prefix:
                page = bodies["identity"].replace(b'="/', f'="{url_prefix}/'.encode())
                bodies = {"identity": page}
            digest = hashlib.sha256(bodies["identity"]).digest()[:12]
            etag = base64.urlsafe_b64encode(digest).decode()
            name = path.relative_to(directory).as_posix()
            files[name] = File(CONTENT_TYPES[path.suffix], etag, bodies)
    return files


built: Final = cache(read_files)


def redirect(_: Request) -> Response:
    """Send `/console` to `/console/`, below whatever prefix."""
    return RedirectResponse(ROOT[1:], status_code=308)


def serve(request: Request) -> Response:
    """Return a file of the console; its own paths, which a reload asks for, get the page.

    Runs on a thread, because the first request reads the files. Raises RouteNotFound for a file
    of another build.
    """
    files = built(DIRECTORY, request.app.state.service.settings.url_prefix)
    if INDEX not in files:
        built.cache_clear()  # it may be built while the service runs
        return Response(NOT_BUILT, 404, SECURITY, CONTENT_TYPES[".html"])
    return _answer(files, request.path_params["path"], request.headers)


def _answer(files: Mapping[str, File], path: str, asked: Headers) -> Response:
    if path.startswith(HASHED) and path not in files:
        raise RouteNotFound(f"there is nothing at {ROOT}{path}: load the page again")
    name = path if path in files else INDEX
    file = files[name]
    coding = file.preferred(asked.get("accept-encoding", ""))
    etag = f'"{file.etag}-{coding}"'
    headers = {
        **SECURITY,
        "cache-control": "public, max-age=31536000, immutable"
        if name.startswith(HASHED)
        else "no-cache",
        "etag": etag,
        "vary": "accept-encoding",
    }
    if etag in asked.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if coding != "identity":
        headers["content-encoding"] = coding
    return Response(file.bodies[coding], headers=headers, media_type=file.content_type)
