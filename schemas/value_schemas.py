"""How the values of a topic are decoded when somebody looks at them."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from schemas.base import Model, ResponseModel

ValueFormat = Literal["avro", "protobuf"]
Framing = Literal["none", "confluent"]
MessageType = Annotated[
    str,
    Field(max_length=512, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", examples=["shop.v1.Order"]),
]


class PutValueSchema(Model):
    """A schema as it is put."""

    format: ValueFormat
    """Encoding of the values."""
    definition: Annotated[str, Field(min_length=1, max_length=512 * 1024)]
    """Avro: the schema as text, as an `.avsc` file has it. Protobuf: a `FileDescriptorSet` as
    base64, as `protoc --include_imports --descriptor_set_out` writes it."""
    message_type: MessageType | None = None
    """Full name of the message; with `protobuf`, and only there. Default: none."""
    framing: Framing = "none"
    """`confluent`: a zero byte and the four bytes of a registry's schema id come before each value.
    Default: nothing does."""

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        if (self.message_type is not None) != (self.format == "protobuf"):
            raise PydanticCustomError(
                "message_type", "message_type is sent with the format protobuf, and only there"
            )
        try:
            if self.format == "avro":
                json.loads(self.definition)
            else:
                base64.b64decode(self.definition, validate=True)
        except (ValueError, binascii.Error, RecursionError):
            expected = "JSON" if self.format == "avro" else "a FileDescriptorSet as base64"
            raise PydanticCustomError(
                "definition", "definition should be {expected}", {"expected": expected}
            ) from None
        return self


class ValueSchema(ResponseModel):
    """How the values of a topic are decoded."""

    format: ValueFormat
    """Encoding of the values."""
    definition: str
    """Avro: the schema as text. Protobuf: a `FileDescriptorSet` as base64."""
    message_type: MessageType | None
    """Full name of the message; null with `avro`."""
    framing: Framing
    """Whether the id of a schema comes before each value."""
