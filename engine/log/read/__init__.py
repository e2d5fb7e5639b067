"""Reads, look-ups by time, listings, splits and downloads, without the log lock."""
