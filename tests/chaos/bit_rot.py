"""A stopped store whose files rot: what is left is served right or not at all, and no neighbour is lost.

    made      a store of some messages in three queues, with keys, timers and offsets; stopped, or killed
    harm      1 to 8 bits flipped, a sector of 512 bytes blank, one copied over another, or a page of 4 KiB
              that was written to the wrong place; in any file of the folder
    judged    1. `kourou store check` tells of it, if any byte was changed that means anything
              2. a broker that opens the folder serves every message whose record nobody touched, at its
                 place, and nothing else; finds it by its key, too; and groups are where they were
              3. after a repair: the same once more, in a folder without fault

`python -m tests.chaos.bit_rot 10000` judges so many on all cores; `make chaos FLIPS=…` does that, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from kourou.broker.state_file import StateFile
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import make_lasting_folder
from kourou.doors.simulated_files import PAGE_BYTES, SECTOR_BYTES, SimulatedFiles
from kourou.errors import MQError
from kourou.protocol.bodies import ConsumerOffsets
from kourou.protocol.record import Record, decode_all
from kourou.store.check import check
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.repair import repair
from kourou.store.store import Store
from kourou.store.timers import PendingTimers
from tests.chaos.power_cuts import quiet
from tests.unit.store.folder import ROOT, at_once, draft

MESSAGES = 90
QUEUES = (("T", 0), ("T", 1), ("U", 0))
SIZES: dict[str, Any] = {
    "commit_log_segment_bytes": 4096,
    "consume_queue_segment_entries": 16,
    "allocation_step_bytes": 1024,
    "message_bytes_max": 2048,
    "index_slots": 50,
    "index_entries": 200,
}
CONFIG = StoreConfig(root=ROOT, **SIZES)
HARMS_A_TURN = 50
OFFSETS = f"{ROOT}/config/consumerOffset.json"


class Served(AssertionError):
    """Something was served that should not be, or not what should; the message says how to see it again."""


class Message(NamedTuple):
    queue: tuple[str, int]
    queue_offset: int
    place: int
    record: bytes
    key: str


class Made(NamedTuple):
    files: SimulatedFiles
    messages: list[Message]


@lru_cache(maxsize=2)
def made(is_closed: bool) -> Made:
    """A store, and all that is in it."""
    files, clock = SimulatedFiles(), SimulatedClock()
    store = opened(files, clock)
    places = []
    for number in range(MESSAGES):
        topic, queue_id = queue = QUEUES[number % len(QUEUES)]
        properties = b"KEYS\x01k%d\x02TAGS\x01t%d\x02" % (number, number % 3)
        body = b"%d " % number + bytes([65 + number % 26]) * (number * 37 % 500)
        appended = store.append(draft(body, topic, queue_id, properties))
        places.append((queue, appended, f"k{number}"))
        clock.advance(0.4)
    make_lasting_folder(files, f"{ROOT}/config")
    for number in range(2):
        StateFile(files, OFFSETS).save(
            ConsumerOffsets(offset_table={"T@readers": {0: 10 + number, 1: 20 + number}})
        )
    timers = PendingTimers()
    for number in range(40):
        timers.add(clock.now_ms() + number * 1000, number)
    make_lasting_folder(files, f"{ROOT}/timers")
    files.write_atomically(f"{ROOT}/timers/pending", timers.frozen(0)(), keep_previous=False)
    clock.advance(2)
    messages = [
        Message(
            queue, each.queue_offset, each.physical_offset, store.record_at(each.physical_offset) or b"", key
        )
        for queue, each, key in places
    ]
    assert all(message.record for message in messages)
    if is_closed:
        store.close()
    return Made(files, messages)


def opened(files: SimulatedFiles, clock: SimulatedClock | None = None) -> Store:
    store = Store(
        CONFIG, files=files, clock=clock or SimulatedClock(), defer=lambda work: work(), background=at_once
    )
    store.open()
    return store


class Harm(NamedTuple):
    """Bytes that became others."""

    kind: str
    path: str
    at: int
    old: bytes
    new: bytes

    @property
    def changed(self) -> list[int]:
        """The places in the file that have changed."""
        pairs = enumerate(zip(self.old, self.new, strict=True), self.at)
        return [place for place, (old, new) in pairs if old != new]

    def __str__(self) -> str:
        where = self.path.removeprefix(ROOT + "/")
        return f"{self.kind} in {where} at {self.at}, {len(self.changed)} bytes changed"


def harm(files: SimulatedFiles, chance: Chance) -> Harm:
    """Do something to one of the files that hold anything. Every kind of file is as likely as any other."""
    kinds: dict[str, list[str]] = {}
    for path in all_files(files):
        if not path.endswith(("/lock", "/abort")) and files.open(path).size():
            kinds.setdefault(path.removeprefix(ROOT + "/").split("/")[0], []).append(path)
    while True:
        path = chance.choice(kinds[chance.choice(sorted(kinds))])
        done = _harm(files, path, chance)
        if done.changed:
            return done


def _harm(files: SimulatedFiles, path: str, chance: Chance) -> Harm:
    file = files.open(path)
    size = file.size()
    kind = chance.choice(("flip", "flip", "zeros", "copy", "misdirect"))
    if kind == "flip":
        at = chance.randrange(160 if path.endswith("/checkpoint") else size)
        while chance.randrange(4) and not file.pread(1, at).strip(b"\0"):
            at = (at + 16) % size  # rather where something is
        data = bytearray(file.pread(min(size - at, 16), at))
        for _ in range(chance.randrange(1, 9)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if "/config/" in path and chance.randrange(
            2
        ):  # a number that stays one: nothing but a checksum tells
            text = file.pread(size, 0)
            at = chance.choice([place for place, byte in enumerate(text) if 48 <= byte < 58])
            data = bytearray((text[at] ^ 1,))
        new = bytes(data)
    else:
        unit = PAGE_BYTES if kind == "misdirect" else SECTOR_BYTES
        at = chance.randrange((size + unit - 1) // unit) * unit
        room = min(unit, size - at)
        if kind == "zeros":
            new = bytes(room)
        else:
            source = files.open(chance.choice(all_files(files))) if kind == "misdirect" else file
            start = chance.randrange((source.size() + unit - 1) // unit or 1) * unit
            new = source.pread(room, start).ljust(room, b"\0")
    old = file.pread(len(new), at)
    file.pwrite(new, at)
    file.sync()
    return Harm(kind, path, at, old, new)


def all_files(files: SimulatedFiles, folder: str = ROOT) -> list[str]:
    found: list[str] = []
    for name in files.list(folder):
        path = f"{folder}/{name}"
        found += all_files(files, path) if files.is_folder(path) else [path]
    return found


class Case:
    """One harm, and everything it must not have done."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Chance(seed)
        self.made = made(self.chance.random() < 0.5)
        self.files = self.made.files.crashed()
        self.harm = harm(self.files, self.chance)
        self.whole = self._whole()
        self.is_excused = False

    def _whole(self) -> list[Message]:
        """The messages whose records nobody touched."""
        if "/commitlog/" not in self.harm.path:
            return self.made.messages
        base = int(self.harm.path.rpartition("/")[2])
        changed = [base + place for place in self.harm.changed]
        first, last = changed[0], changed[-1]
        return [
            each
            for each in self.made.messages
            if each.place > last
            or each.place + len(each.record) <= first
            or not any(each.place <= place < each.place + len(each.record) for place in changed)
        ]

    def judge(self) -> str:
        """What kind of file it was, and whether the check told of it. Raises Served."""
        report = check(CONFIG, self.files, is_told=True)
        before = check(CONFIG, self.made.files.crashed(), is_told=True)
        is_told = report.findings != before.findings
        if not is_told and self._means_something():
            raise self._wrong("a check does not tell of it")
        self._serves(self.files.crashed(), "opened as it is")
        if report.actions:
            repair(CONFIG, report, self.files, SimulatedClock(1_800_000_000_000), is_told=True)
            after = check(CONFIG, self.files, is_told=True)
            if [finding for finding in after.errors if finding.action is not None]:
                raise self._wrong(f"after a repair: {after.errors[0]}")
            self._serves(self.files, "after a repair")
        kind = self.harm.path.removeprefix(ROOT + "/").split("/")[0]
        if self.is_excused:
            return f"{kind} EXCUSED"
        return f"{kind} {'told' if is_told else 'meaningless'}"

    def _means_something(self) -> bool:
        """Whether any of the changed bytes is one that somebody reads."""
        if "/commitlog/" in self.harm.path:
            return len(self.whole) < len(self.made.messages)
        if "/consumequeue/" in self.harm.path:
            _, topic, queue_id, base = self.harm.path.rsplit("/", 3)
            count = sum(each.queue == (topic, int(queue_id)) for each in self.made.messages)
            return self.harm.changed[0] < count * ENTRY_BYTES - int(base)
        if "/config/" in self.harm.path:
            text = self.made.files.read(self.harm.path)
            generations = [self.made.files.read(OFFSETS + more) for more in ("", ".bak")]
            is_whole = self.files.read(self.harm.path) in generations  # the one in the place of the other
            return self.harm.changed[0] < text.index(b'"kourouCrc32"') and not is_whole
        if self.harm.path.endswith("/checkpoint"):
            return any(64 <= place < 96 or 104 <= place < 156 for place in self.harm.changed)  # our marks
        return "/timers/" in self.harm.path

    def _serves(self, files: SimulatedFiles, when: str) -> None:
        clock = SimulatedClock()
        try:
            store = opened(files, clock)
            clock.advance(2)  # the key index follows the log
        except Exception as error:
            raise self._wrong(f"{when}: {type(error).__name__}: {error}") from error
        known = {(each.queue, each.queue_offset): each.record for each in self.made.messages}
        found: set[tuple[tuple[str, int], int]] = set()
        for queue in QUEUES:
            for queue_offset, record in self._served(store, queue, when):
                stored = known.get((queue, queue_offset))
                if stored != record and _may_be_anothers(stored, record):
                    self.is_excused = True
                elif stored != record:
                    raise self._wrong(f"{when}: {queue} {queue_offset} is served, and is not what was stored")
                if (queue, queue_offset) in found:
                    raise self._wrong(f"{when}: {queue} {queue_offset} is served twice")
                found.add((queue, queue_offset))
        self._has_offsets(files, when)
        for each in self.whole:
            if (each.queue, each.queue_offset) not in found:
                raise self._wrong(
                    f"{when}: {each.queue} {each.queue_offset} is lost, and its record is whole"
                )
        is_index = (
            "/index/" in self.harm.path and when == "opened as it is"
        )  # a search may miss it until repaired
        for each in self.chance.sample(self.whole, 0 if is_index else 5):
            if each.record not in store.find(each.queue[0], each.key, 32):
                raise self._wrong(f"{when}: {each.key} is not found by its key")

    def _has_offsets(self, files: SimulatedFiles, when: str) -> None:
        """The last ones that were saved, or those before."""
        try:
            found = StateFile(files, OFFSETS).load(ConsumerOffsets)
        except MQError as error:
            raise self._wrong(f"{when}: {error}") from error
        if found is None or found.offset_table not in [{"T@readers": {0: 10 + n, 1: 20 + n}} for n in (0, 1)]:
            raise self._wrong(f"{when}: groups go on where nobody was: {found}")

    def _served(self, store: Store, queue: tuple[str, int], when: str) -> list[tuple[int, bytes]]:
        found = []
        at, end = store.min_offset(*queue), store.max_offset(*queue)
        while at < end:
            result = store.read(*queue, at)
            try:
                records = decode_all(b"".join(result.messages))
            except MQError as error:
                raise self._wrong(f"{when}: {queue} {at}: {error}") from error
            found += [(record.queue_offset, bytes(record.data)) for record in records]
            if result.next_offset <= at:
                raise self._wrong(f"{when}: {queue} does not go on at {at} of {end}: {result.status}")
            at = result.next_offset
        return found

    def _wrong(self, what: str) -> Served:
        return Served(f"{what}  [{self.harm}; python -m tests.chaos.bit_rot 1 {self.seed}]")


