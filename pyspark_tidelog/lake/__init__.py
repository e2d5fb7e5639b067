"""The lake: the tables that the ingestion job fills, and the tools that read them again.

    target         the lake's kind and folder, and what every sink promises
    folders        Parquet and JSON lines: one folder per micro-batch
    delta          a Delta table: one transaction per micro-batch
    layout         the columns of a row, and which records are quarantined
    json_rows      JSON values as columns, with a reason for each value that does not fit
    ddl            the schema that the user gives
    inference      the schema of a sample
    checkpoint     which checkpoint, lake and topics belong together
    durable_files  fsync, locks and the exchange of two folders
    lake           a lake opened by its folder: verify, compact
    stored_rows    the rows of a lake, read without Spark
    verifier       compares the lake with the log, offset by offset
    compaction     merges small files

Only `layout`, `folders` and `delta` need a Spark session, and only while they write.
"""
