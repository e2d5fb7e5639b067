"""Writes `openapi/openapi.json`, which is committed: a change of the API is visible in review."""

from __future__ import annotations

from pathlib import Path

from app.factory import document_text

TARGET = Path(__file__).parents[1] / "openapi" / "openapi.json"


def main() -> None:
    """Write the document."""
    TARGET.write_text(document_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
