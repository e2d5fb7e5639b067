"""The log: Kafka's storage format, byte for byte, with one directory per partition.

Synchronous, thread-safe, usable as a library, without HTTP, models or an event loop.

On disk, below the data directory:

    .lock                                  one process owns the directory
    .kafka_cleanshutdown                   present between a clean stop and the next start
    recovery-point-offset-checkpoint       per partition: everything below is on disk, indexes too
    log-start-offset-checkpoint            per partition, where it differs from the first segment
    replication-offset-checkpoint          per partition: high watermark
    tidelog-topics.json                    ours: topics and their configuration
    tidelog-producer-ids.json              ours: the next producer id
    tidelog-damage.json                    ours: damaged places that were found, if any
    <topic>-<partition>/
        00000000000000000000.log           record batches, the only file that is believed
        00000000000000000000.index         offset to position, sparse
        00000000000000000000.timeindex     timestamp to offset, sparse
        00000000000000000000.txnindex      aborted transactions, if any
        00000000000000000123.snapshot      producer state below offset 123
        leader-epoch-checkpoint            epoch to first offset
        partition.metadata                 topic id

Read it in this order: `records.header` and `records.batch`, `segment.segment`, `log.log`,
`log.read.reader`, `log.open.loader`, `manager`, `background.committer`, `runtime`. Layers, top to
bottom: runtime, background, manager, log, segment, state, index and checkpoint, records and fs,
then ports and values.
"""
