"""Topics that were deleted stay deleted, and can be made again."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy
from kourou.store.deleted import read_deleted
from tests.unit.store.folder import ROOT, bodies_of, draft, fill, log_path, store_on
from tests.unit.store.two_stores import Two


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("are_queues_rebuilt", [True, False])
def test_a_topic_made_again_has_its_new_messages_and_not_its_old_ones(
    is_clean: bool, are_queues_rebuilt: bool
) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30)
    fill(store, 5, topic="Other")
    store.delete_topic("T")
    store.append(draft(b"new", "T"))
    store.sync()
    if is_clean:
        store.close()
    else:
        files = files.crashed()
    if are_queues_rebuilt:
        files.remove_folder(f"{ROOT}/consumequeue")
    again = store_on(files)
    assert bodies_of(again, "T") == [b"new"]
    assert len(bodies_of(again, "Other")) == 5


def test_a_deleted_topic_does_not_come_back_when_its_queues_are_built_again() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30)
    fill(store, 5, topic="Other")
    store.delete_topic("T")
    store.close()
    files.remove_folder(f"{ROOT}/consumequeue")
    assert "T" not in store_on(files).topics()


def test_a_crash_between_the_note_and_the_removal_leaves_nothing_behind() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30)
    store.sync()
    store._queues.deleted.note("T", store.wrote, 0)
    again = store_on(files.crashed())
    assert "T" not in again.topics()
    again.append(draft(b"new", "T"))
    assert bodies_of(again, "T") == [b"new"]


def test_a_full_disk_refuses_a_deletion_and_nothing_is_deleted() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    files.fail("pwrite", error=errno.ENOSPC)
    with pytest.raises(Busy, match="topic T is not deleted"):
        store.delete_topic("T")
    assert len(bodies_of(store, "T")) == 3


def test_notes_of_what_the_log_has_lost_are_dropped() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    deleted = store._queues.deleted
    deleted.note("A", 100, 0)
    deleted.note("B", 200, 100)
    assert deleted.topics == ["B"]
    store.close()
    files.open(f"{ROOT}/deletedtopics.json").pwrite(b"#", 0)  # damaged: the one before it counts
    again = store_on(files)._queues.deleted
    assert again.topics == ["A"]


@pytest.mark.parametrize(("old", "new"), [(b"4096", b"9096"), (b'"T"', b'"U"')])
def test_a_note_that_has_rotten_hides_nobodys_messages(old: bytes, new: bytes) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3, topic="U")
    store._queues.deleted.note("S", 1, 0)
    store._queues.deleted.note("T", 4096, 0)
    store.close()
    path = f"{ROOT}/deletedtopics.json"
    files.open(path).pwrite(new, files.read(path).index(old))  # still good JSON
    again = store_on(files)
    assert again._queues.deleted.topics == ["S"]
    assert len(bodies_of(again, "U")) == 3


def test_a_note_without_a_checksum_is_read() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    store.close()
    files.write_atomically(f"{ROOT}/deletedtopics.json", b'{"S":100}')
    assert store_on(files)._queues.deleted.end_of("S") == 100


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_topic_made_again_where_the_log_has_lost_its_end_keeps_its_messages(is_clean: bool) -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    fill(store, 2, topic="Other")
    store.delete_topic("T")
    place = store.wrote
    store.close()
    files.open(log_path()).pwrite(b"####", place - 40)
    again = store_on(files)
    assert again.wrote < place
    again.append(draft(b"new"))
    again.sync()
    if is_clean:
        again.close()
    else:
        files = files.crashed()
    assert bodies_of(store_on(files)) == [b"new"]


def test_a_topic_made_again_after_a_power_cut_keeps_its_messages() -> None:
    cuts = 0
    for seed in range(40):
        files = SimulatedFiles()
        store = store_on(files)
        fill(store, 3)
        store.close()
        store = store_on(files)
        fill(store, 20, topic="Other")
        store.delete_topic("T")
        left = files.power_cut(Chance(seed))
        again = store_on(left)
        cuts += again.wrote < store.wrote
        again.append(draft(b"new"))
        again.close()
        assert bodies_of(store_on(left)) == [b"new"], seed
    assert cuts > 10


def test_a_log_that_is_gone_leaves_no_note() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    store._queues.deleted.note("T", 4096, 0)
    left = files.crashed()
    again = store_on(left)
    assert again._queues.deleted.topics == []
    again.append(draft(b"new"))
    again.close()
    assert bodies_of(store_on(left)) == [b"new"]


def test_a_note_is_lowered_in_both_generations() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 30, topic="Other")
    deleted = store._queues.deleted
    for name in ("S", "T", "U"):
        deleted.note(name, 4000, 0)
    deleted.note("Q", 100, 0)
    deleted.cut(1000)
    path = f"{ROOT}/deletedtopics.json"
    lowered = {"S": 1000, "T": 1000, "U": 1000, "Q": 100}
    assert read_deleted(files.read(path)) == read_deleted(files.read(f"{path}.bak")) == lowered
    before = files.read(path)
    deleted.cut(1000)
    assert files.read(path) == before


def test_a_log_does_not_go_on_when_a_note_cannot_be_lowered() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    store._queues.deleted.note("T", 4000, 0)
    left = files.crashed()
    left.before = _no_room_for_notes
    with pytest.raises(OSError, match="full"):
        store_on(left)
    left.before = None
    again = store_on(left)
    again.append(draft(b"new"))
    again.close()
    assert bodies_of(store_on(left)) == [b"new"]


def _no_room_for_notes(operation: str, path: str) -> None:
    if operation == "sync" and "deletedtopics" in path:
        raise OSError(errno.ENOSPC, "full")


def test_a_slave_that_takes_back_the_beginning_of_a_record_takes_its_note_back_too() -> None:
    two = Two()
    for number in range(5):
        two.send(b"%d" % number)
    two.slave.take_raw(two.master.raw(0, two.master.wrote - 20))
    two.slave.delete_topic("orders")
    two.slave.leave_log()
    two.slave.refuse_appends(None)
    assert two.slave.wrote < two.master.wrote - 20
    two.slave.append(draft(b"new", "orders"))
    two.slave.close()
    two.open()
    assert bodies_of(two.slave, "orders") == [b"new"]
