"""The conventions of every model: frozen, unknown fields refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A value that crosses the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
