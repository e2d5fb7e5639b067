"""docs/settings.md is what the settings say of themselves."""

import re

from app.settings import VARIABLE_PREFIX, Settings
from tests.docs.settings_page import PAGE, SECTIONS, render


def test_the_page_is_current() -> None:
    """`make settings-page` writes it."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_setting_and_every_section_is_on_the_page() -> None:
    """One row each; a section whose first setting was renamed would vanish."""
    text = render()
    rows = re.findall(rf"^\| `{VARIABLE_PREFIX}(\w+)` ", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(name.upper() for name in Settings.model_fields)
    assert all(f"## {title}\n" in text for _, title in SECTIONS)
