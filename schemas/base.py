"""The conventions of every model: frozen, unknown fields refused, built where it is first used."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict


def _strings_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())
            case _:
                pass


@cache
def field_docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return for each class of a module, by name, the strings below its fields.

    Of no class, where the source was not brought along.
    """
    tree = ast.parse("".join(linecache.getlines(sys.modules[module].__file__ or "")))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_strings_below(node.body)) for node in classes}


class Model(BaseModel):
    """A value that crosses the wire; the string below a field describes it in the document.

    A request with a member that its model does not have is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:  # noqa: ANN401  # pydantic's
        """Take the descriptions over.

        `use_attribute_docstrings` does the same, and searches all modules for the source of each
        class: a tenth of the time that a service takes to start.
        """
        for name, text in field_docstrings(cls.__module__).get(cls.__name__, {}).items():
            cls.model_fields[name].description = text


class ResponseModel(Model):
    """A value that the service answers: clients must accept members that a later release adds."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})


class Parameters(Model):
    """The query of a request.

    Built at once: FastAPI silences a warning of pydantic's at what it makes of it, but only then.
    """

    model_config = ConfigDict(defer_build=False)
