"""A repair: afterwards the store is clean and opens; nothing whole is lost, nothing is thrown away."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import StoreError
from kourou.protocol import record as records
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.check import check
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ENTRY
from kourou.store.findings import Report, SetAside
from kourou.store.index_file import HEADER
from kourou.store.repair import repair
from tests.unit.store.folder import ROOT, bodies_of, draft, fill, log_path, overwrite, queue_path, store_on
from tests.unit.store.test_check import INDEX, closed_store, content, fill_with_keys, place_of

NOW = SimulatedClock(1_800_000_000_000)


def repaired(files: SimulatedFiles) -> list[str]:
    """Repair it, and see that it is clean; returns the names of all that was set aside."""
    config = StoreConfig(root=ROOT)
    report = check(config, files)
    assert report.actions, "nothing was wrong"
    aside = repair(config, report, files, NOW)
    assert check(config, files).errors == []
    assert not files.exists(f"{ROOT}/abort")
    return sorted(path.removeprefix(aside + "/") for path, data in content(files, aside).items() if data)


def bodies(files: SimulatedFiles) -> list[bytes]:
    """Every message of both queues, as a broker shows them that opens the folder."""
    store = store_on(files, **INDEX)
    assert store.damage == []
    found = (*bodies_of(store, "T", 0), *bodies_of(store, "T", 1))
    store.close()
    return sorted(found, key=lambda body: int(body[5:]))


def all_but(*numbers: int, count: int = 40) -> list[bytes]:
    return [b"body %d" % number for number in range(count) if number not in numbers]


def garble_record(files: SimulatedFiles, number: int) -> tuple[int, int]:
    place, size = place_of(files, number)
    base = place - place % 4096
    overwrite(files, log_path(base), place - base + 60, b"garbage")
    return place, size


@pytest.mark.parametrize("number", [0, 5, 18, 38])
def test_a_bad_record_is_set_aside_and_its_neighbours_stay(number: int) -> None:
    files = closed_store()
    place, size = place_of(files, number)
    garble_record(files, number)
    bad = files.read(log_path(place - place % 4096))[place % 4096 :][:size]
    aside = repaired(files)
    copy = next(name for name in aside if name.startswith("commitlog"))
    assert copy == f"commitlog-{place}-{place + size}"
    assert bad in content(files).values()
    assert bodies(files) == all_but(number)


def test_what_takes_the_place_of_a_bad_record_is_seen_by_nobody() -> None:
    files = closed_store()
    place, size = garble_record(files, 5)
    repaired(files)
    stand_in = records.check(files.read(log_path()), place, place + size, physical_offset=place)
    assert stand_in.record is not None
    assert (stand_in.record.sys_flag, stand_in.record.size) == (0xC, size)
    report = check(StoreConfig(root=ROOT), files)
    assert (report.records, report.hidden_records, report.stand_ins) == (40, 1, 1)


def test_a_lost_first_message_has_its_neighbour_stand_for_it_as_apache_needs_it() -> None:
    files = closed_store()
    garble_record(files, 0)
    repaired(files)
    queue = files.read(queue_path())
    assert (
        queue[:20] == queue[20:40]
    )  # an entry that points nowhere would hide the whole file from its readers


def test_offsets_of_lost_messages_are_not_given_out_again() -> None:
    files = closed_store()
    garble_record(files, 38)  # the last of queue 0, and not the last of the log
    repaired(files)
    store = store_on(files, **INDEX)
    assert store.append(draft(b"new", queue_id=0)).queue_offset == 20
    assert bodies_of(store, "T", 0)[-1] == b"new"


def test_the_last_record_of_a_closed_log_is_set_aside_and_its_offset_kept() -> None:
    files = closed_store()
    place, _ = garble_record(files, 39)
    repaired(files)
    store = store_on(files, **INDEX)
    assert store.append(draft(b"body 99", queue_id=1)).queue_offset == 20
    assert store.wrote > place
    assert bodies_of(store, "T", 1)[-2:] == [b"body 37", b"body 99"]


def test_a_torn_tail_is_cut_and_kept_aside() -> None:
    files = closed_store()
    end = check(StoreConfig(root=ROOT), files).log_bytes
    base = end - end % 4096
    overwrite(files, log_path(base), end - base, b"\0\0\1\0\xda\xa3\x20\xa7 and no more")
    assert repaired(files) == [f"commitlog-{end}-{end + 20}"]
    assert files.read(log_path(base))[end - base :].strip(b"\0") == b""
    assert bodies(files) == all_but()


def test_a_missing_file_of_the_log_leaves_the_others_readable() -> None:
    files = closed_store(80)
    files.remove(log_path(4096))
    there = [number for number in range(80) if not 4096 <= place_of(files, number)[0] < 8192]
    repaired(files)
    lost = set(range(80)) - set(there)
    assert lost
    assert bodies(files) == all_but(*lost, count=80)


def test_the_newest_file_of_the_log_may_be_missing() -> None:
    files = closed_store()
    lost = [number for number in range(40) if place_of(files, number)[0] >= 4096]
    files.remove(log_path(4096))
    repaired(files)
    assert bodies(files) == all_but(*lost)
    assert store_on(files, **INDEX).append(draft(b"new", queue_id=0)).queue_offset == 20


def test_a_file_that_was_cut_off_is_whole_again_with_what_it_has() -> None:
    files = closed_store(80)
    lost = [number for number in range(80) if 4096 + 1800 <= place_of(files, number)[0] < 8192]
    files.open(log_path(4096)).truncate(2000)
    repaired(files)
    kept = bodies(files)
    assert set(all_but(*lost, count=80)) - set(kept) <= {b"body %d" % (min(lost) - 1)}
    assert len(files.read(log_path(4096))) == 4096


@pytest.mark.parametrize(
    "harm",
    [
        lambda files: overwrite(files, queue_path(), 3 * 20, ENTRY.pack(77, 100, 5)),
        lambda files: overwrite(files, queue_path(), 2 * 20, bytes(60)),
        lambda files: overwrite(files, queue_path(), 3 * 20 + 12, b"\x01" * 8),
        lambda files: files.remove_folder(f"{ROOT}/consumequeue/T/1"),
        lambda files: files.open(queue_path()).truncate(300),
        lambda files: overwrite(files, f"{ROOT}/checkpoint", 80, b"\xff"),
        lambda files: files.open(f"{ROOT}/commitlog/notes", create=True).pwrite(b"?", 0),
        lambda files: overwrite(files, f"{ROOT}/config/topics.json", 0, b"\xff"),
    ],
)
def test_what_is_derived_or_small_comes_back_and_no_message_is_lost(
    harm: Callable[[SimulatedFiles], None],
) -> None:
    files = closed_store()
    path = f"{ROOT}/config/topics.json"
    files.write_atomically(path, files.read(path))
    harm(files)
    repaired(files)
    assert bodies(files) == all_but()


def test_all_queues_may_be_missing_when_it_is_told_how_large_their_files_are() -> None:
    files = closed_store()
    files.remove_folder(f"{ROOT}/consumequeue")
    config = StoreConfig(root=ROOT, consume_queue_segment_entries=50)
    repair(config, check(config, files), files, NOW)
    assert check(config, files).errors == []
    assert bodies(files) == all_but()


@pytest.mark.parametrize("at", [36, HEADER.size + 3, HEADER.size + 400 + 5 * 20 + 3])
def test_an_index_is_built_again(at: int) -> None:
    files = closed_store()
    path = f"{ROOT}/index/{files.list(f'{ROOT}/index')[0]}"
    overwrite(files, path, at, b"\x63\x62\x61")
    aside = repaired(files)
    assert aside == [path.removeprefix(f"{ROOT}/")]
    store = store_on(files, **INDEX)
    for number in (0, 17, 39):
        found = store.find("T", f"order-{number}", 10)
        assert [records.decode(data).body for data in found] == [b"body %d" % number]


def test_a_folder_that_was_not_closed_is_closed_by_a_repair() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, **INDEX)
    fill_with_keys(store, 40)
    clock.advance(1.1)  # then the entries are written
    place, size = place_of(files, 6)
    overwrite(files, log_path(), place + 60, b"garbage")
    config = StoreConfig(root=ROOT, index_slots=100, index_entries=400)
    after = files.crashed()
    repair(config, check(config, after), after, NOW)
    assert check(config, after).errors == []
    assert bodies(after) == all_but(6)
    assert size


def test_a_queue_that_was_made_again_is_built_from_its_second_life() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 20)
    store.delete_topic("T")
    second = fill(store, 7, start=100)
    store.close()
    overwrite(files, queue_path(), 0, b"\xff" * 20)
    config = StoreConfig(root=ROOT)
    repair(config, check(config, files), files, NOW)
    assert check(config, files).errors == []
    assert bodies_of(store_on(files)) == second


def test_what_cannot_be_stood_in_for_is_refused_before_the_end() -> None:
    files = closed_store()
    report = Report(ROOT)
    error = check(StoreConfig(root=ROOT), files)
    report.findings = [
        type(error.findings[0])(file="commitlog", what="", meaning="", action=SetAside(100, 140))
    ]
    with pytest.raises(StoreError, match="no room for a record"):
        repair(StoreConfig(root=ROOT), report, files, NOW)


def test_a_second_repair_of_the_same_folder_has_nothing_to_do() -> None:
    files = closed_store()
    garble_record(files, 7)
    repaired(files)
    before = content(files)
    assert check(StoreConfig(root=ROOT), files).actions == []
    assert content(files) == before


def test_what_lies_on_another_disk_is_carried_over(monkeypatch: pytest.MonkeyPatch) -> None:
    files = closed_store()
    stray = f"{ROOT}/commitlog/notes.txt"
    files.open(stray, create=True).pwrite(b"mine", 0)
    rename = files.rename

    def rename_on_one_disk(old: str, new: str) -> None:
        if "/commitlog/" in old and "/quarantine/" in new:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    monkeypatch.setattr(files, "rename", rename_on_one_disk)
    assert repaired(files) == ["commitlog/notes.txt"]
    assert not files.exists(stray)
    assert bodies(files) == all_but()


@pytest.mark.parametrize("is_previous_whole", [True, False])
def test_the_list_of_deleted_topics_comes_back_or_is_moved_away(is_previous_whole: bool) -> None:
    files = closed_store()
    path = f"{ROOT}/deletedtopics.json"
    files.write_atomically(path, b'{"gone":10}')
    files.write_atomically(path, b'{"gone":10,"too":20}')
    assert not [each for each in check(StoreConfig(root=ROOT), files).findings if "deleted" in each.file]
    overwrite(files, path, 0, b"#")
    if not is_previous_whole:
        overwrite(files, f"{path}.bak", 0, b"#")
    aside = repaired(files)
    assert files.exists(path) == is_previous_whole
    assert set(aside) == (
        {"deletedtopics.json"} | (set() if is_previous_whole else {"deletedtopics.json.bak"})
    )


WHOLE = {
    "deletedtopics.json": b'{"gone":10}',
    "config/topics.json": b'{"topicConfigTable":{"T":{"topicName":"T"}}}',
}


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_damaged_previous_generation_is_noted_and_moved_away(name: str) -> None:
    files = closed_store()
    for _ in range(2):
        files.write_atomically(f"{ROOT}/{name}", WHOLE[name])
    overwrite(files, f"{ROOT}/{name}.bak", 0, b"#")
    (note,) = [each for each in check(StoreConfig(root=ROOT), files).findings if each.file == f"{name}.bak"]
    assert note.severity == "note"
    assert repaired(files) == [f"{name}.bak"]


def test_a_damaged_checkpoint_is_kept() -> None:
    files = closed_store()
    overwrite(files, f"{ROOT}/checkpoint", 72, b"#")
    damaged = files.read(f"{ROOT}/checkpoint")
    assert repaired(files) == ["checkpoint"]
    (time,) = files.list(f"{ROOT}/quarantine")
    assert files.read(f"{ROOT}/quarantine/{time}/checkpoint") == damaged


HOUR_MS = 3_600_000
STORED_MS = 1_700_000_000_000


def with_delayed(count: int = 3) -> SimulatedFiles:
    """Messages of a level that is an hour where they were stored, and is not said to be one later."""
    files = SimulatedFiles()
    store = store_on(files, clock=SimulatedClock(STORED_MS), delay_levels_ms=(HOUR_MS,))
    for _ in range(count):
        store.append(draft(b"later", SCHEDULE_TOPIC, 0, b"DELAY\x011\x02", tags_code=STORED_MS + HOUR_MS))
    fill(store, 3)
    store.close()
    return files


def waits_ms(files: SimulatedFiles, count: int = 3) -> list[int]:
    data = files.read(queue_path(SCHEDULE_TOPIC))[: count * ENTRY.size]
    return [due_ms - STORED_MS for _, _, due_ms in ENTRY.iter_unpack(data)]


def test_the_time_of_a_delayed_message_is_no_reason_to_repair() -> None:
    files = with_delayed()
    report = check(StoreConfig(root=ROOT), files)
    notes = [found.what for found in report.findings if "time" in found.what and found.severity == "note"]
    assert notes == ["entries 0 to 2 wrong time (log 0)"]
    assert report.actions == []


def test_queues_that_are_all_built_again_keep_the_times_of_delayed_messages() -> None:
    files = with_delayed()
    overwrite(files, f"{ROOT}/checkpoint", 72, b"#")
    repaired(files)
    assert waits_ms(files) == [HOUR_MS] * 3


@pytest.mark.parametrize(
    ("at", "damage"),
    [(ENTRY.size + 6, b"##"), (ENTRY.size, bytes(ENTRY.size))],
    ids=["wrong", "missing"],
)
def test_a_queue_of_delayed_messages_that_is_built_again_keeps_the_times_it_had(
    at: int, damage: bytes
) -> None:
    files = with_delayed()
    overwrite(files, queue_path(SCHEDULE_TOPIC), at, damage)
    repaired(files)
    assert waits_ms(files) == [HOUR_MS, 1000, HOUR_MS]


def test_a_time_that_cannot_be_one_is_not_kept_when_its_queue_is_built_again() -> None:
    files = with_delayed()
    overwrite(files, queue_path(SCHEDULE_TOPIC), 12, b"\x40")
    overwrite(files, queue_path(SCHEDULE_TOPIC), ENTRY.size + 6, b"##")
    repaired(files)
    assert waits_ms(files) == [1000, 1000, HOUR_MS]
