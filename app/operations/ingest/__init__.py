"""Ingest: what any HTTP client sends becomes records, by the profile of the topic."""
