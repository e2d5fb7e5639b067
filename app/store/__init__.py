"""Where topics and partitions are stored: the port, and the engine in this process."""
