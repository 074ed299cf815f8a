"""What the kernel says of a running process."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def let_disk_rest() -> None:
    """Write what waits to be written, whoever wrote it: otherwise a round pays for the one before, by waiting
    for the disk and with CPU that the kernel spends in the name of whoever writes next."""
    os.sync()


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> float:
    """All of it, pages of mapped files included."""
    return _status_mib(pid, "VmRSS:")


def own_mib(pid: int) -> float:
    """What the process holds itself: without the pages of mapped files, which are the system's cache."""
    return _status_mib(pid, "RssAnon:")


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"no {field[:-1]} for process {pid}")


def family_cpu_seconds() -> float:
    """Of all processes this one has started, and theirs, those that ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.name)] = int(fields[1])
            ticks[int(path.name)] = sum(map(int, fields[11:15]))
    ours_too = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours_too} - ours_too
        if not more:
            return sum(ticks.get(pid, 0) for pid in ours_too) / _TICKS
        ours_too |= more
