"""What a store holds, record by record: all of it, or what was asked for; damage does not stop it."""

from __future__ import annotations

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import StoreForeign
from kourou.store.config import StoreConfig
from kourou.store.dump import Wanted, dump
from tests.unit.store.folder import ROOT, log_path, overwrite
from tests.unit.store.test_check import closed_store, content, place_of


def dumped(files: SimulatedFiles, **wanted: object) -> list[int]:
    """The numbers of the messages that were shown."""
    before = content(files)
    found = [int(each.body[5:]) for each in dump(StoreConfig(root=ROOT), files, Wanted(**wanted))]  # type: ignore[arg-type]
    assert content(files) == before
    return found


def test_all_records_come_in_the_order_of_the_log() -> None:
    assert dumped(closed_store()) == list(range(40))


def test_only_what_is_wanted_comes() -> None:
    files = closed_store()
    assert dumped(files, queue_id=1) == list(range(1, 40, 2))
    assert dumped(files, topic="T", queue_id=0) == list(range(0, 40, 2))
    assert dumped(files, topic="other") == []
    assert dumped(files, key="order-7") == [7]
    assert dumped(files, key=f"7F00000100002A9F{11:016X}") == [11]
    assert dumped(files, key="order") == []


def test_a_part_of_the_log_can_be_asked_for() -> None:
    files = closed_store()
    third, sixth = place_of(files, 3)[0], place_of(files, 6)[0]
    assert dumped(files, start=third, end=sixth) == [3, 4, 5]
    assert dumped(files, start=third + 1, end=sixth) == [4, 5]  # inside a record: from the next one on


def test_damage_and_missing_files_are_passed_over() -> None:
    files = closed_store(80)
    overwrite(files, log_path(), place_of(files, 2)[0] + 60, b"garbage")
    there = [number for number in range(80) if not 4096 <= place_of(files, number)[0] < 8192]
    files.remove(log_path(4096))
    assert dumped(files) == [number for number in there if number != 2]


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(StoreForeign, match="not a folder"):
        list(dump(StoreConfig(root="/nowhere"), SimulatedFiles(), Wanted()))
