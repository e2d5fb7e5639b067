"""`make mutants`: every mutant is noticed, or its reason to live stands in `argued.toml`.

Results are kept in `build/mutants/results.jsonl`, so that a run that was stopped goes on. Remove
the file after a change of the sources or the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutants.sites import Kind, Mutant, all_mutants
from tests.mutants.trial import Effort, Verdict, judge_all
from tests.support.campaign import tell

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
RESULTS = BUILD / "results.jsonl"
ARGUED = Path(__file__).with_name("argued.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--only", default="", help="names that begin with one of these, by comma")
    parser.add_argument("--tests", default="", help="files or folders in place of all, by comma")
    parser.add_argument("--lives", type=int, default=2_000, help="simulated, for each survivor")
    parser.add_argument("--schedules", type=int, default=2_000, help="for each survivor")
    parser.add_argument("--seconds", type=float, default=900, help="for each mutant, at most")
    parser.add_argument("--list", action="store_true", help="only name the mutants")
    options = parser.parse_args()
    every = all_mutants(ROOT)
    starts = options.only.split(",")
    chosen = (one for start in starts for one in every if one.name.startswith(start))
    # A lock that is left out takes longest to notice.
    mutants = sorted(dict.fromkeys(chosen), key=lambda one: one.kind is Kind.UNLOCKED)
    if options.list:
        tell(*(mutant.name for mutant in mutants))
        return 0
    argued = reasons(every)
    known = kept_results()
    due = [one for one in mutants if one.name not in known and one.name not in argued]
    tell(f"{len(mutants)} mutants: {len(argued)} argued away, {len(due)} to be judged")
    tests = options.tests.split(",") if options.tests else ()
    effort = Effort(options.lives, options.schedules, options.seconds, tests)
    if due:
        BUILD.mkdir(parents=True, exist_ok=True)
        judge_all(ROOT, BUILD, due, effort, keep)
    known = kept_results()
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


def keep(verdict: Verdict) -> None:
    """Write a result down; what was not judged comes up again in the next run."""
    if not verdict.is_judged:
        tell(f"not judged, {verdict.killed_by}: {verdict.mutant.name}")
        return
    row = {
        "mutant": verdict.mutant.name,
        "killed_by": verdict.killed_by,
        "runs": verdict.runs,
        "seconds": round(verdict.seconds, 1),
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    told = f"{verdict.runs} runs, {verdict.seconds:.0f} s"
    tell(f"{verdict.killed_by or 'SURVIVED'} ({told}): {verdict.mutant.name}")


if __name__ == "__main__":
    sys.exit(main())
