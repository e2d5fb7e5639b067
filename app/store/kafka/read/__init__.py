"""Reads from a cluster: fetches on demand, fetches that many readers share, and offsets."""
