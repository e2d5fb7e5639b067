"""The unit and the example of settings in deploy/systemd."""

import re
import subprocess
from pathlib import Path

import pytest

from app.settings_sources import read_settings

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "tidelog.service"


def test_the_example_of_settings_is_valid() -> None:
    """Every setting in it, those that are commented out as well."""
    text = (FOLDER / "tidelog.toml").read_text(encoding="utf-8")
    assert read_settings({}, FOLDER / "tidelog.toml").data_directory == Path("/var/lib/tidelog")
    names = re.findall(r"^#? ?(\w+) = ", text, flags=re.MULTILINE)
    assert len(names) > 5
    for name in names:
        assert hasattr(read_settings({}), name)


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
