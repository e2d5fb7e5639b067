"""Run the `main` of a module with the given arguments, and end with the process that started it.

    python -m demo.leash app.cli serve --data-dir demo-data/log

Standard input is the leash: nothing is ever written to it, and when it closes, because the owner
wants an end or has died without a word (`kill -9`), the program is told to stop; if it does not, it
is gone ten seconds later.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading

_GRACE_S = 10.0


def main() -> None:
    """Run the program on a leash."""
    threading.Thread(target=_wait_for_the_end, args=(sys.stdin.fileno(),), daemon=True).start()
    module, sys.argv = sys.argv[1], sys.argv[1:]
    importlib.import_module(module).main()


def _wait_for_the_end(leash: int) -> None:
    while os.read(leash, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(_GRACE_S, os._exit, args=(1,)).start()


if __name__ == "__main__":
    main()
