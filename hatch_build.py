"""Put the packages of the checkout below `tidelog` in a wheel, with their imports of each other.

`app`, `engine` and `schemas` are good names here, and bad ones in somebody's environment.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES: Final = ("app", "engine", "schemas")
_IMPORT: Final = re.compile(
    rf"^(\s*(?:from|import)\s+)({'|'.join(PACKAGES)})(?=[.\s])", re.MULTILINE
)


class WheelLayout(BuildHookInterface[Any]):
    """Writes what goes into the wheel below `build`; an editable installation is the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        target = root / "build" / "wheel" / "tidelog"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(root / "tidelog", target, ignore=_caches)
        for package in PACKAGES:
            shutil.copytree(root / package, target / package, ignore=_caches)
        for path in target.rglob("*.py"):
            path.write_text(
                _IMPORT.sub(r"\1tidelog.\2", path.read_text(encoding="utf-8")), encoding="utf-8"
            )
        build_data["force_include"][str(target)] = "tidelog"


def _caches(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
