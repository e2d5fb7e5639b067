"""Background threads: group commit, retention, producer expiry, moves, scrubbing."""
