"""Many segments under one growing offset.

    00000000000000000000    00000000001073741824    00000000002147483648
    [ 1 GiB             ]   [ 1 GiB             ]   [ written | zeros   ]

The oldest may go (retention), so the first need not begin at 0; between first and last none may be missing.
Where the written part ends is not to be seen from the files: whoever owns them finds out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kourou.doors.files import Files
from kourou.errors import Corrupt, StoreForeign
from kourou.store.segment import NAME_DIGITS, OpenFiles, Segment, segment_name


class SegmentedFile:
    __slots__ = ("_files", "_open_files", "_segments", "folder", "segment_bytes")

    def __init__(self, files: Files, open_files: OpenFiles, folder: str, segment_bytes: int) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self._files = files
        self._open_files = open_files
        self._segments: dict[int, Segment] = {}  # by their first byte, ascending

    def load(self, size_option: str, *, may_be_torn: bool = False) -> None:
        """Find the segments that are there, by RocketMQ's own rules.

        Raises StoreForeign at a name or a length that is none of ours, before anything is touched, and
        Corrupt at a gap. `size_option` is the setting to blame for a wrong length. With `may_be_torn` (a
        power cut kept some of several new files, which can be made again) a gap ends what is there.
        """
        names = []
        for name in self._files.list(self.folder):
            if len(name) == NAME_DIGITS and name.isdecimal() and name.isascii():
                names.append(name)
            elif not self._files.is_folder(f"{self.folder}/{name}"):
                raise StoreForeign(
                    f"{self.folder}/{name} is not a file of the store ({NAME_DIGITS} digits): move it away"
                )
        if may_be_torn:
            names = self._without_torn(names)
        for name in names:
            self._load(name, last=name == names[-1], size_option=size_option)
        bases = list(self._segments)
        for base, following in pairwise(bases):
            if following - base != self.segment_bytes:
                raise Corrupt(
                    f"{self.folder}: {segment_name(base + self.segment_bytes)} is missing before "
                    f"{segment_name(following)}; bring it back, or move the older files away"
                )

    def _without_torn(self, names: list[str]) -> list[str]:
        """Those up to the first that is missing or has no length; the rest is removed."""
        whole = 0
        for number, name in enumerate(names):
            follows = not number or int(name) - int(names[number - 1]) == self.segment_bytes
            if not follows or self._open_files.get(f"{self.folder}/{name}").size() == 0:
                break
            whole += 1
        for name in reversed(names[whole:]):
            self._open_files.close(f"{self.folder}/{name}")
            self._files.remove(f"{self.folder}/{name}")
        return names[:whole]

    def _load(self, name: str, last: bool, size_option: str) -> None:
        path, base = f"{self.folder}/{name}", int(name)
        file = self._open_files.get(path)
        length = file.size()
        if length == 0 and last:  # made, and never used: a crash came between
            self._open_files.close(path)
            self._files.remove(path)
            return
        if length != self.segment_bytes or base % self.segment_bytes:
            raise StoreForeign(
                f"{path} has {length} bytes and begins at {base}: not a file of {self.segment_bytes} bytes; "
                f"set {size_option} to the value this folder was begun with"
            )
        self._segments[base] = Segment(self._open_files, path, base, length)

    # Where things are.

    @property
    def start(self) -> int:
        """The first byte that is still there."""
        return next(iter(self._segments), 0)

    @property
    def end(self) -> int:
        """One past the last byte there is a segment for."""
        return next(reversed(self._segments)) + self.segment_bytes if self._segments else 0

    @property
    def bases(self) -> list[int]:
        return list(self._segments)

    @property
    def is_empty(self) -> bool:
        return not self._segments

    def segment_at(self, offset: int) -> Segment | None:
        return self._segments.get(offset - offset % self.segment_bytes)

    def segments_between(self, start: int, end: int) -> list[Segment]:
        """Those that have a byte of [start, end)."""
        return [
            segment
            for segment in self._segments.values()
            if segment.base < end and start < segment.base + segment.size
        ]

    # Bytes.

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer where the segments end, none where they do not reach."""
        within = offset % self.segment_bytes
        segment = self._segments.get(offset - within)
        if segment is None:
            return b""
        if within + size <= self.segment_bytes:
            return segment.read(size, within)
        first = segment.read(self.segment_bytes - within, within)
        return first + self.read(size - len(first), offset + len(first))

    def view(self, size: int, offset: int) -> memoryview | None:
        """Just these bytes, without a copy; None when they cannot be had so, then `read`. Not to be kept: it
        would keep the file's blocks on the disk."""
        within = offset % self.segment_bytes
        segment = self._segments.get(offset - within)
        if segment is None or within + size > self.segment_bytes:
            return None
        return segment.view(size, within)

    def write(self, data: bytes, offset: int) -> None:
        """Write all of `data`, into segments that exist or are made now."""
        for segment, at, part in self._parts(data, offset):
            segment.write(part, at)

    def _parts(self, data: bytes, offset: int) -> Iterator[tuple[Segment, int, bytes]]:
        while data:
            within = offset % self.segment_bytes
            segment = self._segments.get(offset - within) or self.grow(offset - within)
            part = data[: self.segment_bytes - within]
            yield segment, within, part
            data = data[len(part) :]
            offset += len(part)

    def grow(self, base: int) -> Segment:
        """A new segment at the end."""
        assert not self._segments or base == next(reversed(self._segments)) + self.segment_bytes, base
        segment = Segment(self._open_files, f"{self.folder}/{segment_name(base)}", base, self.segment_bytes)
        segment.create()
        self._segments[base] = segment
        return segment

    # Endings.

    def cut(self, end: int) -> bool:
        """Forget everything from `end` on: zeros up to the end of its segment, later segments removed.

        Returns whether there was anything to forget.
        """
        later = [base for base in self._segments if base >= end and base > self.start]
        self.drop_last(later)
        segment = self.segment_at(end)
        was_changed = segment is not None and segment.zero_from(end - segment.base)
        return was_changed or bool(later)

    def drop_last(self, bases: list[int]) -> None:
        """Remove these, the last ones there are: from the end, each removal on the disk before the next, so
        that no power cut leaves a gap."""
        for number, base in enumerate(sorted(bases, reverse=True)):
            if number:
                self._files.sync_folder(self.folder)
            self._files.remove(self.forget(base))

    def forget(self, base: int) -> str:
        """Have one segment no more; returns the path of its file, which is still there."""
        segment = self._segments.pop(base)
        segment.close()
        return segment.path

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
