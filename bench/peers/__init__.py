"""tidelog beside what its users could pick instead: the same load, the same machine, the same run.

    make bench-peers                                 all of it; needs Java 17, Maven, a network
    python -m bench.peers spark --records 1000000    some of it, smaller

    packages.py     what the package managers fetch into build/peers, once
    kafka.py        an Apache Kafka broker as a process, and the performance tools it comes with
    native.py       those tools against raw batches over HTTP
    spark.py        Spark's own Kafka source against ours, on the same batches
    spark_reads.py  one Spark session with a stopwatch, whatever the source

Nothing of this is needed to build, test or run tidelog.
"""
