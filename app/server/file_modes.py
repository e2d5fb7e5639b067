"""Warns at the start of files that other users of the machine could read or change."""

from __future__ import annotations

import logging
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.security.keys import api_keys_path
from app.settings import Settings

_LOG = logging.getLogger(__name__)

_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def warn_of_open_files(settings: Settings) -> None:
    """Log a warning for an API key file that others can change, and a TLS key that they can read.

    A changed key file admits other callers; a TLS key lets another process pose as the service.
    """
    _warn(api_keys_path(settings.data_directory), _OTHERS_WRITE, "changed")
    if settings.tls_key is not None:
        _warn(settings.tls_key, _OTHERS_READ | _OTHERS_WRITE, "read")


def _warn(path: Path, bits: int, what: str) -> None:
    with suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & bits:
            _LOG.warning(
                "%s can be %s by other users (mode %04o): chmod 600 %s", path, what, mode, path
            )
