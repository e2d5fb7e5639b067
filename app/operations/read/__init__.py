"""Reads: pages, long polls, tails, several partitions at once, segments, splits."""
