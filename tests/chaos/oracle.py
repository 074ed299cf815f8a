"""What was done to a broker, what was found there afterwards, and whether the two fit together.

    history    one operation after the other, as its client saw it: ok, or info (a connection lost, a timeout:
               it may or may not have happened)
    stored     every message as it is read back

    I1  every acknowledged message is there, at its place, with its body, properties, keys and tag
    I2  everything that is there was sent by somebody
    I3  offsets of a queue have no gap and no repetition, store times do not go back, and of each sender what
        was acknowledged lies in the order in which it was sent
    I4  no message is there more often than it was tried with an outcome nobody knows
    I5  what a reader was given is there ever after
    I6  what lies before a group's offset, the group was given; and in the end it has handled everything
    I7  a group's offset is never beyond the end of its queue, and is one that the group committed
    I9  what was committed is there, what was rolled back is not, and half a transaction is seen by nobody
    I10 what was sent with a delay is there in the end, and nobody saw it before its time
    keys  every acknowledged message is found by its key

I11 (no acknowledgement after a failed sync) shows as I1 once the power is cut; I12 (all goes on soon after
the last fault), I13 (bounds) and I14 (figures that are true) are asked by the simulation (tests/sim), I8
belongs to replicas. A history in which little happened proves nothing: `too_little` says so.

    python -m tests.chaos.oracle 10000000     how long the judge needs for so many operations
"""

from __future__ import annotations

import argparse
import json
import resource
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

Queue = tuple[str, int]
Place = tuple[str, int, int]
"""Topic, queue, queue offset. With several brokers the topic is written `topic@broker`."""

ANY_QUEUE = -1


class Sent(NamedTuple):
    """A message as its sender made it. `sender` and `number` are its name."""

    sender: str
    number: int
    queue: Queue
    """Where to; `ANY_QUEUE` leaves that to the client."""
    body: bytes
    properties: dict[str, str]

    @property
    def id(self) -> str:
        return f"{self.sender}/{self.number}"


class Stored(NamedTuple):
    """A message as a reader got it."""

    place: Place
    body: bytes
    properties: dict[str, str]
    store_ms: int

    @property
    def id(self) -> str:
        return b"/".join(self.body.split(b"/", 2)[:2]).decode("utf-8", "replace")


class _Known(NamedTuple):
    """What must be remembered of a message that was sent: not its bytes, of which there may be gigabytes."""

    queue: Queue
    names: tuple[str, ...]
    digest: int
    body_digest: int


