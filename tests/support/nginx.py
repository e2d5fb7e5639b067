"""A real nginx in front of a service, with the configuration that is shipped."""

import grp
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx-cache.conf"
NAME = "cache"
"""The host under which clients reach it: `allowed_hosts` of the service."""

_WRAPPER = """
user {user} {group};
worker_processes 1;
pid {home}/pid;
error_log {home}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    {more}
    include {home}/cache.conf;
}}
"""


@contextmanager
def nginx(origin: str, *, more: str = "", listen: str = "") -> Iterator[Path]:
    """The socket of an nginx in front of `origin`; `more` goes into its http block."""
    with tempfile.TemporaryDirectory(prefix="nginx") as home:
        configured = CONFIGURATION.read_text(encoding="utf-8")
        for theirs, ours in (
            ("http://127.0.0.1:8080", origin),
            ("listen 8081", f"listen unix:{home}/socket {listen}"),
            ("/var/cache/nginx/tidelog", f"{home}/cache"),
        ):
            assert theirs in configured
            configured = configured.replace(theirs, ours)
        Path(home, "cache.conf").write_text(configured, encoding="utf-8")
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
        wrapper = _WRAPPER.format(home=home, user=user, group=group, more=more)
        Path(home, "nginx.conf").write_text(wrapper, encoding="utf-8")
        command = ["nginx", "-p", home, "-c", f"{home}/nginx.conf", "-e", f"{home}/error.log"]
        subprocess.run(command, check=True)  # returns when it listens
        try:
            yield Path(home, "socket")
        finally:
            subprocess.run([*command, "-s", "stop"], check=True)


def client_of(socket: Path) -> httpx.Client:
    """A client of the nginx that listens there."""
    transport = httpx.HTTPTransport(uds=str(socket))
    return httpx.Client(transport=transport, base_url=f"http://{NAME}", timeout=60)
