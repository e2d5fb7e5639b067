"""A disk in memory that forgets, on a power cut, whatever was never synced.

File contents and the names in directories are each durable only once
synced, as POSIX allows; after the crash of a process alone everything is still there. It can cut
the power before its nth change, and fail the nth call of a kind.
After LevelDB's `fault_injection_test`.

    disk = ForgetfulDisk()
    with disk.power_cut_before(7), pytest.raises(PowerCut):
        log.append(...)
    disk.restart()      # or disk.restart(power_cut=False): only the process died
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from engine.fs.port import DirectoryEntry, FileSystem, Space
from tests.support.inodes import (
    UNLIMITED,
    Directory,
    Entry,
    ForgetfulDirectory,
    ForgetfulFile,
    ForgetfulIndexFile,
    Handle,
    Inode,
    Rules,
    Storage,
)
from tests.support.machine import PowerCut, os_error

__all__ = ["ForgetfulDisk", "PowerCut"]


class ForgetfulDisk(Storage):
    """A `FileSystem`. Its public extras steer it and tell what reached it; all thread-safe."""

    file_type = ForgetfulFile

    def __init__(self) -> None:
        super().__init__()
        self._root = Directory()
        self._held_locks: set[Path] = set()

    # ---------------------------------------------------------------- steering and asking

    def restart(self, *, power_cut: bool = True, random: Random | None = None) -> None:
        """Come back as a new process; everything the old one had open is dead.

        After a power cut only what was synced is found, or with `random` by chance more of it: each
        file, block and name on its own, in any order. Otherwise all that was written.
        """
        with self._lock:
            self._revive(self._root, power_cut=power_cut, random=random)
            self._held_locks.clear()
            self._start_anew()
            self.remaining_files = UNLIMITED

    def after_power_cut(self) -> ForgetfulDisk:
        """Return the disk that a machine finds whose power is cut now; this one goes on."""
        found = type(self)()
        with self._lock:
            found._root = _durable(self._root)  # noqa: SLF001 - one of us
        return found

    def put(self, source: Path, target: Path) -> None:
        """Copy a real file or folder to this disk, durably."""
        if source.is_dir():
            self.make_directory(target, parents=True)
            for child in source.iterdir():
                self.put(child, target / child.name)
            self.sync_everything()
        else:
            self.begin_with({target: source.read_bytes()})

    def begin_with(self, files: Mapping[Path, bytes]) -> None:
        """Have these files, durably, and whatever else is here."""
        for path, content in files.items():
            self.make_directory(path.parent, parents=True)
            self._parent(path).change(
                **{path.name: Inode(bytearray(content), content, device=self._parent(path).device)}
            )
        self.sync_everything()

    def spoil(self, path: Path) -> None:
        """Let no part of a file be readable until it is written again."""
        self._inode(path).is_unreadable = True

    def device_of(self, path: Path) -> int:
        """Return the number of the file system that a folder is in."""
        return self._directory(path).device

    def mount(self, path: Path) -> None:
        """Have a folder that exists, and all in it, be a file system of its own."""
        self.mounts.append(path)
        directory = self._directory(path)
        directory.device = len(self.mounts)
        for inode in _files_below(directory):
            inode.device = directory.device

    def spoil_one(self, nth: int, endings: tuple[str, ...]) -> None:
        """Spoil the nth file whose name ends so, if there is any, counting around."""
        found = [
            path for path in self._paths_below(self._root, Path("/")) if path.name.endswith(endings)
        ]
        if found:
            self.spoil(sorted(found)[nth % len(found)])

    def _paths_below(self, directory: Directory, path: Path) -> Iterator[Path]:
        for name, entry in directory.names.items():
            if isinstance(entry, Directory):
                yield from self._paths_below(entry, path / name)
            else:
                yield path / name

    def write_back(self, random: Random) -> None:
        """Let some of the cached writes reach the disk, in any order; no sync reports them."""
        self._write_back_below(self._root, random)

    def write_back_names(self) -> None:
        """Make all names durable and no contents, as a journal may that knows of names alone."""
        self._write_back_names_below(self._root)

    def sync_everything(self) -> None:
        """Make durable all that is written, as a machine does that is left alone for a while."""
        with self._lock:
            self._sync_below(self._root)

    def sync_file_system(self, path: Path) -> None:
        """Sync the file system that a path is in, as its rules say.

        By those of XFS a write inside a file's length reaches the disk's cache, and is lost with
        its power.
        """
        with self._lock:
            self._sync_device_below(self._root, self._directory(path).device)

    def fail_to_sync_everything(self) -> None:
        """Drop all unwritten pages of every file; the next sync of such a file reports it too.

        As in Linux, where a file keeps its error for those who have it open (`errseq_t`).
        """
        with self._lock:
            for inode in _files_below(self._root):
                if inode.is_dirty:
                    inode.owes_error_in = self.generation
                inode.fail_to_sync()

    # --------------------------------------------------------------------- the FileSystem

    def open(
        self,
        path: Path,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        preallocate_bytes: int = 0,
        follow_links: bool = False,
    ) -> ForgetfulFile:
        with self._lock:
            self.enter("open", path)
            self.take_file(path)
            node = self._parent(path).names.get(path.name)
            if node is None and create:
                inode = self._create(path, preallocate_bytes)
                return self.file_type(self, path, inode, 0)
            if node is not None and exclusive:
                raise os_error(errno.EEXIST, path)
            inode = self._inode(path)
            size_bytes = len(inode.content)
            return self.file_type(self, path, inode, size_bytes, read_only=read_only)

    def open_index(
        self, path: Path, size_bytes: int | None = None, *, read_only: bool = False
    ) -> ForgetfulIndexFile:
        with self._lock:
            self.enter("open_index", path)
            self.take_file(path)
            is_new = path.name not in self._parent(path).names
            if is_new and size_bytes is not None and not read_only:
                return ForgetfulIndexFile(self, path, self._create(path, size_bytes), is_new=True)
            inode = self._inode(path)
            return ForgetfulIndexFile(self, path, inode, is_new=False, read_only=read_only)

    def exists(self, path: Path) -> bool:
        self.enter("look", path)
        return self._look(path.parts) is not None

    def is_directory(self, path: Path) -> bool:
        self.enter("look", path)
        return isinstance(self._look(path.parts), Directory)

    def real_directory(self, path: Path) -> Path | None:
        """A disk in memory has no links."""
        return path if self.is_directory(path) else None

    def is_misplaced(self, path: Path) -> bool:
        return self.is_directory(path)  # there are no links

    def size_bytes(self, path: Path) -> int:
        self.enter("look", path)
        return len(self._inode(path).content)

    def space(self, path: Path) -> Space:
        self.enter("look", path)
        return Space(total_bytes=2**40, free_bytes=2**39)

    def modified_ms(self, path: Path) -> int:
        self.enter("look", path)
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self.enter("set_modified_ms", path)
        self._inode(path).modified_ms = modified_ms

    def read_bytes(self, path: Path, *, follow_links: bool = False) -> bytes:
        self.enter("read", path)
        self.take_file(path)
        return bytes(self._inode(path).content)

    def list_directory(self, path: Path) -> list[str]:
        self.enter("list_directory", path)
        self.take_file(path)
        return sorted(self._directory(path).names)

    def list_entries(self, path: Path) -> list[DirectoryEntry]:
        found = self._directory(path).names
        names = self.list_directory(path)
        return [
            DirectoryEntry(name, is_directory, not is_directory)
            for name in names
            for is_directory in [isinstance(found[name], Directory)]
        ]

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        with self._lock:
            if isinstance(self._look(path.parts), Directory):
                return
            if parents and self._look(path.parent.parts) is None:
                self.make_directory(path.parent, parents=True)
            if path.name in self._parent(path).names:
                raise os_error(errno.EEXIST, path)
            self.enter("make_directory", path)
            parent = self._parent(path)
            is_mount = path in self.mounts
            device = 1 + self.mounts.index(path) if is_mount else parent.device
            parent.change(**{path.name: Directory(device=device)})

    def open_directory(self, path: Path) -> ForgetfulDirectory:
        directory = self._directory(path)
        self.enter("open_directory", path)
        self.take_file(path)
        return ForgetfulDirectory(self, path, directory)

    def open_file_system(self, path: Path) -> ForgetfulFileSystem:
        self.enter("open_file_system", path)
        self.take_file(path)
        return ForgetfulFileSystem(self, path)

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self.enter("sync_directory", path)
        self.take_file(path)
        directory.sync()

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            node = self._find(source)
            before, after = self._parent(source), self._parent(target)
            if isinstance(after.names.get(target.name), Directory):
                raise os_error(errno.ENOTEMPTY, target)
            self.enter("rename", source)
            self._free(after.names.get(target.name))
            if before is after:
                before.change(**{source.name: None, target.name: node})
            else:
                after.change(**{target.name: node})
                before.change(**{source.name: None})

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        with self._lock:
            if missing_ok and self._look(path.parts) is None:
                return
            inode = self._inode(path)
            self.enter("remove", path)
            self._free(inode)
            self._parent(path).change(**{path.name: None})

    def remove_tree(self, path: Path) -> None:
        directory = self._directory(path)
        self.enter("remove_tree", path)
        self.take_file(path)
        for name, node in list(directory.names.items()):
            if isinstance(node, Directory):
                self.remove_tree(path / name)
            else:
                self.remove(path / name)
        self._parent(path).change(**{path.name: None})

    def lock(self, path: Path) -> ForgetfulLock:
        with self._lock:
            if path in self._held_locks:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
            self.open(path, create=True)
            self._held_locks.add(path)
            return ForgetfulLock(self, path, self._inode(path))

    def is_at(self, path: Path, inode: Inode) -> bool:
        """Whether the file has this name still."""
        return self._look(path.parts) is inode

    def unlock(self, path: Path, inode: Inode) -> None:
        with self._lock:
            self._held_locks.discard(path)
            if self.is_at(path, inode):
                with contextlib.suppress(OSError):
                    self.remove(path)

    # ---------------------------------------------------------------------------- insides

    def _free(self, inode: Entry | None) -> None:
        """Give back the space of a file that has lost its name."""
        if isinstance(inode, Inode) and self.remaining_bytes != UNLIMITED:
            self.remaining_bytes += len(inode.content)

    def _create(self, path: Path, size_bytes: int) -> Inode:
        self.enter("create", path)
        parent = self._parent(path)
        inode = Inode(bytearray(size_bytes), modified_ms=self.now_ms, device=parent.device)
        parent.change(**{path.name: inode})
        return inode

    def _look(self, parts: Sequence[str]) -> Entry | None:
        """Return what is at the end of these names, of which the first is the root."""
        node: Entry | None = self._root
        for name in parts[1:]:
            node = node.names.get(name) if isinstance(node, Directory) else None
        return node

    def _find(self, path: Path) -> Entry:
        node = self._look(path.parts)
        if node is None:
            below_file = any(isinstance(self._look(one.parts), Inode) for one in path.parents)
            raise os_error(errno.ENOTDIR if below_file else errno.ENOENT, path)
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._find(path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._find(path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: Path) -> Directory:
        node = self._look(path.parts[:-1])
        return node if isinstance(node, Directory) else self._directory(path.parent)

    def _revive(self, directory: Directory, *, power_cut: bool, random: Random | None) -> None:
        """Make what survives the new present; only a power cut makes it durable as well."""
        if power_cut:
            directory.lose_power(random)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._revive(node, power_cut=power_cut, random=random)
            elif power_cut:
                node.lose_power(random)
            else:
                node.content = bytearray(node.content)  # cut off from the maps of the old process

    def _write_back_below(self, directory: Directory, random: Random) -> None:
        if random.random() < 0.5:
            directory.write_back(random)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._write_back_below(node, random)
            elif random.random() < 0.5:
                node.write_back(random)

    def _write_back_names_below(self, directory: Directory) -> None:
        directory.sync()
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._write_back_names_below(node)

    def _sync_below(self, directory: Directory) -> None:
        directory.sync()
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._sync_below(node)
            else:
                node.sync()

    def _sync_device_below(self, directory: Directory, device: int) -> None:
        if directory.device == device:
            directory.sync()
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._sync_device_below(node, device)
            elif node.device == device and (node.has_grown or self.rules is not Rules.XFS):
                node.sync()


def _files_below(directory: Directory) -> Iterator[Inode]:
    for node in directory.names.values():
        if isinstance(node, Directory):
            yield from _files_below(node)
        else:
            yield node


def _durable(directory: Directory) -> Directory:
    """Copy what is durable of a directory."""
    names: dict[str, Entry] = {
        name: _durable(node)
        if isinstance(node, Directory)
        else Inode(
            bytearray(node.durable), node.durable, modified_ms=node.modified_ms, device=node.device
        )
        for name, node in directory.durable.items()
    }
    return Directory(names, dict(names), device=directory.device)


class ForgetfulFileSystem(Handle):
    """An `OpenFileSystem`."""

    def __init__(self, disk: ForgetfulDisk, path: Path) -> None:
        super().__init__(disk, path)
        self._whole = disk
        self.device = disk.device_of(path)

    def sync_all(self) -> None:
        try:
            self._enter("sync_file_system")
        except OSError:
            self._whole.fail_to_sync_everything()
            raise
        self._whole.sync_file_system(self.path)


class ForgetfulLock:
    """A `HeldLock`."""

    def __init__(self, disk: ForgetfulDisk, path: Path, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._generation = disk.generation
        self._is_held = True

    def ensure_held(self) -> None:
        if not self._disk.is_at(self._path, self._inode):
            raise os_error(errno.ESTALE, self._path)

    def release(self) -> None:
        if self._is_held and self._generation == self._disk.generation:
            self._disk.unlock(self._path, self._inode)
        self._is_held = False


_is_a_file_system: FileSystem = ForgetfulDisk()
