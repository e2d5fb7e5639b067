"""Tables: each stores the micro-batches of one job, every one once.

target         the kind of a table and its place, as `--to` gives them
opening        opens a table by its target
table          the interface of all kinds
folders        Parquet and JSON lines: one folder per micro-batch
delta          a Delta table: one transaction per micro-batch
iceberg        an Iceberg table: one snapshot per micro-batch
parquet_files  what Spark's tasks write: the Parquet files of a micro-batch
storage        local folders and object stores, with the options of their libraries
places         where a job leaves its identity
json_rows      JSON values as columns, with a reason for each value that does not fit
durable_files  fsync, locks and the exchange of two folders
"""
