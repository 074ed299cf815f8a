"""Topics that were deleted stay deleted, and can be made again."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy
from tests.unit.store.folder import ROOT, bodies_of, draft, fill, store_on


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
    deleted = store._queues.deleted
    deleted.note("A", 100, 0)
    deleted.note("B", 5000, 100)
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
    files.make_folders(ROOT)
    files.write_atomically(f"{ROOT}/deletedtopics.json", b'{"T":4096}')
    assert store_on(files)._queues.deleted.end_of("T") == 4096
