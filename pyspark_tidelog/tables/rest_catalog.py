"""Iceberg's REST catalog with a limit to every wait; PyIceberg itself waits forever."""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.rest import RestCatalog
from requests import Session

TIMEOUT_S = 60.0
"""To connect, and between two pieces of an answer."""


class RestCatalogWithTimeout(RestCatalog):
    """A catalog whose requests fail when the server accepts them and does not answer."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT_S)  # type: ignore[method-assign] # get, post, … call it
        return session


def limit_waits() -> None:
    """Let PyIceberg open REST catalogs with this limit."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, conf: RestCatalogWithTimeout(name, **conf)
