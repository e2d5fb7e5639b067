"""How fast tidelog is here, each figure beside a yardstick measured in the same run.

    python -m bench                         the table
    python -m bench --json results.json     and the figures for programs
    python -m bench single ndjson           some of the measures

    measures.py   the measures by name
    target.py     what a measure is given: the service, a folder, and how long
    appends.py    what is measured of appends
    load.py       the load generator: many connections, each sends when answered, or when due
    download.py   the reader: one connection, as fast as the answers come
    yardstick.py  an application that does nothing, and one that appends to a file and flushes
    memory.py     what the service's process takes while all this goes on
    spark.py      the Spark side: into nothing, into Parquet
    flame.py      where the service's time goes during a measure: `make flame MEASURE=single`
    curves.py     what a request costs while one thing grows: `python -m bench.curves`
    stock.py      data directories that are filled before a service is started on them
    figures.py    a figure, its yardstick, and results as JSON beside the committed ones
    page.py       `docs/performance.md` from the committed results: `python -m bench.page`
    cleaner.py    compaction, without the service: `python -m bench.cleaner`

Nothing here is a timed test: figures depend on the machine, and the yardsticks say on what machine.
"""
