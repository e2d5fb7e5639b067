"""The query parameters that an operation takes, and what to say of one that it does not take."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection

from fastapi.dependencies.models import Dependant


def query_names(dependant: Dependant) -> Collection[str]:
    """Return the names of the parameters, those of models included."""
    names: list[str] = []
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
            fields = annotation.model_fields.items()
            names += [info.alias or name for name, info in fields]
        else:
            names.append(field.alias)
    return names


def unknown_parameter(name: str, known: Collection[str]) -> str:
    """Say that there is no such parameter, and which one was probably meant."""
    if not known:
        return "this operation takes no parameters"
    closest = difflib.get_close_matches(name, known, n=1)
    if closest:
        return f"unknown parameter; did you mean {closest[0]}?"
    return f"unknown parameter; the parameters are {', '.join(sorted(known))}"
