"""A disk in memory, for tests of what a real one does on its worst days.

    name ──▶ inode ──▶ pages         as a process sees them
    name ──▶ inode ──▶ safe pages    as they are found after a power cut

Data is kept in pages of 4 KiB, so a sparse gigabyte costs nothing. A page counts as safe after `sync` of its
file, a name after `sync_folder` of its folder; until then `power_cut` may or may not keep it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from typing import NamedTuple

from kourou.doors.chance import Chance
from kourou.doors.files import DiskSpace

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class SimulatedFiles:
    """A disk in memory that knows what was synced, fails on demand and can lose its power.

    Faults: `capacity` bytes make a full disk (writes stop in the middle with ENOSPC), `fail(operation, …)`
    makes the n-th operation of a kind raise. `before` is called ahead of every operation that changes
    something, with its kind and path; raising there is a crash at that very point.
    """

    def __init__(self, capacity: int = 1 << 40, *, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self.capacity = capacity
        self.before: Callable[[str, str], None] | None = None
        self.counts: dict[str, int] = {}
        self._clock_ms = clock_ms
        self._faults: dict[str, _Fault] = {}
        self._locked: set[str] = set()
        self._tree = _Tree()
        self._safe_tree = _Tree()
        self._unsafe: list[_Rename | _Link | _Unlink] = []

    def fail(self, operation: str, *, after: int = 0, error: int = errno.EIO, times: int = 1) -> None:
        """Let `operation` ("sync", "pwrite", "pread", "allocate", "open", …) raise, `times` times, the first
        time after `after` more that succeed; `times=0` takes the fault away."""
        self._faults[operation] = _Fault(after, error, times)

    def used(self) -> int:
        return sum(len(inode.blocks) for inode in set(self._tree.files.values())) * PAGE_BYTES

    # The operations of a disk.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        path = _tidy(path)
        self._step("open", path)
        inode = self._tree.files.get(path)
        if inode is None:
            self._need_folder(path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = _Inode(self._clock_ms())
            self._change(_Link(path, inode))
        return SimulatedFile(self, path, inode, read_only)

    def read(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> None:
        temporary = _tidy(path) + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
        if keep_previous and self.exists(path):
            self._step("link", path)
            self._change(_Link(_tidy(path) + ".bak", self._tree.files[_tidy(path)]))
        self.rename(temporary, path)
        self.sync_folder(os.path.dirname(_tidy(path)))

    def exists(self, path: str) -> bool:
        return _tidy(path) in self._tree.files or _tidy(path) in self._tree.folders

    def list(self, folder: str) -> list[str]:
        return sorted(self._tree.names_in(_tidy(folder)))

    def is_folder(self, path: str) -> bool:
        return _tidy(path) in self._tree.folders

    def make_folders(self, path: str, *, private: bool = False) -> None:
        path = _tidy(path)
        if path in self._tree.folders:
            return
        if path in self._tree.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if (parent := os.path.dirname(path)) != path:
            self.make_folders(parent)
        self._step("make_folder", path)
        self._change(_Link(path, None))

    def rename(self, old: str, new: str) -> None:
        old, new = _tidy(old), _tidy(new)
        self._need(old)
        self._step("rename", old)
        self._change(_Rename(old, new))

    def remove(self, path: str) -> None:
        self._need(_tidy(path))
        self._step("remove", path)
        self._change(_Unlink(_tidy(path)))

    def remove_folder(self, path: str) -> None:
        path = _tidy(path)
        self._need(path)
        self._step("remove", path)
        for below in self._tree.below(path):
            self._change(_Unlink(below))
        self._change(_Unlink(path))

    def sync_folder(self, folder: str) -> None:
        folder = _tidy(folder)
        self._need(folder)
        self._step("sync_folder", folder)
        for change in self._unsafe:
            if change.folder == folder:
                change.apply(self._safe_tree)
        self._unsafe = [change for change in self._unsafe if change.folder != folder]

    def sync_all(self, paths: Collection[str]) -> None:
        for path in paths:
            if self.is_folder(path):
                self.sync_folder(path)
            elif self.exists(path):
                self.open(path).sync()

    def modified_ms(self, path: str) -> int:
        self._need(_tidy(path))
        inode = self._tree.files.get(_tidy(path))
        return inode.modified_ms if inode else 0

    def space(self, path: str) -> DiskSpace:
        used = self.used()
        return DiskSpace(self.capacity, used, max(0, self.capacity - used))

    def memory_bytes(self) -> int:
        return 1 << 30

    def lock(self, path: str) -> SimulatedLock | None:
        path = _tidy(path)
        if path in self._locked:
            return None
        self.open(path, create=True).pwrite(b"lock", 0)
        return SimulatedLock(self._locked, path)

    # What is left of it.

    def crashed(self) -> SimulatedFiles:
        """The disk as the next process finds it after kill -9: all that was written, no locks, no faults."""
        disk = SimulatedFiles(self.capacity, clock_ms=self._clock_ms)
        copies = {
            inode: inode.copy() for inode in {*self._tree.files.values(), *self._safe_tree.files.values()}
        }
        disk._tree = self._tree.copy(copies)
        disk._safe_tree = self._safe_tree.copy(copies)
        for change in self._unsafe:
            if isinstance(change, _Link) and change.inode is not None:
                inode = change.inode
                change = _Link(change.path, copies.get(inode) or copies.setdefault(inode, inode.copy()))
            disk._unsafe.append(change)
        return disk

    def power_cut(self, chance: Chance, *, garbage: float = 0.0) -> SimulatedFiles:
        """A disk that may be found after the power failed now.

        Everything synced is on it. Of the rest: each page may be old, new or, sector by sector, both; each
        change of a folder may have happened or not; each length may be the old or the new one. With the
        probability `garbage`, a sector that was blank before holds what nobody wrote.
        """
        tree = self._safe_tree.copy(None)
        for change in self._unsafe:
            if chance.random() < 0.5:
                change.apply(tree)
        tree.drop_unreachable()
        copies = {
            inode: inode.after_power_cut(chance, garbage) for inode in dict.fromkeys(tree.files.values())
        }
        disk = SimulatedFiles(self.capacity, clock_ms=self._clock_ms)
        disk._tree = tree.copy(copies)
        disk._safe_tree = disk._tree.copy(None)
        return disk

    def _step(self, operation: str, path: str) -> None:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        if self.before is not None:
            self.before(operation, path)
        fault = self._faults.get(operation)
        if fault is not None and fault.strikes():
            raise OSError(fault.error, os.strerror(fault.error), path)

    def _change(self, change: _Rename | _Link | _Unlink) -> None:
        change.apply(self._tree)
        self._unsafe.append(change)

    def _need(self, path: str) -> None:
        if path not in self._tree.files and path not in self._tree.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _need_folder(self, path: str) -> None:
        folder = os.path.dirname(path)
        while folder not in self._tree.folders:
            if folder in self._tree.files:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = os.path.dirname(folder)
        if folder != os.path.dirname(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class SimulatedFile:
    """An open file of a `SimulatedFiles`."""

    def __init__(self, disk: SimulatedFiles, path: str, inode: _Inode, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._read_only = read_only

    def pread(self, size: int, at: int) -> bytes:
        self._disk._step("pread", self.path)
        return self._inode.read(size, at)

    def view(self, size: int, at: int) -> memoryview | None:
        try:
            self._disk._step("view", self.path)
        except OSError:
            return None
        data = self._inode.read(size, at)
        return memoryview(data) if len(data) == size else None

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk._step("pwrite", self.path)
        room = self._room(len(data), at)
        self._inode.write(memoryview(data)[:room], at, self._disk._clock_ms())
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def size(self) -> int:
        return self._inode.size

    def truncate(self, size: int) -> None:
        self._disk._step("truncate", self.path)
        self._inode.truncate(size)

    def allocate(self, size: int, *, at: int = 0) -> None:
        self._disk._step("allocate", self.path)
        if self._room(size, at) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._inode.blocks.update(_pages(at, size))
        self._inode.size = max(self._inode.size, at + size)

    def data_from(self, at: int) -> int:
        inode, first = self._inode, at // PAGE_BYTES
        found = min((page for page in inode.pages if page >= first), default=None)
        return inode.size if found is None else min(inode.size, max(at, found * PAGE_BYTES))

    def sync(self) -> None:
        try:
            self._disk._step("sync", self.path)
        except OSError:
            self._inode.give_up()
            raise
        self._inode.sync()

    def close(self) -> None:
        pass

    def _room(self, size: int, at: int) -> int:
        """How many of these bytes still find a place."""
        missing = [page for page in _pages(at, size) if page not in self._inode.blocks]
        if not missing:
            return size
        free = max(0, self._disk.capacity - self._disk.used()) // PAGE_BYTES
        return size if len(missing) <= free else max(0, missing[free] * PAGE_BYTES - at)


class SimulatedLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path
        locked.add(path)

    def release(self) -> None:
        self._locked.discard(self._path)


class _Fault:
    def __init__(self, after: int, error: int, times: int) -> None:
        self.after = after
        self.error = error
        self.times = times

    def strikes(self) -> bool:
        if self.times <= 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        return True


class _Inode:
    """The bytes of a file, as they are and as they would be after a power cut."""

    __slots__ = ("blocks", "dirty", "modified_ms", "pages", "safe_pages", "safe_size", "size")

    def __init__(self, modified_ms: int) -> None:
        self.pages: dict[int, bytes] = {}
        self.safe_pages: dict[int, bytes] = {}
        self.dirty: set[int] = set()
        self.blocks: set[int] = set()
        self.size = 0
        self.safe_size = 0
        self.modified_ms = modified_ms

    def read(self, size: int, at: int) -> bytes:
        stop = min(at + size, self.size)
        if stop <= at:
            return b""
        pages = _pages(at, stop - at)
        whole = b"".join([self.pages.get(page, _ZEROS) for page in pages])
        start = at - pages.start * PAGE_BYTES
        return whole[start : start + stop - at]

    def write(self, data: memoryview, at: int, now_ms: int) -> None:
        taken = 0
        while taken < len(data):
            page, start = divmod(at + taken, PAGE_BYTES)
            part = data[taken : taken + PAGE_BYTES - start]
            old = self.pages.get(page, _ZEROS)
            self.pages[page] = old[:start] + bytes(part) + old[start + len(part) :]
            self.dirty.add(page)
            self.blocks.add(page)
            taken += len(part)
        self.size = max(self.size, at + len(data))
        self.modified_ms = now_ms

    def truncate(self, size: int) -> None:
        last, rest = divmod(size, PAGE_BYTES)
        gone = [page for page in self.blocks if page * PAGE_BYTES >= size]
        for page in gone:
            self.blocks.discard(page)
            if self.pages.pop(page, None) is not None:
                self.dirty.add(page)
        if rest and last in self.pages:
            self.pages[last] = self.pages[last][:rest] + bytes(PAGE_BYTES - rest)
            self.dirty.add(last)
        self.size = size

    def sync(self) -> None:
        for page in self.dirty:
            if page in self.pages:
                self.safe_pages[page] = self.pages[page]
            else:
                self.safe_pages.pop(page, None)
        self.dirty.clear()
        self.safe_size = self.size

    def give_up(self) -> None:
        """A sync failed: as with Linux, what was to be written counts as clean, is read as before, and never
        reaches the disk unless it is written anew."""
        self.dirty.clear()

    def copy(self) -> _Inode:
        twin = _Inode(self.modified_ms)
        twin.pages, twin.safe_pages = dict(self.pages), dict(self.safe_pages)
        twin.dirty, twin.blocks = set(self.dirty), set(self.blocks)
        twin.size, twin.safe_size = self.size, self.safe_size
        return twin

    def after_power_cut(self, chance: Chance, garbage: float) -> _Inode:
        left = _Inode(self.modified_ms)
        left.pages = dict(self.safe_pages)
        for page in sorted(self.dirty):
            old, new = self.safe_pages.get(page, _ZEROS), self.pages.get(page, _ZEROS)
            left.pages[page] = _torn(old, new, chance)
            if garbage and chance.random() < garbage:
                left.pages[page] = _littered(old, new, left.pages[page], chance)
        left.size = self.size if chance.random() < 0.5 else self.safe_size
        left.blocks = set(left.pages)
        left.truncate(left.size)
        left.dirty = set(left.pages)
        left.sync()
        return left


def _torn(old: bytes, new: bytes, chance: Chance) -> bytes:
    """The old page, the new one or, one time in three, a sector-wise mixture."""
    fate = chance.randrange(3)
    if fate < 2:
        return (old, new)[fate]
    starts = range(0, PAGE_BYTES, SECTOR_BYTES)
    return b"".join([chance.choice((old, new))[start : start + SECTOR_BYTES] for start in starts])


def _littered(old: bytes, new: bytes, page: bytes, chance: Chance) -> bytes:
    """Garbage in some of the sectors that were blank, and were being written when the power failed.

    Never in one that held something: a disk writes a sector whole or not at all.
    """
    sectors = []
    for start in range(0, PAGE_BYTES, SECTOR_BYTES):
        stop = start + SECTOR_BYTES
        is_new = not old[start:stop].strip(b"\0") and old[start:stop] != new[start:stop]
        is_hit = is_new and chance.random() < 0.5
        sectors.append(chance.randbytes(SECTOR_BYTES) if is_hit else page[start:stop])
    return b"".join(sectors)


class _Tree:
    """Names and what they stand for."""

    def __init__(self) -> None:
        self.files: dict[str, _Inode] = {}
        self.folders: set[str] = {"/", ""}

    def names_in(self, folder: str) -> list[str]:
        every = [path for path in (*self.files, *self.folders) if path and path.startswith(folder)]
        return [os.path.basename(path) for path in every if os.path.dirname(path) == folder != path]

    def below(self, folder: str) -> list[str]:
        every = [*self.files, *sorted(self.folders, reverse=True)]
        return [path for path in every if path.startswith(folder + "/")]

    def copy(self, copies: dict[_Inode, _Inode] | None) -> _Tree:
        twin = _Tree()
        twin.folders = set(self.folders)
        twin.files = {path: copies[inode] if copies else inode for path, inode in self.files.items()}
        return twin

    def drop_unreachable(self) -> None:
        """A name is lost when a folder above it is."""
        self.folders = {path for path in self.folders if self._reachable(path)}
        self.files = {path: inode for path, inode in self.files.items() if self._reachable(path)}

    def _reachable(self, path: str) -> bool:
        while path not in ("/", ""):
            path = os.path.dirname(path)
            if path not in self.folders:
                return False
        return True


class _Link(NamedTuple):
    """A new name: of a file, or (without an inode) of a folder."""

    path: str
    inode: _Inode | None

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def apply(self, tree: _Tree) -> None:
        if self.inode is None:
            tree.folders.add(self.path)
        else:
            tree.files[self.path] = self.inode


class _Unlink(NamedTuple):
    path: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    def apply(self, tree: _Tree) -> None:
        tree.files.pop(self.path, None)
        tree.folders.discard(self.path)


class _Rename(NamedTuple):
    """Happens as a whole or not at all."""

    old: str
    new: str

    @property
    def folder(self) -> str:
        return os.path.dirname(self.new)

    def apply(self, tree: _Tree) -> None:
        if self.old in tree.files:
            tree.files[self.new] = tree.files.pop(self.old)
        elif self.old in tree.folders:
            for path in [self.old, *tree.below(self.old)]:
                moved = self.new + path[len(self.old) :]
                if path in tree.folders:
                    tree.folders.discard(path)
                    tree.folders.add(moved)
                else:
                    tree.files[moved] = tree.files.pop(path)


_ZEROS = bytes(PAGE_BYTES)


def _pages(at: int, size: int) -> range:
    return range(at // PAGE_BYTES, (at + size + PAGE_BYTES - 1) // PAGE_BYTES)


def _tidy(path: str) -> str:
    return os.path.normpath(path) if path else ""
