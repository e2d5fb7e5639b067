"""The unit and the example of settings in deploy/systemd."""

import re
import subprocess
from pathlib import Path

import pytest

from app.settings_sources import read_settings

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "tidelog.service"


def test_the_example_of_settings_is_valid(tmp_path: Path) -> None:
    """As it is, and with every setting that is commented out."""
    assert read_settings({}, FOLDER / "tidelog.toml").data_directory == Path("/var/lib/tidelog")
    text = (FOLDER / "tidelog.toml").read_text(encoding="utf-8")
    whole, count = re.subn(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    assert count > 3
    (tmp_path / "whole.toml").write_text(whole)
    assert read_settings({}, tmp_path / "whole.toml").allowed_hosts == ("log.example",)


def test_the_unit_reads_the_settings_that_are_installed_beside_it() -> None:
    """The file, the directory it may write and the signal that reloads."""
    unit = UNIT.read_text(encoding="utf-8")
    assert "serve --config /etc/tidelog/tidelog.toml\n" in unit
    assert "StateDirectory=tidelog\n" in unit
    assert "ExecReload=/bin/kill -HUP $MAINPID\n" in unit


@pytest.mark.long
@pytest.mark.needs("systemd-analyze")
def test_the_unit_exposes_little() -> None:
    """`systemd-analyze security` gives at most 2.0, and knows every line of it."""
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    assert "Unknown" not in told.stderr
