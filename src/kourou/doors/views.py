"""Parts of files seen where the system keeps them, without a copy: for what is read often, and likely there.

    file      [ window of 64 MiB | window | window | ... ]       the last used ones stay mapped, each with
                                                                the next 8 MiB: for what lies over two
    window    [ chunk of 1 MiB | chunk | ... ]                   asked for before it is looked at

To look at a mapped page that a failing disk cannot bring kills the process (SIGBUS). So nothing is looked at
before the system was asked to bring it in (MADV_POPULATE_READ, Linux 5.14): that fails with an error, as a
read does. Where it cannot be asked, or says no, there is no view, and a plain read tells the reason.

Nor is there one of a file that somebody made shorter under us: how long it is is asked each time (0.25 us,
and we have no use for the position that this moves). What is seen must be used before long, in the same turn
of the loop: a file cut off in between still ends the process, which cannot be helped in Python.

What is mapped counts as shared memory of the process (RssFile): the page cache seen a second time, not memory
taken from others. It is never more than `WINDOWS_MAX` windows: 576 MiB.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from typing import Final

WINDOW_BYTES: Final = 64 << 20
OVERLAP_BYTES: Final = 8 << 20
WINDOWS_MAX: Final = 8
CHUNK_BYTES: Final = 1 << 20
VIEWS_UNTIL_ASKED_AGAIN: Final = 1024
"""A page just seen is the last to be taken away, so it is asked for now and then only: 3.5 us each time."""
_MADV_POPULATE_READ: Final = 22


class Windows:
    """The mapped windows of all files of a process. For one thread."""

    def __init__(self, limit: int = WINDOWS_MAX) -> None:
        self._limit = limit
        self._windows: dict[tuple[int, int], _Window] = {}  # (descriptor, number): the last used at the end
        self._last: _Window | None = None
        self._is_able = sys.platform == "linux"

    def __len__(self) -> int:
        return len(self._windows)

    def view(self, descriptor: int, size: int, at: int) -> memoryview | None:
        """These bytes of an open file; None when they cannot be had in this way."""
        if not self._is_able:
            return None
        if os.lseek(descriptor, 0, os.SEEK_END) < at + size:
            self.forget(descriptor)
            return None
        number, start = divmod(at, WINDOW_BYTES)
        window = self._last
        if window is None or window.number != number or window.descriptor != descriptor:
            window = self._window(descriptor, number)
            if window is None:
                return None
        stop = start + size
        if stop > window.size:
            return None
        try:
            window.ask_for(start, stop)
        except OSError as error:
            self._is_able = error.errno != errno.EINVAL  # an older system does not know the question
            return None
        return window.view[start:stop]

    def forget(self, descriptor: int) -> None:
        """To be called before a file is closed: a mapped file keeps its blocks, also when it is removed."""
        for key in [key for key in self._windows if key[0] == descriptor]:
            del self._windows[key]
        self._last = None

    def _window(self, descriptor: int, number: int) -> _Window | None:
        window = self._windows.pop((descriptor, number), None)
        if window is None:
            try:
                window = _Window(descriptor, number)
            except (OSError, ValueError):  # a file system that cannot map; a file that ends before
                return None
            if len(self._windows) >= self._limit:
                del self._windows[next(iter(self._windows))]  # goes when the last view of it does
        self._windows[descriptor, number] = window
        self._last = window
        return window


class _Window:
    __slots__ = ("_asked", "_map", "_views", "descriptor", "number", "size", "view")

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        self.number = number
        start = number * WINDOW_BYTES
        self.size = min(WINDOW_BYTES + OVERLAP_BYTES, os.fstat(descriptor).st_size - start)
        if self.size <= 0:
            raise ValueError(f"the file ends before {start}")
        self._map = mmap.mmap(descriptor, self.size, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
        self.view = memoryview(self._map)
        self._asked: set[int] = set()
        self._views = 0

    def ask_for(self, start: int, stop: int) -> None:
        """Have these bytes brought in. Raises OSError when they cannot be."""
        self._views += 1
        if self._views >= VIEWS_UNTIL_ASKED_AGAIN:
            self._views = 0
            self._asked.clear()
        asked = self._asked
        for chunk in range(start // CHUNK_BYTES, (stop - 1) // CHUNK_BYTES + 1):
            if chunk not in asked:
                chunk_at = chunk * CHUNK_BYTES
                self._map.madvise(_MADV_POPULATE_READ, chunk_at, min(CHUNK_BYTES, self.size - chunk_at))
                asked.add(chunk)
