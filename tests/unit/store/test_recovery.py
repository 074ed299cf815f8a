"""What is believed after a stop: torn tails cut, damage set aside, queues built again, nothing lost."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import DiskSpace
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Corrupt, DiskFault
from kourou.protocol import record as records
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.check import check
from kourou.store.checkpoint import read_checkpoint
from kourou.store.config import SYNC_FLUSH
from kourou.store.consume_queue import ENTRY
from kourou.store.store import ReadStatus
from tests.unit.store.folder import (
    BORN,
    HERE,
    ROOT,
    Later,
    bodies_of,
    draft,
    fill,
    log_path,
    overwrite,
    queue_path,
    read_all,
    store_on,
)


def test_everything_written_is_there_after_a_kill() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = {queue_id: fill(store, 60, queue_id=queue_id) for queue_id in (0, 1)}
    again = store_on(files.crashed())
    assert {queue_id: bodies_of(again, "T", queue_id) for queue_id in (0, 1)} == sent
    assert again.damage == []
    assert again.append(draft()).queue_offset == 60


def test_a_kill_between_log_and_queues_loses_no_message() -> None:
    files, tick = SimulatedFiles(), Later()
    store = store_on(files, defer=tick.defer)
    fill(store, 10)

    def dies(operation: str, path: str) -> None:
        if operation == "make_folder" and "consumequeue" in path:
            raise KeyboardInterrupt

    files.before = dies
    with pytest.raises(KeyboardInterrupt):
        tick.run()
    again = store_on(files.crashed())
    assert [record.queue_offset for record in read_all(again)] == list(range(10))


@pytest.mark.parametrize("seed", range(8))
def test_what_a_failed_sync_left_behind_is_on_the_disk_after_the_next_start(seed: int) -> None:
    """Pages that were to be synced count as clean: they are read, and no sync would write them. The process
    is killed before it can tell anybody of the failure."""
    files = SimulatedFiles()
    sent = fill(store_on(files, background=Later().background), 10)
    files.fail("sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        files.open(log_path()).sync()
    files = files.crashed()
    assert bodies_of(store_on(files)) == sent
    assert bodies_of(store_on(files.power_cut(Chance(seed)))) == sent


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("what", ["sync", "sync_folder"])
def test_a_file_of_the_log_that_was_made_and_not_synced_is_before_anything_goes_into_it(
    what: str, seed: int
) -> None:
    """Whoever made it could not bring its name to the disk, and was killed."""
    files = SimulatedFiles()
    store = store_on(files, flush=SYNC_FLUSH)
    files.fail(what, error=errno.EIO)
    with pytest.raises(DiskFault):
        fill(store, 1)
    files = files.crashed()
    sent = fill(store_on(files, flush=SYNC_FLUSH), 5)
    assert bodies_of(store_on(files.power_cut(Chance(seed)))) == sent


def test_a_torn_tail_is_cut_and_its_bytes_are_zeroed() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 5)
    last = store.append(draft(b"torn" * 20))
    overwrite(files, log_path(), last.end - 30, bytes(30))
    crashed = files.crashed()
    again = store_on(crashed)
    assert bodies_of(again) == sent
    assert again.wrote == last.physical_offset
    assert crashed.read(log_path())[again.wrote :].strip(b"\0") == b""
    assert crashed.read(queue_path())[5 * 20 :].strip(b"\0") == b""
    assert again.damage == []
    assert again.append(draft(b"new")).queue_offset == 5
    assert bodies_of(again) == [*sent, b"new"]


def test_an_entry_of_a_lost_record_does_not_come_back_for_another_one() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, checkpoint_least_bytes=1)
    sent = fill(store, 5)
    clock.advance(2.0)  # vouched for
    lost = store.append(draft(b"lost"))
    overwrite(files, log_path(), lost.physical_offset, bytes(lost.size))
    crashed = files.crashed()
    again = store_on(crashed, clock=clock, checkpoint_least_bytes=1)
    others = fill(again, 5, queue_id=1)  # in the place of what was lost
    clock.advance(2.0)
    last = store_on(crashed.crashed())
    assert bodies_of(last) == sent
    assert bodies_of(last, "T", 1) == others


def test_an_entry_that_lost_its_place_with_its_sector_is_not_believed() -> None:
    """Entry 102 lies across two sectors: of its first half nothing is left, so it points to the front."""
    files, clock = SimulatedFiles(), SimulatedClock()
    settings: dict[str, Any] = {"checkpoint_least_bytes": 1, "consume_queue_segment_entries": 300}
    store = store_on(files, clock=clock, **settings)
    sent = fill(store, 102)
    clock.advance(2.0)  # vouched for
    sent += fill(store, 1, start=102)
    overwrite(files, queue_path(), 102 * 20, bytes(8))
    again = store_on(files.crashed(), **settings)
    assert bodies_of(again) == sent
    assert again.append(draft()).queue_offset == 103


def test_a_bad_record_before_good_ones_is_set_aside_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    bad = store.append(draft(b"bad", properties=b"TAGS\x01TagA\x02"))
    fill(store, 2, start=4)
    fill(store, 1, queue_id=1)
    overwrite(files, log_path(), bad.physical_offset + 88, b"BAD")  # its body
    with caplog.at_level(logging.ERROR):
        again = store_on(files.crashed())
    assert bodies_of(again) == [b"T-0-0", b"T-0-1", b"T-0-2", b"T-0-4", b"T-0-5"]
    assert [record.queue_offset for record in read_all(again)] == [0, 1, 2, 4, 5]
    assert bodies_of(again, "T", 1) == [b"T-1-0"]
    (damage,) = again.damage
    assert (damage.start, damage.end) == (bad.physical_offset, bad.end)
    assert "CRC" in damage.reason
    assert f"bytes {bad.physical_offset} to {bad.end} of the log are damaged" in caplog.text
    assert again.append(draft()).queue_offset == 6


def test_the_place_of_a_damaged_record_is_passed_over_by_every_reader() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    places = [store.append(draft(b"m%d" % number)) for number in range(6)]
    overwrite(files, log_path(), places[2].physical_offset + 88, b"XX")
    again = store_on(files.crashed())
    one_by_one = []
    offset = 0
    while offset < again.max_offset("T", 0):
        result = again.read("T", 0, offset, 1)
        one_by_one += records.decode_all(b"".join(result.messages))
        assert (result.status is ReadStatus.FOUND) == (result.count == 1)
        assert result.next_offset == offset + 1
        offset = result.next_offset
    assert [record.body for record in one_by_one] == [b"m0", b"m1", b"m3", b"m4", b"m5"]
    tagged = again.read("T", 0, 0, 32, wanted={2598919})
    assert [record.body for record in records.decode_all(b"".join(tagged.messages))] == [
        *(b"m0", b"m1", b"m3", b"m4", b"m5")
    ]
    assert tagged.count == 5
    # For RocketMQ's readers the place shows the neighbour: a valid entry, in ascending order.
    entries = list(ENTRY.iter_unpack(again._queues.table["T", 0].entries(0, 6)))
    assert entries[2] == entries[3]


@pytest.mark.parametrize("count_max", [1, 2, 3, 4, 5, 32])
@pytest.mark.parametrize("damaged", [(2, 3), (0, 1, 2), (2, 3, 4, 6)])
def test_damaged_neighbours_are_passed_over_wherever_a_read_ends(
    damaged: tuple[int, ...], count_max: int
) -> None:
    """Each damaged record's place holds a copy of the entry that follows them all."""
    files = SimulatedFiles()
    store = store_on(files)
    places = [store.append(draft(b"m%d" % number)) for number in range(8)]
    for number in damaged:
        overwrite(files, log_path(), places[number].physical_offset + 88, b"XX")
    again = store_on(files.crashed())
    for wanted in (None, {2598919}):
        found: list[records.Record] = []
        offset = 0
        while offset < again.max_offset("T", 0):
            result = again.read("T", 0, offset, count_max, wanted=wanted)
            found += records.decode_all(b"".join(result.messages))
            offset = result.next_offset
        assert [record.queue_offset for record in found] == [
            number for number in range(8) if number not in damaged
        ]


