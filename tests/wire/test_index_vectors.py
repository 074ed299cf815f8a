"""The key index, byte for byte as RocketMQ lays it out (IndexFile, IndexHeader; 4.9.8 and 5.3.4)."""

from __future__ import annotations

from struct import pack

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.record import decode
from tests.unit.store.folder import ROOT, draft, store_on

SLOTS, ENTRIES = 5, 8
K1 = 2746024  # |hash("TopicTest#k1")|, as RocketMQ computes it; slot 4 of 5
K2 = 2746025
AT = 1_700_000_000_000


def expected_file() -> bytes:
    """Two messages, 2.5 seconds apart: the first with keys k1 and k2, the second with k1."""
    size = 40 + 4 * SLOTS + 20 * ENTRIES
    data = bytearray(size)
    first, second = 0, _record_bytes()
    data[0:40] = pack(">qqqqii", AT, AT + 2500, first, second, 2, 4)
    data[40 + 4 * (K1 % SLOTS) : 44 + 4 * (K1 % SLOTS)] = pack(">i", 3)
    data[40 + 4 * (K2 % SLOTS) : 44 + 4 * (K2 % SLOTS)] = pack(">i", 2)
    entries = (
        pack(">iqii", K1, first, 0, 0)
        + pack(">iqii", K2, first, 0, 0)
        + pack(">iqii", K1, second, 2, 1)  # whole seconds, and the older entry of its slot
    )
    at = 40 + 4 * SLOTS + 20  # entry 0 is never used
    data[at : at + len(entries)] = entries
    return bytes(data)


def _record_bytes() -> int:
    """Where the second message begins."""
    store = store_on(SimulatedFiles())
    return store.append(draft(b"1", "TopicTest", properties=b"KEYS\x01k1 k2\x02")).size


def test_our_index_has_the_originals_bytes() -> None:
    clock, files = SimulatedClock(AT), SimulatedFiles()
    store = store_on(files, clock=clock, index_slots=SLOTS, index_entries=ENTRIES)
    store.append(draft(b"1", "TopicTest", properties=b"KEYS\x01k1 k2\x02"))
    clock.advance(2.5)
    store.append(draft(b"2", "TopicTest", properties=b"KEYS\x01k1\x02"))
    store.close()
    (name,) = files.list(f"{ROOT}/index")
    assert len(name) == 17
    assert files.read(f"{ROOT}/index/{name}") == expected_file()


def test_the_originals_index_is_read() -> None:
    clock, files = SimulatedClock(AT), SimulatedFiles()
    store = store_on(files, clock=clock, index_enabled=False)
    store.append(draft(b"1", "TopicTest", properties=b"KEYS\x01k1 k2\x02"))
    clock.advance(2.5)
    store.append(draft(b"2", "TopicTest", properties=b"KEYS\x01k1\x02"))
    store.close()
    files.remove(f"{ROOT}/checkpoint")  # that of the original says nothing of our own
    files.make_folders(f"{ROOT}/index")
    files.write_atomically(f"{ROOT}/index/20231114221320000", expected_file())
    again = store_on(files, clock=clock, index_slots=SLOTS, index_entries=ENTRIES)
    assert [decode(record).body for record in again.find("TopicTest", "k1", 10)] == [b"1", b"2"]
    assert [decode(record).body for record in again.find("TopicTest", "k2", 10)] == [b"1"]
    again.append(draft(b"3", "TopicTest", properties=b"KEYS\x01k2\x02"))
    assert [decode(record).body for record in again.find("TopicTest", "k2", 10)] == [b"1", b"3"]
    assert files.list(f"{ROOT}/index") == ["20231114221320000"]
