"""A copy of a log's committed part in an object store, and the way back into a data directory.

`store` is the port to object storage, `manifest` the format, `plan` decides what to upload,
`archiver` does it on its own threads, `restore` makes a data directory from it.
docs/formats/archive.md has the objects with worked bytes.
"""
