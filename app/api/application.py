"""`create_app(settings)`: the whole service as one ASGI callable; importing this does nothing.

The runtime is opened while the service already answers, and everything is closed in reverse.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from app.api import reference_page
from app.api.console import files as console
from app.api.frame import Frame, explained
from app.api.openapi.document import document
from app.api.openapi.earlier import as_openapi_3_0
from app.api.reference_page import ConstantPage
from app.api.rest_v2.router import router as kafka_rest_v2
from app.api.routes import ROUTERS
from app.api.routes.shared import IDENTIFIED, query_names, unknown_parameter
from app.errors import (
    MAX_ERRORS_LISTED,
    CommitTimedOut,
    MalformedRequest,
    MethodNotAllowed,
    RouteNotFound,
    ServiceError,
)
from app.http.answers import AnswerResponse, App
from app.limits.admission import Phase
from app.operations.service import Service
from app.operations.wait import ClientGone
from app.settings import Settings
from engine.errors import EngineError

_LOG = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def lifespan(service: Service, on_failure: Callable[[], None]) -> AsyncIterator[None]:
    """Start opening the logs; at the end write the clean-shutdown marker.

    Recovery may take long, so the application starts at once and answers 503 with progress. If
    the logs cannot be opened the reason is kept in `service.failure` and `on_failure` is called.
    """
    opening = asyncio.create_task(_open(service, on_failure))
    try:
        yield
    finally:
        await service.close()  # which has an opening that is under way give up
        await opening


async def _open(service: Service, on_failure: Callable[[], None]) -> None:
    try:
        await service.open()
    except Exception as error:  # noqa: BLE001  # kept and logged; the process ends
        if service.admission.phase is Phase.DRAINING:
            return
        service.failure = error
        says_it_all = isinstance(error, EngineError | ServiceError | OSError)
        _LOG.error("the logs cannot be opened: %s", error, exc_info=not says_it_all)
        on_failure()


ALL_ROUTERS: Final = (*ROUTERS, kafka_rest_v2)

CLIENT_CLOSED_REQUEST: Final = 499  # not read by clients; shown in the access log


def create_api(service: Service, on_failure: Callable[[], None] | None = None) -> FastAPI:
    """Return the FastAPI application: every operation.

    `on_failure` is called on the event loop if the data directory cannot be opened.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with lifespan(service, on_failure or _ignore):
            yield

    api = FastAPI(
        title="tidelog",
        version=version("tidelog"),
        summary="A durable commit log that speaks plain HTTP",
        description="On disk it is Apache Kafka's log, byte for byte. Committed means on disk.",
        lifespan=life,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    html = {"content-type": "text/html; charset=utf-8"}
    page = ConstantPage(_docs, html | {"content-security-policy": reference_page.POLICY})
    api.add_route("/docs", page.serve, include_in_schema=False)
    page = ConstantPage(_openapi, {"content-type": "application/json"})
    api.add_route("/openapi.json", page.serve, include_in_schema=False)
    page = ConstantPage(_openapi_3_0, {"content-type": "application/json"})
    api.add_route("/openapi-3.0.json", page.serve, include_in_schema=False)
    api.add_route("/console", console.redirect, include_in_schema=False)
    api.add_route("/console/{path:path}", console.serve, include_in_schema=False)
    api.state.service = service
    for router in ALL_ROUTERS:
        assert router.dependencies == [IDENTIFIED], "every route asks who it is"
        # Taken as they are: an included router would build each of its routes a second time.
        api.router.routes.extend(router.routes)
    for kind in (EngineError, ServiceError, CommitTimedOut, Exception):
        api.add_exception_handler(kind, _explain)
    api.add_exception_handler(RequestValidationError, _explain_validation)
    api.add_exception_handler(HTTPException, _explain_http)
    api.add_exception_handler(ClientGone, _say_nothing)
    api.openapi = partial(document, api)  # type: ignore[method-assign]  # FastAPI documents this way
    return api


def document_text() -> str:
    """Return the OpenAPI document as it is committed; opens no data directory."""
    api = create_api(Service(Settings(data_directory=Path("unused"))))
    return json.dumps(api.openapi(), indent=2, ensure_ascii=False) + "\n"


def framed(api: FastAPI, service: Service) -> App:
    """Return the application with what happens to every request around it."""
    return Frame(api, service)


def _docs(api: FastAPI) -> bytes:
    """Return the page that shows every operation."""
    return reference_page.render(api.openapi()).encode()


def _openapi(api: FastAPI) -> bytes:
    """Return the OpenAPI document for programs."""
    return _compact(api.openapi())


def _openapi_3_0(api: FastAPI) -> bytes:
    """Return what OpenAPI 3.0 can say of it."""
    return _compact(as_openapi_3_0(api.openapi()))


def _compact(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _ignore() -> None:
    """Do nothing."""


async def _explain(request: Request, error: Exception) -> Response:
    service: Service = request.app.state.service
    service.refusals.count(error, request.scope["path"])
    return AnswerResponse(explained(error, request.scope))


async def _explain_validation(request: Request, error: Exception) -> Response:
    """Translate FastAPI's list of faults in path, query and headers."""
    assert isinstance(error, RequestValidationError)
    known = query_names(request.scope["route"].dependant)
    faults = [
        {
            "index": None,
            "field": ".".join(map(str, fault["loc"])),
            "code": fault["type"],
            "detail": unknown_parameter(fault["loc"][-1], known)
            if fault["type"] == "extra_forbidden"
            else fault["msg"],
        }
        for fault in error.errors()[:MAX_ERRORS_LISTED]
    ]
    detail = "; ".join(f"{fault['field']}: {fault['detail']}" for fault in faults)
    return await _explain(request, MalformedRequest(detail, errors=faults))


async def _explain_http(request: Request, error: Exception) -> Response:
    """Translate what the framework itself refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 405:
        explained: ServiceError = MethodNotAllowed(
            f"{request.method} is not allowed on {path}",
            headers={"allow": ", ".join(sorted(_methods_of(request, error)))},
        )
    elif error.status_code == 404:
        explained = RouteNotFound(f"no resource at {path}")
    else:
        explained = MalformedRequest(str(error.detail))
    return await _explain(request, explained)


def _methods_of(request: Request, error: HTTPException) -> set[str]:
    """Return every method of a path; the framework names those of the first route it met."""
    methods = set(dict(error.headers or {})["Allow"].split(", "))
    for router in ALL_ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(request.scope["path"]):
                methods |= route.methods or set()
    return methods | {"HEAD"} if "GET" in methods else methods


async def _say_nothing(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
