"""tidelog beside what its users could pick instead: the same load, the same machine, the same run.

    make bench-peers                    all of it; needs Java 17, Maven, cargo, npm, a network
    python -m bench.peers http          some of it

    packages.py     what the package managers fetch into build/peers, once
    program.py      a peer's service as a process
    http_logs.py    other logs that speak HTTP: s2-lite, and the Node server of Durable Streams
    http.py         appends of JSON to them and to ours
    kafka.py        an Apache Kafka broker as a process, and the performance tools it comes with
    native.py       those tools against raw batches over HTTP
    spark.py        Spark's own Kafka source against ours, on the same batches
    spark_reads.py  one Spark session with a stopwatch, whatever the source

Nothing of this is needed to build, test or run tidelog.
"""
