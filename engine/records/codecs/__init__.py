"""One module per codec of Kafka: `compress` a payload, and its content back in bounded `pieces`.

`engine.records.compression` chooses among them. A piece may be empty: then bytes were read that
hold no content, and the caller gets the chance to stop.
"""
