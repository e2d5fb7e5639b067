"""tidelog beside what its users could pick instead: the same load, the same machine, the same run.

    make bench-peers                    all of it; needs Java 17, Maven, cargo, npm, a network
    python -m bench.peers rust          some of it; --seconds 2 takes three minutes

    packages.py     what the package managers fetch into build/peers, once
    program.py      a peer's service as a process
    http.py         other logs that speak HTTP (Durable Streams' servers in Rust and Node, s2-lite),
                    and appends of JSON to each of them and to ours, in turn
    kafka.py        an Apache Kafka broker as a process, and the performance tools it comes with
    native.py       those tools against raw batches over HTTP
    spark.py        Spark's own Kafka source against ours, on the same batches
    spark_reads.py  one Spark session with a stopwatch, whatever the source

Nothing of this is needed to build, test or run tidelog.
"""
