"""The codec of record batches: bytes in, values out, no IO and no state.

Read `header` first: it is the format. `batch` looks at one batch in place, `scan` walks many,
`check` judges what a client sent, `builder` makes new ones, `control` knows transaction markers.
"""
