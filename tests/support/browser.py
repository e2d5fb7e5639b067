"""The console in a real browser: pages that fail a test on any error that they report."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Console:
    """A browser window that shows the console of one service."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)

    def open(self, path: str = "") -> None:
        """Load a page of the console, and wait until it shows its heading."""
        self.page.goto(f"{self.url}/console/{path}")
        self.page.locator("h1").first.wait_for()

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def text(self, text: str) -> Locator:
        return self.page.get_by_text(text).first

    def rows(self, label: str) -> Locator:
        """The lines of a list that are in sight."""
        return self.page.get_by_role("list", name=label).get_by_role("listitem")

    def faults(self) -> list[str]:
        """What axe finds, and whether the page is wider than its window."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = self.page.evaluate(
            "async tags => (await axe.run({runOnly: tags})).violations", WCAG
        )
        faults = [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]
        overflow: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return [*faults, *([f"{overflow} px too wide"] if overflow > 0 else [])]


@contextmanager
def launched() -> Iterator[Browser]:
    """Run the machine's Chromium until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@contextmanager
def browsing(browser: Browser, url: str, **options: Any) -> Iterator[Console]:
    """A window of its own; an error in its console, or one of its policy, fails the block."""
    context = browser.new_context(reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MS)
    console = Console(context.new_page(), url)
    console.page.on(
        "console",
        lambda said: console.errors.append(said.text) if said.type == "error" else None,
    )
    console.page.on("pageerror", lambda error: console.errors.append(str(error)))
    yield console
    context.close()
    assert not console.errors, console.errors
