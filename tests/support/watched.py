"""A file system that remembers which thread asked it for what, in front of any other."""

import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

from engine.fs.port import FileSystem


class Asked(NamedTuple):
    """One call of the port: the thread, the method, and how many bytes it was about."""

    thread: int
    name: str
    size_bytes: int


class WatchedFileSystem:
    """Hands everything on, files and maps included, and notes it."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.asked: list[Asked] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._fs, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            self.note(f"fs.{name}")
            made = method(*arguments, **options)
            return _Watched(made, self) if name in {"open", "open_index"} else made

        return noted

    def note(self, name: str, size_bytes: int = 0) -> None:
        self.asked.append(Asked(threading.get_ident(), name, size_bytes))

    def asked_by(self, thread: int) -> list[Asked]:
        return [asked for asked in self.asked if asked.thread == thread]


class _Watched:
    """An open file, or a map, whose methods are noted."""

    def __init__(self, inner: Any, watch: WatchedFileSystem) -> None:
        vars(self)["inner"] = inner
        vars(self)["watch"] = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(vars(self)["inner"], name)
        if not callable(found) or isinstance(found, Path):
            return found

        def noted(*arguments: Any, **options: Any) -> Any:
            vars(self)["watch"].note(f"file.{name}", _bytes_of(name, arguments))
            return found(*arguments, **options)

        return noted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        vars(self)["inner"].close()

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)["inner"], name, value)


def _bytes_of(name: str, arguments: tuple[Any, ...]) -> int:
    """How many bytes a call reads or writes."""
    if name == "append":
        return len(arguments[0])
    if name == "append_many":
        return sum(map(len, arguments[0]))
    return int(arguments[1]) if name in {"read_at", "read_cached"} else 0
