"""`make mutants`: every mutant is noticed, or its reason to live stands in `argued.toml`.

Results are kept in `build/mutants/results.jsonl`, so that a run that was stopped goes on. One
counts until the mutant's file changes, or the test that noticed it; that of a survivor until any
test does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from tests.mutants.sites import Kind, Mutant, all_mutants, any_mutants
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
    parser.add_argument("--any", type=int, default=0, help="so many of expressions, not of syncs")
    parser.add_argument("--seed", type=int, default=1, help="chooses them")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--part", type=int, default=0, help="which of these this process is")
    parser.add_argument("--list", action="store_true", help="only name the mutants")
    options = parser.parse_args()
    of_syncs, others = all_mutants(ROOT), any_mutants(ROOT)
    every = others if options.any else of_syncs
    starts = options.only.split(",")
    found = [*dict.fromkeys(m for start in starts for m in every if m.name.startswith(start))]
    if options.any:
        found = Random(options.seed).sample(found, min(options.any, len(found)))
    # A lock that is left out takes longest to notice.
    mutants = sorted(found, key=lambda one: one.kind is Kind.UNLOCKED)
    if options.list:
        tell(*(mutant.name for mutant in mutants))
        return 0
    argued = reasons([*of_syncs, *others])
    known = kept_results()
    due = [one for one in mutants if one.name not in known and one.name not in argued]
    parts = []
    if options.jobs > 1:
        if not options.part:
            again = [sys.executable, "-m", "tests.mutants", *sys.argv[1:], "--part"]
            parts = [subprocess.Popen([*again, str(n)]) for n in range(1, options.jobs)]
        due = due[options.part :: options.jobs]
    tell(f"{len(mutants)} mutants: {len(argued)} argued away, {len(due)} to be judged")
    tests = options.tests.split(",") if options.tests else ()
    effort = Effort(options.lives, options.schedules, options.seconds, tests)
    if due:
        (BUILD / str(options.part)).mkdir(parents=True, exist_ok=True)
        judge_all(ROOT, BUILD / str(options.part), due, effort, keep)
    for part in parts:
        part.wait()
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
    """Return what killed each mutant that was judged before, by name, as far as it still counts."""
    if not RESULTS.exists():
        return {}
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {
        row["mutant"]: row["killed_by"]
        for row in rows
        if row["of"] == digest_of(row["mutant"].partition(" ")[0], row["killed_by"])
    }


@cache
def digest_of(path: str, killed_by: str | None) -> str:
    """Return a digest of the mutant's file and of the test that noticed it, or of all tests."""
    test = (killed_by or "").partition("::")[0]
    tests = [ROOT / test] if test.endswith(".py") else sorted((ROOT / "tests").rglob("*.py"))
    digest = hashlib.sha256()
    for file in (ROOT / path, *tests):
        digest.update(file.read_bytes() if file.exists() else b"")
    return digest.hexdigest()[:16]


def keep(verdict: Verdict) -> None:
    """Write a result down; what was not judged comes up again in the next run."""
    if not verdict.is_judged:
        tell(f"not judged, {verdict.killed_by}: {verdict.mutant.name}")
        return
    row = {
        "mutant": verdict.mutant.name,
        "of": digest_of(verdict.mutant.path, verdict.killed_by),
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
