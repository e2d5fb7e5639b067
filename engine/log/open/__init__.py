"""Opens a partition directory: finishes interrupted renames, recovers, rebuilds."""
