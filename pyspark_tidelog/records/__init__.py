"""Kafka's record batch format: batches into Arrow columns, and Arrow columns into batches.

Nothing in this package makes a request.
"""
