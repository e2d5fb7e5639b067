"""The write side: `df.write` and `df.writeStream`.

Each task attempt writes transactions of its own. The driver records in the ledger topic which
attempts count, commits those and aborts the rest.
"""
