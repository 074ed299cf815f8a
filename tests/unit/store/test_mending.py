"""What rotted while nobody was there is served right, or not at all; and nothing beside it is lost."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.consume_queue import ENTRY
from kourou.store.store import Store
from tests.unit.store.folder import bodies_of, draft, fill, log_path, overwrite, queue_path, store_on


def stopped(count: int = 12) -> tuple[SimulatedFiles, list[bytes], list[tuple[int, int]]]:
    """A store that was stopped, its bodies, and where each record lies."""
    files = SimulatedFiles()
    store = store_on(files)
    bodies, places = [], []
    for number in range(count):
        bodies.append(b"message %d" % number)
        appended = store.append(draft(bodies[-1]))
        places.append((appended.physical_offset, appended.size))
        store.append(draft(b"another", queue_id=1))
    store.close()
    return files, bodies, places


def flip(files: SimulatedFiles, path: str, at: int) -> None:
    byte = files.open(path).pread(1, at)[0]
    overwrite(files, path, at, bytes((byte ^ 1,)))


@pytest.mark.parametrize("number", [0, 5, 11])
def test_a_damaged_message_is_not_served_and_all_others_are(number: int) -> None:
    files, bodies, places = stopped()
    flip(files, log_path(), places[number][0] + 90)
    store = store_on(files)
    assert bodies_of(store) == [body for body in bodies if body != bodies[number]]
    assert bodies_of(store) == [body for body in bodies if body != bodies[number]]
    assert bodies_of(store, queue_id=1) == [b"another"] * 12


def test_it_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    files, _, places = stopped()
    flip(files, log_path(), places[5][0] + 90)
    store = store_on(files)
    for _ in range(3):
        bodies_of(store)
    assert caplog.text.count("message 5 is damaged") == 1
    assert (store.rot.lost, store.rot.corrected) == (1, 0)


@pytest.mark.parametrize("number", [0, 5, 11])
@pytest.mark.parametrize("harm", ["flip", "blank", "neighbour", "tag"])
def test_a_wrong_entry_is_corrected_from_the_log(number: int, harm: str) -> None:
    files, bodies, _ = stopped()
    at = number * ENTRY.size
    if harm == "flip":
        flip(files, queue_path(), at + 7)
    elif harm == "blank":
        overwrite(files, queue_path(), at, bytes(ENTRY.size))
    elif harm == "neighbour":
        other = files.open(queue_path(queue_id=1)).pread(ENTRY.size, at)
        overwrite(files, queue_path(), at, other)
    else:
        flip(files, queue_path(), at + 19)
    before = stopped()[0].read(queue_path())
    store = store_on(files)
    assert bodies_of(store) == bodies
    assert files.read(queue_path()) == before


def test_several_lost_in_a_row_and_at_the_end_are_passed_over() -> None:
    files, bodies, places = stopped()
    for number in (3, 4, 10, 11):
        flip(files, log_path(), places[number][0] + 90)
    store = store_on(files)
    left = [body for number, body in enumerate(bodies) if number not in (3, 4, 10, 11)]
    assert bodies_of(store) == left
    assert store.max_offset("T", 0) == 12
    store.append(draft(b"new"))
    assert bodies_of(store) == [*left, b"new"]
    store.close()
    assert bodies_of(store_on(files)) == [*left, b"new"]


def test_a_queue_of_which_nothing_is_left_goes_on() -> None:
    files, _, places = stopped(2)
    for place, _ in places:
        flip(files, log_path(), place + 90)
    store = store_on(files)
    assert bodies_of(store) == []
    store.append(draft(b"new"))
    assert bodies_of(store) == [b"new"]


def test_what_this_process_wrote_is_not_looked_at() -> None:
    store = store_on(SimulatedFiles())
    fill(store, 5)
    bodies_of(store)
    assert all(queue.sure_to == 0 for queue in store._queues.on_disk())


def test_what_was_found_right_is_not_looked_at_again() -> None:
    files, bodies, places = stopped()
    store = store_on(files)
    assert bodies_of(store) == bodies
    flip(files, log_path(), places[5][0] + 90)  # it lies in memory, as far as anybody knows
    assert len(bodies_of(store)) == len(bodies)


def test_an_entry_that_cannot_be_corrected_is_not_served_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    files, bodies, _ = stopped()
    overwrite(files, queue_path(), 5 * ENTRY.size, bytes(7) + b"\x09")
    store = store_on(files)
    files.fail("pwrite", error=errno.EIO)
    assert read_once(store) == []
    assert "not served now" in caplog.text
    assert bodies_of(store) == bodies  # the disk has come to its senses


def read_once(store: Store) -> list[bytes]:
    return [bytes(each) for each in store.read("T", 0, 0).messages]


def test_a_record_that_is_asked_for_by_its_place_is_looked_at_too() -> None:
    files, _, places = stopped()
    flip(files, log_path(), places[5][0] + 90)
    store = store_on(files)
    assert store.record_at(places[5][0]) is None
    assert store.record_at(places[6][0]) is not None
