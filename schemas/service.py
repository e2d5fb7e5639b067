"""The service itself."""

from __future__ import annotations

from typing import Literal

from schemas.base import ResponseModel


class ServiceLinks(ResponseModel):
    """Paths to start from."""

    console: str
    """The console, for people with a browser."""
    docs: str
    """Reference of this API, for people."""
    openapi: str
    """OpenAPI document of this API, for programs."""
    topics: str
    """`listTopics`."""
    limits: str
    """`getLimits`."""
    readiness: str
    """`getReadiness`."""
    metrics: str
    """`getMetrics`."""


class ServiceInfo(ResponseModel):
    """What this service is, and where to go on."""

    name: Literal["tidelog"]
    """Always `tidelog`."""
    version: str
    """Version of the service."""
    backend: Literal["local"]
    """What stores the log: `local` is the engine in this process."""
    links: ServiceLinks
    """Where to go on."""
