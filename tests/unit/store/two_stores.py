"""A master's store and one that follows it, without a network between them."""

from __future__ import annotations

from collections.abc import Callable

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.record import pack_host
from kourou.store.config import StoreConfig
from kourou.store.store import Draft, Store

SEGMENT_BYTES = 8 * 1024
HOST = pack_host("127.0.0.1", 10911)


def make(files: SimulatedFiles, clock: SimulatedClock) -> Store:
    config = StoreConfig(
        root="store", commit_log_segment_bytes=SEGMENT_BYTES, index_slots=100, index_entries=400
    )
    return Store(config, files=files, clock=clock, defer=lambda work: work(), background=_at_once)


def _at_once(job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    try:
        job()
    except OSError as error:
        done(error)
    else:
        done(None)


class Two:
    """A master's store, and one that follows it."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.files = SimulatedFiles(clock_ms=self.clock.now_ms)
        self.master = make(SimulatedFiles(clock_ms=self.clock.now_ms), self.clock)
        self.master.open()
        self.open()

    def open(self) -> None:
        self.slave = make(self.files, self.clock)
        self.slave.refuse_appends("it is a slave")
        self.slave.open()
        self.follower = self.slave.follow()

    def send(self, body: bytes, topic: str = "orders", queue_id: int = 0, properties: bytes = b"") -> None:
        self.master.append(Draft(topic, queue_id, body, properties, 0, 0, 1, HOST, HOST))

    def copy(self, size: int = 1 << 20) -> None:
        """Bring over everything that is missing, so much at a time."""
        while (data := self.master.raw(self.slave.wrote, size)) and self.slave.wrote < self.master.wrote:
            self.slave.take_raw(data)
        self.clock.advance(0.01)

    def check(self) -> None:
        master, slave = self.master, self.slave
        assert everything(slave) == everything(master)
        assert slave.dispatched == slave.wrote == master.wrote
        for topic, queue_ids in master.topics().items():
            for queue_id in queue_ids:
                count = master.max_offset(topic, queue_id)
                assert slave.entries(topic, queue_id, 0, count) == master.entries(topic, queue_id, 0, count)


def everything(store: Store) -> bytes:
    parts, at = [], store.start
    while data := store.raw(at, 1 << 20):
        parts.append(data)
        at += len(data)
    return b"".join(parts)
