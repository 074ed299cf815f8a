"""Replies made in one copy: what is kept for the next reader. That they are right: `test_native_pulls.py`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.native import native
from kourou.protocol.record import decode, decode_all
from kourou.store import ahead, replies
from kourou.store.ahead import FILTERED_BLOCK_ENTRIES, Accepts
from kourou.store.config import ENTRY_BYTES
from kourou.store.store import Store
from tests.unit.store.folder import draft, store_on

needs_native = pytest.mark.skipif(
    native is None, reason="kourou.native is not compiled here, or KOUROU_NATIVE=0"
)
HEAD = b'{"code":0,"broker":%d,"next":%d,"least":%d,"most":%d,"opaque":%d}'


def filled(files: SimulatedFiles, messages: int = 1100) -> Store:
    store = store_on(files, commit_log_segment_bytes=8 << 20, consume_queue_segment_entries=5000)
    for number in range(messages):
        store.append(draft(b"%d" % number))
        store.append(draft(queue_id=1))
    return store


def offsets_in_reply(
    store: Store, queue_offset: int, count_max: int = 32, accepts: Accepts | None = None
) -> list[int]:
    found = store.replies.reply("T", 0, queue_offset, count_max, None, accepts, HEAD, 9)
    assert found is not None
    (frame,), *_ = found
    body = frame[8 + int.from_bytes(frame[4:8], "big") :]
    return [each.queue_offset for each in decode_all(body)]


@needs_native
def test_the_entries_of_a_queue_are_read_once_for_all_who_pull() -> None:
    files = SimulatedFiles()
    store = filled(files)
    reads = files.counts.get("pread", 0)
    for offset in (0, 32, 7, 500, 900):
        assert offsets_in_reply(store, offset) == list(range(offset, offset + 32))
    assert files.counts["pread"] - reads == 1
    assert offsets_in_reply(store, 1010) == list(
        range(1010, 1042)
    )  # over two blocks, of which one is not full
    assert offsets_in_reply(store, 1090) == list(range(1090, 1100))
    assert files.counts["pread"] - reads == 2  # the last ones were not written yet


@needs_native
def test_what_is_kept_is_bounded_and_forgotten_with_an_entry_that_was_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = filled(SimulatedFiles())
    monkeypatch.setattr(ahead, "ENTRIES_TOGETHER", 50)
    monkeypatch.setattr(ahead, "ENTRIES_KEPT_MAX", 3)
    monkeypatch.setattr(ahead, "VERDICTS_KEPT_MAX", 2)
    everybody: Accepts = lambda many: [True] * len(many)  # noqa: E731
    kept = store._reader.ahead
    for offset in range(0, 500, 10):
        assert offsets_in_reply(store, offset, 5) == list(range(offset, offset + 5))
        assert offsets_in_reply(store, offset, 5, everybody) == list(range(offset, offset + 5))
    assert (len(kept.kept_entries), len(kept._verdicts)) == (3, 2)
    kept.forget(store._queues.table["T", 1])
    assert (len(kept.kept_entries), len(kept._verdicts)) == (3, 2)
    kept.forget(store._queues.table["T", 0])
    assert (len(kept.kept_entries), len(kept._verdicts)) == (0, 0)


@needs_native
def test_an_expression_is_asked_once_about_each_message() -> None:
    store = filled(SimulatedFiles())
    asked: list[int] = []

    def tenth(many: Sequence[bytes | memoryview]) -> list[bool]:
        asked.append(len(many))
        return [decode(each).queue_offset % 10 == 3 for each in many]

    assert offsets_in_reply(store, 0, 20, tenth) == list(range(3, 203, 10))
    assert offsets_in_reply(store, 4, 20, tenth) == list(range(13, 213, 10))
    assert asked == [FILTERED_BLOCK_ENTRIES]
    assert offsets_in_reply(store, 200, 32, tenth) == list(range(203, 523, 10))
    assert asked == [FILTERED_BLOCK_ENTRIES] * 3


@needs_native
def test_an_expression_is_asked_about_what_came_since() -> None:
    store = filled(SimulatedFiles(), 30)
    asked: list[int] = []

    def everybody(many: Sequence[bytes | memoryview]) -> list[bool]:
        asked.append(len(many))
        return [True] * len(many)

    assert offsets_in_reply(store, 20, 32, everybody) == list(range(20, 30))
    for _ in range(3):
        store.append(draft())
    assert offsets_in_reply(store, 5, 4, everybody) == list(range(5, 9))
    assert offsets_in_reply(store, 20, 32, everybody) == list(range(20, 33))
    assert asked == [30, 3]


@needs_native
def test_old_entries_are_looked_at_before_they_are_believed() -> None:
    files = SimulatedFiles()
    filled(files, 60).close()
    store = store_on(files, commit_log_segment_bytes=8 << 20, consume_queue_segment_entries=5000)
    queue = store._queues.table["T", 0]
    assert queue.old_end == 60
    queue.segments.write(queue.entries(30, 1), 10 * ENTRY_BYTES)
    assert offsets_in_reply(store, 0) == list(range(32))
    assert store._reader.mender.corrected == 1


def test_without_the_native_loops_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(SimulatedFiles(), 10)
    monkeypatch.setattr(replies, "_pull_reply", None)
    assert store.replies.reply("T", 0, 0, 32, None, None, HEAD, 9) is None
    assert store.read("T", 0, 0).count == 10
