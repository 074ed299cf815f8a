"""How far each group has come in each queue."""

from __future__ import annotations

import errno

import pytest

from kourou.broker.offsets import CommittedOffsets
from kourou.broker.state_file import StateFile
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy
from tests.unit.store.folder import Later


def offsets_on(files: SimulatedFiles) -> CommittedOffsets:
    files.make_folders("config")
    offsets = CommittedOffsets(StateFile(files, "config/consumerOffset.json"))
    offsets.load()
    return offsets


def test_a_group_that_never_committed_has_no_offset() -> None:
    offsets = offsets_on(SimulatedFiles())
    assert offsets.get("billing", "orders", 0) is None
    offsets.commit("billing", "orders", 0, 5)
    assert offsets.get("billing", "orders", 1) is None
    assert offsets.get("others", "orders", 0) is None


def test_a_commit_overwrites_also_backwards() -> None:
    offsets = offsets_on(SimulatedFiles())
    offsets.commit("billing", "orders", 0, 5)
    offsets.commit("billing", "orders", 0, 3)
    assert offsets.get("billing", "orders", 0) == 3


def test_saved_offsets_are_there_after_a_restart() -> None:
    files = SimulatedFiles()
    offsets = offsets_on(files)
    offsets.commit("billing", "orders", 7, 5)
    offsets.save(1_700_000_000_000)
    assert offsets_on(files).get("billing", "orders", 7) == 5


def test_nothing_is_written_when_nothing_was_committed() -> None:
    files = SimulatedFiles()
    offsets = offsets_on(files)
    offsets.save(0)
    assert not files.exists("config/consumerOffset.json")
    offsets.commit("billing", "orders", 0, 5)
    offsets.save(0)
    files.remove("config/consumerOffset.json")
    offsets.commit("billing", "orders", 0, 5)
    offsets.save(0)
    assert not files.exists("config/consumerOffset.json")


def test_a_save_in_the_background_that_failed_is_tried_again() -> None:
    files, thread = SimulatedFiles(), Later()
    heard: list[BaseException] = []
    offsets = offsets_on(files)
    offsets.commit("billing", "orders", 0, 5)
    files.fail("sync", error=errno.ENOSPC)
    offsets.save_later(0, thread.background, heard.append)
    thread.run()
    assert [type(error) for error in heard] == [Busy]
    offsets.save_later(0, thread.background, heard.append)
    offsets.commit("billing", "orders", 0, 6)  # after what is being saved
    thread.run()
    assert offsets_on(files).get("billing", "orders", 0) == 5
    offsets.save(0)
    assert offsets_on(files).get("billing", "orders", 0) == 6
    assert len(heard) == 1


def test_a_save_that_failed_is_tried_again() -> None:
    files = SimulatedFiles()
    offsets = offsets_on(files)
    offsets.commit("billing", "orders", 0, 5)
    files.fail("sync", error=errno.ENOSPC)
    with pytest.raises(Busy, match="No space"):
        offsets.save(0)
    offsets.save(0)
    assert offsets_on(files).get("billing", "orders", 0) == 5


def test_who_reads_what_is_told_for_one_and_for_all_at_once() -> None:
    offsets = offsets_on(SimulatedFiles())
    for group, topic in (("billing", "orders"), ("billing", "bills"), ("audit", "orders")):
        offsets.commit(group, topic, 0, 1)
    every = offsets.topics_by_group()
    assert every == {"billing": ["orders", "bills"], "audit": ["orders"]}
    assert all(topics == offsets.topics_of(group) for group, topics in every.items())
    assert offsets.groups_of("orders") == ["billing", "audit"]
