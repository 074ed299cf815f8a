"""A store at work, and the disks that may be found if the power fails at any moment of it.

    Work(seed).go(images)    one store, some hundred operations of its disk; before some of them, images
    image                    what was synced, and of all the rest whatever chance leaves: pages of 4 KiB,
                             sectors, lengths, renames in another order, folder entries; blank, or garbage
    judge                    a store opens on the image: I1 to I5 hold, or the seed is told

Beside the messages, a small file (`StateFile`) is replaced now and then, as offsets and topics are. A work
may have several lives: killed or without power, and on with what the last one has left.

`python -m tests.chaos.power_cuts 100000` judges so many on all cores; `make chaos IMAGES=…` does that, too.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from kourou.broker.state_file import StateFile
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import make_lasting_folder
from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.config import ASYNC_FLUSH, SYNC_FLUSH
from kourou.store.store import Store, StoreStatus
from tests.unit.store.folder import ROOT, config, draft, read_all, store_on

QUEUES = (("T", 0), ("T", 1), ("U", 0))
IMAGES_A_WORK = 100
OPERATIONS_MAX = 700
GARBAGE = 0.3
STATE_PATH = f"{ROOT}/config/state.json"

Queue = tuple[str, int]


class Lost(AssertionError):
    """An image on which something that must be there is not; the message says how to see it again."""


class _PowerGone(BaseException):
    """Nothing runs any more."""


class Generation(msgspec.Struct):
    """What the small file holds."""

    number: int = 0
    padding: str = ""


class Tally(NamedTuple):
    """What a work amounted to."""

    images: int = 0
    sent: int = 0
    kept: int = 0
    """Acknowledged messages that were looked for on an image, and found."""

    def plus(self, other: Tally) -> Tally:
        return Tally(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Work:
    """One store, told by one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Chance(seed)
        self.files = SimulatedFiles()
        self.flush = ASYNC_FLUSH if seed % 10 == 9 else SYNC_FLUSH
        self.acknowledged: dict[Queue, dict[int, bytes]] = {queue: {} for queue in QUEUES}
        self.shown: dict[Queue, int] = {}
        self.holes: dict[Queue, set[int]] = {queue: set() for queue in QUEUES}
        self.attempted: dict[bytes, Queue] = {}
        self.saved = self.saving = 0
        self.images = self.kept = 0
        self._wanted = 0
        self._left = 0

    def go(self, images: int) -> Tally:
        """Work until so many images have been judged. Raises Lost."""
        self._wanted = images
        while self.images < images:
            self._live(self.chance.randrange(OPERATIONS_MAX // 3, OPERATIONS_MAX))
            if self.images < images:
                self._goes_on_after_the_end()
        return Tally(self.images, len(self.attempted), self.kept)

    def _live(self, operations: int) -> None:
        """One life, that ends before the operation of that number."""
        self._left = operations
        clock = SimulatedClock()
        deferred: list[Callable[[], None]] = []
        syncs: list[Callable[[], None]] = []

        def background(job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
            def sync() -> None:
                job()
                done(None)

            syncs.append(sync)

        self.files.before = self._before
        store = Store(
            config(flush=self.flush, checkpoint_least_bytes=1),
            files=self.files,
            clock=clock,
            defer=deferred.append,
            background=background,
        )
        store.on_dispatch(lambda new: self.shown.update({(new.topic, new.queue_id): new.max_offset}))
        chance = self.chance
        try:
            store.open()
            while True:
                self._send(store)
                while deferred:
                    deferred.pop(0)()
                while syncs and chance.random() < 0.7:
                    syncs.pop(0)()
                clock.advance(chance.choice((0.01, 0.3, 1.5)))
                if chance.random() < 0.1:
                    self._save()
                if chance.random() < 0.02:
                    while syncs:
                        syncs.pop(0)()
                    store.close()
                    store.open()
        except _PowerGone:
            self.files.before = None

    def _send(self, store: Store) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            queue = self.chance.choice(QUEUES)
            number = len(self.attempted)
            body = b"%d " % number + bytes([65 + number % 26]) * self.chance.randrange(900)
            self.attempted[body] = queue
            appended = store.append(draft(body, *queue))

            def then(
                status: StoreStatus,
                queue: Queue = queue,
                offset: int = appended.queue_offset,
                body: bytes = body,
            ) -> None:
                if status.name == "OK":
                    self.acknowledged[queue][offset] = body

            store.when_stored(appended.end, then)

    def _save(self) -> None:
        make_lasting_folder(self.files, f"{ROOT}/config")
        self.saving += 1
        StateFile(self.files, STATE_PATH).save(
            Generation(self.saving, "." * self.chance.randrange(6000))  # now and then more than a page
        )
        self.saved = self.saving

    def _before(self, operation: str, path: str) -> None:
        if operation in ("pread", "view", "open"):
            return
        self._left -= 1
        if self._left < 0 or self.images >= self._wanted:
            raise _PowerGone
        if self.chance.random() < 0.1:
            for _ in range(min(self.chance.randrange(1, 4), self._wanted - self.images)):
                self._judge(self.files.power_cut(self.chance, garbage=self.chance.choice((0, GARBAGE))))

    def _judge(self, image: SimulatedFiles) -> None:
        self.images += 1
        try:
            store = store_on(image, flush=self.flush)
            found = {queue: self._found(store, queue) for queue in QUEUES}
            self._judge_saved(image)
            if self.chance.random() < 0.05:
                self._goes_on(store, image, found)
        except Lost:
            raise
        except Exception as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error

    def _found(self, store: Store, queue: Queue) -> dict[int, bytes]:
        """What a queue holds, with all that can be wrong with it."""
        found: dict[int, bytes] = {}
        last = -1
        for record in read_all(store, *queue):
            body, offset = record.body, record.queue_offset
            if self.attempted.get(body) != queue or record.damage() is not None:
                raise self._lost(f"I2: {queue} {offset} holds what nobody sent there: {body[:20]!r}")
            if offset <= last:
                raise self._lost(f"I3: {queue} goes from {last} to {offset}")
            found[offset] = body
            last = offset
        if len(set(found.values())) < len(found):
            raise self._lost(f"I4: {queue} has a message twice")
        if self.flush == SYNC_FLUSH:
            self._judge_kept(store, queue, found)
        return found

    def _judge_kept(self, store: Store, queue: Queue, found: dict[int, bytes]) -> None:
        acknowledged = self.acknowledged[queue]
        if not acknowledged.items() <= found.items():
            lost = sorted(acknowledged.items() - found.items())[0]
            raise self._lost(
                f"I1: {queue} {lost[0]} was acknowledged: {lost[1][:20]!r}, {len(found)} are there"
            )
        self.kept += len(acknowledged)
        shown = self.shown.get(queue, 0)
        if store.max_offset(*queue) < shown or set(range(shown)) - found.keys() - self.holes[queue]:
            raise self._lost(f"I5: {queue} was shown up to {shown}, and ends at {store.max_offset(*queue)}")

    def _judge_saved(self, image: SimulatedFiles) -> None:
        state = StateFile(image, STATE_PATH).load(Generation) or Generation()
        if not self.saved <= state.number <= self.saving:
            raise self._lost(f"the small file has generation {state.number}, and {self.saved} was saved")

    def _goes_on(self, store: Store, image: SimulatedFiles, found: dict[Queue, dict[int, bytes]]) -> None:
        """The store takes new messages in each queue, and they are there after yet another power cut."""
        before = {queue: [*bodies.values()] for queue, bodies in found.items()}
        for queue in QUEUES:
            store.append(draft(b"after the power came back", *queue))
        if self.flush == ASYNC_FLUSH:
            store.sync()
        again = store_on(image.power_cut(self.chance), flush=self.flush)
        for queue, bodies in before.items():
            after = [record.body for record in read_all(again, *queue)]
            if after != [*bodies, b"after the power came back"]:
                raise self._lost(f"{queue} had {len(bodies)} messages and one more, and then {len(after)}")

    def _goes_on_after_the_end(self) -> None:
        """Another life, on what the last one has left: what can be read there must stay."""
        is_killed = self.chance.random() < 0.5
        self.files = self.files.crashed() if is_killed else self.files.power_cut(self.chance)
        store = store_on(self.files, flush=self.flush)
        found = {queue: self._found(store, queue) for queue in QUEUES}
        self.acknowledged = {queue: dict(bodies) for queue, bodies in found.items()}
        # Offsets whose record was torn, and never acknowledged, stay without a message.
        self.shown = {queue: store.max_offset(*queue) for queue in QUEUES}
        self.holes = {queue: set(range(self.shown[queue])) - bodies.keys() for queue, bodies in found.items()}
        state = StateFile(self.files, STATE_PATH).load(Generation) or Generation()
        self.saved = state.number
        self.saving = max(self.saving, self.saved)
        self.files = self.files.crashed()

    def _lost(self, what: str) -> Lost:
        again = f"python -m tests.chaos.power_cuts {self.images} {self.seed}"
        return Lost(f"{what}  [image {self.images} of seed {self.seed}: {again}]")


def work_of(seed: int, images: int = IMAGES_A_WORK) -> Tally:
    with quiet():
        return Work(seed).go(images)


@contextmanager
def quiet() -> Iterator[None]:
    """What a store has to say about each of ten thousand disks, nobody wants to read."""
    logger = logging.getLogger("kourou")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def judged(images: int, first_seed: int, processes: int | None = None) -> Tally:
    """So many images, by seeds from `first_seed` on, side by side. Raises Lost."""
    counts = [min(IMAGES_A_WORK, images - at) for at in range(0, images, IMAGES_A_WORK)]
    seeds = range(first_seed, first_seed + len(counts))
    tally = Tally()
    with ProcessPoolExecutor(processes or os.cpu_count()) as processes_at_work:
        for number, each in enumerate(processes_at_work.map(work_of, seeds, counts, chunksize=4), 1):
            tally = tally.plus(each)
            if number % 100 == 0:
                print(
                    f"{tally.images} images judged, {tally.kept} acknowledged messages found on them",
                    flush=True,
                )
    return tally


def main() -> None:
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    first_seed = (
        int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("SEED", time.time_ns() % 10**9))
    )
    begin = time.monotonic()
    tally = judged(images, first_seed)
    seconds = time.monotonic() - begin
    print(
        f"{tally.images} power cuts, seeds from {first_seed}: {tally.sent} messages sent, "
        f"{tally.kept} times an acknowledged one was looked for and found, none lost; "
        f"{seconds:.0f} s, {tally.images / seconds:.0f} images/s"
    )


if __name__ == "__main__":
    main()
