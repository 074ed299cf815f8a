"""A folder nobody but its owner can look into: accounts, tokens, an audit log.

    folder 0700 ── file 0600, replaced whole, the one before kept as .bak
               └── file 0600, only ever appended to

A folder or file that was left open to others is closed to them when it is next used. No symbolic link is
followed for a file.
"""

from __future__ import annotations

import os

from kourou.doors.files import RealFiles

FOLDER_MODE = 0o700
FILE_MODE = 0o600


class PrivateFolder:
    """Made when something is first written to it. Errors are `OSError`, as the system gives them."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """The whole content; None when there is no such file."""
        try:
            descriptor = os.open(self._at(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            os.fchmod(descriptor, FILE_MODE)
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Replace the content so that a crash leaves either the old or the new one, whole."""
        self._make()
        RealFiles().write_atomically(self._at(name), data, private=True)

    def append(self, name: str, data: bytes) -> int:
        """Add to the end, on the disk when this returns; how long the file has become."""
        self._make()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._at(name), flags, FILE_MODE), "ab") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def rename(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new))
        self._sync()

    def has(self, name: str) -> bool:
        return os.path.exists(self._at(name))

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _make(self) -> None:
        os.makedirs(self.path, mode=FOLDER_MODE, exist_ok=True)
        if os.stat(self.path).st_mode & 0o077:
            os.chmod(self.path, FOLDER_MODE)

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
