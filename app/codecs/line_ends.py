"""What lenient readers take for the end of a line, within JSON text: escaped where a line counts.

Python's `str.splitlines`, and `iter_lines` of its HTTP clients, end lines at U+0085, U+2028 and
U+2029. In JSON these stand within strings only, where an escape means the same.
"""

from typing import Final

_ESCAPES: Final = (
    (b"\xc2\x85", rb"\u0085"),
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
)


def on_one_line(text: bytes) -> bytes:
    """Return JSON text that no reader splits within a string; line feeds are not looked for."""
    if text.isascii():
        return text
    for end, escape in _ESCAPES:
        text = text.replace(end, escape)
    return text


def growth_bytes(text: bytes) -> int:
    """Return by how much `on_one_line` makes a text longer."""
    if text.isascii():
        return 0
    return sum(text.count(end) * (len(escape) - len(end)) for end, escape in _ESCAPES)
