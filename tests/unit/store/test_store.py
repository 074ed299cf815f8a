"""The data folder as its user sees it: appended, read back, closed, opened again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import RealFiles
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy, ConfigError, DiskFault, Refused, StoreForeign, StoreLocked
from kourou.protocol.codes import ResponseCode
from kourou.store.checkpoint import read_checkpoint
from kourou.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from kourou.store.store import FLUSH_TIMEOUT, OK, Dispatched, Draft, ReadStatus, Store, StoreStatus
from tests.unit.store.folder import (
    HERE,
    ROOT,
    Later,
    ToldLater,
    at_once,
    bodies_of,
    draft,
    fill,
    log_path,
    mark_of_format,
    queue_path,
    read_all,
    store_on,
)


def test_a_message_comes_back_as_it_was_sent() -> None:
    store = store_on(SimulatedFiles())
    appended = store.append(draft(b"hello", properties=b"TAGS\x01TagA\x02KEYS\x01k1\x02"))
    (record,) = read_all(store)
    assert (record.body, record.topic, record.queue_id, record.queue_offset) == (b"hello", b"T", 0, 0)
    assert record.properties.startswith(b"TAGS\x01TagA\x02KEYS\x01k1\x02__CRC32#\x01")
    assert record.physical_offset == appended.physical_offset == 0
    assert record.size == appended.size == appended.end
    assert record.store_ms == appended.store_ms
    assert record.damage() is None
    assert store.record_at(0) == record.data


def test_the_bytes_on_disk_are_those_of_the_format() -> None:
    """Record and consume queue entry of store-format.md, appendix A, with the CRC property behind them."""
    files, clock = SimulatedFiles(), SimulatedClock(1_700_000_000_456)
    store = store_on(files, clock=clock)
    for _ in range(5):  # the vector has queue offset 5 of queue 1, at byte 1024
        store.append(draft(b"", queue_id=1, properties=b""))
    padding = 1024 - store.wrote - 112
    store.append(draft(bytes(padding), topic="P", properties=b""))
    assert store.wrote == 1024
    store.append(Draft("T", 1, b"hi", b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_123, draft().born_host, HERE))
    golden = bytes.fromhex(
        "0000007c daa320a7 58932aac 00000001 00000000 0000000000000005 0000000000000400 00000000"
        "0000018bcfe5687b 0a000001000004d2 0000018bcfe569c8 7f00000100002a9f 00000000 0000000000000000"
        "00000002 6869 01 54 001e 54414753015461674102"
    )
    clock.advance(1.1)
    log = files.read(log_path())
    assert len(golden) == 104
    assert log[1024 : 1024 + 104] == golden
    assert log[1128 : 1128 + 9] == b"__CRC32#\x01"
    entries = files.read(queue_path(queue_id=1))
    assert entries[5 * 20 : 6 * 20].hex() == "00000000000004000000007c000000000027a807"
    assert len(log) == 4096
    assert len(entries) == 50 * 20


def test_what_a_tick_appends_is_written_at_its_end_by_one_write_to_each_file() -> None:
    files, tick = SimulatedFiles(), Later()
    store = store_on(files, defer=tick.defer)
    before = files.counts.get("pwrite", 0)
    statuses: list[StoreStatus] = []
    for number in range(10):
        appended = store.append(draft(queue_id=number % 2))
        store.when_stored(appended.end, statuses.append)
    assert len(tick.work) == 1
    assert (files.counts.get("pwrite", 0), store.max_offset("T", 0), statuses) == (before, 0, [])
    tick.run()
    assert files.counts["pwrite"] == before + 1 + 2  # the log, and each queue
    assert statuses == [OK] * 10
    assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (5, 5)


def test_listeners_hear_of_new_messages_once_per_queue_and_tick() -> None:
    tick = Later()
    store = store_on(SimulatedFiles(), defer=tick.defer)
    heard: list[Dispatched] = []
    store.on_dispatch(heard.append)
    store.append(draft(properties=b"TAGS\x01TagA\x02"))
    store.append(draft(properties=b""))
    store.append(draft(topic="U", properties=b"TAGS\x01TagB\x02"))
    tick.run()
    told = [(each.topic, each.queue_id, each.max_offset, each.tags) for each in heard]
    assert told == [("T", 0, 2, [2598919, 0]), ("U", 0, 1, [2598920])]


def test_a_listener_of_one_topic_hears_of_no_other() -> None:
    store = store_on(SimulatedFiles())
    heard: list[Dispatched] = []
    store.on_dispatch(heard.append, topic="U")
    for topic in ("T", "U", "V", "U"):
        store.append(draft(topic=topic))
    assert [(each.topic, each.max_offset) for each in heard] == [("U", 1), ("U", 2)]


def test_offsets_and_messages_survive_a_clean_stop() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = {queue_id: fill(store, 70, queue_id=queue_id) for queue_id in (0, 3)}
    store.close()
    assert not files.exists(f"{ROOT}/abort")
    store = store_on(files)
    assert {queue_id: bodies_of(store, "T", queue_id) for queue_id in (0, 3)} == sent
    assert store.append(draft(queue_id=3)).queue_offset == 70
    assert store.damage == []


def test_a_clean_stop_leaves_exactly_the_files_rocketmq_expects() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 60)
    assert files.exists(f"{ROOT}/abort")
    store.close()
    assert files.list(ROOT) == ["checkpoint", "commitlog", "consumequeue", "lock"]
    assert files.read(f"{ROOT}/lock") == b"lock"
    assert len(files.read(f"{ROOT}/checkpoint")) == 4096
    logs = files.list(f"{ROOT}/commitlog")
    assert logs == [f"{base:020d}" for base in range(0, 4096 * len(logs), 4096)]
    assert {len(files.read(f"{ROOT}/commitlog/{name}")) for name in logs} == {4096}
    assert files.list(f"{ROOT}/consumequeue/T/0") == [f"{0:020d}", f"{1000:020d}"]


def test_a_record_that_does_not_fit_goes_into_the_next_file_behind_a_blank() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    first = store.append(draft(bytes(2000)))
    second = store.append(draft(bytes(2000)))
    assert (first.physical_offset, second.physical_offset) == (0, 4096)
    blank = files.read(log_path())[first.end : first.end + 8]
    assert blank == (4096 - first.end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert [record.physical_offset for record in read_all(store)] == [0, 4096]


def test_a_record_may_leave_just_eight_bytes_of_its_file() -> None:
    store = store_on(SimulatedFiles())
    overhead = store.append(draft(b"")).size
    store.append(draft(bytes(2000)))
    left = 4096 - store.wrote
    exact = store.append(draft(bytes(left - 8 - overhead)))
    assert exact.end == 4096 - 8
    assert store.append(draft(b"")).physical_offset == 4096


def test_a_batch_is_never_split_between_files() -> None:
    store = store_on(SimulatedFiles())
    store.append(draft(bytes(1500)))
    batch = store.append_batch([draft(bytes(800)), draft(bytes(900)), draft(bytes(800))])
    assert [each.queue_offset for each in batch] == [1, 2, 3]
    assert batch[0].physical_offset == 4096
    assert batch[1].physical_offset == batch[0].end
    assert batch[2].physical_offset == batch[1].end
    assert [record.queue_offset for record in read_all(store)] == [0, 1, 2, 3]
    assert len({record.store_ms for record in read_all(store)[1:]}) == 1


def test_a_batch_larger_than_a_file_is_refused_whole() -> None:
    store = store_on(SimulatedFiles())
    with pytest.raises(Refused, match="do not fit into a log file of 4096"):
        store.append_batch([draft(bytes(2000)), draft(bytes(2000)), draft(bytes(200))])
    assert store.append(draft()).queue_offset == 0
    assert store.max_offset("T", 0) == 1


def test_what_cannot_be_stored_is_refused_with_a_reason_and_takes_no_offset() -> None:
    store = store_on(SimulatedFiles())
    for bad, words in (
        (draft(bytes(2049)), "2049 bytes; maxMessageSize is 2048"),
        (draft(properties=b"a\x01" + b"b" * 32760 + b"\x02"), "32763 bytes; there is room for 32746"),
        (draft(topic="../../evil"), "cannot be the name of a folder"),
        (draft(topic=".."), "cannot be the name of a folder"),
        (draft(topic="/etc"), "cannot be the name of a folder"),
        (draft(topic="a\\b"), "cannot be the name of a folder"),
        (draft(topic="C:x"), "cannot be the name of a folder"),
        (draft(topic=""), "cannot be the name of a folder"),
        (draft(queue_id=-1), "queue id -1"),
    ):
        with pytest.raises(Refused, match=words):
            store.append(bad)
    assert store.wrote == 0
    assert store.topics() == {}


def test_half_and_rolled_back_messages_are_stored_but_in_no_queue() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    prepared = store.append(draft(b"half", sys_flag=0x4))
    rolled_back = store.append(draft(b"gone", sys_flag=0xC))
    committed = store.append(draft(b"done", sys_flag=0x8))
    assert [prepared.queue_offset, rolled_back.queue_offset, committed.queue_offset] == [0, 0, 0]
    assert bodies_of(store) == [b"done"]
    assert store.record_at(prepared.physical_offset) is not None
    store.close()
    assert bodies_of(store_on(files)) == [b"done"]


def test_a_delayed_message_has_its_delivery_time_in_the_queue() -> None:
    clock = SimulatedClock(1_700_000_000_000)
    store = store_on(SimulatedFiles(), clock=clock)
    heard: list[Dispatched] = []
    store.on_dispatch(heard.append)
    store.append(draft(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02TAGS\x01x\x02"))
    store.append(draft(topic="SCHEDULE_TOPIC_XXXX", queue_id=17, properties=b"DELAY\x0199\x02"))
    store.append(draft(tags_code=12345))
    assert [each.tags for each in heard] == [[1_700_000_010_000], [1_700_007_200_000], [12345]]


def test_store_times_never_go_back() -> None:
    clock = SimulatedClock(1_700_000_000_000)
    store = store_on(SimulatedFiles(), clock=clock)
    first = store.append(draft())
    clock.jump_ms(-60_000)
    second = store.append(draft())
    clock.jump_ms(120_000)
    third = store.append(draft())
    assert second.store_ms == first.store_ms
    assert third.store_ms == first.store_ms + 60_000


def test_messages_are_found_by_the_time_they_were_stored() -> None:
    clock = SimulatedClock(1000)
    store = store_on(SimulatedFiles(), clock=clock)
    for wait in (0, 0, 0, 1000, 0, 1000):  # stored at 1000 1000 1000 2000 2000 3000
        clock.advance(wait / 1000)
        store.append(draft())
    at = {ms: store.offset_by_time("T", 0, ms) for ms in (0, 1000, 1500, 2000, 3000, 4000)}
    assert at == {0: 0, 1000: 0, 1500: 3, 2000: 3, 3000: 5, 4000: 6}
    upper = {ms: store.offset_by_time("T", 0, ms, upper=True) for ms in (0, 1000, 1500, 2000, 4000)}
    assert upper == {0: 0, 1000: 2, 1500: 2, 2000: 4, 4000: 5}
    assert store.offset_by_time("nobody", 0, 1000) == 0
    assert store.earliest_store_ms() == store.earliest_store_ms("T", 0) == 1000
    assert store.earliest_store_ms("nobody", 0) == -1


def test_a_place_that_is_no_record_gives_none() -> None:
    store = store_on(SimulatedFiles())
    appended = store.append(draft())
    places = (-1, 1, appended.end, appended.end + 1, 4096, 1 << 60)
    assert [store.record_at(place) for place in places] == [None] * len(places)


# Locks and foreign folders.


def test_a_folder_in_use_is_refused() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    with pytest.raises(StoreLocked, match="/data/store is in use by another broker"):
        store_on(files)
    store.close()
    store_on(files)


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("commitlog/notes.txt", b"x", "notes.txt is not a file of the store"),
        (f"commitlog/{0:020d}", b"x" * 100, "set mappedFileSizeCommitLog to the value"),
        (f"commitlog/{100:020d}", bytes(4096), "set mappedFileSizeCommitLog to the value"),
        (f"consumequeue/T/0/{0:020d}", bytes(60), "set mappedFileSizeConsumeQueue to the value"),
        ("consumequeue/T/0/.DS_Store", b"x", "DS_Store is not a file of the store"),
        ("consumequeue/CURRENT", b"MANIFEST-000004\n", "RocksDB folder"),
        ("batchconsumequeue/T/0/0", b"", "BatchCQ are not supported"),
        ("config/rdb/CURRENT", b"MANIFEST-000004\n", "config/rdb is a RocksDB folder: topics, groups"),
        ("config/topics/CURRENT", b"MANIFEST-000004\n", "mqadmin rocksDBConfigToJson"),
        ("checkpoint", bytes(64) + mark_of_format(99) + bytes(4000), "format 99.*use a newer Kourou"),
    ],
)
def test_a_foreign_folder_is_refused_and_left_as_it_is(path: str, content: bytes, words: str) -> None:
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/{path}".rpartition("/")[0])
    files.open(f"{ROOT}/{path}", create=True).pwrite(content, 0)
    with pytest.raises(StoreForeign, match=words):
        store_on(files)
    assert files.read(f"{ROOT}/{path}") == content
    assert not files.exists(f"{ROOT}/abort")
    files.remove(f"{ROOT}/{path}")
    if not path.startswith("batch"):
        store_on(files)  # the lock was given back


def test_tables_in_rocksdb_do_no_harm_beside_those_written_as_json() -> None:
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/config/rdb")
    files.open(f"{ROOT}/config/rdb/CURRENT", create=True).pwrite(b"MANIFEST-000004\n", 0)
    files.open(f"{ROOT}/config/topics.json", create=True).pwrite(b"{}", 0)
    store_on(files)


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in (
        {"root": ""},
        {"root": "x", "flush": "SOMETIMES"},
        {"root": "x", "commit_log_segment_bytes": 5},
        {"root": "x", "consume_queue_segment_entries": 0},
    ):
        with pytest.raises(ConfigError):
            StoreConfig(**settings)  # type: ignore[arg-type]


# Durability.


def test_sync_flush_answers_and_shows_a_message_only_after_the_sync_that_covers_it() -> None:
    files, disk = SimulatedFiles(), Later()
    store = store_on(files, flush=SYNC_FLUSH, background=disk.background)
    heard: list[Dispatched] = []
    store.on_dispatch(heard.append)
    statuses: list[StoreStatus] = []
    for _ in range(3):
        store.when_stored(store.append(draft()).end, statuses.append)
        # The first sync is under way; what came after its start needs another.
    assert (statuses, store.max_offset("T", 0), heard) == ([], 0, [])
    assert store.read("T", 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    assert len(disk.work) == 1
    disk.run_one()
    assert (statuses, store.max_offset("T", 0), len(heard)) == ([OK], 1, 1)
    assert len(disk.work) == 1
    disk.run_one()
    assert (statuses, store.max_offset("T", 0)) == ([OK] * 3, 3)
    assert disk.work == []  # one sync for both


def test_a_message_that_need_not_wait_is_answered_once_written() -> None:
    disk = Later()
    store = store_on(SimulatedFiles(), flush=SYNC_FLUSH, background=disk.background)
    statuses: list[StoreStatus] = []
    store.when_stored(store.append(draft()).end, statuses.append, written_is_enough=True)
    assert (statuses, store.max_offset("T", 0)) == ([OK], 0)
    disk.run()
    assert store.max_offset("T", 0) == 1


def test_a_sync_that_takes_too_long_is_a_flush_timeout() -> None:
    disk, clock = Later(), SimulatedClock()
    store = store_on(SimulatedFiles(), flush=SYNC_FLUSH, background=disk.background, clock=clock)
    statuses: list[StoreStatus] = []
    store.when_stored(store.append(draft()).end, statuses.append)
    clock.advance(4.9)
    assert statuses == []
    clock.advance(0.2)
    assert statuses == [FLUSH_TIMEOUT]
    assert statuses[0].is_stored
    disk.run()
    assert (statuses, store.max_offset("T", 0)) == ([FLUSH_TIMEOUT], 1)


def test_async_flush_syncs_when_enough_pages_are_new_and_anything_at_last() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    store.append(draft())
    clock.advance(9)
    assert store.flushed == 0
    clock.advance(2)
    assert store.flushed == store.wrote
    for _ in range(8):
        store.append(draft(bytes(2000)))
    clock.advance(0.5)
    assert store.flushed == store.wrote


def test_a_failed_sync_stops_the_store_for_good() -> None:
    files = SimulatedFiles()
    store = store_on(files, flush=SYNC_FLUSH)
    fill(store, 1)
    files.fail("sync")
    statuses: list[StoreStatus] = []
    tick = store.append(draft(b"lost?"))
    store.when_stored(tick.end, statuses.append)
    assert [status.name for status in statuses] == ["FAILED"]
    assert store.failed is not None
    assert "errno 5, Input/output error" in store.failed
    assert "/data/store" in store.failed
    with pytest.raises(DiskFault, match="nothing is acknowledged any more"):
        store.append(draft())
    assert bodies_of(store) == [b"T-0-0"]  # reads go on; what was not synced was never shown
    store.close()
    assert files.exists(f"{ROOT}/abort")  # the next start examines everything
    again = store_on(files)
    assert again.failed is None


def test_whoever_waits_during_a_failing_sync_hears_of_it() -> None:
    files, disk = SimulatedFiles(), Later()
    store = store_on(files, flush=SYNC_FLUSH, background=disk.background)
    statuses: list[StoreStatus] = []
    for _ in range(3):
        store.when_stored(store.append(draft()).end, statuses.append)
    files.fail("sync")
    disk.run()
    assert [status.name for status in statuses] == ["FAILED"] * 3
    assert store.max_offset("T", 0) == 0


@pytest.mark.parametrize("how", ["close", "sync"])
def test_a_stop_knows_of_a_failed_sync_that_nobody_was_told_of_yet(how: str) -> None:
    """Whoever syncs again is told that all is well: what was to be written is clean, and not on the disk."""
    files, disk = SimulatedFiles(), ToldLater()
    store = store_on(files, flush=SYNC_FLUSH, background=disk.background)
    statuses: list[StoreStatus] = []
    store.when_stored(store.append(draft()).end, statuses.append)
    assert not statuses
    files.fail("sync")
    store.when_stored(store.append(draft()).end, statuses.append)
    disk.run_one()
    store.when_stored(store.append(draft()).end, statuses.append)
    getattr(store, how)()
    assert store.failed is not None
    assert statuses[-1].name == "FAILED"
    assert files.exists(f"{ROOT}/abort")
    assert read_checkpoint(files, f"{ROOT}/checkpoint").end == 0


def test_a_write_error_stops_the_store_too() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 1)
    files.fail("pwrite", error=errno.EIO)
    with pytest.raises(DiskFault):
        store.append(draft())
    assert store.failed is not None
    assert store.max_offset("T", 0) == 1


def test_a_full_disk_refuses_loses_nothing_and_resumes_by_itself() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, allocation_step_bytes=4096)
    sent = fill(store, 5)
    draft_size = store.wrote // 5
    files.capacity = files.used()
    while 4096 - 8 - store.wrote > draft_size:
        sent.append(b"more")
        store.append(draft(b"more"))
    with pytest.raises(
        Busy, match=r"disk of /data/store is full \(100 % used, 90 % allowed, 0 bytes free\)"
    ) as refusal:
        store.append(draft(b"needs another file"))
    assert refusal.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refusal.value.retryable
    assert bodies_of(store) == sent
    with pytest.raises(Busy):
        store.append(draft(b"still full"))
    files.capacity = 1 << 30
    with pytest.raises(Busy):  # not tried again at once
        store.append(draft(b"too early"))
    clock.advance(1.1)
    sent.append(b"again")
    assert store.append(draft(b"again")).queue_offset == len(sent) - 1
    assert store.refusal is None
    assert bodies_of(store) == sent
    store.close()
    assert bodies_of(store_on(files)) == sent


def test_whoever_waits_for_a_tick_the_disk_had_no_room_for_hears_of_it() -> None:
    files, tick = SimulatedFiles(), Later()
    store = store_on(files, defer=tick.defer)
    files.capacity = files.used()
    statuses: list[StoreStatus] = []
    for _ in range(3):
        store.when_stored(store.append(draft()).end, statuses.append)
    tick.run()
    assert [status.name for status in statuses] == ["FAILED"] * 3
    assert "is full" in statuses[0].reason
    assert (store.wrote, store.max_offset("T", 0)) == (0, 0)


def test_after_a_write_that_took_too_long_those_who_waited_for_it_hear_so() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    store.append(draft(b"quick"))

    def slow(operation: str, path: str) -> None:
        if operation == "pwrite" and "commitlog" in path:
            clock.advance(1.5)

    files.before = slow
    store.append(draft(b"stored, however long it took"))
    files.before = None
    with pytest.raises(
        Busy, match=r"took 1500 ms, 1000 ms are allowed \(osPageCacheBusyTimeOutMills\)"
    ) as refused:
        store.append(draft(b"waited"))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    clock.advance(0.2)
    store.append(draft(b"a moment later"))
    assert bodies_of(store, "T", 0) == [b"quick", b"stored, however long it took", b"a moment later"]


def test_a_write_cut_short_by_a_full_disk_leaves_no_bytes_behind() -> None:
    """Some file systems promise blocks and then have none: nothing of the tick may come back to life."""
    files, tick, clock = SimulatedFiles(), Later(), SimulatedClock()
    store = store_on(files, defer=tick.defer, clock=clock)
    fill(store, 3)
    tick.run()
    end = store.wrote
    for number in range(8):
        store.append(draft(b"lost %d" % number + bytes(100)))

    def full_in_the_middle(operation: str, path: str) -> None:
        if operation == "pwrite" and path == log_path():
            files.before = None
            files.open(path).pwrite(b"\xda" * 700, end)
            raise OSError(errno.ENOSPC, "No space left on device", path)

    files.before = full_in_the_middle
    tick.run()
    assert files.read(log_path())[end:].strip(b"\0") == b""
    clock.advance(2)
    store.append(draft(b"T-0-3"))
    tick.run()
    assert bodies_of(store_on(files.crashed())) == [b"T-0-0", b"T-0-1", b"T-0-2", b"T-0-3"]


def no_room_for_queues(operation: str, path: str) -> None:
    if operation == "pwrite" and "consumequeue" in path:
        raise OSError(errno.ENOSPC, "No space left on device", path)


def test_a_consume_queue_without_room_for_its_file_shows_its_messages_later() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    statuses: list[StoreStatus] = []
    files.before = no_room_for_queues
    store.when_stored(store.append(draft(b"T-0-0")).end, statuses.append)
    assert statuses == [OK]
    assert store.max_offset("T", 0) == 0
    with pytest.raises(Busy):
        store.append(draft())
    files.before = None
    clock.advance(1.1)
    assert bodies_of(store) == [b"T-0-0"]
    fill(store, 1, start=1)
    assert bodies_of(store) == [b"T-0-0", b"T-0-1"]


def test_entries_that_wait_for_room_are_read_and_written_once_there_is_some() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    sent = fill(store, 1)
    files.before = no_room_for_queues
    sent += fill(store, 7, start=1)
    clock.advance(30)
    assert store.failed is None
    assert bodies_of(store) == sent
    assert files.read(queue_path())[20:40] == bytes(20)
    files.before = None
    clock.advance(12)
    assert files.read(queue_path())[:160] == store.entries("T", 0, 0, 8)
    assert read_checkpoint(files, f"{ROOT}/checkpoint").end == store.wrote


def test_entries_that_cannot_be_written_end_it_as_any_fault_does() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    sent = fill(store, 3)

    def broken(operation: str, path: str) -> None:
        if operation == "pwrite" and "consumequeue" in path:
            raise OSError(errno.EIO, "Input/output error", path)

    files.before = broken
    clock.advance(1.1)
    assert store.failed is not None
    assert "consumequeue" in store.failed
    files.before = None
    clock.advance(30)
    assert not files.exists(f"{ROOT}/checkpoint")
    store.close()
    assert bodies_of(store_on(files.crashed())) == sent


def test_a_store_that_finds_no_room_for_its_entries_at_the_end_is_examined_by_the_next_start() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 5)
    files.before = no_room_for_queues
    store.close()
    assert store.failed is None
    assert files.exists(f"{ROOT}/abort")
    files.before = None
    assert bodies_of(store_on(files)) == sent


@pytest.mark.parametrize("flush", [ASYNC_FLUSH, SYNC_FLUSH])
def test_a_crash_leaves_entries_that_were_never_written_to_be_built_again(flush: str) -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, flush=flush)
    sent = {topic: fill(store, 9, topic=topic) for topic in "TUV"}
    clock.advance(11)  # a checkpoint
    for topic in "TU":
        sent[topic] += fill(store, 9, topic=topic, start=9)
    assert files.read(queue_path())[180:200] == bytes(20)
    assert read_checkpoint(files, f"{ROOT}/checkpoint").entries == 27
    store.sync()
    for found in (files.crashed(), files.power_cut(Chance(7))):
        again = store_on(found)
        assert {topic: bodies_of(again, topic) for topic in "TUV"} == sent
        assert again.damage == []
        again.close()


def test_a_topic_that_is_deleted_takes_the_entries_along_that_wait() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 4)
    kept = fill(store, 4, topic="U")
    store.delete_topic("T")
    again = fill(store, 2, start=100)
    clock.advance(11)
    assert files.read(queue_path())[:60] == store.entries("T", 0, 0, 2) + bytes(20)
    store.close()
    after = store_on(files)
    assert (bodies_of(after), bodies_of(after, "U")) == (again, kept)


def test_closing_with_a_sync_under_way_still_leaves_everything_stored() -> None:
    files, disk = SimulatedFiles(), Later()
    store = store_on(files, flush=SYNC_FLUSH, background=disk.background)
    statuses: list[StoreStatus] = []
    store.when_stored(store.append(draft(b"last")).end, statuses.append)
    store.close()
    disk.run()
    assert statuses == [OK]
    assert not files.exists(f"{ROOT}/abort")
    assert bodies_of(store_on(files)) == [b"last"]


def test_a_closed_store_takes_nothing_more() -> None:
    store = store_on(SimulatedFiles())
    store.close()
    store.close()
    with pytest.raises(DiskFault, match="is not open"):
        store.append(draft())


# Topics.


def test_a_deleted_topic_is_gone_and_its_name_starts_anew() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3, topic="T")
    fill(store, 2, topic="U", queue_id=1)
    assert store.topics() == {"T": [0], "U": [1]}
    store.close()
    store = store_on(files)
    store.delete_topic("T")
    assert store.topics() == {"U": [1]}
    assert not files.exists(f"{ROOT}/consumequeue/T")
    store.close()
    store = store_on(files)  # fewer queues than the checkpoint knew of, and no rebuild
    assert store.topics() == {"U": [1]}
    assert store.append(draft(topic="T")).queue_offset == 0


def test_a_topic_deleted_while_a_checkpoint_is_under_way_does_not_come_back() -> None:
    files, disk, clock = SimulatedFiles(), Later(), SimulatedClock()
    store = store_on(files, background=disk.background, clock=clock)
    fill(store, 3, topic="T")
    fill(store, 2, topic="U")
    clock.advance(11)
    disk.run_one()  # the log is synced; next come the queues, then the checkpoint that counts them
    store.delete_topic("T")
    disk.run()
    assert files.exists(f"{ROOT}/checkpoint")
    assert store_on(files.crashed()).topics() == {"U": [0]}


def test_deleting_what_is_not_there_or_leads_outside_does_nothing() -> None:
    files = SimulatedFiles()
    files.make_folders("/data/precious")
    store = store_on(files)
    fill(store, 1)
    for name in ("nobody", "../../precious", "..", ""):
        store.delete_topic(name)
    assert files.exists("/data/precious")
    assert bodies_of(store) == [b"T-0-0"]


# The machine's own disk.


def test_a_real_folder_works_as_the_simulated_one(tmp_path: Path) -> None:
    def opened(**settings: object) -> Store:
        config = StoreConfig(root=str(tmp_path / "store"), **settings)  # type: ignore[arg-type]
        store = Store(
            config,
            files=RealFiles(),
            clock=SimulatedClock(),
            defer=lambda work: work(),
            background=at_once,
        )
        store.open()
        return store

    store = opened(flush=SYNC_FLUSH)
    bodies = fill(store, 100)
    with pytest.raises(StoreLocked):
        opened()
    store.close()
    log = tmp_path / "store" / "commitlog" / f"{0:020d}"
    assert log.stat().st_size == 1 << 30
    assert log.stat().st_blocks * 512 <= 17 << 20  # full length, but only a step of it takes up space
    queue = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    assert queue.stat().st_size == 6_000_000
    store = opened()
    assert bodies_of(store) == bodies
    store.close()
