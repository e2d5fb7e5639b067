"""The engine in this process: its threads, its commits, the offsets of consumer groups."""
