"""The read side: `spark.read` and `spark.readStream`.

Options, topics and offsets are resolved on the driver, which plans the tasks; `fetch` runs on the
executors.
"""
