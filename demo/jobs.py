"""The Spark job as the demo sees it: `tidelog ingest` in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from demo.children import Child, ChildFailed
from demo.workspace import Workspace


class Job(Child):
    """Brings into the lake what is new since the last run, by the checkpoint they share."""

    def __init__(
        self, workspace: Workspace, url: str, topics: Iterable[str], *, follow: bool = False
    ) -> None:
        arguments = ["app.cli", "ingest", "--json", "--server", url, "--topic", ",".join(topics)]
        arguments += ["--to", f"delta:{workspace.lake}"]
        arguments += ["--checkpoint", str(workspace.checkpoint)]
        arguments += ["--spark-log", str(workspace.spark_output)]
        arguments += ["--follow"] if follow else []
        super().__init__(arguments, workspace.job_output, keep_open=(workspace.lock,))

    def read_rows(self, rows: int, *, timeout_s: float) -> int:
        """Return how many rows came in, once they are `rows` or more."""
        seen = 0
        for count in self._micro_batches(timeout_s):
            seen += count
            if seen >= rows:
                return seen
        raise ChildFailed(f"the job ended after {seen:,} of {rows:,} rows")

    def finish(self, on_rows: Callable[[int], None], *, timeout_s: float) -> int:
        """Return how many rows came in until it had read everything there was."""
        seen = 0
        for count in self._micro_batches(timeout_s):
            seen += count
            on_rows(count)
        self.wait()
        return seen

    def _micro_batches(self, timeout_s: float) -> Iterator[int]:
        for line in self.lines(timeout_s=timeout_s):
            event = msgspec.json.decode(line, type=dict[str, object])
            if event["event"] == "progress":
                rows = event["rows"]
                assert isinstance(rows, int)
                yield rows
