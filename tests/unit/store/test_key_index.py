"""Finding messages by key: what the index says, after whatever happened to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import StoreForeign
from kourou.protocol.record import decode
from kourou.store.checkpoint import read_checkpoint
from kourou.store.index_file import ENTRY, HEADER, IndexFile
from kourou.store.recovery import Finder
from kourou.store.store import Store
from tests.unit.store.folder import ROOT, draft, store_on

SMALL: dict[str, Any] = {"index_slots": 2000, "index_entries": 5000}


def keyed(*keys: str, unique_id: str = "") -> bytes:
    parts = [f"UNIQ_KEY\x01{unique_id}\x02"] if unique_id else []
    parts += [f"KEYS\x01{' '.join(keys)}\x02"] if keys else []
    return "".join(parts).encode()


def send(store: Store, number: int, *keys: str, topic: str = "T") -> None:
    unique_id = f"7F000001000018B4AAC2{number:08X}{number & 0xFFFF:04X}"
    store.append(draft(b"%d" % number, topic, properties=keyed(*keys, unique_id=unique_id)))


def found(store: Store, key: str, topic: str = "T", most: int = 64, **times: int) -> list[int]:
    return [int(decode(record).body) for record in store.find(topic, key, most, **times)]


def unique_id(number: int) -> str:
    return f"7F000001000018B4AAC2{number:08X}{number & 0xFFFF:04X}"


def test_messages_are_found_by_each_of_their_keys_and_by_their_unique_id() -> None:
    store = store_on(SimulatedFiles(), **SMALL)
    send(store, 1, "red", "round")
    send(store, 2, "red")
    send(store, 3, "red", topic="Other")
    assert found(store, "red") == [1, 2]
    assert found(store, "round") == [1]
    assert found(store, unique_id(2)) == [2]
    assert found(store, "red", topic="Other") == [3]
    assert found(store, "blue") == []


def test_keys_beyond_ascii_are_found() -> None:
    store = store_on(SimulatedFiles(), **SMALL)
    send(store, 1, "订单", "😀")
    assert found(store, "订单") == [1]
    assert found(store, "😀") == [1]


def test_two_keys_with_one_hash_are_told_apart() -> None:
    store = store_on(SimulatedFiles(), **SMALL)
    send(store, 1, "Aa")
    send(store, 2, "BB")  # Java gives both the same hash
    assert found(store, "Aa") == [1]
    assert found(store, "BB") == [2]


def test_the_newest_are_given_when_there_are_more_than_asked_for() -> None:
    store = store_on(SimulatedFiles(), index_matches_max=5, **SMALL)
    for number in range(20):
        send(store, number, "k")
    assert found(store, "k", most=3) == [17, 18, 19]
    assert found(store, "k", most=64) == [15, 16, 17, 18, 19]


def test_only_messages_stored_in_the_time_asked_for_are_given() -> None:
    clock = SimulatedClock()
    store = store_on(SimulatedFiles(), clock=clock, **SMALL)
    start = clock.now_ms()
    for number in range(10):
        send(store, number, "k")
        clock.advance(10)
    assert found(store, "k", begin_ms=start + 30_000, end_ms=start + 50_000) == [3, 4, 5]
    assert found(store, "k", begin_ms=start + 35_500, end_ms=start + 40_000) == [4]


def test_keys_are_put_in_by_the_clock_without_being_asked_for() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    store = store_on(files, clock=clock, **SMALL)
    send(store, 1, "k")
    assert store.last_indexed == (0, 0)
    clock.advance(0.1)
    assert store.last_indexed[0] == clock.now_ms() - 100


def test_ticks_of_one_millisecond_are_put_in_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, added = SimulatedClock(), []
    add = IndexFile.add

    def noted(self: IndexFile, hashes: list[int], places: list[int], stored_ms: int) -> None:
        added.append((len(hashes), stored_ms))
        add(self, hashes, places, stored_ms)

    monkeypatch.setattr(IndexFile, "add", noted)
    store = store_on(SimulatedFiles(), clock=clock, **SMALL)
    first = clock.now_ms()
    for number in range(5):
        send(store, number)
    clock.advance(0.001)
    for number in range(5, 8):
        send(store, number)
    clock.advance(0.1)
    assert added == [(5, first), (3, first + 1)]
    assert [found(store, unique_id(number)) for number in range(8)] == [[number] for number in range(8)]


def test_a_full_file_is_followed_by_the_next() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    store = store_on(files, clock=clock, index_slots=7, index_entries=10)
    for number in range(30):
        send(store, number, "k")
        clock.advance(0.2)
    names = files.list(f"{ROOT}/index")
    assert len(names) == 7  # 60 keys, 9 to a file
    assert names == sorted(names)
    assert found(store, "k") == list(range(30))
    assert [found(store, unique_id(number)) for number in range(30)] == [[number] for number in range(30)]
    store.close()
    again = store_on(files, clock=clock, index_slots=7, index_entries=10)
    assert found(again, "k") == list(range(30))


def test_the_file_is_sparse_and_of_full_length() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    before = files.used()
    send(store, 1, "k")
    assert found(store, "k") == [1]
    store.close()
    (name,) = files.list(f"{ROOT}/index")
    assert files.open(f"{ROOT}/index/{name}").size() == 420_000_040
    assert files.used() - before < 200_000


def after_clean_stop(files: SimulatedFiles, store: Store) -> SimulatedFiles:
    store.close()
    return files


def after_kill(files: SimulatedFiles, store: Store) -> SimulatedFiles:
    return files.crashed()


def without_index(files: SimulatedFiles, store: Store) -> SimulatedFiles:
    store.close()
    files.remove_folder(f"{ROOT}/index")
    return files


def without_checkpoint_after_kill(files: SimulatedFiles, store: Store) -> SimulatedFiles:
    files = files.crashed()
    if files.exists(f"{ROOT}/checkpoint"):
        files.remove(f"{ROOT}/checkpoint")
    return files


@pytest.mark.parametrize("end", [after_clean_stop, after_kill, without_index, without_checkpoint_after_kill])
def test_every_key_is_found_after(end: Callable[[SimulatedFiles, Store], SimulatedFiles]) -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    store = store_on(files, clock=clock, index_slots=50, index_entries=40)
    for number in range(50):
        send(store, number, f"k{number % 5}")
        clock.advance(0.5)
    files = end(files, store)
    clock = SimulatedClock(clock.now_ms())
    store = store_on(files, clock=clock, index_slots=50, index_entries=40)
    clock.advance(1)
    assert [found(store, unique_id(number)) for number in range(50)] == [[number] for number in range(50)]
    assert found(store, "k3") == list(range(3, 50, 5))
    send(store, 50, "k3")
    assert found(store, "k3") == [*range(3, 50, 5), 50]


@pytest.mark.parametrize("seed", range(40))
def test_every_key_of_what_is_left_is_found_after_a_power_cut(seed: int) -> None:
    chance, clock = Chance(seed), SimulatedClock()
    files = SimulatedFiles()
    store = store_on(files, clock=clock, index_slots=3000, index_entries=200, checkpoint_least_bytes=1)
    number = 0
    for _ in range(chance.randrange(1, 60)):
        for _ in range(chance.randrange(1, 8)):
            send(store, number, f"k{number % 3}")
            number += 1
        clock.advance(chance.choice((0.02, 0.2, 1.2)))
    for _ in range(3):  # cut, started again, and cut again
        files = files.power_cut(chance)
        clock = SimulatedClock(clock.now_ms())
        store = store_on(files, clock=clock, index_slots=3000, index_entries=200, checkpoint_least_bytes=1)
        clock.advance(1)
        _all_are_found(store)
        send(store, number, f"k{number % 3}")
        number += 1
        clock.advance(chance.choice((0.02, 1.2)))
        _all_are_found(store)


def _all_are_found(store: Store) -> None:
    there = []
    offset = store.min_offset("T", 0)
    while offset < store.max_offset("T", 0):
        result = store.read("T", 0, offset, 1)
        there += [int(decode(data).body) for data in result.messages]
        offset = result.next_offset
    for number in set(there):
        assert found(store, unique_id(number)) == [number]
    for key in range(3):
        assert found(store, f"k{key}") == [number for number in sorted(set(there)) if number % 3 == key][-64:]


def test_a_crash_between_two_writes_of_the_index_loses_no_key() -> None:
    class Crash(Exception):
        pass

    for stop_at in range(1, 12):
        clock, files = SimulatedClock(), SimulatedFiles()
        store = store_on(files, clock=clock, checkpoint_least_bytes=1, **SMALL)
        for number in range(30):
            send(store, number, "k")
        clock.advance(1.5)  # saved
        for number in range(30, 60):
            send(store, number, "k")
        clock.advance(0.2)
        left = stop_at

        def count(operation: str, path: str) -> None:
            nonlocal left
            if "/index/" in path and operation in ("pwrite", "sync"):
                left -= 1
                if left < 0:
                    raise Crash

        files.before = count
        with contextlib.suppress(Crash):
            clock.advance(2)
        files.before = None
        disk = files.crashed()
        clock = SimulatedClock(clock.now_ms())
        again = store_on(disk, clock=clock, **SMALL)
        clock.advance(1)
        assert found(again, "k") == list(range(60)), stop_at
        assert [found(again, unique_id(number)) for number in range(60)] == [[n] for n in range(60)], stop_at


def test_a_crash_does_not_make_the_whole_log_be_read_again() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    store = store_on(files, clock=clock, checkpoint_least_bytes=1, **SMALL)
    for number in range(100):
        send(store, number, "k")
    clock.advance(3)
    mark = read_checkpoint(files, f"{ROOT}/checkpoint").index
    assert mark is not None
    assert mark.end == store.dispatched
    assert mark.next_entry == 201


def test_what_is_sent_while_the_index_catches_up_is_no_damage_to_be_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    before = store_on(files, clock=clock, **SMALL)
    for number in range(400):
        send(before, number, "k")
    store = store_on(files.crashed(), clock=clock, **SMALL)

    def search(finder: Finder, start: int) -> Iterator[int]:
        raise AssertionError(f"all of the log is searched from {start} on")

    monkeypatch.setattr(Finder, "candidates", search)
    for number in range(400, 420):
        send(store, number, "k")
        clock.advance(0.001)
    clock.advance(5.0)
    for number in (0, 399, 400, 419):
        assert found(store, unique_id(number)) == [number]


def test_a_file_that_goes_while_it_is_read_does_not_hide_the_keys_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kourou.store.key_index.RECORDS_A_TURN", 5)
    files, clock = SimulatedFiles(), SimulatedClock()
    before = store_on(files, clock=clock, **SMALL)
    for number in range(200):
        send(before, number, "k")
    store = store_on(files.crashed(), clock=clock, **SMALL)
    store._index._turn()
    while store.start <= store._index.end:  # what retention does
        store._log.segments.forget(store._log.segments.bases[0])
    clock.advance(5.0)
    assert found(store, unique_id(199)) == [199]
    data = store.record_at(store.places_of(store.start, store.wrote)[0][0])
    assert data is not None
    first = int(decode(data).body)
    assert first > 5, "those that were put in are gone"
    assert found(store, unique_id(first)) == [first]


def test_a_full_disk_delays_the_index_and_nothing_else() -> None:
    clock, files = SimulatedClock(), SimulatedFiles()
    store = store_on(files, clock=clock, **SMALL)
    send(store, 1, "k")
    clock.advance(0.2)
    send(store, 2, "k")
    files.fail("pwrite", error=28, times=1)
    clock.advance(0.2)
    assert store.failed is None
    send(store, 3, "k")
    clock.advance(2)
    assert found(store, "k") == [1, 2, 3]


def test_a_file_of_another_shape_is_refused_with_the_settings_to_blame() -> None:
    files = SimulatedFiles()
    store = store_on(files, **SMALL)
    send(store, 1, "k")
    store.close()
    with pytest.raises(StoreForeign, match="maxHashSlotNum=77"):
        store_on(files, index_slots=77, index_entries=5000)


def test_without_an_index_nothing_is_written_and_nothing_found() -> None:
    files = SimulatedFiles()
    store = store_on(files, index_enabled=False)
    send(store, 1, "k")
    assert found(store, "k") == []
    store.close()
    assert not files.exists(f"{ROOT}/index")
    again = store_on(files, clock=(clock := SimulatedClock()), **SMALL)
    clock.advance(1)
    assert found(again, "k") == [1]


def test_a_rolled_back_record_is_not_indexed_and_a_prepared_one_is() -> None:
    store = store_on(SimulatedFiles(), **SMALL)
    store.append(draft(b"1", properties=keyed("half"), sys_flag=0x4))
    store.append(draft(b"2", properties=keyed("back"), sys_flag=0xC))
    assert found(store, "half") == [1]
    assert store.find("T", "back", 10) == []


def test_the_header_says_what_apache_expects() -> None:
    clock, files = SimulatedClock(1_700_000_000_000), SimulatedFiles()
    store = store_on(files, clock=clock, **SMALL)
    for number in range(3):
        send(store, number, "k")
        clock.advance(2)
    store.close()
    (name,) = files.list(f"{ROOT}/index")
    header = HEADER.unpack(files.open(f"{ROOT}/index/{name}").pread(HEADER.size, 0))
    assert header[:3] == (1_700_000_000_000, 1_700_000_004_000, 0)
    assert header[4:] == (4, 7)  # three unique ids and one key; entries 1 to 6


def test_the_first_entry_of_a_file_is_timed_by_the_file_before_and_the_others_by_the_first() -> None:
    clock, files = SimulatedClock(1_700_000_000_000), SimulatedFiles()
    store = store_on(files, clock=clock, index_slots=10, index_entries=5)
    for number in range(4):  # two keys each, two messages at a time: a file for each time
        send(store, number, "k")
        if number % 2:
            clock.advance(2.5)
    store.close()
    first, second = (files.read(f"{ROOT}/index/{name}") for name in files.list(f"{ROOT}/index"))
    seconds = [
        [ENTRY.unpack_from(data, 80 + number * 20)[2] for number in range(1, 5)] for data in (first, second)
    ]
    assert seconds == [[0, 0, 0, 0], [2, 0, 0, 0]]
