"""`python -m demo [FOLDER]`: tell the story, and say by the exit code whether it ended well."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.markup import escape

from app.client.failures import Failure
from demo.children import ChildFailed
from demo.data import DataMissing
from demo.story import Story
from demo.workspace import Workspace, WorkspaceBusy, fresh_workspace

_EXIT_STOPPED: Final = 130


def main() -> int:
    """Return 0 if every row arrived exactly once, 1 if not, 130 if it was stopped."""
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, _interrupt)
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data")
    try:
        with fresh_workspace(root) as workspace:
            is_exact = Story(workspace, console).tell()
            console.print(escape(_what_next(workspace) if is_exact else f"everything is in {root}"))
    except (ChildFailed, DataMissing, Failure, WorkspaceBusy) as failure:
        console.print(f"[bold red]error:[/] {escape(str(failure))}")
        return 1
    except KeyboardInterrupt:
        console.print("stopped: nothing is left running, and the next run begins afresh")
        return _EXIT_STOPPED
    return 0 if is_exact else 1


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _what_next(workspace: Workspace) -> str:
    return f"""
What to try next:
  .venv/bin/tidelog serve --data-dir {workspace.data}      the same log again; then, elsewhere:
  .venv/bin/tidelog topics flights
  .venv/bin/tidelog read flights --offset ts:1388534400000 --max-records 3
  .venv/bin/tidelog tail flights
  echo '{{"key": "me", "value": {{"n": 1}}}}' | .venv/bin/tidelog append flights
  curl -s 'localhost:8080/v1/topics/flights/partitions/0/records?offset=earliest&max_records=2'
  http://localhost:8080/docs      every operation of the API
  make bench                      how fast it is on this machine
The flights in the console, while `tidelog serve` runs:
  http://localhost:8080/console/topics/flights/messages"""


if __name__ == "__main__":
    sys.exit(main())
