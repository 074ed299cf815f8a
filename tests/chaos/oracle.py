"""What was done to a broker, what was found there afterwards, and whether the two fit together.

    history    one operation after the other, as its client saw it: ok, or info (a connection lost, a timeout:
               it may or may not have happened)
    stored     every message as it is read back

    I1  every acknowledged message is there, at its place, with its body, properties, keys and tag
    I2  everything that is there was sent by somebody
    I3  offsets of a queue have no gap and no repetition, store times do not go back, and each sender's
        messages lie in the order in which it sent them
    I4  no message is there twice (nobody here sends anything again)
    I5  what a reader was given is there ever after
    I6  what lies before a group's offset, the group was given
    I7  a group's offset is never beyond the end of its queue, and is one that the group committed
    keys  every acknowledged message is found by its key

A history in which little happened proves nothing: `too_little` says so.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Queue = tuple[str, int]
Place = tuple[str, int, int]
"""Topic, queue, queue offset."""


class Sent(NamedTuple):
    """A message as its sender made it. `sender` and `number` are its name."""

    sender: str
    number: int
    queue: Queue
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


class History:
    """Kept by several threads at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: list[dict[str, object]] = []
        self.sent: dict[str, Sent] = {}
        self.acknowledged: dict[str, Place] = {}
        self.given: dict[Place, str] = {}
        self.committed: dict[Queue, set[int]] = {}

    def sends(self, message: Sent) -> None:
        with self._lock:
            self.sent[message.id] = message

    def was_acknowledged(self, message: Sent, queue_offset: int) -> None:
        with self._lock:
            self.acknowledged[message.id] = (*message.queue, queue_offset)
            self._note("send", "ok", message.id, *message.queue, queue_offset)

    def is_unknown(self, message: Sent, why: str) -> None:
        with self._lock:
            self._note("send", "info", message.id, *message.queue, why)

    def was_given(self, messages: Iterable[Stored]) -> None:
        with self._lock:
            for message in messages:
                self.given[message.place] = message.id
                self._note("receive", "ok", message.id, *message.place)

    def commits(self, queue: Queue, queue_offset: int) -> None:
        with self._lock:
            self.committed.setdefault(queue, set()).add(queue_offset)
            self._note("commit", "ok", *queue, queue_offset)

    def _note(self, operation: str, result: str, *what: object) -> None:
        self._operations.append({"t": time.time(), "op": operation, "result": result, "what": what})

    def write(self, path: Path) -> None:
        """For whoever looks into a failure: one JSON object a line."""
        with path.open("w") as file:
            file.writelines(json.dumps(operation) + "\n" for operation in self._operations)

    def too_little(self, acknowledged: int, given: int) -> str | None:
        if len(self.acknowledged) < acknowledged or len(self.given) < given:
            return (
                f"only {len(self.acknowledged)} messages were acknowledged and {len(self.given)} given to a "
                f"reader: that proves nothing ({acknowledged} and {given} were wanted)"
            )
        return None


def faults(history: History, stored: list[Stored], offsets: dict[Queue, int]) -> list[str]:
    """What does not fit together, in words; `offsets` are those of the reading group afterwards."""
    at = {message.place: message for message in stored}
    return [
        *_lost(history, at),
        *_never_sent(history, stored),
        *_out_of_order(stored),
        *_twice(stored),
        *_taken_back(history, at),
        *_offset_faults(history, stored, offsets),
    ]


def _lost(history: History, at: dict[Place, Stored]) -> Iterator[str]:
    for identity, place in history.acknowledged.items():
        found = at.get(place)
        if found is None or found.id != identity:
            yield f"I1: {identity} was acknowledged at {place}; there is {found and found.id}"


def _never_sent(history: History, stored: list[Stored]) -> Iterator[str]:
    for message in stored:
        sent = history.sent.get(message.id)
        if sent is None or sent.queue != message.place[:2]:
            yield f"I2: {message.id} at {message.place} was sent by nobody to there"
        elif sent.body != message.body:
            yield f"I1: {message.id} at {message.place} has another body than was sent"
        else:
            changed = {
                name: (value, message.properties.get(name))
                for name, value in sent.properties.items()
                if message.properties.get(name) != value
            }
            if changed:
                yield f"I1: {message.id} at {message.place} has other properties than were sent: {changed}"


def _out_of_order(stored: list[Stored]) -> Iterator[str]:
    expected: Counter[Queue] = Counter()
    last_ms: dict[Queue, int] = {}
    last_number: dict[tuple[Queue, str], int] = {}
    for message in sorted(stored):
        topic, queue_id, offset = message.place
        queue = (topic, queue_id)
        if offset != expected[queue]:
            yield f"I3: {queue} goes on with offset {offset}, not {expected[queue]}"
        expected[queue] = offset + 1
        if message.store_ms < last_ms.get(queue, 0):
            yield f"I3: {message.place} was stored before the one in front of it"
        last_ms[queue] = message.store_ms
        sender, _, number = message.id.partition("/")
        if number.isdigit():
            if int(number) <= last_number.get((queue, sender), -1):
                yield f"I3: {message.id} at {message.place} comes after a later one of its sender"
            last_number[queue, sender] = int(number)


def _twice(stored: list[Stored]) -> Iterator[str]:
    for identity, count in Counter(message.id for message in stored).items():
        if count > 1:
            yield f"I4: {identity} is there {count} times"


def _taken_back(history: History, at: dict[Place, Stored]) -> Iterator[str]:
    for place, identity in history.given.items():
        found = at.get(place)
        if found is None or found.id != identity:
            yield f"I5: {identity} was given to a reader at {place}; there is {found and found.id}"


def _offset_faults(history: History, stored: list[Stored], offsets: dict[Queue, int]) -> Iterator[str]:
    ends = Counter(message.place[:2] for message in stored)
    for queue, offset in offsets.items():
        if offset > ends[queue]:
            yield f"I7: the offset of {queue} is {offset}, and the queue ends at {ends[queue]}"
        if offset and offset not in history.committed.get(queue, ()):
            yield f"I7: the offset of {queue} is {offset}, which nobody committed"
    for place in (message.place for message in stored):
        if place[2] < offsets.get(place[:2], 0) and place not in history.given:
            yield f"I6: {place} lies before the group's offset and was never given to it"
