"""One data directory with all its logs: opened in parallel, made, removed, checkpointed, closed.

`manager` is the way in; `directory` owns the lock, the marker and the checkpoints, `topics` decides
which topics there are, `opening` opens logs in parallel, `deletion` removes what was deleted.
"""
