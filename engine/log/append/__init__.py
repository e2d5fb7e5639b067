"""The part of an append before the log's lock: validation and recompression."""