def test_damage_over_the_end_of_a_file_does_not_hide_the_next_file() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    first = store.append(draft(bytes(2000)))
    store.append(draft(b"later" + bytes(2000)))
    overwrite(files, log_path(), first.end, b"\xff" * 8)  # the BLANK
    again = store_on(files.crashed())
    assert [len(body) for body in bodies_of(again)] == [2000, 2005]
    assert [(damage.start, damage.end) for damage in again.damage] == [(first.end, 4096)]


def test_an_unused_file_behind_the_end_is_removed() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 3)
    files.open(log_path(4096), create=True).truncate(4096)  # as Apache makes it ahead of its need
    crashed = files.crashed()
    again = store_on(crashed)
    assert bodies_of(again) == sent
    assert crashed.list(f"{ROOT}/commitlog") == [f"{0:020d}"]


def test_an_empty_last_file_is_removed() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 3)
    files.open(log_path(4096), create=True)
    assert bodies_of(store_on(files.crashed())) == sent


def test_a_missing_file_in_the_middle_is_an_error_that_names_it() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 100)
    store.close()
    files.remove(log_path(4096))
    with pytest.raises(Corrupt, match="00000000000000004096 is missing"):
        store_on(files)


def test_a_log_that_is_none_is_not_touched() -> None:
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/commitlog")
    files.open(log_path(), create=True).pwrite(b"somebody else's data".ljust(4096, b"."), 0)
    with pytest.raises(Corrupt, match="nothing was changed"):
        store_on(files)
    assert files.read(log_path()).startswith(b"somebody else's data.")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("what", ["consumequeue", "consumequeue/T", "consumequeue/T/1"])
