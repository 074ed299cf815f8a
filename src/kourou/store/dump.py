"""Show what a stopped store holds, record by record, in the order of the log.

Nothing is changed, and nothing stops it: bytes that are no record are passed over, files that are missing or
foreign likewise. What it passed over, `check` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kourou.doors.files import Files
from kourou.protocol import properties as props
from kourou.protocol.record import Record
from kourou.store.checkpoint import read_checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig
from kourou.store.findings import Report
from kourou.store.layout import lay_out, refuse_what_is_no_store
from kourou.store.recovery import Finder


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which records to show; what is None does not matter."""

    start: int = 0
    """The first place in the log."""
    end: int | None = None
    """Records that begin there or later are left out."""
    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    """One of the message's keys, or its unique id."""

    def has(self, record: Record) -> bool:
        return (
            (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.topic is None or record.topic == self.topic.encode())
            and (self.key is None or self.key.encode() in _keys(record))
        )


def _keys(record: Record) -> list[bytes]:
    properties = record.properties
    unique_id = props.find(properties, b"UNIQ_KEY")
    return [*([unique_id] if unique_id else ()), *(props.find(properties, b"KEYS") or b"").split(b" ")]


def dump(config: StoreConfig, files: Files, wanted: Wanted, *, is_told: bool = False) -> Iterator[Record]:
    """The records that are wanted, ascending. Raises StoreForeign as `check` does."""
    refuse_what_is_no_store(files, config)
    checkpoint = read_checkpoint(files, f"{config.root}/checkpoint")
    layout = lay_out(config, files, checkpoint, Report(config.root), is_told=is_told)
    log = CommitLog(layout.config, layout.view)
    try:
        log.load()
        start = max(wanted.start, log.start)
        for record in Finder(layout.config, log, start, verify=True).records():
            if wanted.end is not None and record.physical_offset >= wanted.end:
                return
            if wanted.has(record):
                yield record
    finally:
        log.close()
