"""Schemas as people write them: Spark's DDL, or Spark's JSON form in a file.

PySpark parses DDL in the JVM, and a job has to know its schema before there is one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_tidelog.errors import OptionError

_SIMPLE: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "byte": ByteType(),
    "tinyint": ByteType(),
    "short": ShortType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "bigint": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
}
_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([\w]+)|([<>(),:]))")


def parse_schema(text: str) -> StructType:
    """Read DDL (`id BIGINT, tags ARRAY<STRING>`) or the path of a file with Spark's JSON or DDL.

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


def _from_json(text: str) -> StructType:
    try:
        schema = StructType.fromJson(json.loads(text))
    except Exception as error:  # whatever Spark's reader stumbles over
        raise OptionError(f"the schema is not Spark's JSON form: {error!r}") from error
    return schema


def _require_distinct(schema: StructType) -> None:
    """Refuse names that Spark could not tell apart: it does not look at their case."""
    if not schema.fields:
        raise OptionError("the schema has no columns")
    seen: dict[str, str] = {}
    for name in schema.fieldNames():
        if name.lower() in seen:
            raise OptionError(f"the schema has two columns {seen[name.lower()]} and {name}")
        seen[name.lower()] = name
    for each in schema.fields:
        for part in _structs_in(each.dataType):
            _require_distinct(part)


def _structs_in(data_type: DataType) -> list[StructType]:
    match data_type:
        case StructType():
            return [data_type]
        case ArrayType():
            return _structs_in(data_type.elementType)
        case MapType():
            return _structs_in(data_type.valueType)
        case _:
            return []


class _Parser:
    """Recursive descent over `name [:] type [NOT NULL], …`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def schema(self) -> StructType:
        struct = self._fields(end="")
        if self._next() is not None:
            raise self._error("a comma")
        return struct

    def _fields(self, *, end: str) -> StructType:
        fields: list[StructField] = []
        while self._peek() not in (end or None, None):
            name = self._name()
            if self._peek() == ":":
                self._next()
            data_type = self._type()
            fields.append(StructField(name, data_type, nullable=not self._not_null()))
            if self._peek() != ",":
                break
            self._next()
        return StructType(fields)

    def _type(self) -> DataType:
        word = (self._next() or "").lower()
        if word in ("decimal", "numeric", "dec"):
            return self._decimal()
        if word == "array":
            self._take("<")
            element = self._type()
            self._take(">")
            return ArrayType(element)
        if word == "map":
            self._take("<")
            key = self._type()
            self._take(",")
            value = self._type()
            self._take(">")
            return MapType(key, value)
        if word == "struct":
            self._take("<")
            struct = self._fields(end=">")
            self._take(">")
            return struct
        if word not in _SIMPLE:
            raise self._error("a type")
        return _SIMPLE[word]

    def _decimal(self) -> DecimalType:
        if self._peek() != "(":
            return DecimalType(10, 0)
        self._next()
        precision = self._number()
        scale = 0
        if self._peek() == ",":
            self._next()
            scale = self._number()
        self._take(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._error("a decimal of 1 to 38 digits")
        return DecimalType(precision, scale)

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

    def _name(self) -> str:
        word = self._next() or ""
        if word.startswith("`"):
            return word[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", word):
            raise self._error("the name of a column")
        return word

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise self._error(expected)

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
