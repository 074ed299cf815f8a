"""The way to the disk: every file of a store, a configuration or a certificate is touched through here.

A short list of plain operations, because a simulated disk must know each of them: what was written, what
was synced, what a power cut may take away. Paths are strings. Errors are `OSError`, as the system gives
them; the caller knows what they mean.

    RealFiles        the machine's disk
    MemoryFiles      one in memory, for a broker that shall leave nothing behind (`memory_files.py`)
    SimulatedFiles   a disk in memory that can fail and lose its power (`simulated_files.py`)
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection
from typing import NamedTuple, Protocol, TypeGuard

from kourou.doors.views import Windows

SYNC_THREADS = 8
SYNCS_AT_A_TIME = 16


def is_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether there was no room: nothing is broken, and a later try may find some."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class DiskSpace(NamedTuple):
    """Bytes of the file system a path lies on."""

    total: int
    used: int
    free: int


class File(Protocol):
    """One open file. Not shared between processes; safe to read and sync from several threads."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, at: int) -> bytes:
        """Up to `size` bytes from position `at`; fewer only at the end of the file."""

    def view(self, size: int, at: int) -> memoryview | None:
        """The same bytes without a copy; None when they cannot be had so, and `pread` may say why.

        For files that never get shorter. To be let go of soon, and used on one thread. What is written there
        later may be seen.
        """

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        """Write all of `data` at `at`, going on after short writes."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int, *, at: int = 0) -> None:
        """Reserve the blocks of `size` bytes from `at`, so that later writes find room.

        The file is at least that long afterwards; what it holds stays. One thread at a time.
        """

    def data_from(self, at: int) -> int:
        """The first place from `at` on that may hold anything but zeros; the file's size when there is none.

        Lets a reader leap over the holes of a sparse gigabyte.
        """

    def sync(self) -> None:
        """Return when data (and size) are on the disk: fdatasync. An error means: trust nothing."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock; the system gives it back when the process dies."""

    def release(self) -> None: ...


