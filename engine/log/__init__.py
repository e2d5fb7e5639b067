"""One log: append, read, open, retention and truncation."""
