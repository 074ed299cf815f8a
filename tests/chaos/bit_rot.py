"""A stopped broker's folder whose files rot: what is left is served right or not at all, no neighbour lost.

    made      the folder of a broker with all that can be in one (`rot_folder.py`); stopped, or killed
    harm      1 to 8 bits flipped, a sector of 512 bytes blank, one copied over another, or a page of 4 KiB
              that was written to the wrong place; in any file of the folder
    judged    1. `kourou store check` tells of it, if any byte was changed that means anything
              2. a broker that opens the folder serves every message whose record nobody touched, at its
                 place, and nothing else; finds it by its key, too. Of topics, groups, offsets, delays,
                 timers, terms and users it says what is true, or was when the small file was saved before,
                 and of a small file it could not read it says so. Damaged messages are in its metrics, and
                 all that waited for its time comes
              3. after a repair: the same once more, in a folder without fault, where what was damaged lies
                 in `quarantine` as it was

`python -m tests.chaos.bit_rot 10000` judges so many on all cores; `make chaos FLIPS=…` does that, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import NamedTuple

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import PAGE_BYTES, SECTOR_BYTES, SimulatedFiles
from kourou.errors import ConfigError, MQError
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.record import Record
from kourou.store.check import check
from kourou.store.checkpoint import read_checkpoint
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import DUE_INEXACT_MS, ENTRY
from kourou.store.findings import (
    MoveAside,
    RebuildIndex,
    RebuildQueue,
    Report,
    RestoreState,
    RewriteCheckpoint,
)
from kourou.store.index_file import HEADER
from kourou.store.repair import repair
from tests.chaos.power_cuts import quiet
from tests.chaos.rot_folder import (
    CONFIG,
    LATER,
    SMALL_FILES,
    UNREAD,
    Message,
    NoEnd,
    OpenedBroker,
    all_files,
    made,
)
from tests.unit.store.folder import ROOT

HARMS_A_TURN = 50
EXCUSED_A_THOUSAND_MAX = 1
"""How often a record may lose its very checksum and pass for one that never had any. The damage must end the
last property just so, which was seen three times in 20,000 harms: one in a thousand is several times that,
and far from what a broker comes to that compares nothing."""
LARGE = ("commitlog", "consumequeue", "index")
USERS = ("config/users.json", "config/users.key")
"""A broker that cannot read these does not start."""
WAITING_SECONDS = 75
WHO_WAITS = (
    *("timers/progress.json", "config/delayOffset.json"),
    *("consumequeue/rmq_sys_wheel_timer/", "consumequeue/SCHEDULE_TOPIC_XXXX/"),
)
MAY_DEPEND_ON_MESSAGES = ("timers/pending", "config/delayOffset.json", "config/consumerOffset.json")


class Served(AssertionError):
    """Something was served that should not be, or not what should; the message says how to see it again."""


@lru_cache(maxsize=2)
def unharmed(is_closed: bool) -> Report:
    """What a check says of the folder as it was made."""
    return check(CONFIG, made(is_closed).files.crashed(), is_told=True)


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
    """Do something to a file of the log, the queues or the index, or to one of the small files."""
    large: dict[str, list[str]] = {}
    small: dict[str, list[str]] = {}
    for path in all_files(files):
        name = path.removeprefix(ROOT + "/").removesuffix(".bak")
        if name not in UNREAD and files.open(path).size():
            folder = name.split("/")[0]
            kinds, kind = (large, folder) if folder in LARGE else (small, name)
            kinds.setdefault(kind, []).append(path)
    while True:
        kinds = large if chance.random() < 0.6 else small
        paths = kinds[chance.choice(sorted(kinds))]
        path = chance.choice(paths if chance.randrange(4) else paths[-1:])  # the end is no place like others
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
        if path.endswith((".json", ".bak")) and chance.randrange(2):
            text = file.pread(size, 0)  # a number that stays one: nothing but a checksum tells
            at = chance.choice([place for place, byte in enumerate(text) if 48 <= byte < 58])
            data = bytearray((text[at] ^ 1,))
        if "/index/" in path and chance.randrange(2):  # one bit, so that each field is harmed by itself, too
            live = _live_bytes_of_index(files, path)
            at = chance.choice(live[: HEADER.size] if chance.randrange(2) else live)
            data = bytearray((file.pread(1, at)[0] ^ 1 << chance.randrange(8),))
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


class Case:
    """One harm, and everything it must not have done."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Chance(seed)
        self.is_closed = self.chance.random() < 0.5
        self.made = made(self.is_closed)
        self.files = self.made.files.crashed()
        self.harm = harm(self.files, self.chance)
        self.name = self.harm.path.removeprefix(ROOT + "/")
        self.small = self.name.removesuffix(".bak")
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

    @property
    def lost(self) -> list[Message]:
        whole = set(self.whole)
        return [each for each in self.made.messages if each not in whole]

    def judge(self) -> str:
        """What kind of file it was, and whether the check told of it. Raises Served."""
        report, before = check(CONFIG, self.files, is_told=True), unharmed(self.is_closed)
        is_told = report.findings != before.findings
        if not is_told and self._means_something():
            raise self._wrong("a check does not tell of it")
        self._serves(self.files.crashed(), is_told=is_told)
        if report.actions:
            harmed = self.files.crashed()
            repair(CONFIG, report, self.files, SimulatedClock(1_800_000_000_000), is_told=True)
            after = check(CONFIG, self.files, is_told=True)
            if [finding for finding in after.errors if finding.action is not None]:
                raise self._wrong(f"after a repair: {after.errors[0]}")
            self._keeps_what_was_damaged(harmed, report)
            self._serves(self.files, is_repaired=True)
        folder = self.name.split("/")[0]
        kind = folder if folder in LARGE else self.small
        if self.is_excused:
            return f"{kind} EXCUSED"
        return f"{kind} {'told' if is_told else 'meaningless'}"

    def _means_something(self) -> bool:
        """Whether any of the changed bytes is one that somebody reads."""
        if self.name.startswith("commitlog/"):
            return bool(self.lost)
        if self.name.startswith("consumequeue/"):
            _, topic, queue_id, base = self.harm.path.rsplit("/", 3)
            count = sum(each.queue == (topic, int(queue_id)) for each in self.made.messages)
            end = count * ENTRY_BYTES - int(base)
            is_exact = topic != SCHEDULE_TOPIC or not self._is_about_the_same_time(end)
            return self.harm.changed[0] < end and is_exact
        if self.name.startswith("index/"):
            live = _live_bytes_of_index(self.made.files, self.harm.path)
            return not set(live).isdisjoint(self.harm.changed)
        if self.small in SMALL_FILES:  # unless it is one generation in the place of the other
            path = f"{ROOT}/{self.small}"
            return self.files.read(self.harm.path) not in [
                self.made.files.read(path + more) for more in ("", ".bak")
            ]
        if self.name == "checkpoint":
            return any(64 <= place < 96 or 104 <= place < 156 for place in self.harm.changed)  # our marks
        return True

    def _is_about_the_same_time(self, end: int) -> bool:
        """Whether the entries of a queue of delayed messages differ by no more than those of one tick do."""
        was, is_now = (files.read(self.harm.path)[:end] for files in (self.made.files, self.files))
        pairs = zip(ENTRY.iter_unpack(was), ENTRY.iter_unpack(is_now), strict=True)
        return all(old[:2] == new[:2] and abs(old[2] - new[2]) <= DUE_INEXACT_MS for old, new in pairs)

    # A broker opens it.

    def _serves(self, files: SimulatedFiles, *, is_told: bool = True, is_repaired: bool = False) -> None:
        when = "after a repair" if is_repaired else "opened as it is"
        try:
            with OpenedBroker(files, self.made.now_ms) as broker:
                self._judge(broker, when, is_told=is_told, is_repaired=is_repaired)
        except Served:
            raise
        except ConfigError as error:
            is_put_right = is_repaired and self.name != "config/users.key"
            if self.name not in USERS or is_put_right or "users" not in str(error):
                raise self._wrong(f"{when}: {error}") from error
        except Exception as error:
            raise self._wrong(f"{when}: {type(error).__name__}: {error}") from error
        else:
            if self.name in USERS and is_told and not is_repaired:
                raise self._wrong("it starts, with users that nothing vouches for")

    def _judge(self, broker: OpenedBroker, when: str, *, is_told: bool, is_repaired: bool) -> None:
        self._serves_messages(broker, when)
        self._says_what_is_true(broker, when)
        self._counts(broker, when, is_repaired=is_repaired)
        is_read = is_told and self.name in SMALL_FILES and not is_repaired
        if is_read and not any(self.name in line for line in broker.heard):
            raise self._wrong(f"{when}: nothing in its log tells of {self.name}: {broker.heard}")
        is_index = self.name.startswith("index/") and not is_repaired  # a search may miss it until repaired
        keyed = [each for each in self.whole if each.key]
        for each in self.chance.sample(keyed, 0 if is_index else 5):
            if each.record not in broker.store.find(each.queue[0], each.key, 32):
                raise self._wrong(f"{when}: {each.key} is not found by its key")
        if self.small.startswith(("timers/", "config/delay")):
            self._delivers(broker, when)

    def _serves_messages(self, broker: OpenedBroker, when: str) -> None:
        known = {(each.queue, each.queue_offset): each.record for each in self.made.messages}
        found: set[tuple[tuple[str, int], int]] = set()
        for queue in sorted({each.queue for each in self.made.messages}):
            for queue_offset, record in self._served(broker, queue, when):
                stored = known.get((queue, queue_offset))
                if stored is None and self._is_delivered_again(queue, record):
                    continue
                if stored != record and _may_be_anothers(stored, record):
                    self.is_excused = True
                elif stored != record:
                    raise self._wrong(f"{when}: {queue} {queue_offset} is served, and is not what was stored")
                if (queue, queue_offset) in found:
                    raise self._wrong(f"{when}: {queue} {queue_offset} is served twice")
                found.add((queue, queue_offset))
        for each in self.whole:
            if (each.queue, each.queue_offset) not in found:
                raise self._wrong(
                    f"{when}: {each.queue} {each.queue_offset} is lost, and its record is whole"
                )

    def _is_delivered_again(self, queue: tuple[str, int], record: bytes) -> bool:
        """Of what was delivered last, an older generation does not know, nor does a queue built again."""
        is_forgotten = self.small.startswith(WHO_WAITS)
        return is_forgotten and queue == (LATER, 0) and Record(record).body in self.made.later

    def _served(self, broker: OpenedBroker, queue: tuple[str, int], when: str) -> list[tuple[int, bytes]]:
        try:
            return broker.served(queue)
        except (MQError, NoEnd) as error:
            raise self._wrong(f"{when}: {queue}: {error}") from error

    def _says_what_is_true(self, broker: OpenedBroker, when: str) -> None:
        """What was saved last; of a file that is damaged, what was saved before."""
        older = self.made.said_before.get(self.small, self.made.says)
        for name, said in broker.says.items():
            if said not in (self.made.says[name], older[name]) and not self._depends_on_messages(name):
                raise self._wrong(f"{when}: of {name} it says {said!r}, which never was")

    def _depends_on_messages(self, name: str) -> bool:
        """Who waits is told by the log and its queues, and how far a group can be by the end of its queue."""
        is_about_waiting = self.small.startswith(WHO_WAITS) and name == "timers/pending"
        return is_about_waiting or (bool(self.lost) and name in MAY_DEPEND_ON_MESSAGES)

    def _counts(self, broker: OpenedBroker, when: str, *, is_repaired: bool) -> None:
        """The messages that are lost, until they were set aside."""
        counted, lost = broker.corrupt_records, len(self.lost)
        if is_repaired or not lost:
            if counted:
                raise self._wrong(f"{when}: {counted} records are counted as damaged, and none is")
        elif not self.is_excused and not self._is_like_a_torn_write():
            if not 1 <= counted <= lost:
                raise self._wrong(f"{when}: {lost} messages are damaged, and {counted} are counted")
            if not any("damaged" in line for line in broker.heard):
                raise self._wrong(f"{when}: nothing in its log tells of damaged messages")

    def _is_like_a_torn_write(self) -> bool:
        """The last messages of a log that nobody closed, without a checkpoint for them: they are cut off."""
        lost = self.lost
        vouched = read_checkpoint(self.made.files, f"{ROOT}/checkpoint").end
        return lost == self.made.messages[-len(lost) :] and lost[0].place >= vouched

    def _delivers(self, broker: OpenedBroker, when: str) -> None:
        """All that was to come later."""
        broker.pass_time(WAITING_SECONDS)
        bodies = Counter(Record(record).body for _, record in self._served(broker, (LATER, 0), when))
        if bodies.keys() != self.made.later:
            raise self._wrong(f"{when}: {bodies.keys() ^ self.made.later} did not come, or never was sent")
        if self.name == "timers/pending" and max(bodies.values()) > 1:
            raise self._wrong(f"{when}: {bodies.most_common(1)} came more than once")

    # A repair.

    def _keeps_what_was_damaged(self, harmed: SimulatedFiles, report: Report) -> None:
        (moment,) = self.files.list(f"{ROOT}/quarantine")
        aside = f"{ROOT}/quarantine/{moment}"
        for path in _replaced(harmed, report):
            kept = f"{aside}/{path.removeprefix(ROOT + '/')}"
            if not self.files.exists(kept) or self.files.read(kept) != harmed.read(path):
                raise self._wrong(f"a repair replaced {path}, and did not keep it")
        if self.is_excused:
            return
        kept_bytes: dict[int, int] = {}
        for name in self.files.list(aside):
            if name.startswith("commitlog-"):
                start = int(name.split("-")[1])
                kept_bytes |= dict(enumerate(self.files.read(f"{aside}/{name}"), start))
        for each in self.lost:
            for place, byte in enumerate(_log_bytes(harmed, each.place, len(each.record)), each.place):
                if kept_bytes.get(place, 0) != byte:  # zeros after a torn write need not be kept
                    raise self._wrong(f"byte {place} of the log, in a damaged record, is not in quarantine")

    def _wrong(self, what: str) -> Served:
        return Served(f"{what}  [{self.harm}; python -m tests.chaos.bit_rot 1 {self.seed}]")