def test_consume_queues_deleted_by_hand_are_built_again(what: str, is_clean: bool) -> None:
    files = SimulatedFiles()
    store = store_on(files, clock=(clock := SimulatedClock()))
    sent = {key: fill(store, 60, topic=key[0], queue_id=key[1]) for key in (("T", 0), ("T", 1), ("U", 0))}
    clock.advance(30)  # a checkpoint vouches for all of them
    assert read_checkpoint(files, f"{ROOT}/checkpoint").queues == 3
    if is_clean:
        store.close()
    files = files.crashed()
    files.remove_folder(f"{ROOT}/{what}")
    again = store_on(files)
    assert {key: bodies_of(again, *key) for key in sent} == sent
    assert {
        key: again.append(draft(topic=key[0], queue_id=key[1])).queue_offset for key in sent
    } == dict.fromkeys(sent, 60)


def test_only_what_the_checkpoint_does_not_vouch_for_is_looked_at_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 200)
    clock.advance(30)
    fill(store, 7, start=200)
    again = store_on(files.crashed())
    assert "7 records looked at again" in caplog.text
    assert len(bodies_of(again)) == 207


def test_a_checkpoint_is_written_after_what_it_vouches_for() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 20)
    fill(store, 20, topic="U")
    order: list[str] = []
    files.before = lambda operation, path: order.append(f"{operation} {path.removeprefix(ROOT)}")
    clock.advance(30)
    written = order.index("pwrite /checkpoint")
    must = [
        "sync /commitlog/00000000000000000000",
        "sync /consumequeue/T/0/00000000000000000000",
        "sync /consumequeue/U/0/00000000000000000000",
        "sync_folder /consumequeue/T/0",
        "sync_folder /consumequeue/T",
        "sync_folder /consumequeue",
    ]
    assert [step for step in must if step not in order[:written]] == []
    checkpoint = read_checkpoint(files, f"{ROOT}/checkpoint")
    assert (checkpoint.end, checkpoint.queues) == (store.wrote, 2)


