"""What clients of Kafka REST proxies speak (v2): their paths, media types, bodies and errors.

The stateless part of Confluent REST Proxy, Karapace, Strimzi Kafka Bridge and Redpanda's HTTP
proxy; `docs/coming-from-kafka-rest.md` says whom each answer follows. Below it are the operations
of the native interface, with the same limits, admission and durability.
"""