class History:
    """Kept by several threads at a time."""

    def __init__(self, clock: Callable[[], float] = time.time, *, keeps_operations: bool = True) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._keeps_operations = keeps_operations
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.operations: list[tuple[Any, ...]] = []
        self.sent: dict[str, _Known] = {}
        self.acknowledged: dict[str, Place] = {}
        self.acknowledged_at: dict[str, float] = {}
        self.promised: dict[str, str] = {}
        """Acknowledged, to be there in the end at a place nobody was told: by the invariant that says so."""
        self.forbidden: dict[str, str] = {}
        self.unknown: Counter[str] = Counter()
        """How often a message was tried and nobody knows what came of it."""
        self.excused: set[str] = set()
        """Promised by a broker whose power failed before it was on the disk: these may be missing."""
        self.repeats: Counter[str] = Counter()
        """How often a crash may have had it delivered again: noted as delivered too late, never too early."""
        self.given: dict[Place, str] = {}
        self.given_at: dict[Place, float] = {}
        self.shown: dict[Place, str] = {}
        """As `given`, to groups that do not tell where they are."""
        self.handled: dict[str, set[str]] = {}
        self.committed: dict[Queue, set[int]] = {}
        self.broken: list[str] = []
        """What was seen to be wrong at the very moment."""

    def sends(self, message: Sent) -> None:
        names = tuple(message.properties)
        with self._lock:
            names = self._names.setdefault(names, names)
            body = zlib.crc32(message.body)
            self.sent[message.id] = _Known(
                message.queue, names, _digest(body, message.properties, names), body
            )

    def was_acknowledged(self, message: Sent, queue_offset: int, queue: Queue | None = None) -> None:
        """It is there: at its queue, or at the one the client chose."""
        place = (*(queue or message.queue), queue_offset)
        with self._lock:
            self.acknowledged[message.id] = place
            self.acknowledged_at[message.id] = self._clock()
            self._note("send", "ok", message.id, *place)

    def was_promised(self, message: Sent, invariant: str) -> None:
        """It will be there: after its delay, or once its transaction has ended."""
        with self._lock:
            self.promised[message.id] = invariant
            self.acknowledged_at[message.id] = self._clock()
            self._note("send", "ok", message.id, *message.queue, invariant)

    def was_rolled_back(self, message: Sent) -> None:
        with self._lock:
            self.promised.pop(message.id, None)
            self.forbidden[message.id] = "I9"
            self._note("roll back", "ok", message.id)

    def is_unknown(self, message: Sent, why: str) -> None:
        with self._lock:
            self.unknown[message.id] += 1
            self._note("send", "info", message.id, *message.queue, why)

    def was_given(self, messages: Iterable[Stored]) -> None:
        with self._lock:
            now = self._clock()
            for message in messages:
                self.given[message.place] = message.id
                self.given_at[message.place] = now
                self._note("receive", "ok", message.id, *message.place)

    def was_shown(self, identity: str, place: Place) -> None:
        with self._lock:
            self.shown[place] = identity
            self.given_at[place] = self._clock()

    def was_handled(self, group: str, identity: str, place: Place) -> None:
        """A member of `group` is done with it."""
        with self._lock:
            self.handled.setdefault(group, set()).add(identity)
            self._note("handle", "ok", identity, *place, group)

    def commits(self, queue: Queue, queue_offset: int) -> None:
        with self._lock:
            self.committed.setdefault(queue, set()).add(queue_offset)
            self._note("commit", "ok", *queue, queue_offset)

    def happened(self, what: str) -> None:
        """A fault, the end of one: for whoever reads the history."""
        with self._lock:
            self._note("fault", "ok", what)

    def breaks(self, fault: str) -> None:
        with self._lock:
            self.broken.append(fault)
            self._note("broken", "ok", fault)

    def forgive(self, stored: list[Stored], since: float, broker: str) -> int:
        """The power of a `broker` failed that does not wait for its disk: what it acknowledged after `since`
        and has lost may be lost. Returns how much that is."""
        at = {message.place: message.id for message in stored}
        there = set(at.values())
        with self._lock:
            lost = [
                identity
                for identity, place in self.acknowledged.items()
                if place[0].endswith(broker)
                and at.get(place) != identity
                and self.acknowledged_at[identity] >= since
            ]
            for identity in lost:
                del self.acknowledged[identity]
                self.unknown[identity] += 1
            for identity in self.promised:
                self.repeats[identity] += 1  # what says that it was delivered may be lost
                if identity not in there and self.acknowledged_at[identity] >= since:
                    self.excused.add(identity)
            taken = [
                place
                for place, identity in (*self.given.items(), *self.shown.items())
                if place[0].endswith(broker) and at.get(place) != identity and self.given_at[place] >= since
            ]
            for place in taken:
                self.given.pop(place, None)
                self.shown.pop(place, None)
            self._note("forgive", "ok", broker, len(lost), len(taken))
            return len(lost)

    def _note(self, operation: str, result: str, *what: object) -> None:
        if self._keeps_operations:
            self.operations.append((self._clock(), operation, result, *what))

    def write(self, path: Path) -> None:
        """For whoever looks into a failure: one JSON object a line."""
        with path.open("w") as file:
            for t, operation, result, *what in self.operations:
                line = {"t": t, "op": operation, "result": result, "what": what}
                file.write(json.dumps(line) + "\n")

    def digest(self) -> str:
        """One number for everything that happened: two runs of one seed have the same."""
        return f"{zlib.crc32(repr(self.operations).encode()):08x}"

    def too_little(self, acknowledged: int, given: int) -> str | None:
        if len(self.acknowledged) < acknowledged or len(self.given) < given:
            return (
                f"only {len(self.acknowledged)} messages were acknowledged and {len(self.given)} given to a "
                f"reader: that proves nothing ({acknowledged} and {given} were wanted)"
            )
        return None


def _digest(body_digest: int, properties: dict[str, str], names: tuple[str, ...]) -> int:
    return hash((body_digest, *[properties.get(name) for name in names]))


def faults(
    history: History,
    stored: list[Stored],
    offsets: dict[Queue, int],
    *,
    is_over: bool = True,
    has_gaps: bool = False,
    only: str = "",
) -> list[str]:
    """What does not fit together, in words; `offsets` are those of the reading group afterwards.

    Before it `is_over`, what was promised need not be there yet. `has_gaps`: a power cut may have
    taken some from the middle that nobody was told were safe. `only` the broker with this end of its name
    was looked at.
    """
    at = {message.place: message for message in stored}
    copies = Counter([message.id for message in stored])
    return [
        *history.broken,
        *_lost(history, at, only),
        *_never_sent(history, stored),
        *_out_of_order(history, stored, has_gaps),
        *_too_often(history, copies),
        *_promises_broken(history, copies, is_over),
        *_taken_back(history, at, only),
        *_offset_faults(history, stored, offsets),
    ]


def unhandled(history: History, group: str, stored: Iterable[Stored]) -> list[str]:
    """Of these messages, those that `group` never was done with: I6, when everything is over."""
    handled = history.handled.get(group, set())
    return [
        f"I6: {each.id} at {each.place} was never handled by {group}"
        for each in stored
        if each.id not in handled
    ]


def _lost(history: History, at: dict[Place, Stored], only: str) -> Iterator[str]:
    for identity, place in history.acknowledged.items():
        found = at.get(place)
        if (found is None or found.id != identity) and place[0].endswith(only):
            yield f"I1: {identity} was acknowledged at {place}; there is {found and found.id}"