def test_queues_that_were_built_again_are_vouched_for_anew_before_anything_is_served() -> None:
    """The former checkpoint vouches for entries that are being replaced: a power cut would make it a lie."""
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, checkpoint_least_bytes=1)
    sent = {queue_id: fill(store, 45, queue_id=queue_id) for queue_id in (0, 1, 2)}
    clock.advance(2.0)
    vouched_for = read_checkpoint(files, f"{ROOT}/checkpoint").end
    assert vouched_for == store.wrote
    sent[0] += fill(store, 1, start=45)
    overwrite(files, queue_path("T", 0), 40 * 20, bytes(6 * 20))  # so that entries are missing
    crashed = files.crashed()
    again = store_on(crashed)
    assert read_checkpoint(crashed, f"{ROOT}/checkpoint").end == again.wrote > vouched_for
    for seed in range(20):
        left = store_on(crashed.power_cut(Chance(seed)))
        assert {queue_id: bodies_of(left, "T", queue_id) for queue_id in sent} == sent


def test_a_stale_checkpoint_is_not_believed() -> None:
    """Somebody else wrote the folder since: no record of ours ends at the mark."""
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30)
    store.close()
    checkpoint = files.read(f"{ROOT}/checkpoint")
    files = SimulatedFiles()
    store = store_on(files)
    sent = [b"other %d" % number for number in range(50)]
    for body in sent:
        store.append(draft(body, topic="V"))
    for is_clean in (False, True):
        if is_clean:
            store.close()
        disk = files.crashed()
        disk.open(f"{ROOT}/checkpoint", create=True).pwrite(checkpoint, 0)
        assert bodies_of(store_on(disk), "V") == sent


def test_queues_that_point_past_the_log_are_cut_to_it() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 20)
    store.close()
    older = files.crashed()
    store = store_on(files)
    fill(store, 80, start=20)
    store.close()
    for base in older.list(f"{ROOT}/consumequeue/T/0"):
        older.remove(f"{ROOT}/consumequeue/T/0/{base}")
    for base in files.list(f"{ROOT}/consumequeue/T/0"):  # newer queues with an older log
        path = f"{ROOT}/consumequeue/T/0/{base}"
        older.open(path, create=True).pwrite(files.read(path), 0)
    older.remove(f"{ROOT}/checkpoint")
    again = store_on(older)
    assert bodies_of(again) == sent
    assert again.append(draft()).queue_offset == 20


def test_an_old_queue_whose_records_are_all_gone_keeps_counting() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30, topic="old")
    fill(store, 200, topic="new")
    store.close()
    files.remove(log_path(0))
    files.remove(log_path(4096))
    store = store_on(files)
    assert (store.min_offset("old", 0), store.max_offset("old", 0)) == (30, 30)
    assert 0 < store.min_offset("new", 0) < 200
    assert store.read("new", 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
    assert read_all(store, "new")[-1].queue_offset == 199
    assert store.append(draft(topic="old")).queue_offset == 30


def test_a_rebuilt_queue_begins_with_the_offset_of_its_first_record() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 100)
    store.close()
    files.remove(log_path(0))
    first = records.decode(files.read(log_path(4096))).queue_offset
    files.remove_folder(f"{ROOT}/consumequeue")
    store = store_on(files)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (first, 100)
    assert [record.queue_offset for record in read_all(store)] == list(range(first, 100))
    filler = files.read(queue_path())[:20]
    assert filler.hex() == "00000000000000007fffffff0000000000000000"  # store-format.md, appendix A
    store.close()
    assert store_on(files).min_offset("T", 0) == first


# Folders as an Apache broker leaves them.


