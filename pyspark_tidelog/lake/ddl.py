"""Parses the schema that a user gives: Spark's DDL, or a file with DDL or Spark's JSON form.

PySpark parses DDL in the JVM, but a job needs its schema before it starts one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from pyspark.sql import types as T  # noqa: N812 -- as everywhere in Spark

from pyspark_tidelog.errors import OptionError

_SIMPLE: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "byte": T.ByteType(),
    "tinyint": T.ByteType(),
    "short": T.ShortType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "integer": T.IntegerType(),
    "long": T.LongType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "real": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
}
_REFUSED: Final = {
    "varchar": "use STRING",
    "char": "use STRING",
    "timestamp_ntz": "use TIMESTAMP, which takes a time without a zone as UTC",
    "interval": "use STRING",
    "variant": "use STRING, which takes any value as its JSON",
}
"""Types of Spark that a lake does not have, and what to use."""
_TOKEN: Final = re.compile(
    r"""\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([<>(),:]))""", re.DOTALL
)


def parse_schema(text: str) -> T.StructType:
    """Parse DDL (`id BIGINT, tags ARRAY<STRING>`), or the path of a file with DDL or Spark's JSON.

    Raises OptionError for anything else.
    """
    written = text
    if text.endswith((".json", ".ddl")) or text.startswith(("/", "./")):
        try:
            written = Path(text).read_text()
        except OSError as error:
            raise OptionError(f"the schema {text} cannot be read: {error.strerror}") from error
    schema = _from_json(written) if written.lstrip().startswith("{") else _Parser(written).schema()
    _require_distinct(schema)
    return schema


def _from_json(text: str) -> T.StructType:
    try:
        return T.StructType.fromJson(json.loads(text))
    except Exception as error:  # Spark's parser raises errors of many types
        raise OptionError(f"the schema is not Spark's JSON form: {error!r}") from error


def _require_distinct(data_type: T.DataType) -> None:
    """Raise OptionError for names that differ only in case, which Spark does not distinguish."""
    if isinstance(data_type, T.ArrayType):
        _require_distinct(data_type.elementType)
    elif isinstance(data_type, T.MapType):
        _require_distinct(data_type.valueType)
    elif isinstance(data_type, T.StructType):
        if not data_type.fields:
            raise OptionError("the schema has no columns")
        seen: set[str] = set()
        for each in data_type.fields:
            if each.name.lower() in seen:
                raise OptionError(f"the schema has two columns {each.name}: case does not count")
            seen.add(each.name.lower())
            _require_distinct(each.dataType)


class _Parser:
    """A recursive descent parser of `name [:] type [NOT NULL], ...`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def schema(self) -> T.StructType:
        struct = self._fields()
        if self._next() is not None:
            raise self._error("a comma")
        return struct

    def _fields(self) -> T.StructType:
        fields: list[T.StructField] = []
        while self._peek() not in (">", None):
            name = self._name()
            self._accept(":")
            data_type = self._type()
            fields.append(T.StructField(name, data_type, nullable=not self._not_null()))
            self._skip_comment()
            if not self._accept(","):
                break
        return T.StructType(fields)

    def _type(self) -> T.DataType:
        word = (self._next() or "").lower()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word in ("array", "map", "struct"):
            self._take("<")
            nested: T.DataType
            if word == "array":
                nested = T.ArrayType(self._type())
            else:
                nested = self._map() if word == "map" else self._fields()
            self._take(">")
            return nested
        if word in _REFUSED:
            raise OptionError(
                f"the schema has a column of {word.upper()}, which a lake does not have: "
                f"{_REFUSED[word]}"
            )
        if word not in _SIMPLE:
            raise self._error("a type")
        return _SIMPLE[word]

    def _map(self) -> T.MapType:
        key = self._type()
        self._take(",")
        return T.MapType(key, self._type())

    def _decimal(self) -> T.DecimalType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._take(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error("a decimal of 1 to 38 digits")
        return T.DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._next() or ""
        if not word.isdecimal():
            raise self._error("a number")
        return int(word)

    def _not_null(self) -> bool:
        if (self._peek() or "").lower() != "not":
            return False
        self._next()
        if (self._next() or "").lower() != "null":
            raise self._error("NOT NULL")
        return True

    def _skip_comment(self) -> None:
        """Pass over `COMMENT 'text'`, which nothing in a lake shows."""
        if (self._peek() or "").lower() == "comment":
            self._next()
            if not (self._next() or "").startswith(("'", '"')):
                raise self._error("the text of a comment in quotes")

    def _name(self) -> str:
        word = self._next() or ""
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", word):
            raise self._error("the name of a column")
        return word

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next()
        return True

    def _take(self, token: str) -> None:
        if self._next() != token:
            raise self._error(token)

    def _peek(self) -> str | None:
        found = _TOKEN.match(self._text, self._position)
        return found[found.lastindex or 0] if found else None

    def _next(self) -> str | None:
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            if self._text[self._position :].strip():
                raise self._error("a column")
            return None
        self._position = found.end()
        return found[found.lastindex or 0]

    def _error(self, expected: str) -> OptionError:
        return OptionError(
            f"the schema is not DDL such as id BIGINT, tags ARRAY<STRING>: {expected} is missing "
            f"before {self._text[self._position :].strip()[:40]!r}"
        )
