"""Whatever becomes of a stopped store's files, a repair leaves a clean one that opens, with every message
whose record nobody touched; and where a check finds nothing wrong, nothing is missing."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol import record as records
from kourou.store.check import check
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ENTRY
from kourou.store.repair import repair
from tests.unit.store.folder import ROOT, draft, log_path, read_all, store_on

MESSAGES = 60
QUEUES = 3
SEGMENT_BYTES = 4096
SIZES: dict[str, Any] = {"consume_queue_segment_entries": 8, "index_slots": 50, "index_entries": 200}
CONFIG = StoreConfig(root=ROOT, commit_log_segment_bytes=SEGMENT_BYTES, **SIZES)


class Harm(NamedTuple):
    """Something that happens to a file, by its number among all."""

    file: int
    at: int
    data: bytes
    """Written there; nothing: the file is cut off there, and at 0 it is removed."""


HARMS = st.lists(
    st.builds(Harm, st.integers(0, 1000), st.integers(0, 3 * SEGMENT_BYTES), st.binary(max_size=40)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(HARMS, st.booleans())
def test_a_repair_keeps_every_message_that_nobody_touched(harms: list[Harm], is_closed: bool) -> None:
    files, places = made_store(is_closed)
    touched: list[tuple[int, int]] = []
    for harm in harms:
        do(files, harm, touched)
    whole = {
        number
        for number, (place, size) in enumerate(places)
        if not any(start < place + size and place < end for start, end in touched)
    }
    report = check(CONFIG, files, is_told=True)
    if report.actions:
        repair(CONFIG, report, files, SimulatedClock(1_800_000_000_000), is_told=True)
        after = check(CONFIG, files, is_told=True)
        assert [finding for finding in after.errors if finding.action is not None] == []
    assert whole <= messages_of(files)


def made_store(is_closed: bool) -> tuple[SimulatedFiles, list[tuple[int, int]]]:
    """A store, and where the record of each of its messages lies."""
    files = SimulatedFiles()
    clock = SimulatedClock()
    store = store_on(files, clock=clock, **SIZES)
    places = []
    for number in range(MESSAGES):
        properties = b"KEYS\x01k%d\x02TAGS\x01t%d\x02" % (number, number % 3)
        appended = store.append(
            draft(b"%d" % number + b"." * (number % 50), "T", number % QUEUES, properties)
        )
        places.append((appended.physical_offset, appended.size))
        clock.advance(0.1)
    clock.advance(20)
    if is_closed:
        store.close()
        return files, places
    return files.crashed(), places


def do(files: SimulatedFiles, harm: Harm, touched: list[tuple[int, int]]) -> None:
    """Harm a file of the log, of a queue, or of the index; note which bytes of the log are gone."""
    paths = [path for path in all_files(files) if not path.endswith(("/lock", "/abort"))]
    path = paths[harm.file % len(paths)]
    length = files.open(path).size()
    at = harm.at % max(1, length)
    base = int(path.rpartition("/")[2]) if "/commitlog/" in path else None
    if harm.data:
        data = harm.data[: length - at]
        files.open(path).pwrite(data, at)
        end = at + len(data)
    elif at:
        files.open(path).truncate(at)
        end = SEGMENT_BYTES
    else:
        files.remove(path)
        end = SEGMENT_BYTES
    if base is not None:
        touched.append((base + at, base + end))


def all_files(files: SimulatedFiles, folder: str = ROOT) -> list[str]:
    found = []
    for name in files.list(folder):
        path = f"{folder}/{name}"
        found += all_files(files, path) if files.is_folder(path) else [path]
    return found


def messages_of(files: SimulatedFiles) -> set[int]:
    """The numbers of all messages that a broker shows which opens the folder, each under its own offset."""
    store = store_on(files, **SIZES)
    found = set()
    for queue_id in range(QUEUES):
        for record in read_all(store, "T", queue_id):
            number = int(record.body.split(b".")[0])
            assert (number % QUEUES, number // QUEUES) == (queue_id, record.queue_offset)
            assert number not in found, f"{number} was shown twice"
            found.add(number)
    return found


def test_a_store_that_nobody_harmed_is_clean_and_whole() -> None:
    for is_closed in (True, False):
        files, places = made_store(is_closed)
        assert check(CONFIG, files, is_told=True).errors == []
        assert messages_of(files) == set(range(MESSAGES))
        data = files.read(log_path())
        assert records.check(data, 0, len(data), physical_offset=0).size == places[0][1]
        entry = files.read(f"{ROOT}/consumequeue/T/0/{0:020d}")[: ENTRY.size]
        assert ENTRY.unpack(entry)[:2] == places[0]