def apache_folder(*, clean: bool, with_queue: bool = True, queue_first: int = 0) -> SimulatedFiles:
    """Records without the CRC property, a BLANK, zeros; entries as Apache writes them; no mark of ours."""
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/commitlog")
    log, entries, number = bytearray(), [], queue_first
    while len(log) < 3 * 4096:
        record = records.encode(
            *(b"T", 0, 0, number, len(log), 0, 1_700_000_000_000, BORN, 1_700_000_000_000 + number, HERE),
            *(0, 0, b"apache %d" % number + bytes(100), b"TAGS\x01TagA"),
        )
        left = 4096 - len(log) % 4096
        if len(record) + 8 > left:
            log += records.blank(left).ljust(left, b"\0")
            continue
        if len(log) >= 2 * 4096 + 1000:
            break
        entries.append(ENTRY.pack(len(log), len(record), 2598919))
        log += record
        number += 1
    for base in range(0, len(log), 4096):
        files.open(log_path(base), create=True).pwrite(bytes(log[base : base + 4096]).ljust(4096, b"\0"), 0)
    if with_queue:
        files.make_folders(f"{ROOT}/consumequeue/T/0")
        data = ENTRY.pack(0, 0x7FFFFFFF, 0) * queue_first + b"".join(entries)
        for base in range(0, len(data), 1000):
            file = files.open(queue_path(base=base), create=True)
            file.pwrite(data[base : base + 1000].ljust(1000, b"\0"), 0)
    times = b"".join((1_700_000_000_000 + number - 1).to_bytes(8, "big") for _ in range(2))
    files.open(f"{ROOT}/checkpoint", create=True).pwrite(times.ljust(4096, b"\0"), 0)
    if not clean:
        files.open(f"{ROOT}/abort", create=True)
    return files


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("with_queue", [True, False])
@pytest.mark.parametrize("queue_first", [0, 7])
def test_a_folder_of_an_apache_broker_opens(clean: bool, with_queue: bool, queue_first: int) -> None:
    files = apache_folder(clean=clean, with_queue=with_queue, queue_first=queue_first)
    store = store_on(files)
    found = read_all(store)
    assert len(found) > 30
    assert [record.queue_offset for record in found] == list(range(queue_first, queue_first + len(found)))
    assert store.damage == []
    assert store.min_offset("T", 0) == queue_first
    assert store.append(draft(b"ours")).queue_offset == queue_first + len(found)
    store.close()
    again = store_on(files)
    assert bodies_of(again)[-1] == b"ours"
    assert len(read_all(again)) == len(found) + 1


def test_records_an_apache_broker_did_not_dispatch_are_dispatched_even_after_a_clean_stop() -> None:
    files = apache_folder(clean=True)
    whole = len(read_all(store_on(files.crashed())))
    entries = files.open(queue_path())
    entries.pwrite(bytes(1000 - 20 * 20), 20 * 20)
    for name in files.list(f"{ROOT}/consumequeue/T/0")[1:]:
        files.remove(f"{ROOT}/consumequeue/T/0/{name}")
    assert len(read_all(store_on(files))) == whole


def test_without_times_in_the_checkpoint_the_whole_log_is_walked() -> None:
    files = apache_folder(clean=False)
    whole = len(read_all(store_on(files.crashed())))
    files.remove(f"{ROOT}/checkpoint")
    assert len(read_all(store_on(files))) == whole


def test_a_damaged_first_record_of_a_queue_has_its_neighbour_stand_for_it() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    first = store.append(draft(b"first"))
    fill(store, 3)
    overwrite(files, log_path(), first.physical_offset + 88, b"?????")
    again = store_on(files.crashed())
    entries = again.entries("T", 0, 0, 2)
    assert (
        entries[:20] == entries[20:]
    )  # an entry that points nowhere hides the whole file from Apache's readers
    assert len(read_all(again)) == 3


