"""`make fuzz TARGET=… SECONDS=…`: Atheris searches for bytes that break a promise of `targets`.

It is not in the lock file: `make fuzz` installs it into a folder of its own. Every run starts with
the corpus; new inputs go to `build/fuzz`, and a finding is printed and kept there.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path("build/fuzz")
MOST_BYTES = 4_096


def main() -> None:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable()
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["engine", "app", "schemas"]):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
        for module in ("tests.fuzz.beside", "tests.fuzz.bodies", "tests.fuzz.ingest"):
            importlib.import_module(module)
    found = FOUND / options.target
    found.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={options.seconds}",
            f"-seed={options.seed}",
            f"-max_len={MOST_BYTES}",
            "-timeout=30",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={found}/finding-",
            str(found),
            str(CORPUS / options.target),
        ],
        targets[options.target],
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
