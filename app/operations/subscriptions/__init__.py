"""Subscriptions: topics that are pushed to a URL, in order, at least once."""
