"""The codec of record batches: bytes to values and back, without I/O or state.

Read `header` first: it is the format. `batch` looks at one batch in place, `scan` walks many,
`check` validates a client's batch, `builder` makes new ones, `control` has transaction markers.
"""
