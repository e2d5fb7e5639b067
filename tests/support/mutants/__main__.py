"""`make mutants`: every mutant is noticed, or its reason to live stands in `argued.toml`.

Results are kept in `build/mutants/results.jsonl`, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.support.mutants.sites import Mutant, all_mutants
from tests.support.mutants.trial import Effort, Tree, Verdict

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "mutants"
RESULTS = BUILD / "results.jsonl"
ARGUED = Path(__file__).with_name("argued.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--only", default="", help="names that begin with this")
    parser.add_argument("--lives", type=int, default=2_000, help="simulated, for each survivor")
    parser.add_argument("--schedules", type=int, default=2_000, help="for each survivor")
    parser.add_argument("--seconds", type=float, default=900, help="of one command, at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only name the mutants")
    options = parser.parse_args()
    mutants = [one for one in all_mutants(ROOT) if one.name.startswith(options.only)]
    if options.list:
        tell(*(mutant.name for mutant in mutants))
        return 0
    argued = reasons(all_mutants(ROOT))
    known = kept_results()
    due = [one for one in mutants if one.name not in known and one.name not in argued]
    tell(f"{len(mutants)} mutants: {len(argued)} argued away, {len(due)} to be judged")
    effort = Effort(options.lives, options.schedules, options.seconds)
    known |= judge_all(due, effort, options.workers)
    survivors = [one.name for one in mutants if one.name in known and known[one.name] is None]
    tell(f"{len(survivors)} survivors", *survivors)
    return 1 if survivors else 0


def reasons(mutants: Sequence[Mutant]) -> Mapping[str, str]:
    """Return why some mutants may live, by name; each must still be there."""
    content = tomllib.loads(ARGUED.read_text())
    argued = {name: reason for reason, names in content.items() for name in names}
    gone = argued.keys() - {mutant.name for mutant in mutants}
    if gone:
        raise SystemExit("\n".join(["no such mutants any more:", *sorted(gone)]))
    return argued


def kept_results() -> dict[str, str | None]:
    """Return what killed each mutant that was judged before, by name."""
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text().splitlines())
    return {row["mutant"]: row["killed_by"] for row in rows}


def judge_all(mutants: Sequence[Mutant], effort: Effort, workers: int) -> dict[str, str | None]:
    """Judge mutants side by side, each worker in a tree of its own; keep every result."""
    trees: SimpleQueue[Tree] = SimpleQueue()
    for number in range(min(workers, len(mutants))):
        trees.put(Tree(ROOT, BUILD / f"tree-{number}"))
    writing = threading.Lock()
    found: dict[str, str | None] = {}

    def judge(mutant: Mutant) -> None:
        tree = trees.get()
        try:
            verdict = tree.judge(mutant, effort)
        finally:
            trees.put(tree)
        with writing:
            found[mutant.name] = verdict.killed_by
            keep(verdict)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(judge, mutants))
    return found


def keep(verdict: Verdict) -> None:
    row = {"mutant": verdict.mutant.name, "killed_by": verdict.killed_by}
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    tell(f"{verdict.killed_by or 'SURVIVED'}: {verdict.mutant.name}")


def tell(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
