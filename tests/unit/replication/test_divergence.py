"""Where two logs part is found, wherever that is."""

from __future__ import annotations

import random

import pytest

from kourou.protocol.checksum import crc32
from kourou.replication.divergence import Sample, common_end

FILE_BYTES = 1000


class FakeLog:
    """Records of some bytes each, in files of fixed size; what is left of a file is a blank."""

    def __init__(self, records: list[bytes], start: int = 0) -> None:
        self.start = start
        self._data = bytearray(start)
        self._places: list[tuple[int, int]] = []
        for record in records:
            left = FILE_BYTES - len(self._data) % FILE_BYTES
            if len(record) > left:
                self._data += b"\0" * left
            self._places.append((len(self._data), len(record)))
            self._data += record

    @property
    def wrote(self) -> int:
        return len(self._data)

    @property
    def file_places(self) -> list[int]:
        return list(range(self.start, self.wrote, FILE_BYTES))

    def raw(self, place: int, size: int) -> bytes:
        return bytes(self._data[place : place + size])

    def places_of(self, start: int, end: int) -> list[tuple[int, int]]:
        return [each for each in self._places if start <= each[0] < end]

    @property
    def newest(self) -> tuple[int, int]:
        place, size = self._places[-1]
        return place, place + size

    def has(self, sample: Sample) -> bool:
        place, size, crc = sample
        return place >= self.start and place + size <= self.wrote and crc32(self.raw(place, size)) == crc


def found(slave: FakeLog, master: FakeLog) -> tuple[int | None, int]:
    """Where they part, and after how many questions."""
    search = common_end(slave, *slave.newest, master.start)
    samples, rounds = next(search), 0
    while True:
        rounds += 1
        assert len(samples) <= 70
        try:
            samples = search.send([master.has(sample) for sample in samples])
        except StopIteration as end:
            return end.value, rounds


def records(count: int, chance: random.Random) -> list[bytes]:
    return [chance.randbytes(chance.randrange(20, 200)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(40))
def test_the_end_of_what_both_have_is_found(seed: int) -> None:
    chance = random.Random(seed)
    common = records(chance.randrange(1, 400), chance)
    slave = FakeLog(common + records(chance.randrange(0, 60), chance))
    master = FakeLog(common + records(chance.randrange(0, 60), chance))
    place, rounds = found(slave, master)
    both = FakeLog(common)
    assert place == both.newest[1]
    assert rounds <= 8


def test_a_slave_that_has_less_goes_on_where_it_is() -> None:
    common = records(50, random.Random(1))
    slave, master = FakeLog(common[:30]), FakeLog(common)
    assert found(slave, master) == (slave.wrote, 1)


def test_a_slave_that_is_ahead_goes_back_to_the_masters_end() -> None:
    common = records(50, random.Random(1))
    slave, master = FakeLog(common), FakeLog(common[:30])
    assert found(slave, master)[0] == master.newest[1]


def test_logs_with_nothing_in_common_are_told_apart() -> None:
    slave, master = FakeLog(records(50, random.Random(1))), FakeLog(records(50, random.Random(2)))
    assert found(slave, master)[0] is None


def test_the_beginning_of_a_record_is_compared_too() -> None:
    common = records(5, random.Random(1))
    slave, master = FakeLog(common), FakeLog([*common, b"x" * 100])
    newest, whole = slave.newest
    slave._data += b"x" * 30
    for data, expected in ((b"x" * 30, whole + 30), (b"y" * 30, whole)):
        slave._data[whole:] = data
        search = common_end(slave, newest, whole, 0)
        with pytest.raises(StopIteration) as end:
            search.send([master.has(sample) for sample in next(search)])
        assert end.value.value == expected
