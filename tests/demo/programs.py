"""Programs for `demo.leash` to run: `python -m demo.leash tests.demo.programs KIND`."""

import os
import signal
import sys
import threading


def main() -> None:
    """Do what the argument says."""
    kind = sys.argv[1]
    say(f"pid {os.getpid()}")
    if kind == "fail":
        sys.stderr.write("it went wrong\n")
        raise SystemExit(3)
    if kind == "serve":
        say("listening on http://127.0.0.1:4711 now")
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("ready")
    if kind != "quick":
        threading.Event().wait()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
