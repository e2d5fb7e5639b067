"""The conventions of every model: frozen, unknown fields refused, built where it is first used."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A value that crosses the wire."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, use_attribute_docstrings=True
    )


class Parameters(Model):
    """The query of a request.

    Built at once: FastAPI silences a warning of pydantic's at what it makes of it, but only then.
    """

    model_config = ConfigDict(defer_build=False)
