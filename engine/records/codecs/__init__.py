"""One module per codec of Kafka: `compress` a payload, decompress it in bounded `pieces`.

`engine.records.compression` chooses among them. A piece may be empty, if the bytes read hold no
content, so that the caller can stop.
"""
