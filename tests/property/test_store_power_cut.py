"""The power fails at any moment: what was acknowledged is there, what was shown is there, the rest is whole.

Each disk found afterwards keeps what was synced and, of the rest, whatever chance leaves: single sectors,
folder entries, lengths. A failure names the seed that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.config import ASYNC_FLUSH, SYNC_FLUSH
from kourou.store.store import Store, StoreStatus
from tests.unit.store.folder import ROOT, bodies_of, config, draft, read_all, store_on

QUEUES = (("T", 0), ("T", 1), ("U", 0))


class PowerGone(BaseException):
    """Nothing runs any more."""


class Run:
    """A store at work, whose power fails before a chosen operation of its disk."""

    def __init__(self, files: SimulatedFiles, chance: Chance, operations: int, flush: str) -> None:
        self.files = files
        self.chance = chance
        self.left = operations
        self.flush = flush
        self.acknowledged: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
        self.shown: dict[tuple[str, int], int] = {}
        self.attempted: set[bytes] = set()

    def goes_on_with(
        self, files: SimulatedFiles, visible: dict[tuple[str, int], list[bytes]], operations: int
    ) -> None:
        """Another life, on the disk that the last one has left: what could be read there must stay."""
        self.files = files
        self.left = operations
        self.acknowledged = {queue: list(bodies) for queue, bodies in visible.items()}
        self.shown = {queue: len(bodies) for queue, bodies in visible.items()}

    def go(self) -> None:
        clock = SimulatedClock()
        deferred: list[Callable[[], None]] = []
        syncs: list[Callable[[], None]] = []

        def background(job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
            def sync() -> None:
                job()
                done(None)

            syncs.append(sync)

        self.files.before = self._tick_towards_the_end
        try:
            store = Store(
                config(flush=self.flush, checkpoint_least_bytes=1),
                files=self.files,
                clock=clock,
                defer=deferred.append,
                background=background,
            )
            store.on_dispatch(lambda new: self.shown.update({(new.topic, new.queue_id): new.max_offset}))
            store.open()
            while True:
                self._send(store)
                for work in [*deferred]:
                    deferred.remove(work)
                    work()
                while syncs and self.chance.random() < 0.7:
                    syncs.pop(0)()
                clock.advance(self.chance.choice((0.01, 0.3, 1.5)))
                if self.chance.random() < 0.02:
                    while syncs:
                        syncs.pop(0)()
                    store.close()
                    store.open()
        except PowerGone:
            self.files.before = None

    def _send(self, store: Store) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            queue = self.chance.choice(QUEUES)
            body = b"%d " % len(self.attempted) + bytes(
                [65 + len(self.attempted) % 26]
            ) * self.chance.randrange(900)
            self.attempted.add(body)
            appended = store.append(draft(body, *queue))

            def then(status: StoreStatus, queue: tuple[str, int] = queue, body: bytes = body) -> None:
                if status.name == "OK":
                    self.acknowledged[queue].append(body)

            store.when_stored(appended.end, then)

    def _tick_towards_the_end(self, operation: str, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerGone


@pytest.mark.parametrize("block", range(5))
def test_sync_flush_loses_nothing_acknowledged_or_shown_when_the_power_fails(block: int) -> None:
    acknowledged = 0
    for seed in range(block * 60, block * 60 + 60):
        chance = Chance(seed)
        run = Run(SimulatedFiles(), chance, chance.randrange(20, 400), SYNC_FLUSH)
        run.go()
        for _ in range(2):
            disk = run.files.power_cut(chance)
            store = store_on(disk, flush=SYNC_FLUSH)
            for queue in QUEUES:
                found = bodies_of(store, *queue)
                assert _in_order(run.acknowledged[queue], found), f"seed {seed}"
                assert set(found) <= run.attempted, f"seed {seed}"
                assert store.max_offset(*queue) >= run.shown.get(queue, 0), f"seed {seed}"
            acknowledged += sum(map(len, run.acknowledged.values()))
            _goes_on(store, disk, seed)
    assert acknowledged > 1000  # a run without traffic proves nothing


@pytest.mark.parametrize("block", range(3))
def test_nothing_is_lost_over_several_lives_killed_or_without_power(block: int) -> None:
    """What a start makes visible, a later power cut cannot take away: also what the killed process had
    written and never synced."""
    acknowledged = kills = 0
    for seed in range(3000 + block * 50, 3000 + block * 50 + 50):
        chance = Chance(seed)
        run = Run(SimulatedFiles(), chance, chance.randrange(20, 300), SYNC_FLUSH)
        for _ in range(3):
            run.go()
            is_killed = chance.random() < 0.6
            kills += is_killed
            files = run.files.crashed() if is_killed else run.files.power_cut(chance)
            store = store_on(files, flush=SYNC_FLUSH)
            visible = {queue: bodies_of(store, *queue) for queue in QUEUES}
            for queue in QUEUES:
                assert _in_order(run.acknowledged[queue], visible[queue]), f"seed {seed}"
            again = store_on(files.power_cut(chance), flush=SYNC_FLUSH)
            for queue in QUEUES:
                assert bodies_of(again, *queue) == visible[queue], f"seed {seed}"
            run.goes_on_with(files.crashed(), visible, chance.randrange(20, 300))
        acknowledged += sum(map(len, run.acknowledged.values()))
    assert acknowledged > 1000
    assert kills > 50


@pytest.mark.parametrize("block", range(2))
def test_async_flush_leaves_a_store_that_opens_and_whole_messages(block: int) -> None:
    """What was not synced may be lost, also from the middle; what is left is whole and in order."""
    for seed in range(1000 + block * 60, 1000 + block * 60 + 60):
        chance = Chance(seed)
        run = Run(SimulatedFiles(), chance, chance.randrange(20, 400), ASYNC_FLUSH)
        run.go()
        disk = run.files.power_cut(chance)
        store = store_on(disk)
        for queue in QUEUES:
            found = read_all(store, *queue)
            assert {record.body for record in found} <= run.attempted, f"seed {seed}"
            offsets = [record.queue_offset for record in found]
            assert offsets == sorted(set(offsets)), f"seed {seed}"
            assert all(record.damage() is None for record in found), f"seed {seed}"
        _goes_on(store, disk, seed)


def _in_order(some: list[bytes], found: list[bytes]) -> bool:
    """Whether all of `some` are among the found, in that order."""
    rest = iter(found)
    return all(each in rest for each in some)


def _goes_on(store: Store, disk: SimulatedFiles, seed: int) -> None:
    """The store takes new messages in each queue, and they are there after yet another crash."""
    before = {queue: bodies_of(store, *queue) for queue in QUEUES}
    for queue in QUEUES:
        store.append(draft(b"after the power came back", *queue))
    for again in (store_on(disk.crashed()), store_on(disk.crashed(), commit_log_segment_bytes=4096)):
        after = {queue: bodies_of(again, *queue) for queue in QUEUES}
        assert after == {
            queue: [*bodies, b"after the power came back"] for queue, bodies in before.items()
        }, f"seed {seed}"
    names = disk.list(f"{ROOT}/commitlog")
    assert {len(disk.read(f"{ROOT}/commitlog/{name}")) for name in names} == {4096}, f"seed {seed}"
