"""What is measured on a machine whose memory is in use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.warm import filled_page_cache, free_bytes


@pytest.mark.parametrize("code", [0, 3])
def test_the_command_runs_and_its_exit_code_is_told(tmp_path: Path, code: int) -> None:
    """A bench that fails fails; nothing of the file that filled the page cache is left."""
    command = [sys.executable, "-c", f"print('measured'); raise SystemExit({code})"]
    options = ["--bytes", "3000000", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.warm", *options, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "measured\n")
    assert "0.0 GiB are in use" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_uses_is_filled(tmp_path: Path) -> None:
    """As much goes through the page cache as was asked for; no more is free than there is."""
    with filled_page_cache(tmp_path, 2_500_000) as taken:
        assert taken == 2_500_000
    assert 0 <= free_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
