"""The command line for people: an HTTP client of the service, and what it prints.

    commands/     one module per command; the program loads it when the command is asked for
    appender      records to batches to idempotent requests, in order per partition
    reader        pages of one partition, up to an end or for ever
    record_lines  what a line of input means: a record, or a document with a field for the key
    partitioner   the partition of a key, as a Kafka producer chooses it
    connection    one service: keep-alive, retries, problems turned into errors
    failures      what went wrong in one sentence, and what to do about it
    terminal      tables and progress for people, JSON for programs

It knows the service by its HTTP contract alone. Only `dump`, which reads files, calls the engine,
and only `ingest` calls Spark, each loading what it needs when it is asked for: `tidelog topics`
answers in a fraction of a second.

Exit codes: 0 done, 1 failed (one sentence says why), 2 the command was not understood, 130 Ctrl-C.
"""
