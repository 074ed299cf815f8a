"""A data folder that is only looked at.

A check must change nothing, and must not stop at the first file that is missing, cut off or foreign. So the
parts of the store are shown the folder through this view: nothing can be written, files that do not belong
are not there, and where a file of the log is missing or too short, it reads as zeros.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import NoReturn

from kourou.doors.files import DiskSpace, File, Files, Lock


class FolderView:
    """Implements `Files`; everything that would change something is an error of whoever asks for it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._hidden: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._made_up: dict[str, set[str]] = {}

    def hide(self, path: str) -> None:
        """This file or folder is not there."""
        self._hidden.add(path)

    def show_with_size(self, path: str, size: int) -> None:
        """This file has `size` bytes: zeros where there are none, also when there is no such file."""
        self._sizes[path] = size
        folder, _, name = path.rpartition("/")
        self._made_up.setdefault(folder, set()).add(name)

    # Looking.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        assert not create, path
        size = self._sizes.get(path)
        if size is None:
            return self._files.open(path, read_only=True)
        file = self._files.open(path, read_only=True) if self._files.exists(path) else None
        return _Sized(path, file, size)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def exists(self, path: str) -> bool:
        return path not in self._hidden and (path in self._sizes or self._files.exists(path))

    def list(self, folder: str) -> builtins.list[str]:
        if folder in self._hidden:
            return []
        names = {*self._files.list(folder), *self._made_up.get(folder, ())}
        return sorted(name for name in names if f"{folder}/{name}" not in self._hidden)

    def is_folder(self, path: str) -> bool:
        return self._files.is_folder(path)

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)

    def space(self, path: str) -> DiskSpace:
        return self._files.space(path)

    def memory_bytes(self) -> int:
        return self._files.memory_bytes()

    def lock(self, path: str) -> Lock | None:
        return self._files.lock(path)

    # What a view does not do.

    def write_atomically(
        self, path: str, data: bytes, *, keep_previous: bool = True, private: bool = False
    ) -> NoReturn:
        _refuse(path)

    def make_folders(self, path: str, *, private: bool = False) -> NoReturn:
        _refuse(path)

    def rename(self, old: str, new: str) -> NoReturn:
        _refuse(old)

    def remove(self, path: str) -> NoReturn:
        _refuse(path)

    def remove_folder(self, path: str) -> NoReturn:
        _refuse(path)

    def sync_folder(self, folder: str) -> NoReturn:
        _refuse(folder)

    def sync_all(self, paths: Collection[str]) -> NoReturn:
        _refuse(", ".join(paths))


class _Sized:
    """A file with another length than the one on the disk."""

    def __init__(self, path: str, file: File | None, size: int) -> None:
        self.path = path
        self._file = file
        self._size = size

    def pread(self, size: int, at: int) -> bytes:
        size = max(0, min(size, self._size - at))
        data = self._file.pread(size, at) if self._file is not None else b""
        return data + bytes(size - len(data))

    def view(self, size: int, at: int) -> memoryview | None:
        return None

    def size(self) -> int:
        return self._size

    def data_from(self, at: int) -> int:
        if self._file is None or at >= (length := self._file.size()):
            return self._size
        following = self._file.data_from(at)
        return following if following < length else self._size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def pwrite(self, data: bytes | bytearray | memoryview, at: int) -> NoReturn:
        _refuse(self.path)

    def truncate(self, size: int) -> NoReturn:
        _refuse(self.path)

    def allocate(self, size: int, *, at: int = 0) -> NoReturn:
        _refuse(self.path)

    def sync(self) -> NoReturn:
        _refuse(self.path)


def _refuse(path: str) -> NoReturn:
    raise AssertionError(f"{path} is only looked at")
