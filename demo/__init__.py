"""336,776 real flights through a durable log into a Delta table, each exactly once.

`python -m demo` (or `make demo`) runs it; `demo/story.py` is the story, step by step, and the other
modules are its props: where the data comes from, the child processes, the loader, the lake.
"""
