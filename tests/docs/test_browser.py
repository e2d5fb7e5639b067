"""The page for JavaScript in the browser, in a browser: another origin, EventSource and all."""

import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs.snippets import snippets_of
from tests.support.server import serving

HTML = """<!doctype html><title>drawings</title><script type="module">
const printed = [];
let followed;
const isFollowed = new Promise(resolve => followed = resolve);
console.log = (...values) => {
  printed.push(values.join(" "));
  if (values[0] === 0 && values[1] === 1) followed();
};
try {
%s
await isFollowed;
events.close();
} catch (error) { printed.push(String(error)); }
await fetch("/", {method: "POST", body: printed.join("\\n")});
</script>"""

CHROMIUM = [
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Site(ThreadingHTTPServer):
    """An origin with one page, which tells what it printed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.page = ""
        self.printed: queue.Queue[str] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    """Serves the page, and takes what it tells."""

    server: Site

    def do_GET(self) -> None:  # named by the standard library
        self._answer(self.server.page.encode())

    def do_POST(self) -> None:  # the same
        told = self.rfile.read(int(self.headers["content-length"])).decode()
        self._answer(b"")
        self.server.printed.put(told)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def site() -> Iterator[Site]:
    with Site() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def browsing(url: str, profile: Path) -> Iterator[None]:
    """A browser that shows a page until the block ends."""
    command = [*CHROMIUM, f"--user-data-dir={profile}", url]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as browser:
        try:
            yield
        finally:
            browser.terminate()


@pytest.mark.long
@pytest.mark.needs("chromium")
def test_a_page_of_another_origin_appends_reads_and_follows(tmp_path: Path) -> None:
    """A listed origin may do all that the page shows, and sees the same as Node does."""
    with site() as server:
        origin = f"http://127.0.0.1:{server.server_port}"
        with serving(tmp_path / "data", cors_origins=(origin,)) as served:
            snippets = list(snippets_of("javascript.md", served.url))
            server.page = HTML % "\n".join(snippet.code for snippet in snippets)
            with browsing(origin, tmp_path / "profile"):
                printed = server.printed.get(timeout=120)
    expected = [snippet.expected.strip() for snippet in snippets if snippet.expected]
    assert sorted(printed.splitlines()) == sorted([*expected, "0 1"])


STAGE = """
const log = "";
const made = [];
const told = [];
class EventSource {
  static CLOSED = 2;
  constructor(url) { this.url = url; this.readyState = 0; this.heard = {}; made.push(this); }
  addEventListener(name, listener) { this.heard[name] = listener; }
  close() { this.readyState = 2; }
}
const setTimeout = (again, wait, ...values) => { told.push(wait); again(...values); };
%s
const tell = (name, event) => made.at(-1).heard[name](event);
const records = (id, ...offsets) =>
  ({lastEventId: id, data: JSON.stringify({records: offsets.map(offset => ({offset}))})});
follow("", record => told.push(`record ${record.offset}`));
tell("open");
tell("end", {});  // a polyfill's own
tell("records", records("a.0:2", 0, 1));
tell("error", {});
made.at(-1).close();
tell("error", {});
made.at(-1).close();
tell("error", {});
tell("open");
tell("records", records("a.0:3", 2));
tell("end", {data: '{"reason": "draining", "retryable": true}'});
tell("end", {data: '{"reason": "topic_not_found", "retryable": false}'});
console.log(made.map(one => one.url.split("=")[1]).join(" "));
console.log(told.join(" "));
"""


@pytest.mark.long
@pytest.mark.needs("node")
def test_a_page_that_stays_open_comes_back_behind_the_last_event(tmp_path: Path) -> None:
    """After a refusal and a last event it waits longer each time; a lost connection is not its."""
    [block] = [one for one in snippets_of("javascript.md", "") if "function follow" in one.code]
    program = tmp_path / "page.mjs"
    program.write_text(STAGE % block.code)
    ran = subprocess.run(["node", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == [
        " a.0%3A2 a.0%3A2 a.0%3A3",
        "record 0 record 1 1000 2000 record 2 1000",
    ], ran.stderr
