"""Names and values at every boundary, for each interface that takes some.

One list, so that what one interface met the others meet too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "empty": "",
        "spaces": "  \t ",
        "NUL": "\0",
        "controls": "".join(map(chr, range(1, 0x20))) + "\x7f",
        "C1 controls": "".join(map(chr, range(0x80, 0xA0))),
        "quotes": "\"'`\\ \\u0041 \\n",
        "markup": "<script>&amp;</script> {{x}} ${x} %s {0}",
        "lines": "a\nb\rc\r\nd\u0085e\u2028f\u2029g\x0bh\x0ci",
        "right to left": "\u202egnp.exe \u2066\u05d0\u2069",
        "nothing to see": "\u200b\u200d\ufeff\u00ad",
        "one composed, one decomposed": "\u00e9e\u0301",
        "dotless and sharp": "\u0130\u0131\u00df\ufb01",
        "every plane": "".join(chr(plane * 0x10000 + 0x123) for plane in range(17)),
        "the ends of every plane": "".join(
            chr(plane * 0x10000 + last) for plane in range(17) for last in (0xFFFD, 0xFFFE, 0xFFFF)
        ),
        "around the surrogates": "\ud7ff\ue000",
        "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "a number": "1e+400",
        "words of languages": "null true NaN __proto__ constructor undefined None",
        "a path": "../../etc/passwd%2e%2e\\..",
        "long": "\u0101" * 20_000,
    }
)
"""Whatever a key, a value, the value of a header or a field's name may be."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "shortest": "a",
        "longest": "a" * 249,
        "dots": "...",
        "dashes": "-_-",
        "leading dot": ".a",
        "a number": "007",
        "like a partition": "a-0",
        "capitals": "A",
        "a word of the interface": "partitions",
        "another language's": "null",
    }
)
"""What Kafka allows a topic to be called."""

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a dot": ".",
        "two dots": "..",
        "too long": "a" * 250,
        **{label: text for label, text in TEXTS.items() if 0 < len(text) < 1_000},
    }
)
"""What it does not."""

LONE_SURROGATES: Final = ("\\ud800", "\\udfff", "\\ud800\\ud800", "\\udc00\\ud800", "a\\udbff")
"""Escapes in JSON text that no Unicode text can hold."""

INTEGERS: Final = tuple(
    sign * (2**bits + step)
    for bits in (0, 31, 32, 53, 63, 64)
    for step in (-1, 0, 1)
    for sign in (-1, 1)
)
NUMBERS: Final = (
    *map(str, INTEGERS),
    "-0",
    "-0.0",
    "0.1",
    "1E2",
    "1e-7",
    "5e-324",
    "2.2250738585072014e-308",
    "1.7976931348623157e308",
    "0.30000000000000004",
    "100000000000000000000000000000.5",
)
"""As JSON text, each to be kept to the digit."""

TIMES_MS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "year 1": -62_135_596_800_000,
        "before 1970": -1,
        "1970": 0,
        "2^31 seconds": 2**31 * 1000,
        "2^53": 2**53,
        "year 9999": 253_402_300_799_999,
    }
)
