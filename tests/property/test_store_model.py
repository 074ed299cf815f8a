"""A store is a list of messages per queue, whatever is done to it and however it stops."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.java_hash import java_hash
from kourou.protocol.record import decode_all
from kourou.store.config import ASYNC_FLUSH, SYNC_FLUSH
from kourou.store.store import Draft, ReadStatus, Store
from tests.unit.store.folder import draft, read_all, store_on

Key = tuple[str, int]
KEYS = st.tuples(st.sampled_from(("T", "U")), st.integers(0, 2))
TAGS = ("", "a", "b")
MESSAGES = st.tuples(st.binary(max_size=600), st.sampled_from(TAGS))


class StoreMachine(RuleBasedStateMachine):
    """Messages are (body, tag); the model is a dict of lists. A crash keeps everything that was written."""

    @initialize(flush=st.sampled_from((ASYNC_FLUSH, SYNC_FLUSH)))
    def begin(self, flush: str) -> None:
        self.flush = flush
        self.files = SimulatedFiles()
        self.clock = SimulatedClock()
        self.model: dict[Key, list[tuple[bytes, str]]] = {}
        self.opened()

    def opened(self) -> None:
        self.store: Store = store_on(
            self.files, clock=self.clock, flush=self.flush, checkpoint_least_bytes=1, scan_entries_max=20
        )

    @rule(key=KEYS, message=MESSAGES)
    def append(self, key: Key, message: tuple[bytes, str]) -> None:
        queue = self.model.setdefault(key, [])
        appended = self.store.append(_draft(key, message))
        assert appended.queue_offset == len(queue)
        queue.append(message)
        stored: list[str] = []
        self.store.when_stored(appended.end, lambda status: stored.append(status.name))
        assert stored == ["OK"]

    @rule(key=KEYS, messages=st.lists(MESSAGES, min_size=1, max_size=5))
    def append_batch(self, key: Key, messages: list[tuple[bytes, str]]) -> None:
        queue = self.model.setdefault(key, [])
        batch = self.store.append_batch([_draft(key, message) for message in messages])
        assert [each.queue_offset for each in batch] == list(range(len(queue), len(queue) + len(messages)))
        assert len({each.physical_offset // 4096 for each in batch}) == 1
        queue += messages

    @rule(key=KEYS, offset=st.integers(-1, 40), count=st.integers(1, 40), size=st.integers(1, 4000))
    def read(self, key: Key, offset: int, count: int, size: int) -> None:
        queue = self.model.get(key, [])
        result = self.store.read(*key, offset, count, size)
        if 0 <= offset < len(queue):
            assert result.status is ReadStatus.FOUND
            found = [_message(record) for record in decode_all(b"".join(result.messages))]
            assert 1 <= len(found) == result.count <= min(count, 32)
            assert found == queue[offset : offset + len(found)]
            assert result.next_offset == offset + len(found)
            assert sum(map(len, result.messages)) <= size or len(found) == 1
        else:
            assert (result.count, result.messages) == (0, [])
            assert result.status is not ReadStatus.FOUND

    @rule(
        key=KEYS, offset=st.integers(0, 40), count=st.integers(1, 40), tags=st.sets(st.sampled_from(TAGS[1:]))
    )
    def read_tags(self, key: Key, offset: int, count: int, tags: set[str]) -> None:
        queue = self.model.get(key, [])
        if offset >= len(queue) or not tags:
            return
        result = self.store.read(*key, offset, count, wanted={java_hash(tag) for tag in tags})
        assert offset < result.next_offset <= len(queue)
        found = [_message(record) for record in decode_all(b"".join(result.messages))]
        assert found == [message for message in queue[offset : result.next_offset] if message[1] in tags]

    @rule(seconds=st.sampled_from((0.1, 1.0, 20.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.opened()

    @rule()
    def crash(self) -> None:
        self.files = self.files.crashed()
        self.opened()

    @rule()
    def lose_the_queues_and_crash(self) -> None:
        self.files = self.files.crashed()
        if self.files.exists("/data/store/consumequeue"):
            self.files.remove_folder("/data/store/consumequeue")
        self.opened()

    @rule(key=KEYS)
    def delete_topic(self, key: Key) -> None:
        """Whatever the log still holds of it: it does not come back, and begins anew if it is made again."""
        topic = key[0]
        self.store.delete_topic(topic)
        for number in range(3):
            self.model.pop((topic, number), None)

    @invariant()
    def everything_is_there(self) -> None:
        for key, queue in getattr(self, "model", {}).items():
            assert (self.store.min_offset(*key), self.store.max_offset(*key)) == (0, len(queue))

    def teardown(self) -> None:
        for key, queue in getattr(self, "model", {}).items():
            found = read_all(self.store, *key)
            assert [_message(record) for record in found] == queue
            assert [record.queue_offset for record in found] == list(range(len(queue)))
            times = [record.store_ms for record in found]
            assert times == sorted(times)
            assert self.store.damage == []


def _draft(key: Key, message: tuple[bytes, str]) -> Draft:
    body, tag = message
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return draft(body, key[0], key[1], properties)


def _message(record: object) -> tuple[bytes, str]:
    tag = record.find(b"TAGS")  # type: ignore[attr-defined]
    return record.body, (tag or b"").decode()  # type: ignore[attr-defined]


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStoreModel = StoreMachine.TestCase