def _never_sent(history: History, stored: list[Stored]) -> Iterator[str]:
    known = history.sent
    for message in stored:
        identity = message.id
        sent = known.get(identity)
        if sent is None or not _leads_to(sent.queue, message.place):
            yield f"I2: {identity} at {message.place} was sent by nobody to there"
            continue
        body = zlib.crc32(message.body)
        if sent.body_digest != body:
            yield f"I1: {identity} at {message.place} has another body than was sent"
        elif sent.digest != _digest(body, message.properties, sent.names):
            found = {name: message.properties.get(name) for name in sent.names}
            yield f"I1: {identity} at {message.place} has other properties than were sent: {found}"


def _leads_to(queue: Queue, place: Place) -> bool:
    if queue[1] == ANY_QUEUE:
        return place[0].partition("@")[0] == queue[0]
    return place[0] == queue[0] and place[1] == queue[1]


def _out_of_order(history: History, stored: list[Stored], has_gaps: bool) -> Iterator[str]:
    queues: dict[Queue, list[Stored]] = {}
    for message in stored:
        queues.setdefault(message.place[:2], []).append(message)
    for queue, messages in queues.items():
        messages.sort()
        expected = 0
        last_ms = 0
        last_number: dict[str, int] = {}
        for message in messages:
            offset = message.place[2]
            if offset != expected and not (has_gaps and offset > expected):
                yield f"I3: {queue} goes on with offset {offset}, not {expected}"
            expected = offset + 1
            if message.store_ms < last_ms:
                yield f"I3: {message.place} was stored before the one in front of it"
            last_ms = message.store_ms
            identity = message.id
            sender, _, number = identity.partition("/")
            if not number.isdigit() or history.acknowledged.get(identity) != message.place:
                continue  # one nobody heard of may have been overtaken by the next, on another connection
            if int(number) <= last_number.get(sender, -1):
                yield f"I3: {identity} at {message.place} comes after a later one of its sender"
            last_number[sender] = int(number)


def _too_often(history: History, copies: Counter[str]) -> Iterator[str]:
    for identity, count in copies.items():
        if count > 1:
            is_known = identity in history.acknowledged or identity in history.promised
            if count > is_known + history.unknown[identity] + history.repeats[identity]:
                yield f"I4: {identity} is there {count} times"


def _promises_broken(history: History, copies: Counter[str], is_over: bool) -> Iterator[str]:
    for identity, invariant in history.forbidden.items():
        if copies[identity]:
            yield f"{invariant}: {identity} was rolled back, and is there"
    if is_over:
        for identity, invariant in history.promised.items():
            if not copies[identity] and identity not in history.excused:
                yield f"{invariant}: {identity} was accepted and is not there"


def _taken_back(history: History, at: dict[Place, Stored], only: str) -> Iterator[str]:
    for place, identity in chain(history.given.items(), history.shown.items()):
        found = at.get(place)
        if (found is None or found.id != identity) and place[0].endswith(only):
            yield f"I5: {identity} was given to a reader at {place}; there is {found and found.id}"


def _offset_faults(history: History, stored: list[Stored], offsets: dict[Queue, int]) -> Iterator[str]:
    if not offsets:
        return
    ends: dict[Queue, int] = {}
    for message in stored:
        queue = message.place[:2]
        ends[queue] = max(ends.get(queue, 0), message.place[2] + 1)
    for queue, offset in offsets.items():
        if offset > ends.get(queue, 0):
            yield f"I7: the offset of {queue} is {offset}, and the queue ends at {ends.get(queue, 0)}"
        elif offset and offset not in history.committed.get(queue, ()):
            yield f"I7: the offset of {queue} is {offset}, which nobody committed"
    for message in stored:
        place = message.place
        if place[2] < offsets.get(place[:2], 0) and place not in history.given:
            yield f"I6: {place} lies before the group's offset and was never given to it"


class Measured(NamedTuple):
    """Seconds of the processor."""

    noting: float
    judging: float
    faults: int


def measured(operations: int) -> Measured:
    """A history of so many operations (sent, acknowledged, given, read back), and its judgment."""
    began = time.process_time()
    history = History(keeps_operations=False)
    stored = []
    count = operations // 4
    for number in range(count):
        queue = ("T", number % 8)
        body = b"s%d/%d/body of a message" % (number % 16, number)
        sent = Sent(f"s{number % 16}", number, queue, body, {"KEYS": f"k{number}", "TAGS": "t"})
        history.sends(sent)
        history.was_acknowledged(sent, number // 8)
        stored.append(Stored((*queue, number // 8), body, sent.properties, number))
    history.was_given(stored)
    for at in range(8):
        history.commits(("T", at), count // 8)
    made = time.process_time()
    found = faults(history, stored, {("T", at): count // 8 for at in range(8)})
    return Measured(made - began, time.process_time() - made, len(found))


def main() -> None:
    parser = argparse.ArgumentParser(description="how fast the oracle judges")
    parser.add_argument("operations", type=int)
    operations = parser.parse_args().operations
    result = measured(operations)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{operations} operations: noted in {result.noting:.1f} s of CPU, judged in {result.judging:.1f} s, "
        f"{result.faults} faults; {peak_mib:.0f} MiB at most"
    )


if __name__ == "__main__":
    main()
