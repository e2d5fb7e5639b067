"""Where topics and partitions are stored: the engine in this process."""
