"""JSON Pointers (RFC 6901) into bodies: finds one value, and decodes nothing else.

The library parses the pointer; msgspec walks the bytes. So a search in a body of any size and depth
takes no memory, and what is found keeps its bytes as sent.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Protocol, TypeAlias, cast

import msgspec
from jsonpointer import JsonPointer, JsonPointerException
from msgspec import Raw, Struct, defstruct

from app.codecs.json_parts import whole_escapes
from engine.errors import InvalidRequestValue
from engine.types import Buffer

MAX_PARTS: Final = 32
"""Depth of a pointer: each part is one pass over a part of the body."""

MAX_INDEX: Final = 999
"""Largest index of an array in a pointer: what lies before it is looked at, too."""

MAX_POINTERS: Final = 1_024
"""Pointers whose decoders are kept."""

_ABSENT: Final = Raw()
_NULL: Final = b"null"
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_TEXT: Final = msgspec.json.Decoder(str)


class _Step(Protocol):
    """What a part finds in an object, or in an array."""

    found: Raw


_Decoder: TypeAlias = msgspec.json.Decoder[_Step]


class Pointer:
    """A pointer that is ready to be used; raises InvalidRequestValue if it is not usable."""

    __slots__ = ("_steps", "text")

    def __init__(self, text: str) -> None:
        try:
            parts: list[str] = JsonPointer(text).parts
        except JsonPointerException as error:
            raise InvalidRequestValue(f"{text!r} is not a JSON Pointer: {error}") from None
        if not parts:
            raise InvalidRequestValue("a JSON Pointer here names a part of the body, not all of it")
        if len(parts) > MAX_PARTS:
            raise InvalidRequestValue(f"a JSON Pointer has at most {MAX_PARTS} parts")
        self.text = text
        self._steps = [_decoders_of(part) for part in parts]

    def find(self, body: Buffer) -> bytes | None:
        """Return the bytes of the value; None if there is none, or the body is not JSON.

        Of a body with half of a surrogate pair, as `whole_escapes` shows it.
        """
        found = self._find(body)
        if found is None:
            content = bytes(body)
            whole = whole_escapes(content)
            found = self._find(whole) if whole is not content else None
        return found

    def _find(self, body: Buffer) -> bytes | None:
        found: Buffer = body
        for decoders in self._steps:
            step = _step(decoders, found)
            if step is None or not step.found:
                return None
            found = step.found
        return bytes(found)

    def find_text(self, body: Buffer) -> bytes | None:
        """Return a string's text, or the JSON of another value; None if there is none, or null."""
        raw = self.find(body)
        if raw is None or raw == _NULL:
            return None
        if raw[0] != _QUOTE:
            return raw
        return raw[1:-1] if _BACKSLASH not in raw else _TEXT.decode(raw).encode()


@lru_cache(maxsize=MAX_POINTERS)
def pointer_of(text: str) -> Pointer:
    """Return a pointer; those of the profiles in use are made once."""
    return Pointer(text)


def _step(decoders: tuple[_Decoder, ...], body: Buffer) -> _Step | None:
    for decoder in decoders:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def _decoders_of(part: str) -> tuple[_Decoder, ...]:
    """Return what finds a part in an object and, if it is an index, in an array."""
    try:
        member = defstruct("Member", [("found", Raw, _ABSENT)], rename={"found": part}, gc=False)
    except ValueError:
        raise InvalidRequestValue(f"{part!r} cannot be part of a JSON Pointer here") from None
    if _INDEX.fullmatch(part) is None:
        return (_decoder(member),)
    if int(part) > MAX_INDEX:
        raise InvalidRequestValue(
            f"the index of an array in a JSON Pointer is at most {MAX_INDEX}, not {part}"
        )
    before = [(f"before_{number}", Raw) for number in range(int(part))]
    element = defstruct("Element", [*before, ("found", Raw)], array_like=True, gc=False)
    return (_decoder(member), _decoder(element))


def _decoder(kind: type[Struct]) -> _Decoder:
    return cast("_Decoder", msgspec.json.Decoder(kind))
