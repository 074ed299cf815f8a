"""One file of fixed size, and how many of them are open at a time.

A segment has its full length from the moment it exists, zeros where nothing was written: RocketMQ refuses a
folder with a file of any other length.
"""

from __future__ import annotations

from kourou.doors.files import File, Files

NAME_DIGITS = 20
_SCAN_BYTES = 16 * 1024
_ZEROS = bytes(_SCAN_BYTES)


def segment_name(base: int) -> str:
    """A segment is called by the offset of its first byte."""
    return f"{base:0{NAME_DIGITS}d}"


class OpenFiles:
    """Opens files when they are needed and keeps the last used ones open: a broker has 80,000 queues, a
    process a thousand descriptors."""

    __slots__ = ("_files", "_limit", "_open", "keeps_all")

    def __init__(self, files: Files, limit: int | None = None) -> None:
        self._files = files
        self._limit = limit
        self._open: dict[str, File] = {}
        self.keeps_all = limit is None
        """An open file stays open until it is closed by name."""

    def get(self, path: str, *, create: bool = False) -> File:
        open_files = self._open
        file = open_files.pop(path, None)  # taken out and put back at the end: the first is the oldest
        if file is None:
            file = self._files.open(path, create=create)
            if self._limit is not None and len(open_files) >= self._limit:
                self.close(next(iter(open_files)))
        open_files[path] = file
        return file

    def close(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        for path in list(self._open):
            self.close(path)


class Segment:
    """`size` bytes of a growing whole, from its byte `base` on. Positions are inside the segment."""

    __slots__ = ("_file", "_open_files", "base", "path", "size")

    def __init__(self, open_files: OpenFiles, path: str, base: int, size: int) -> None:
        self._open_files = open_files
        self.path = path
        self.base = base
        self.size = size
        self._file: File | None = None

    def create(self) -> None:
        """Make the file, at its full length."""
        self._open_files.get(self.path, create=True).truncate(self.size)

    def read(self, size: int, at: int) -> bytes:
        return (self._file or self.file()).pread(size, at)

    def view(self, size: int, at: int) -> memoryview | None:
        """As `read`, without a copy; None when it cannot be had so."""
        return (self._file or self.file()).view(size, at)

    def write(self, data: bytes, at: int) -> None:
        assert at + len(data) <= self.size, f"{len(data)} bytes at {at} of a segment of {self.size}"
        self.file().pwrite(data, at)

    def allocate(self, size: int, at: int) -> None:
        """Reserve disk blocks; raises OSError when there are none."""
        assert at + size <= self.size
        self.file().allocate(size, at=at)

    def file(self) -> File:
        """The open file; it may be synced on a thread of its own."""
        if self._file is not None:
            return self._file
        file = self._open_files.get(self.path)
        if self._open_files.keeps_all:
            self._file = file
        return file

    def zero_from(self, at: int) -> bool:
        """Leave nothing but zeros from `at` to the end; returns whether anything else was there.

        Bytes of a former life would otherwise be read as records once the log has grown up to them.
        """
        file = self.file()
        was_changed = False
        while (at := file.data_from(at)) < self.size:
            old = file.pread(min(_SCAN_BYTES, self.size - at), at)
            if old != _ZEROS[: len(old)]:
                file.pwrite(bytes(len(old)), at)
                was_changed = True
            at += len(old)
        return was_changed

    def data_end(self) -> int:
        """One past the last byte that is not zero."""
        at = end = 0
        while (at := self.data_from(at)) < self.size:
            data = self.read(_SCAN_BYTES, at)
            if data != _ZEROS[: len(data)]:
                end = at + len(data.rstrip(b"\0"))
            at += len(data)
        return end

    def data_from(self, at: int) -> int:
        """The next place that may hold something; `size` when only zeros follow."""
        return min(self.size, self.file().data_from(at))

    def close(self) -> None:
        self._file = None
        self._open_files.close(self.path)
