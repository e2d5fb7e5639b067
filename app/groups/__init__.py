"""Group offsets: cursors that readers keep in the log itself, in Kafka's `__consumer_offsets`."""
