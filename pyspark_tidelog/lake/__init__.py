"""The lake: the tables that the ingestion job fills, and the tools that read them again.

layout       the columns of a row, and which records are quarantined
ddl          the schema that the user gives
inference    the schema of a sample
checkpoint   which checkpoint, tables and topics belong together
lake         a lake opened by its folder: verify, compact
verifier     compares the lake with the log, offset by offset
compaction   merges small files
"""
