"""A topic is deleted while messages of it still wait for the disk."""

from __future__ import annotations

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.check import check
from tests.unit.store.folder import ROOT, Later, config, fill, read_all, store_on


def test_messages_that_wait_for_the_disk_do_not_bring_a_deleted_topic_back() -> None:
    files, later = SimulatedFiles(), Later()
    store = store_on(files, background=later.background, flush="SYNC_FLUSH")
    fill(store, 3, topic="T")
    kept = fill(store, 2, topic="U")
    assert store.max_offset("T", 0) == 0, "already visible: the test proves nothing"
    store.delete_topic("T")
    later.run()
    assert store.max_offset("T", 0) == 0
    assert [record.body for record in read_all(store, "U")] == kept
    assert not files.exists(f"{ROOT}/consumequeue/T")
    store.close()
    later.run()
    assert check(config(), files).errors == []
    again = store_on(files)
    assert (again.max_offset("T", 0), again.max_offset("U", 0)) == (0, 2)


def test_entries_of_a_deleted_topic_are_not_counted_any_more() -> None:
    """Else a start finds fewer entries than the checkpoint says there are, and builds all queues again."""
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 5, topic="T")
    fill(store, 2, topic="U")
    store.delete_topic("T")
    assert store._dispatcher.entries == 2
    store.close()
    again = store_on(files)
    assert again._dispatcher.entries == 2
    assert again.max_offset("U", 0) == 2
