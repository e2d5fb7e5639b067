"""JSON Pointers into bytes: what is found keeps its bytes, and nothing else is decoded."""

import pytest

from app.codecs.json_pointer import MAX_INDEX, MAX_PARTS, pointer_of
from engine.errors import InvalidRequestValue


@pytest.mark.parametrize(
    ("pointer", "body", "found"),
    [
        ("/a", b'{"a": "x"}', b"x"),
        ("/a", b'{"a":"\\u00e9\\n"}', "é\n".encode()),
        ("/a", b'{"a": {"b" : 1} }', b'{"b" : 1}'),
        ("/a", b'{"a":null}', None),
        ("/a", b'{"b":1}', None),
        ("/a", b"[1]", None),
        ("/a", b"no JSON", None),
        ("/a/b", b'{"a":1}', None),
        ("/a/1", b'{"a":["x","y"]}', b"y"),
        ("/a/1", b'{"a":{"1":7}}', b"7"),
        ("/a/2", b'{"a":[1]}', None),
        ("/a~1b/~0c", b'{"a/b":{"~c":"x"}}', b"x"),
        ("/a", b'{"a":1,"a":2}', b"2"),
        ("/a", b"[" * 100_000, None),
    ],
)
def test_a_value_is_found_as_text_or_as_its_json(
    pointer: str, body: bytes, found: bytes | None
) -> None:
    """A string's text, the bytes of any other value; none for null and for what is missing."""
    assert pointer_of(pointer).find_text(body) == found


@pytest.mark.parametrize("text", ["a", "/~2", '/a"b', f"/{MAX_INDEX + 1}", "/a" * (MAX_PARTS + 1)])
def test_a_pointer_that_cannot_be_used_is_refused(text: str) -> None:
    """When a profile is stored, rather than with each request."""
    with pytest.raises(InvalidRequestValue):
        pointer_of(text)
