"""The server entry: `uvicorn --factory app.main:create`, settings from the environment."""

from __future__ import annotations

from app.middleware import App
from app.operations.service import Service
from app.server import compose
from app.settings import Settings


def create() -> App:
    """Return the whole service, configured by the environment."""
    return compose(Service(Settings()))