def _live_bytes_of_index(files: SimulatedFiles, path: str) -> list[int]:
    """Header, slots, and the entries that the header counts: number 0 is never used."""
    count = HEADER.unpack(files.open(path).pread(HEADER.size, 0))[-1]
    entries_at = HEADER.size + 4 * CONFIG.index_slots
    return [*range(entries_at), *range(entries_at + 20, entries_at + 20 * count)]


def _replaced(files: SimulatedFiles, report: Report) -> Iterator[str]:
    """Files that the actions of a report do away with."""
    for action in report.actions:
        if isinstance(action, (RestoreState, MoveAside)):
            yield action.path
        elif isinstance(action, RewriteCheckpoint):
            yield f"{ROOT}/checkpoint"
        elif isinstance(action, RebuildIndex):
            yield from all_files(files, f"{ROOT}/index")
        elif isinstance(action, RebuildQueue):
            yield from all_files(files, f"{ROOT}/consumequeue/{action.topic}/{action.queue_id}")


def _log_bytes(files: SimulatedFiles, place: int, size: int) -> bytes:
    """No record goes over the end of a file."""
    base = place - place % CONFIG.commit_log_segment_bytes
    return files.open(f"{ROOT}/commitlog/{base:020d}").pread(size, place - base)


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
    """In words. Raises Served when more was excused than bad luck can explain."""
    excused = sum(times for kind, times in total.items() if kind.endswith("EXCUSED"))
    if excused > -(-sum(total.values()) * EXCUSED_A_THOUSAND_MAX // 1000):
        raise Served(f"{excused} of {sum(total.values())} harms excused: records are served unchecked")
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
        print(f"  {kind:<42}{times}")


if __name__ == "__main__":
    main()
