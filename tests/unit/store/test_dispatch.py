"""Nothing is visible before it is durable, and everything is in order."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store import dispatch
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.dispatch import PAGE_BYTES, Dispatched, Dispatcher, Position, entry_tag
from tests.unit.store.folder import config

LEVELS = (1000, 5000, 10_000)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def queues(files: SimulatedFiles) -> ConsumeQueues:
    return ConsumeQueues(config(), files)


def test_batches_wait_for_their_end_and_come_in_order(queues: ConsumeQueues) -> None:
    heard: list[Dispatched] = []
    dispatcher = Dispatcher(Position(0, -1, 0), [heard.append])
    queue = queues.get_or_make("T", 0)
    for number in range(3):
        dispatcher.stage(queue, number * 100, 100, number)
        dispatcher.seal(Position(number * 100 + 100, number * 100, 1000 + number))
    dispatcher.advance(99)
    assert (queue.max_offset, dispatcher.is_behind) == (0, True)
    dispatcher.advance(299)
    assert (queue.max_offset, dispatcher.position) == (2, Position(200, 100, 1001))
    dispatcher.advance(300)
    assert [(each.max_offset, each.tags) for each in heard] == [(1, [0]), (2, [1]), (3, [2])]
    assert not dispatcher.is_behind
    assert dispatcher.touched == {queue: 0}


def test_dropped_entries_give_their_offsets_back(queues: ConsumeQueues) -> None:
    dispatcher = Dispatcher(Position(0, -1, 0))
    queue = queues.get_or_make("T", 0)
    for _ in range(3):
        queue.next_offset += 1
        dispatcher.stage(queue, 0, 100, 0)
    dispatcher.drop_staged()
    assert (queue.next_offset, queue.staged, dispatcher.is_behind) == (0, [], False)


def test_entries_of_records_that_were_not_staged_are_taken_back(queues: ConsumeQueues) -> None:
    dispatcher = Dispatcher(Position(0, -1, 0))
    first, second = queues.get_or_make("T", 0), queues.get_or_make("U", 0)
    for place, queue in ((0, first), (100, first), (200, first), (300, second)):
        queue.next_offset += 1
        dispatcher.stage(queue, place, 100, 7)
        dispatcher.keys.hashes.append(place + 1)
        dispatcher.keys.places.append(place)
    dispatcher.keys.hashes.append(1)  # of a message whose place was not noted any more
    dispatcher.take_back(200)
    assert (first.next_offset, first.staged) == (2, [0, 100, 7, 100, 100, 7])
    assert (second.next_offset, second.staged) == (0, [])
    assert dispatcher.staged == [first]
    assert dispatcher.keys == ([1, 101], [0, 100])


def test_a_queue_that_cannot_be_written_is_tried_again_without_doing_the_others_twice(
    files: SimulatedFiles, queues: ConsumeQueues
) -> None:
    dispatcher = Dispatcher(Position(0, -1, 0))
    first, second = queues.get_or_make("T", 0), queues.get_or_make("U", 0)
    for queue in (first, second):
        dispatcher.stage(queue, 0, 100, 0)
    dispatcher.seal(Position(100, 0, 1))
    files.fail("pwrite", after=1, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        dispatcher.advance(100)
    assert (first.max_offset, second.max_offset, dispatcher.position.end) == (1, 0, 0)
    dispatcher.advance(100)
    assert (first.max_offset, second.max_offset, dispatcher.position.end) == (1, 1, 100)


def dispatched(dispatcher: Dispatcher, queues: list[ConsumeQueue], rounds: int) -> None:
    for number in range(rounds):
        for queue in queues:
            dispatcher.stage(queue, number * 100, 100, 0)
        dispatcher.seal(Position(number * 100 + 100, number * 100, 1))
        dispatcher.advance(1 << 40)


def test_entries_wait_until_their_queue_has_a_page_of_them(files: SimulatedFiles) -> None:
    queues = ConsumeQueues(config(consume_queue_segment_entries=1000), files)
    dispatcher, queue = Dispatcher(Position(0, -1, 0)), queues.get_or_make("T", 0)
    written = []
    for _ in range(250):
        dispatched(dispatcher, [queue], 1)
        written.append(queue.first_unwritten)
    page = PAGE_BYTES // 20 + 1  # one that begins in it
    assert written == [1] * page + [page + 1] * (250 - page)
    assert dispatcher.unwritten == {queue: None}
    dispatcher.touched.clear()
    dispatcher.write_all()
    assert (queue.first_unwritten, dispatcher.touched) == (250, {queue: page + 1})
    assert not dispatcher.unwritten


def test_all_that_wait_together_are_bounded_and_the_oldest_are_written(
    files: SimulatedFiles, queues: ConsumeQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "WAITING_BYTES_MAX", 100 * 20)
    dispatcher = Dispatcher(Position(0, -1, 0))
    every = [queues.get_or_make("T", number) for number in range(60)]
    dispatched(dispatcher, every, 2)
    assert [queue.first_unwritten for queue in every] == [1] * 60
    dispatched(dispatcher, every, 1)
    assert [queue.first_unwritten for queue in every] == [3] * 32 + [1] * 28
    dispatched(dispatcher, every, 10)
    assert sum(len(queue.unwritten) for queue in every) <= 100 * 20
    dispatcher.write_all()
    assert [queue.first_unwritten for queue in every] == [13] * 60
    assert dispatcher.entries == 13 * 60


def test_entries_of_a_deleted_topic_are_not_written(files: SimulatedFiles, queues: ConsumeQueues) -> None:
    dispatcher = Dispatcher(Position(0, -1, 0))
    gone, kept = queues.get_or_make("T", 0), queues.get_or_make("U", 0)
    for queue in (gone, kept):
        dispatcher.stage(queue, 0, 100, 0)
    dispatcher.seal(Position(100, 0, 1))
    dispatcher.forget_topic([gone])
    dispatcher.advance(100)
    assert (gone.max_offset, kept.max_offset) == (0, 1)
    dispatched(dispatcher, [gone, kept], 3)
    dispatcher.forget_topic([gone])
    files.remove_folder(gone.segments.folder)
    dispatcher.write_all()
    assert (files.exists(gone.segments.folder), kept.first_unwritten) == (False, 4)


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("T", b"", 0),
        ("T", b"TAGS\x01TagA\x02", 2598919),
        ("T", b"KEYS\x01k\x02TAGS\x01TagB", 2598920),
        ("T", b"TAGS\x01tag-neg-10\x02", -1195727601),
        ("T", "TAGS\x01中文\x02".encode(), 646394),
        ("T", b"DELAY\x012\x02", 0),
        ("SCHEDULE_TOPIC_XXXX", b"DELAY\x012\x02TAGS\x01TagA\x02", 1_005_000),
        ("SCHEDULE_TOPIC_XXXX", b"DELAY\x0150\x02", 1_010_000),
        ("SCHEDULE_TOPIC_XXXX", b"DELAY\x010\x02TAGS\x01TagA\x02", 2598919),
        ("SCHEDULE_TOPIC_XXXX", b"DELAY\x01soon\x02", 0),
    ],
)
def test_an_entry_says_the_tag_or_when_it_is_due(topic: str, properties: bytes, expected: int) -> None:
    """Hashes of store-format.md, appendix A."""
    assert entry_tag(topic, properties, 1_000_000, LEVELS) == expected