@pytest.mark.parametrize("torn", ["missing", "without length"])
def test_of_several_new_files_of_a_queue_a_power_cut_may_keep_the_last(torn: str) -> None:
    files = SimulatedFiles()
    store = store_on(files, consume_queue_segment_entries=10)
    bodies = fill(store, 35)
    left = files.crashed()
    second = queue_path(base=200)
    if torn == "missing":
        left.remove(second)
    else:
        left.open(second).truncate(0)
    again = store_on(left, consume_queue_segment_entries=10)
    assert bodies_of(again) == bodies
    again.close()
    assert bodies_of(store_on(left, consume_queue_segment_entries=10)) == bodies


def test_what_a_failed_sync_did_not_write_is_written_by_the_next_process() -> None:
    """The system takes such pages for clean: to sync what was read would not bring it to the disk."""
    files = SimulatedFiles()
    store = store_on(files, flush="SYNC_FLUSH")
    fill(store, 3)
    files.fail("sync")
    store.append(draft(b"in the cache only"))
    assert store.failed is not None
    same_machine = files.crashed()
    found = bodies_of(store_on(same_machine, flush="SYNC_FLUSH"))
    assert found[-1] == b"in the cache only"
    for seed in range(20):
        after = store_on(same_machine.power_cut(Chance(seed)), flush="SYNC_FLUSH")
        assert bodies_of(after) == found, seed


def test_a_log_that_is_not_there_does_not_pass_for_an_empty_one() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30)
    store.close()
    before = files.crashed()
    files.rename(f"{ROOT}/commitlog", f"{ROOT}/elsewhere")
    for _ in range(2):  # a second try is no better than the first
        with pytest.raises(Corrupt, match=f"no log in {ROOT}/commitlog, and .* is its disk mounted"):
            store_on(files)
    files.remove(f"{ROOT}/checkpoint")
    with pytest.raises(Corrupt, match="there are consume queues"):
        store_on(files)
    files.rename(f"{ROOT}/elsewhere", f"{ROOT}/commitlog")
    assert bodies_of(store_on(files)) == bodies_of(store_on(before))


def test_a_log_whose_newest_file_is_gone_is_told() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 60)
    store.close()
    newest = files.list(f"{ROOT}/commitlog")[-1]
    files.rename(f"{ROOT}/commitlog/{newest}", f"{ROOT}/{newest}")
    with pytest.raises(Corrupt, match=f"ends at {int(newest)}, and the checkpoint says that it went up to"):
        store_on(files)
    files.rename(f"{ROOT}/{newest}", f"{ROOT}/commitlog/{newest}")
    assert len(bodies_of(store_on(files))) == 60


def test_without_its_log_a_folder_can_be_begun_anew_when_that_is_meant() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    store.close()
    for name in ("commitlog", "checkpoint", "consumequeue"):
        files.rename(f"{ROOT}/{name}", f"{ROOT}/{name}.old")
    again = store_on(files)
    assert fill(again, 1)
    assert len(bodies_of(again)) == 1


def test_what_is_stored_after_a_start_was_not_recovered() -> None:
    files = SimulatedFiles()
    before = store_on(files)
    for number in range(3):
        before.append(draft(b"%d" % number))
    store = store_on(files.crashed())
    for number in range(3, 8):
        store.append(draft(b"%d" % number))
    assert [record.body for record in store.recovered()] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_vouched_end_that_has_rotten_is_told_counted_and_kept(
    is_closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    end, last = store.wrote, store.wrote - 40
    store.close()
    if not is_closed:
        files.open(f"{ROOT}/abort", create=True)
    files.open(log_path()).pwrite(b"####", last)
    damaged = files.read(log_path())
    again = store_on(files)
    (damage,) = again.damage
    assert (damage.end, again.wrote, again.has_lost_its_end) == (end, damage.start, True)
    assert len(bodies_of(again)) == 2
    assert "are damaged" in caplog.text
    (moment,) = files.list(f"{ROOT}/quarantine")
    kept = files.read(f"{ROOT}/quarantine/{moment}/commitlog-{damage.start}-{end}")
    assert kept == damaged[damage.start : end]
    again.close()
    assert store_on(files).damage == []


def with_a_rotten_end() -> SimulatedFiles:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 20)
    end, half = store.wrote, store.wrote // 2
    store.close()
    files.open(log_path()).pwrite(b"#" * (end - half), half)
    return files


