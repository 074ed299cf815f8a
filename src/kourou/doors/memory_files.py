"""A disk in memory, for a broker that shall leave nothing behind.

    path ──▶ content ──▶ pages of 16 KiB, each there from the first byte written to it

A file that is a gigabyte long and holds ten messages takes one page. Nothing is ever synced, and nothing is
lost but with the process. Several threads may use it as they use a real disk: a page is changed in place, in
one step of the interpreter, and the names of files in one as well; only the length of a file needs a lock.

(`simulated_files.py` is the other one in memory: it remembers what a power cut would take, at a price.)
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection

from kourou.doors.files import DiskSpace

PAGE_BYTES = 16 * 1024


class MemoryFiles:
    """Files nobody else sees, gone with the last one who holds them."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: 0) -> None:
        self._clock_ms = clock_ms
        self._files: dict[str, _Content] = {}
        self._folders: dict[str, None] = {"/": None, "": None}
        self._locked: set[str] = set()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        path = _tidy(path)
        content = self._files.get(path)
        if content is None:
            self._need_folder_of(path)
            if path in self._folders:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            content = self._files.setdefault(path, _Content(self._clock_ms()))
        return MemoryFile(path, content, read_only, self._clock_ms)

    def read(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> None:
        path = _tidy(path)
        self._need_folder_of(path)
        content = _Content(self._clock_ms())
        content.write(memoryview(data), 0)
        previous = self._files.get(path)
        if keep_previous and previous is not None:
            self._files[path + ".bak"] = previous
        self._files[path] = content

    def exists(self, path: str) -> bool:
        return _tidy(path) in self._files or _tidy(path) in self._folders

    def list(self, folder: str) -> list[str]:
        folder = _tidy(folder)
        every = [*self._files, *self._folders]
        return sorted(
            os.path.basename(path) for path in every if path and os.path.dirname(path) == folder != path
        )

    def is_folder(self, path: str) -> bool:
        return _tidy(path) in self._folders

    def make_folders(self, path: str, *, private: bool = False) -> None:
        path = _tidy(path)
        if path in self._folders:
            return
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.make_folders(os.path.dirname(path))
        self._folders[path] = None

    def rename(self, old: str, new: str) -> None:
        old, new = _tidy(old), _tidy(new)
        self._need(old)
        if old in self._files:
            self._files[new] = self._files.pop(old)
            return
        for path in self._below(old):
            self._files[new + path[len(old) :]] = self._files.pop(path)
        for path in [path for path in self._folders if path == old or path.startswith(old + "/")]:
            del self._folders[path]
            self._folders[new + path[len(old) :]] = None

    def remove(self, path: str) -> None:
        self._need(_tidy(path))
        self._files.pop(_tidy(path), None)

    def remove_folder(self, path: str) -> None:
        path = _tidy(path)
        self._need(path)
        for file in self._below(path):
            self._files.pop(file, None)
        for folder in [each for each in self._folders if each == path or each.startswith(path + "/")]:
            self._folders.pop(folder, None)

    def sync_folder(self, folder: str) -> None:
        self._need(_tidy(folder))

    def sync_all(self, paths: Collection[str]) -> None:
        """Nothing is safer than it is."""

    def modified_ms(self, path: str) -> int:
        self._need(_tidy(path))
        content = self._files.get(_tidy(path))
        return content.modified_ms if content else 0

    def space(self, path: str) -> DiskSpace:
        """The machine's memory is the size of this disk: a broker that fills it must notice."""
        total = self.memory_bytes()
        used = sum(len(content.pages) for content in {*self._files.values()}) * PAGE_BYTES
        return DiskSpace(total, min(used, total), max(0, total - used))

    def memory_bytes(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def lock(self, path: str) -> MemoryLock | None:
        path = _tidy(path)
        if path in self._locked:
            return None
        self.open(path, create=True).pwrite(b"lock", 0)
        return MemoryLock(self._locked, path)

    def _below(self, folder: str) -> tuple[str, ...]:
        return tuple(path for path in [*self._files] if path.startswith(folder + "/"))

    def _need(self, path: str) -> None:
        if path not in self._files and path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _need_folder_of(self, path: str) -> None:
        folder = os.path.dirname(path)
        if folder in self._folders:
            return
        while folder not in self._folders:
            if folder in self._files:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = os.path.dirname(folder)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class MemoryFile:
    """An open file of a `MemoryFiles`."""

    __slots__ = ("_clock_ms", "_content", "_read_only", "path")

    def __init__(self, path: str, content: _Content, read_only: bool, clock_ms: Callable[[], int]) -> None:
        self.path = path
        self._content = content
        self._read_only = read_only
        self._clock_ms = clock_ms

    def pread(self, size: int, at: int) -> bytes:
        return self._content.read(size, at)

    def view(self, size: int, at: int) -> memoryview | None:
        data = self._content.read(size, at)
        return memoryview(data) if len(data) == size else None

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        if self._read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._content.write(memoryview(data), at)
        self._content.modified_ms = self._clock_ms()

    def size(self) -> int:
        return self._content.size

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def allocate(self, size: int, *, at: int = 0) -> None:
        self._content.grow(at + size)

    def data_from(self, at: int) -> int:
        content, first = self._content, at // PAGE_BYTES
        found = min((page for page in [*content.pages] if page >= first), default=None)
        return content.size if found is None else min(content.size, max(at, found * PAGE_BYTES))

    def sync(self) -> None:
        """Nothing is safer than it is."""

    def close(self) -> None:
        """It stays as it is."""


class MemoryLock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path
        locked.add(path)

    def release(self) -> None:
        self._locked.discard(self._path)


class _Content:
    """The bytes of a file."""

    __slots__ = ("_lock", "modified_ms", "pages", "size")

    def __init__(self, modified_ms: int) -> None:
        self.pages: dict[int, bytearray] = {}
        self.size = 0
        self.modified_ms = modified_ms
        self._lock = threading.Lock()

    def grow(self, size: int) -> None:
        """Be at least so long."""
        with self._lock:
            self.size = max(self.size, size)

    def read(self, size: int, at: int) -> bytes:
        stop = min(at + size, self.size)
        if stop <= at:
            return b""
        first, start = divmod(at, PAGE_BYTES)
        pages = range(first, (stop - 1) // PAGE_BYTES + 1)
        parts = [self.pages.get(page, _ZEROS) for page in pages]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        return bytes(whole[start : start + stop - at])

    def write(self, data: memoryview, at: int) -> None:
        taken = 0
        while taken < len(data):
            number, start = divmod(at + taken, PAGE_BYTES)
            part = data[taken : taken + PAGE_BYTES - start]
            page = self.pages.get(number)
            if page is None:
                page = self.pages.setdefault(number, bytearray(PAGE_BYTES))
            page[start : start + len(part)] = part
            taken += len(part)
        self.grow(at + len(data))

    def truncate(self, size: int) -> None:
        last, rest = divmod(size, PAGE_BYTES)
        for number in [number for number in self.pages if number * PAGE_BYTES >= size]:
            self.pages.pop(number, None)
        if rest and (page := self.pages.get(last)) is not None:
            page[rest:] = bytes(PAGE_BYTES - rest)
        self.size = size


_ZEROS = bytes(PAGE_BYTES)


def _tidy(path: str) -> str:
    return os.path.normpath(path) if path else ""
