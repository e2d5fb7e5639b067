"""Retention, compaction, reconfiguration, and moves of the log's directory."""
