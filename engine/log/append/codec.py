"""The codec in which a topic stores its batches: the only reader of `compression.type`."""

from __future__ import annotations

from engine.config import LogConfig
from engine.records.header import Codec


def stored_codec(config: LogConfig) -> tuple[Codec, int | None] | None:
    """Return the codec and its level; None if batches keep the codec of their producer.

    The level is None for codecs without levels.
    """
    kind = config.compression_type
    if kind == "producer":
        return None
    if kind == "uncompressed":
        return Codec.NONE, None
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return Codec.of_label(kind), levels.get(kind)
