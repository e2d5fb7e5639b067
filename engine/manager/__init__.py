"""The data directories with all their logs: open, create, delete, move, checkpoint, close.

`manager` has the entry point. `directory` owns the lock, the marker and the checkpoints, `topics`
decides which topics exist, `opening` opens logs in parallel, `partitions` creates and deletes them.
"""
