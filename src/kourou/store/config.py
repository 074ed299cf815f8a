"""What may be set about a data folder.

The five sizes are not written down anywhere in the folder: they must be those of the broker that began it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kourou.errors import ConfigError

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"

ENTRY_BYTES = 20
GIB = 1 << 30
MIB = 1 << 20

DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360),
        *(420, 480, 540, 600, 1200, 1800, 3600, 7200),
    )
)


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    root: str
    """The folder; everything lies below it."""

    commit_log_folder: str = ""
    """Where the log lies; `root/commitlog` when empty."""

    commit_log_segment_bytes: int = GIB
    consume_queue_segment_entries: int = 300_000

    allocation_step_bytes: int = 16 * MIB
    """How far ahead of the writing the disk's blocks are reserved. A log file has its full length from the
    start, but only this much of it takes up space before it is needed."""

    flush: str = ASYNC_FLUSH
    """When a message counts as stored: written (ASYNC_FLUSH), or on the disk (SYNC_FLUSH)."""

    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    """ASYNC_FLUSH looks every interval and syncs when so many 4 KiB pages are new ..."""
    flush_thorough_interval_ms: int = 10_000
    """... or when anything is, and the last sync was so long ago."""

    sync_flush_timeout_ms: int = 5000
    write_stall_ms: int = 1000
    """A write that takes longer: what comes next is refused for a moment."""

    checkpoint_interval_ms: int = 1000
    checkpoint_least_bytes: int = 4 * MIB
    """Consume queues are synced and the checkpoint moved, each interval when so much of the log is new ..."""
    checkpoint_thorough_interval_ms: int = 10_000
    """... or when anything is, and the last time was so long ago."""

    message_bytes_max: int = 4 * MIB
    verify_on_recovery: bool = True

    pull_messages_in_memory_max: int = 32
    pull_bytes_in_memory_max: int = 256 * 1024
    pull_messages_on_disk_max: int = 8
    pull_bytes_on_disk_max: int = 64 * 1024
    in_memory_bytes: int = 0
    """How far behind the log's end a message still counts as in memory; 0: 40 % of the machine's memory."""
    scan_entries_max: int = 800
    """How many entries one pull with a filter looks at."""

    open_consume_queues_max: int = 512
    """Consume queue files kept open at a time."""

    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS

    index_enabled: bool = True
    """Whether messages can be found by their keys."""
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index_matches_max: int = 64
    """How many messages one search by key gives at most."""

    file_reserved_hours: int = 72
    """How long a log file is kept after its last write ..."""
    delete_hours: frozenset[int] = frozenset((4,))
    """... and the hours of the day (local time) in which older ones go ..."""
    disk_max_used_percent: int = 75
    """... or at any hour, when so much of the disk is used."""
    disk_clean_forcibly_percent: int = 85
    """Above this the oldest go whatever their age ..."""
    clean_forcibly: bool = True
    """... unless that is not wanted."""
    disk_warning_percent: int = 90
    """Above this nothing is stored."""
    clean_interval_ms: int = 10_000

    def __post_init__(self) -> None:
        if not self.root:
            raise ConfigError("no data folder: give storePathRootDir")
        if self.flush not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise ConfigError(f"flushDiskType is {self.flush!r}; it must be {ASYNC_FLUSH} or {SYNC_FLUSH}")
        if self.commit_log_segment_bytes < 1024 or self.commit_log_segment_bytes > GIB * 2 - 1:
            raise ConfigError(
                f"mappedFileSizeCommitLog is {self.commit_log_segment_bytes}; it must be 1024 to 2147483647"
            )
        if self.consume_queue_segment_entries < 1:
            raise ConfigError("mappedFileSizeConsumeQueue must hold at least one entry of 20 bytes")
        if self.index_slots < 1 or self.index_entries < 2:
            raise ConfigError("maxHashSlotNum must be at least 1, and maxIndexNum at least 2")

    @property
    def consume_queue_segment_bytes(self) -> int:
        return self.consume_queue_segment_entries * ENTRY_BYTES

    @property
    def log_folder(self) -> str:
        return self.commit_log_folder or f"{self.root}/commitlog"

    @property
    def queues_folder(self) -> str:
        return f"{self.root}/consumequeue"

    @cached_property
    def is_sync(self) -> bool:  # asked three times a tick
        return self.flush == SYNC_FLUSH
