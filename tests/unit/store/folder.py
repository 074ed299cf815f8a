"""A store on a simulated disk, for the tests of `kourou.store`."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from kourou.doors.clock import SimulatedClock
from kourou.doors.files import Files
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.record import Record, decode_all
from kourou.store.config import StoreConfig
from kourou.store.store import Draft, Store

ROOT = "/data/store"
BORN = bytes((10, 0, 0, 1, 0, 0, 4, 210))  # 10.0.0.1:1234
HERE = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))  # 127.0.0.1:10911


class Later:
    """A `defer` or `background` that waits until it is told to go on."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def defer(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def background(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.work.append(lambda: at_once(job, done))

    def run_one(self) -> None:
        self.work.pop(0)()

    def run(self) -> None:
        while self.work:
            self.run_one()


class ToldLater(Later):
    """A `background` that does a job at once, and keeps how it went to itself until it is told to go on."""

    def background(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        at_once(job, lambda error: self.work.append(lambda: done(error)))


def at_once(job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """A `background` that has no thread."""
    error: BaseException | None = None
    try:
        job()
    except Exception as failure:
        error = failure
    done(error)


def config(**settings: object) -> StoreConfig:
    small: dict[str, object] = {
        "root": ROOT,
        "commit_log_segment_bytes": 4096,
        "consume_queue_segment_entries": 50,
        "allocation_step_bytes": 1024,
        "message_bytes_max": 2048,
    }
    return StoreConfig(**{**small, **settings})  # type: ignore[arg-type]


def store_on(
    files: Files,
    *,
    clock: SimulatedClock | None = None,
    defer: Callable[[Callable[[], None]], None] = lambda work: work(),
    background: Callable[[Callable[[], None], Callable[[BaseException | None], None]], None] = at_once,
    **settings: object,
) -> Store:
    store = Store(
        config(**settings),
        files=files,
        clock=clock or SimulatedClock(),
        defer=defer,
        background=background,
    )
    store.open()
    return store


def draft(
    body: bytes = b"hi",
    topic: str = "T",
    queue_id: int = 0,
    properties: bytes = b"TAGS\x01TagA\x02",
    sys_flag: int = 0,
    tags_code: int | None = None,
) -> Draft:
    return Draft(
        topic, queue_id, body, properties, 0, sys_flag, 1_700_000_000_123, BORN, HERE, tags_code=tags_code
    )


def fill(store: Store, count: int, *, topic: str = "T", queue_id: int = 0, start: int = 0) -> list[bytes]:
    """Append messages one by one; returns their bodies."""
    bodies = [b"%s-%d-%d" % (topic.encode(), queue_id, start + number) for number in range(count)]
    for body in bodies:
        store.append(draft(body, topic, queue_id))
    return bodies


def read_all(store: Store, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Every visible message of a queue, read as a consumer does."""
    found: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, offset)
        assert result.next_offset > offset, result
        found += decode_all(b"".join(result.messages))
        offset = result.next_offset
    return found


def bodies_of(store: Store, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in read_all(store, topic, queue_id)]


def log_path(base: int = 0) -> str:
    return f"{ROOT}/commitlog/{base:020d}"


def queue_path(topic: str = "T", queue_id: int = 0, base: int = 0) -> str:
    return f"{ROOT}/consumequeue/{topic}/{queue_id}/{base:020d}"


def mark_of_format(version: int) -> bytes:
    """What a checkpoint of that format has at byte 64, as far as every format has it."""
    mark = b"KOUROU" + version.to_bytes(2, "big") + bytes(20)
    return mark + crc32(mark + bytes(4)).to_bytes(4, "big")


def overwrite(files: SimulatedFiles, path: str, at: int, data: bytes) -> None:
    files.open(path).pwrite(data, at)
