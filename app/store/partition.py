"""The handle of one partition that operations and codecs work with."""

from __future__ import annotations

from engine.log.log import Log


class Partition:
    """One partition: its log, and the parts of answers that never change for it."""

    __slots__ = ("log", "number", "page_prefix", "path", "receipt_prefix", "topic")

    def __init__(self, topic: str, number: int, log: Log) -> None:
        self.topic = topic
        self.number = number
        self.log = log
        self.path = b"/v1/topics/%b/partitions/%d/" % (topic.encode(), number)
        self.receipt_prefix = b'{"topic":"%b","partition":%d,"base_offset":' % (
            topic.encode(),
            number,
        )
        self.page_prefix = b'{"topic":"%b","partition":%d,"records":' % (topic.encode(), number)
