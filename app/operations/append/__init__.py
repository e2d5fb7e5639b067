"""Appends: of one partition, of a topic, streamed, batched with those of other clients."""
