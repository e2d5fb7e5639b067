"""A Kafka cluster: its connections, topics, appends, reads and group offsets."""