@pytest.mark.parametrize("when", ["truncate", "pwrite", "sync"])
def test_a_copy_of_a_lost_end_that_has_no_room_leaves_nothing(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = with_a_rotten_end()

    def full(operation: str, path: str) -> None:
        if operation == when and "/commitlog-" in path:
            raise OSError(errno.ENOSPC, "full")

    files.before = full
    assert store_on(files).has_lost_its_end
    assert files.list(f"{ROOT}/quarantine") == []
    assert "is not kept, for want of room" in caplog.text


def test_a_lost_end_that_will_not_fit_is_not_copied(caplog: pytest.LogCaptureFixture) -> None:
    files = with_a_rotten_end()
    touched = []
    files.before = lambda operation, path: touched.append(path)
    files.space = lambda path: DiskSpace(1 << 40, (1 << 40) - 100, 100)  # type: ignore[method-assign]
    assert store_on(files).has_lost_its_end
    assert not [path for path in touched if "quarantine" in path]
    assert "is not kept, for want of room" in caplog.text


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_record_whose_end_and_checksum_are_overwritten_is_not_one_without(is_closed: bool) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 5)
    if is_closed:
        store.close()
    files = files.crashed()
    end_of_third = files.read(log_path()).index(b"T-0-3") - 83
    at = files.read(log_path()).rindex(b"TagA", 0, end_of_third)
    files.open(log_path()).pwrite(b"X" * (end_of_third + 20 - at), at)  # and into the fourth
    again = store_on(files)
    assert bodies_of(again) == [b"T-0-0", b"T-0-1", b"T-0-4"]
    report = check(again.config, files, is_told=True)
    assert [finding.what for finding in report.errors if "overwritten" in finding.what]


def test_a_record_of_another_broker_stays_though_the_one_after_it_is_damaged() -> None:
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/commitlog")
    log, places = b"", []
    for number in range(5):
        places.append(len(log))
        log += records.encode(
            *(b"T", 0, 0, number, len(log), 0, 1_700_000_000_000, BORN, 1_700_000_000_000, HERE, 0, 0),
            *(b"%d" % number, b"TAGS\x01a\x02"),
        )
    files.open(log_path(), create=True).pwrite(log.ljust(4096, b"\0"), 0)
    files.open(log_path()).pwrite(b"X" * 40, places[3])
    assert bodies_of(store_on(files)) == [b"0", b"1", b"2", b"4"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_that_builds_queues_again_keeps_the_times_of_delayed_messages(is_clean: bool) -> None:
    files, clock = SimulatedFiles(), SimulatedClock(1_700_000_000_000)
    store = store_on(files, clock=clock, delay_levels_ms=(3_600_000,))
    due_ms = [clock.now_ms() + 3_600_000 + number for number in range(120)]  # in files of 50
    for each in due_ms:
        store.append(draft(b"later", SCHEDULE_TOPIC, 0, b"DELAY\x011\x02", tags_code=each))
    store.close()
    if not is_clean:
        files.open(f"{ROOT}/abort", create=True)
    overwrite(files, f"{ROOT}/checkpoint", 72, b"#")
    files.remove(queue_path(SCHEDULE_TOPIC, base=2000))  # those are built again from what the log knows
    again = store_on(files, clock=clock, delay_levels_ms=(1000,))
    entries = again.entries(SCHEDULE_TOPIC, 0, 0, 120)
    assert [due for _, _, due in ENTRY.iter_unpack(entries)] == due_ms[:100] + [clock.now_ms() + 1000] * 20
