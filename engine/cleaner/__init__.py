"""Compaction keeps only the newest record of every key; Kafka's `LogCleaner`.

Read in this order: `selection` (which log, how far), `offset_map` (the newest offset of each key),
`rewrite` (what is kept of a batch, and new segments from it), `cleaner`.
"""