class Files(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """An open file; with `create` it is made when absent (the folder is not synced)."""

    def read(self, path: str) -> bytes:
        """The whole content."""

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> None:
        """Replace the content so that a crash leaves either the old or the new one, whole.

        Temporary file, sync, (old one to `path + ".bak"`), rename, sync of the folder. A `private` file is
        its owner's alone (mode 0600).
        """

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """Names in `folder`, sorted; empty when the folder does not exist."""

    def is_folder(self, path: str) -> bool: ...

    def make_folders(self, path: str, *, private: bool = False) -> None:
        """Make the folder and those above it. A `private` one is its owner's alone (mode 0700).

        What is there already is left as it is.
        """

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """The folder and all below it."""

    def sync_folder(self, folder: str) -> None:
        """Return when the folder's entries are on the disk."""

    def sync_all(self, paths: Collection[str]) -> None:
        """Return when these files and folders are on the disk; those that are gone are passed over.

        Raises the first error; then it is unknown what became of the others.
        """

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> DiskSpace: ...

    def memory_bytes(self) -> int:
        """How much memory the machine has: what it can keep of its files without touching the disk."""

    def lock(self, path: str) -> Lock | None:
        """Take the lock file as RocketMQ does (POSIX record lock on byte 0); None when another has it."""


def make_lasting_folder(files: Files, folder: str, *, private: bool = False) -> None:
    """Make a folder that a power cut does not take away again, nor any above it that had to be made."""
    if folder and not files.is_folder(folder):  # "" is where the process stands
        parent = os.path.dirname(folder)
        make_lasting_folder(files, parent, private=private)
        files.make_folders(folder, private=private)
        files.sync_folder(parent)


class RealFiles:
    """The machine's file systems."""

    def __init__(self) -> None:
        self._windows = Windows()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644), self._windows)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> None:
        temporary = path + ".tmp"
        if private:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)  # whoever made it, and with whatever mode
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._write_synced(temporary, data)
        if keep_previous and os.path.exists(path):
            self._keep(path)
        self.rename(temporary, path)
        self.sync_folder(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folders(self, path: str, *, private: bool = False) -> None:
        os.makedirs(path, mode=0o700 if private else 0o777, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_folder(self, path: str) -> None:
        import shutil  # brings compressors along, and few processes ever remove a folder

        shutil.rmtree(path)

    def sync_folder(self, folder: str) -> None:
        descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_all(self, paths: Collection[str]) -> None:
        # Side by side, because a journal takes many syncs as one: 34,000 new files and folders took 5.0 s one
        # after the other and 1.4 s on eight threads (ext4).
        from concurrent.futures import ThreadPoolExecutor  # not wanted by those who only read a configuration

        every = list(paths)
        some = [every[at : at + SYNCS_AT_A_TIME] for at in range(0, len(every), SYNCS_AT_A_TIME)]
        if len(some) < 2:
            self._sync_each(every)
            return
        with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="kourou-sync") as threads:
            for _ in threads.map(self._sync_each, some):
                pass

    def _sync_each(self, paths: Collection[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                if self.is_folder(path):
                    self.sync_folder(path)
                else:
                    with contextlib.closing(self.open(path, read_only=True)) as file:
                        file.sync()

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> DiskSpace:
        system = os.statvfs(path)
        block = system.f_frsize
        used = system.f_blocks - system.f_bfree
        return DiskSpace(system.f_blocks * block, used * block, system.f_bavail * block)

    def memory_bytes(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def lock(self, path: str) -> RealLock | None:
        return RealLock.take(path)

    def _write_synced(self, path: str, data: bytes) -> None:
        with contextlib.closing(self.open(path, create=True)) as file:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()

    def _keep(self, path: str) -> None:
        """Let the present generation be reachable as `.bak` too, without ever taking it away from `path`."""
        backup, second_name = path + ".bak", path + ".bak.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.remove(second_name)
        try:
            os.link(path, second_name)
        except OSError:  # a file system without hard links
            self._write_synced(second_name, self.read(path))
        os.replace(second_name, backup)
        # Where both names already meant one file (a crash between two renames), rename leaves both in place.
        with contextlib.suppress(FileNotFoundError):
            os.remove(second_name)


class RealFile:
    """A file descriptor; positions are always given, so threads do not disturb one another.

    Nothing is written through a map: a full disk raises here, where under a map it kills the process.
    """

    __slots__ = ("_descriptor", "_is_viewed", "_windows", "path")

    def __init__(self, path: str, descriptor: int, windows: Windows) -> None:
        self.path = path
        self._descriptor = descriptor
        self._windows = windows
        self._is_viewed = False

    def pread(self, size: int, at: int) -> bytes:
        data = os.pread(self._descriptor, size, at)
        if len(data) == size or not data:
            return data
        parts = [data]  # a signal or the kernel's own limit cut it short, or this is the end
        got = len(data)
        while got < size and (data := os.pread(self._descriptor, size - got, at + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def view(self, size: int, at: int) -> memoryview | None:
        self._is_viewed = True
        return self._windows.view(self._descriptor, size, at)

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> None:
        written = os.pwrite(self._descriptor, data, at)
        if written == len(data):
            return
        rest = memoryview(data)
        while written < len(rest):
            more = os.pwrite(self._descriptor, rest[written:], at + written)
            if more == 0:
                raise OSError(errno.EIO, f"write of 0 bytes at {at + written}", self.path)
            written += more

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int, *, at: int = 0) -> None:
        if self.size() < at + size:
            self.truncate(at + size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, at, size)
        else:
            self._touch(size, at)

    def data_from(self, at: int) -> int:
        size = self.size()
        if not hasattr(os, "SEEK_DATA"):
            return min(at, size)
        try:
            return min(size, os.lseek(self._descriptor, at, os.SEEK_DATA))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            raise

    def sync(self) -> None:
        _sync_descriptor(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            if self._is_viewed:  # any other file may be closed on any thread
                self._windows.forget(descriptor)
            os.close(descriptor)

    def _touch(self, size: int, at: int) -> None:
        """Where the system cannot reserve (macOS): write what is there once more, zeros in the holes."""
        step = 1 << 20
        for start in range(at, at + size, step):
            self.pwrite(self.pread(min(step, at + size - start), start), start)


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's own cache there
    else:
        os.fdatasync(descriptor)


class RealLock:
    """A POSIX record lock on byte 0, as the Java brokers take it; `flock` would not conflict with theirs."""

    # A record lock belongs to the process: it does not keep a second store of the same process out, and
    # closing any other descriptor of the file gives it back. So what we hold is remembered here.
    _held: set[tuple[int, int]] = set()  # noqa: RUF012  (shared on purpose)

    def __init__(self, descriptor: int, key: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._key = key

    @classmethod
    def take(cls, path: str) -> RealLock | None:
        import fcntl

        if os.path.exists(path) and _identity(os.stat(path)) in cls._held:
            return None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(descriptor, b"lock", 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise
        key = _identity(os.fstat(descriptor))
        cls._held.add(key)
        return cls(descriptor, key)

    def release(self) -> None:
        if self._descriptor >= 0:
            self._held.discard(self._key)
            os.close(self._descriptor)
            self._descriptor = -1


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
