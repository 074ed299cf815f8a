"""A disk in memory: what it does beyond what every disk does (test_files.py)."""

from __future__ import annotations

import threading

from kourou.doors.memory_files import PAGE_BYTES, MemoryFiles


def test_a_long_file_takes_the_pages_that_were_written_to() -> None:
    files = MemoryFiles()
    file = files.open("/log", create=True)
    file.allocate(1 << 30)
    assert (file.size(), files.space("/").used) == (1 << 30, 0)
    file.pwrite(b"across the border of two pages", 5 * PAGE_BYTES - 7)
    assert files.space("/").used == 2 * PAGE_BYTES
    assert file.pread(30, 5 * PAGE_BYTES - 7) == b"across the border of two pages"
    files.remove("/log")
    assert files.space("/").used == 0


def test_a_view_stays_as_it_was_when_it_was_asked_for() -> None:
    file = MemoryFiles().open("/log", create=True)
    file.pwrite(b"before", 0)
    view = file.view(6, 0)
    file.pwrite(b"after!", 0)
    assert view is not None
    assert bytes(view) == b"before"
    assert file.view(7, 0) is None  # that far it does not go


def test_times_come_from_the_clock_it_was_given() -> None:
    moments = iter((1000, 2000))
    files = MemoryFiles(lambda: next(moments))
    file = files.open("/a", create=True)
    assert files.modified_ms("/a") == 1000
    file.pwrite(b"x", 0)
    assert files.modified_ms("/a") == 2000


def test_threads_that_write_beside_each_other_lose_nothing() -> None:
    files = MemoryFiles()
    file = files.open("/a", create=True)

    def write(number: int) -> None:
        for at in range(number, 4000, 4):
            file.pwrite(bytes([number + 1]) * 10, at * 10)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.pread(40_000, 0) == b"".join(bytes([at % 4 + 1]) * 10 for at in range(4000))
