"""The lake: what the ingestion job writes, and what is read of it again.

    layout      what a row is: the record itself, or columns out of its value; a bad row's way out
    values      JSON values into columns, each that does not fit with the reason
    inference   the columns of a sample
    sink        what a sink promises, and the choice among them
    folders     Parquet and JSON lines: a folder per micro-batch
    delta       a Delta table: a transaction per micro-batch
    reading     the rows of a lake, whatever it is made of, without Spark
    compaction  many small files into few
    verifying   the lake against the log, offset by offset

Nothing here but `layout`, `folders` and `delta` while they write needs a Spark session.
"""