def _may_be_anothers(stored: bytes | None, record: bytes) -> bool:
    """Whether the damage took the very checksum away, and left a record as brokers without one write it: then
    only its body is vouched for (docs/durability.md, "What is not promised")."""
    return (
        stored is not None
        and b"__CRC32#" not in record
        and Record(record).damage() is None
        and Record(record).body == Record(stored).body
    )


def outcome(total: Counter[str]) -> str:
    excused = sum(times for kind, times in total.items() if kind.endswith("EXCUSED"))
    served = (
        f"{excused} served with other properties (the excused case)" if excused else "nothing served wrong"
    )
    return f"{served}, nothing whole lost"


def judged_from(first_seed: int, count: int) -> Counter[str]:
    with quiet():
        return Counter(Case(seed).judge() for seed in range(first_seed, first_seed + count))


def judged(count: int, first_seed: int) -> Counter[str]:
    """So many harms, side by side. Raises Served."""
    starts = range(first_seed, first_seed + count, HARMS_A_TURN)
    counts = [min(HARMS_A_TURN, first_seed + count - start) for start in starts]
    total: Counter[str] = Counter()
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for number, each in enumerate(processes.map(judged_from, starts, counts), 1):
            total += each
            if number % 20 == 0:
                print(f"{sum(total.values())} harms judged", flush=True)
    return total


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    first_seed = (
        int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("SEED", time.time_ns() % 10**9))
    )
    begin = time.monotonic()
    total = judged(count, first_seed)
    seconds = time.monotonic() - begin
    print(f"{count} harms, seeds from {first_seed}: {outcome(total)}; {seconds:.0f} s")
    for kind, times in sorted(total.items()):
        print(f"  {kind:<28}{times}")


if __name__ == "__main__":
    main()
