"""A check of a stopped store: what is whole is called whole, what is not is named, and nothing is changed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kourou.access.users import Users
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Corrupt, StoreForeign, StoreLocked
from kourou.protocol import record as records
from kourou.protocol.access_messages import UserInfo
from kourou.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.store import index_file
from kourou.store.check import alone, check
from kourou.store.check_index import _Block
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ENTRY
from kourou.store.findings import (
    CutTail,
    FillIn,
    Finding,
    MoveAside,
    RebuildIndex,
    RebuildQueue,
    Report,
    RestoreState,
    RewriteCheckpoint,
    SetAside,
)
from kourou.store.index_file import HEADER
from kourou.store.store import Store
from tests.unit.store.folder import (
    ROOT,
    Later,
    config,
    draft,
    fill,
    log_path,
    mark_of_format,
    overwrite,
    queue_path,
    store_on,
)

INDEX: dict[str, Any] = {"index_slots": 100, "index_entries": 400}
KEYED = b"UNIQ_KEY\x017F00000100002A9F%016X\x02KEYS\x01order-%d\x02TAGS\x01TagA\x02"


def closed_store(messages: int = 40) -> SimulatedFiles:
    """A folder with messages of two queues, with keys, that was closed."""
    files = SimulatedFiles()
    clock = SimulatedClock()
    store = store_on(files, clock=clock, **INDEX)
    fill_with_keys(store, messages)
    clock.advance(0.1)
    store.close()
    files.make_folders(f"{ROOT}/config")
    files.make_folders(f"{ROOT}/timers")
    files.write_atomically(f"{ROOT}/config/topics.json", b'{"topicConfigTable":{"T":{"topicName":"T"}}}')
    return files


def fill_with_keys(store: Store, count: int) -> None:
    for number in range(count):
        store.append(draft(b"body %d" % number, queue_id=number % 2, properties=KEYED % (number, number)))


def checked(files: SimulatedFiles, **settings: object) -> Report:
    """The report; whatever is found, the disk is as it was."""
    before = content(files)
    report = check(StoreConfig(root=ROOT, **settings), files)  # type: ignore[arg-type]
    assert content(files) == before
    return report


def content(files: SimulatedFiles, folder: str = ROOT) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in files.list(folder):
        path = f"{folder}/{name}"
        if files.is_folder(path):
            found |= {path: None, **content(files, path)}
        else:
            found[path] = files.read(path)
    return found


def only_error(report: Report) -> Finding:
    assert len(report.errors) == 1, report.errors
    return report.errors[0]


def place_of(files: SimulatedFiles, number: int) -> tuple[int, int]:
    """Where the record of a message lies, and its size."""
    entry = files.read(queue_path("T", number % 2))[number // 2 * 20 :][:20]
    place, size, _ = ENTRY.unpack(entry)
    return place, size


# Whole folders.


def test_a_closed_store_is_clean_and_all_of_it_was_looked_at() -> None:
    report = checked(closed_store())
    assert report.errors == []
    assert report.is_clean
    assert report.is_closed
    counts = report.counts()
    assert (counts["records"], counts["queues"], counts["queue_entries"]) == (40, 2, 40)
    assert (counts["index_files"], counts["index_entries"], counts["state_files"]) == (1, 80, 1)
    assert counts["log_files"] == 2


def test_sizes_are_seen_from_the_files_and_named() -> None:
    notes = {finding.file.split("/")[0]: finding.meaning for finding in checked(closed_store()).findings}
    assert notes["commitlog"].endswith("mappedFileSizeCommitLog=4096")
    assert notes["consumequeue"].endswith("mappedFileSizeConsumeQueue=1000")


def test_an_empty_store_is_clean() -> None:
    files = SimulatedFiles()
    store_on(files).close()
    files.make_folders(f"{ROOT}/commitlog")
    assert checked(files).findings == []


def test_a_folder_that_was_not_closed_has_nothing_wrong_with_it() -> None:
    files = SimulatedFiles()
    store = store_on(files, **INDEX)
    fill_with_keys(store, 40)
    report = checked(files)
    assert report.errors == []
    assert not report.is_closed
    assert "abort" in [finding.file for finding in report.findings]


def test_queues_that_are_behind_the_log_after_a_crash_are_only_noted() -> None:
    files, tick = SimulatedFiles(), Later()
    store = store_on(files, defer=tick.defer)
    fill(store, 10)

    def dies(operation: str, path: str) -> None:
        if operation == "make_folder" and "consumequeue" in path:
            raise KeyboardInterrupt

    files.before = dies
    with pytest.raises(KeyboardInterrupt):
        tick.run()
    files.before = lambda operation, path: None
    report = checked(files)
    assert report.errors == []
    assert "consumequeue/T/0" in [finding.file for finding in report.findings]


def test_half_messages_are_in_no_queue_and_that_is_right() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    store.append(draft(b"half", sys_flag=0x4))
    store.append(draft(b"visible"))
    store.close()
    report = checked(files)
    assert (report.errors, report.records, report.hidden_records) == ([], 2, 1)


def test_a_topic_that_was_deleted_leaves_records_that_are_in_no_queue() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 20, topic="gone")
    fill(store, 20)
    store.delete_topic("gone")
    store.close()
    report = checked(files)
    assert (report.errors, report.unlisted_records, report.queue_entries) == ([], 20, 20)


def test_a_topic_that_was_deleted_and_made_again_begins_anew() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 20)
    store.delete_topic("T")
    fill(store, 7)
    store.close()
    report = checked(files)
    assert (report.errors, report.queue_entries) == ([], 7)


def test_a_queue_may_begin_after_the_log_has_lost_its_oldest_files() -> None:
    files = closed_store(80)
    files.remove(log_path())
    report = checked(files)
    assert report.errors == []
    assert report.records < 80
    assert report.queue_entries == 80


# The log.


@pytest.mark.parametrize(
    ("within", "reason"),
    [(0, "size"), (2, "size"), (5, "magic"), (30, "lies at"), (40, "CRC"), (90, "CRC"), (-8, "CRC")],
)
def test_a_flipped_bit_anywhere_in_a_record_is_found(within: int, reason: str) -> None:
    files = closed_store()
    place, size = place_of(files, 5)
    at = place + within if within >= 0 else place + size + within
    overwrite(files, log_path(), at, bytes((files.read(log_path())[at] ^ 0x10,)))
    report = checked(files)
    log_error = next(finding for finding in report.errors if finding.file.startswith("commitlog"))
    assert log_error.offset == place
    assert log_error.action == SetAside(place, place + size)
    assert f"{size} bytes that are no record" in log_error.what
    assert RebuildQueue("T", 1) in report.actions  # its entry points to no record
    assert report.records == 39
    assert reason  # which of its checks has found it is for `record.check` to say


def test_a_torn_tail_is_found() -> None:
    files = closed_store(40)
    end = check(StoreConfig(root=ROOT), files).log_bytes
    base = end - end % 4096
    overwrite(files, log_path(base), end - base, b"\0\0\1\0\xda\xa3\x20\xa7 and no more")
    error = only_error(checked(files))
    assert error.action == CutTail(end, end + 20)
    assert (error.file, error.offset) == (f"commitlog/{base:020d}", end - base)


def test_a_log_that_ends_before_its_checkpoint_has_lost_messages() -> None:
    files = closed_store()
    place, size = place_of(files, 39)
    base = place - place % 4096
    overwrite(files, log_path(base), place - base, bytes(size))
    report = checked(files)
    assert SetAside(place, place + size) in report.actions
    assert RebuildQueue("T", 1) in report.actions


def test_a_missing_file_of_the_log_is_found_and_both_sides_are_read() -> None:
    files = closed_store(80)
    files.remove(log_path(4096))
    report = checked(files)
    assert FillIn(log_path(4096), 4096) in report.actions
    assert 0 < report.records < 80
    missing = next(finding for finding in report.errors if finding.what == "missing")
    assert "a broker does not start" in missing.meaning


def test_the_newest_file_of_the_log_is_missed_too() -> None:
    files = closed_store(40)
    files.remove(log_path(4096))
    assert FillIn(log_path(4096), 4096) in checked(files).actions


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    files = closed_store(80)
    files.open(log_path(4096)).truncate(2000)
    report = checked(files)
    assert FillIn(log_path(4096), 4096) in report.actions
    assert report.records > 60


def test_two_logs_in_one_folder_are_refused() -> None:
    files = closed_store()
    files.open(log_path(4096 * 10_000_000), create=True).truncate(4096)
    with pytest.raises(Corrupt, match="two logs; move one away"):
        check(StoreConfig(root=ROOT), files)


def test_a_log_of_something_else_is_not_touched() -> None:
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/commitlog")
    files.open(log_path(), create=True).pwrite(b"not a message" * 316, 0)
    files.open(log_path()).truncate(4096)
    error = only_error(checked(files))
    assert "no message record" in error.what
    assert error.action is None


def test_a_foreign_file_in_the_log_is_to_be_moved_away() -> None:
    files = closed_store()
    files.open(f"{ROOT}/commitlog/notes.txt", create=True).pwrite(b"hello", 0)
    assert only_error(checked(files)).action == MoveAside(f"{ROOT}/commitlog/notes.txt")


def test_a_foreign_file_beside_it_is_only_noted() -> None:
    files = closed_store()
    files.open(f"{ROOT}/notes.txt", create=True).pwrite(b"hello", 0)
    report = checked(files)
    assert report.errors == []
    assert "notes.txt" in [finding.file for finding in report.findings]


# Queues.


@pytest.mark.parametrize(
    ("at", "data", "kind"),
    [
        (3 * 20, ENTRY.pack(77, 100, 5), "wrong"),
        (3 * 20, bytes(20), "missing"),
        (3 * 20 + 12, b"\x01" * 8, "wrong tag"),
        (30 * 20, ENTRY.pack(77, 100, 5), "without a record"),
    ],
)
def test_a_garbled_entry_is_found(at: int, data: bytes, kind: str) -> None:
    files = closed_store()
    overwrite(files, queue_path(), at, data)
    error = only_error(checked(files))
    assert (error.file, error.offset) == (f"consumequeue/T/0/{0:020d}", at // 20 * 20)
    assert f"entry {at // 20} {kind}" in error.what
    assert error.action == RebuildQueue("T", 0)


def test_neighbouring_entries_with_one_fault_are_one_finding() -> None:
    files = closed_store()
    overwrite(files, queue_path(), 40, bytes(60))
    assert "entries 2 to 4 missing" in only_error(checked(files)).what


def test_entries_are_compared_in_parts_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.check_queues.RECORDS_A_COMPARISON", 7)
    files = closed_store()
    assert checked(files).errors == []
    overwrite(files, queue_path(), 40, bytes(60))
    assert "entries 2 to 4 missing" in only_error(checked(files)).what


def test_a_missing_queue_is_found() -> None:
    files = closed_store()
    files.remove_folder(f"{ROOT}/consumequeue/T/1")
    error = only_error(checked(files))
    assert error.action == RebuildQueue("T", 1)
    assert "missing, with its 20 messages" in error.what


@pytest.mark.parametrize("length", [500, 1001, 2000])
def test_a_queue_file_of_another_length_is_found(length: int) -> None:
    files = closed_store()
    files.open(queue_path()).truncate(length)
    report = checked(files, consume_queue_segment_entries=50)
    assert only_error(report).action == RebuildQueue("T", 0)


def test_a_rocksdb_folder_is_refused() -> None:
    files = closed_store()
    files.open(f"{ROOT}/consumequeue/CURRENT", create=True)
    with pytest.raises(StoreForeign, match="RocksDB"):
        check(StoreConfig(root=ROOT), files)


# The index.


def index_path(files: SimulatedFiles) -> str:
    return f"{ROOT}/index/{files.list(f'{ROOT}/index')[0]}"


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (36, b"\x7f\xff\xff\xff"),  # how many entries there are
        (HEADER.size + 3, b"\x4d"),  # a slot
        (HEADER.size + 400 + 5 * 20 + 3, b"\x99"),  # a hash
        (HEADER.size + 400 + 5 * 20 + 4, b"\x01"),  # a place
        (HEADER.size + 400 + 70 * 20 + 16, b"\0\0\0\x63"),  # the next older entry
    ],
)
def test_a_garbled_index_is_found(at: int, data: bytes) -> None:
    files = closed_store()
    overwrite(files, index_path(files), at, data)
    report = checked(files)
    assert report.actions == [RebuildIndex()]
    assert {finding.file.split("/")[0] for finding in report.errors} == {"index"}


def store_with_two_index_files(*, is_closed: bool = True) -> SimulatedFiles:
    """Of 32 entries each, but for the second; with messages seconds apart, two of them at a time."""
    files = SimulatedFiles()
    clock = SimulatedClock()
    store = store_on(files, clock=clock, index_slots=10, index_entries=33)
    for _ in range(11):
        fill_with_keys(store, 2)
        clock.advance(2.5)
    if is_closed:
        store.close()
    assert len(files.list(f"{ROOT}/index")) == 2
    return files


@pytest.mark.parametrize(
    ("which", "is_closed"),
    [(0, True), (1, True), (0, False)],  # a start after a kill takes the second away: no mark speaks of it
)
def test_every_flipped_bit_of_an_index_that_means_something_is_found(which: int, is_closed: bool) -> None:
    shape: dict[str, Any] = {"index_slots": 10, "index_entries": 33}
    files = store_with_two_index_files(is_closed=is_closed)
    before = checked(files, **shape)
    assert before.errors == []
    path = f"{ROOT}/index/{files.list(f'{ROOT}/index')[which]}"
    data = files.read(path)
    count = HEADER.unpack(data[: HEADER.size])[-1]
    entries_at = HEADER.size + 10 * 4
    for at in [*range(entries_at), *range(entries_at + 20, entries_at + count * 20)]:
        harmed = files.crashed()
        overwrite(harmed, path, at, bytes((data[at] ^ 1 << at % 8,)))
        assert check(StoreConfig(root=ROOT, **shape), harmed).findings != before.findings, at


def test_the_first_moment_of_an_index_file_may_be_timed_as_older_versions_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_file, "_timed_by_the_first", lambda data: data)
    files = store_with_two_index_files()
    shape: dict[str, Any] = {"index_slots": 10, "index_entries": 33}
    _, second = files.list(f"{ROOT}/index")
    at = HEADER.size + 10 * 4 + 2 * 20 + 12
    assert files.read(f"{ROOT}/index/{second}")[at : at + 4] == b"\0\0\0\x02"
    assert not [found for found in checked(files, **shape).findings if "time" in found.what]
    overwrite(files, f"{ROOT}/index/{second}", at, b"\0\0\0\x03")
    assert [found for found in checked(files, **shape).errors if "entry 2 has another time" in found.what]


@pytest.mark.parametrize(("second", "is_right"), [(0, True), (7, True), (6, False)])
def test_without_the_former_file_the_first_entry_says_how_its_moment_was_timed(
    second: int, is_right: bool
) -> None:
    header = index_file.Header(begin_ms=9000, end_ms=11_000, count=4)
    block = _Block("", 1, (1, 2, 3), (0, 100, 200), (7, second, 2), header, None)
    faults = list(block.time_faults(0, (9000, 9000, 11_000)))
    assert faults == ([] if is_right else [(2, "has another time than its message")])


def test_the_first_entry_of_an_index_file_whose_former_is_gone_is_not_judged_by_its_time() -> None:
    files = store_with_two_index_files()
    shape: dict[str, Any] = {"index_slots": 10, "index_entries": 33}
    first, second = files.list(f"{ROOT}/index")
    files.remove(f"{ROOT}/index/{first}")
    entry = HEADER.size + 10 * 4 + 20
    assert files.read(f"{ROOT}/index/{second}")[entry + 12 : entry + 16] == b"\0\0\0\x02"
    what = [finding.what for finding in checked(files, **shape).errors]
    assert any("entry 1 has another time" in each for each in what)  # the log is whole: there was a former
    log = f"{ROOT}/commitlog"
    files.remove(f"{log}/{files.list(log)[0]}")
    what = [finding.what for finding in checked(files, **shape).errors]
    assert not any("another time" in each for each in what)


def test_a_missing_index_is_found_where_there_was_one() -> None:
    files = closed_store()
    files.remove(index_path(files))
    assert only_error(checked(files)).action == RebuildIndex()


def test_an_index_whose_shape_nothing_tells_is_not_looked_at() -> None:
    files = closed_store()
    files.open(index_path(files)).truncate(12345)
    assert "-c" in only_error(checked(files)).repair
    foreign = only_error(checked(files, index_slots=100, index_entries=401))
    assert "-c" in foreign.repair


def test_a_shape_that_is_told_is_used() -> None:
    files = SimulatedFiles()
    clock = SimulatedClock()
    store = store_on(files, clock=clock, index_slots=10, index_entries=300)
    fill_with_keys(store, 40)
    clock.advance(0.1)
    store.close()
    assert "-c" in only_error(checked(files)).repair
    assert checked(files, index_slots=10, index_entries=300).errors == []


def test_a_checkpoint_with_times_from_before_the_log_is_damaged() -> None:
    files = closed_store()
    path = f"{ROOT}/checkpoint"
    files.write_atomically(path, struct.pack(">5q", 24_576, 24_576, 0, 0, 0) + bytes(4056))
    assert only_error(checked(files)).action == RewriteCheckpoint()


# Small files.


def test_an_unreadable_file_has_its_previous_generation_named() -> None:
    files = closed_store()
    path = f"{ROOT}/config/topics.json"
    files.write_atomically(path, files.read(path))
    overwrite(files, path, 0, b"\xff\xff")
    assert only_error(checked(files)).action == RestoreState(path)
    files.remove(f"{path}.bak")
    error = only_error(checked(files))
    assert error.action is None
    assert "backup" in error.repair


def test_a_json_file_that_holds_something_else_is_unreadable() -> None:
    files = closed_store()
    files.write_atomically(f"{ROOT}/config/consumerOffset.json", b'{"offsetTable":{"T@g":{"0":"x"}}}')
    files.write_atomically(f"{ROOT}/config/other.json", b"[1]")
    assert {finding.file for finding in checked(files).errors} == {
        "config/consumerOffset.json",
        "config/other.json",
    }


@pytest.mark.parametrize("data", [b"", b"{", b"[1]"])
def test_a_damaged_ballot_is_not_restored_from_an_older_one(data: bytes) -> None:
    files = closed_store()
    for each in (b'{"promised": 3}', b'{"promised": 4}'):
        files.write_atomically(f"{ROOT}/config/election.json", each)
    assert checked(files).errors == []
    files.write_atomically(f"{ROOT}/config/election.json", data, keep_previous=False)
    finding = only_error(checked(files))
    assert finding.file == "config/election.json"
    assert finding.action is None
    assert "start the broker with an empty one" in finding.repair


def test_an_empty_json_file_is_as_good_as_none() -> None:
    files = closed_store()
    files.write_atomically(f"{ROOT}/config/consumerOffset.json", b"")
    assert checked(files).errors == []


def test_a_list_of_timers_that_cannot_be_read_is_found() -> None:
    files = closed_store()
    files.write_atomically(f"{ROOT}/timers/pending", b"nonsense")
    assert only_error(checked(files)).action == MoveAside(f"{ROOT}/timers/pending")


def with_users() -> SimulatedFiles:
    files = closed_store()
    users = Users(f"{ROOT}/config/users.json", files, Chance(1).secret_bytes)
    users.load()
    for name in ("one", "two"):
        users.create(UserInfo(username=name, password="a password"))
    assert checked(files).findings == checked(closed_store()).findings
    return files


def test_damaged_users_are_found_and_brought_back_by_a_repair_alone() -> None:
    files = with_users()
    path = f"{ROOT}/config/users.json"
    overwrite(files, path, files.read(path).index(b"two"), b"six")
    error = only_error(checked(files))
    assert error.action == RestoreState(path)
    assert "does not start" in error.meaning


def test_a_damaged_key_of_users_is_found() -> None:
    files = with_users()
    overwrite(files, f"{ROOT}/config/users.key", 5, b"#")
    error = only_error(checked(files))
    assert (error.file, error.action) == ("config/users.key", None)
    assert "backup" in error.repair


@pytest.mark.parametrize(
    ("topic", "property_", "severity"),
    [
        (SCHEDULE_TOPIC, b"DELAY\x015\x02", "note"),  # somebody may have changed what level 5 means
        (TIMER_TOPIC, b"TIMER_OUT_MS\x011700000060000\x02", "error"),
    ],
)
@pytest.mark.parametrize("damage", [b"\x40", b"\x80"])
def test_a_wrong_time_in_the_queue_of_those_who_wait_is_found(
    topic: str, property_: bytes, severity: str, damage: bytes
) -> None:
    files = SimulatedFiles()
    store = store_on(files, clock=SimulatedClock(1_700_000_000_000), index_enabled=False)
    store.append(draft(b"later", topic, 0, property_, tags_code=1_700_000_060_000))
    store.close()
    assert checked(files).errors == []
    overwrite(files, queue_path(topic), 12, damage)
    (found,) = [each for each in checked(files).findings if "wrong time" in each.what]
    action = None if topic == SCHEDULE_TOPIC else RebuildQueue(topic, 0)
    assert (found.severity, found.action) == (severity, action)


@pytest.mark.parametrize("later_ms", [0, 2, 3000])
def test_a_delayed_message_has_waited_since_it_came_and_not_since_its_tick_began(later_ms: int) -> None:
    files = SimulatedFiles()
    clock, tick = SimulatedClock(1_700_000_000_000), Later()
    store = store_on(files, clock=clock, defer=tick.defer, index_enabled=False)
    store.append(draft(b"plain"))
    clock.advance(later_ms / 1000)
    due_ms = clock.now_ms() + 10_000
    store.append(draft(b"later", SCHEDULE_TOPIC, 2, b"DELAY\x013\x02", tags_code=due_ms))
    tick.run()
    store.close()
    assert [found for found in checked(files).findings if "time" in found.what] == []


def test_a_garbled_checkpoint_is_found() -> None:
    files = closed_store()
    overwrite(files, f"{ROOT}/checkpoint", 80, b"\xff")
    assert only_error(checked(files)).action == RewriteCheckpoint()
    files.open(f"{ROOT}/checkpoint").truncate(10)
    assert only_error(checked(files)).action == RewriteCheckpoint()


def test_a_missing_checkpoint_is_only_noted() -> None:
    files = closed_store()
    files.remove(f"{ROOT}/checkpoint")
    report = checked(files)
    assert report.errors == []
    assert "checkpoint" in [finding.file for finding in report.findings]


# Folders that are not to be checked.


def test_a_folder_of_a_newer_format_is_refused() -> None:
    files = closed_store()
    overwrite(files, f"{ROOT}/checkpoint", 64, mark_of_format(2))
    with pytest.raises(StoreForeign, match="use a newer Kourou"):
        check(StoreConfig(root=ROOT), files)


def test_what_is_no_store_is_refused_and_the_right_folder_proposed() -> None:
    files = closed_store()
    for folder, words in (("/nowhere", "not a folder"), ("/data", "did you mean /data/store?")):
        with pytest.raises(StoreForeign, match=words):
            check(StoreConfig(root=folder), files)
    files.make_folders("/empty")
    with pytest.raises(StoreForeign, match="no commitlog in it"):
        check(StoreConfig(root="/empty"), files)


def test_a_folder_that_a_broker_has_is_left_alone() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    with pytest.raises(StoreLocked, match="stop it first"), alone(files, ROOT):
        pass
    store.close()
    with alone(files, ROOT), pytest.raises(StoreLocked):
        store_on(files)


def test_to_look_at_a_copy_no_lock_file_is_made() -> None:
    files = closed_store()
    files.remove(f"{ROOT}/lock")
    with alone(files, ROOT):
        assert not files.exists(f"{ROOT}/lock")
    with alone(files, ROOT, to_change=True):
        assert files.exists(f"{ROOT}/lock")


def test_progress_is_told_and_ends_at_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.check._RECORDS_A_TURN", 10)
    told: list[tuple[int, int]] = []
    check(config(), closed_store(), lambda done, total: told.append((done, total)))
    assert len(told) == 5
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_a_record_without_the_crc_of_the_whole_is_checked_by_that_of_its_body() -> None:
    files = closed_store(2)
    place, size = place_of(files, 0)
    found = records.decode(files.read(log_path())[place : place + size])
    plain = records.encode(
        found.topic, 0, 0, 0, 0, 0, found.born_ms, found.born_host, found.store_ms, found.store_host, 0, 0,
        found.body, found.properties[: -records.CRC_PROPERTY_BYTES] + b"X\x01" + b"y" * 17 + b"\x02",
    )  # fmt: skip
    assert len(plain) == size
    overwrite(files, log_path(), 0, plain)
    assert checked(files).errors == []
    overwrite(files, log_path(), 90, b"?")
    assert any("body CRC" in finding.what for finding in checked(files).errors)
