"""Data folders of a size that would take long to send: written through the store itself, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.servers import SEGMENT_BYTES
from kourou.broker.state_file import StateFile
from kourou.doors.clock import RealClock, SimulatedClock
from kourou.doors.files import RealFiles
from kourou.protocol.bodies import TopicConfig, TopicTable
from kourou.protocol.record import pack_host
from kourou.store.config import StoreConfig
from kourou.store.store import Draft, Store

TICK_MESSAGES = 1000
TICK_SECONDS = 0.01
HERE = pack_host("127.0.0.1", 10911)


STORED_TOPIC, STORED_QUEUES, STORED_BODY_BYTES = "BenchRestart", 8, 32


def stored_folder(place: Path, count: int, tell: Callable[[str], None]) -> Path:
    """A broker's folder with `count` messages in its `store`; made when it is not there yet."""
    folder = place / str(count)
    if not folder.exists():
        tell(f"a folder with {count:,} messages")
        folder.mkdir(parents=True)
        fill_with_messages(folder / "store", STORED_TOPIC, STORED_QUEUES, count, STORED_BODY_BYTES)
    return folder


def fill_with_messages(root: Path, topic: str, queues: int, count: int, body_bytes: int) -> None:
    """`count` messages in the queues of one topic, each with a key of its own; then a clean stop."""
    clock = SimulatedClock(RealClock().now_ms() - int(count / TICK_MESSAGES * TICK_SECONDS * 1000))
    store, end_tick = _opened(root, clock)
    draft = Draft(topic, 0, bytes(body_bytes), b"", 0, 0, clock.now_ms(), HERE, HERE)
    for number in range(count):
        draft.queue_id = number % queues
        draft.properties = b"UNIQ_KEY\x01%032X\x02" % number
        store.append(draft)
        if number % TICK_MESSAGES == TICK_MESSAGES - 1:
            end_tick()
            clock.advance(TICK_SECONDS)
    end_tick()
    clock.advance(1.0)
    store.close()


def fill_with_topics(root: Path, topics: int, queues: int) -> list[str]:
    """So many topics, with a message in each of their queues; returns their names."""
    names = [f"Topic{number}" for number in range(topics)]
    clock = SimulatedClock(RealClock().now_ms())
    store, end_tick = _opened(root, clock)
    for topic in names:
        for queue_id in range(queues):
            store.append(Draft(topic, queue_id, b"first", b"", 0, 0, clock.now_ms(), HERE, HERE))
        end_tick()
    store.close()
    _write_down(root, names, queues)
    return names


def _opened(root: Path, clock: SimulatedClock) -> tuple[Store, Callable[[], None]]:
    """A store, and what ends its tick."""
    work: list[Callable[[], None]] = []

    def end_tick() -> None:
        for each in work:
            each()
        work.clear()

    def background(job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        job()
        done(None)

    config = StoreConfig(root=str(root), commit_log_segment_bytes=SEGMENT_BYTES)
    store = Store(config, files=RealFiles(), clock=clock, defer=work.append, background=background)
    store.open()
    return store, end_tick


def _write_down(root: Path, names: list[str], queues: int) -> None:
    """In the broker's own list of topics."""
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues) for name in names
    }
    folder = root / "config"
    folder.mkdir(parents=True, exist_ok=True)
    StateFile(RealFiles(), f"{folder}/topics.json").save(TopicTable(topic_config_table=table))
