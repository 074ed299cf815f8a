"""Recovery that takes usual records all at once finds what it finds when it takes one after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.native import native
from kourou.protocol.record import encode, pack_host
from kourou.store.recovery import Recovered, recover
from kourou.store.store import Draft, Store
from tests.unit.store.folder import BORN, HERE, ROOT, bodies_of, fill, log_path, overwrite, store_on

pytestmark = pytest.mark.skipif(
    native is None, reason="kourou.native is not compiled here, or KOUROU_NATIVE=0"
)

Found = tuple[list[tuple[Any, ...]], dict[str, bytes]]


@pytest.mark.parametrize("seed", range(24))
def test_the_quick_way_recovers_what_the_plain_way_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of message; topics deleted and made again; damage; queues there, gone, or behind."""
    chance = random.Random(seed)
    files = SimulatedFiles()
    store = store_on(files)
    write(store, chance, 120)
    if chance.random() < 0.5:
        store.delete_topic(chance.choice(["one", "two"]))
    before = files.crashed()
    write(store, chance, 120)
    if chance.random() < 0.5:
        store.close()
    damage(files, chance, store.wrote)
    if chance.random() < 0.5:
        files.remove_folder(f"{ROOT}/consumequeue")
    elif chance.random() < 0.5:
        take_queues_of(before, files)
    elif files.exists(f"{ROOT}/checkpoint"):
        files.remove(f"{ROOT}/checkpoint")
    quick = opened(files.crashed(), monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr("kourou.store.recovery.native", None)
        plain = opened(files.crashed(), monkeypatch)
    assert quick == plain
    assert plain[1]


@pytest.mark.parametrize("by", ["C", "Python"])
def test_of_a_deleted_topic_only_what_came_after_is_there_also_when_everything_is_walked(
    by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if by == "Python":
        monkeypatch.setattr("kourou.store.recovery.native", None)
    files = SimulatedFiles()
    store = store_on(files)
    for queue_id in (0, 1):
        fill(store, 5, queue_id=queue_id)
    fill(store, 5, topic="other")
    store.delete_topic("T")
    new = {queue_id: fill(store, 3, queue_id=queue_id, start=100) for queue_id in (0, 1)}
    files.remove(f"{ROOT}/checkpoint")
    again = store_on(files.crashed())
    assert {queue_id: bodies_of(again, "T", queue_id) for queue_id in (0, 1)} == new
    assert again.max_offset("other", 0) == 5
    assert "begins anew" not in caplog.text  # nothing of its former life was ever taken


@pytest.mark.parametrize("by", ["C", "Python"])
def test_behind_damage_nothing_is_believed_that_is_older_than_what_lies_before_it(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "Python":
        monkeypatch.setattr("kourou.store.recovery.native", None)
    files = SimulatedFiles()
    files.make_folders(f"{ROOT}/commitlog")
    log = b""
    for number, stored_ms in enumerate((500, 2000, 1000)):
        log += b"damage" if number == 2 else b""
        log += encode(
            *(b"T", 0, 0, number, len(log), 0, 1, BORN, stored_ms, HERE, 0, 0, b"body", b"TAGS\x01a\x02"),
            True,
        )
    files.open(log_path(), create=True).pwrite(log.ljust(4096, b"\0"), 0)
    files.open(f"{ROOT}/abort", create=True)
    store = store_on(files)
    assert store.max_offset("T", 0) == 2
    assert store.wrote == log.index(b"damage")


def write(store: Store, chance: random.Random, count: int) -> None:
    for number in range(count):
        unique = b"UNIQ_KEY\x01%032d\x02" % number
        kind = chance.randrange(12)
        properties = {
            0: b"",
            1: b"TAGS\x01\xc3\xa9\x02",
            2: b"TAGS\x01a\x02KEYS\x01one two\x02" + unique,
            3: unique + b"DELAY\x013\x02",
        }.get(kind, unique + b"TAGS\x01T%d\x02" % (number % 3))
        topic = "SCHEDULE_TOPIC_XXXX" if kind == 3 else chance.choice(["one", "two", "a" * 100])
        born = pack_host("::1", 1) if kind == 4 else HERE
        sys_flag = chance.choice([0, 0, 0, 0, 0, 4, 8, 12]) | (0x10 if len(born) > 8 else 0)
        body = chance.randbytes(chance.randrange(1, 200))
        store.append(Draft(topic, chance.randrange(3), body, properties, 0, sys_flag, 1, born, HERE))


def damage(files: SimulatedFiles, chance: random.Random, end: int) -> None:
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randrange(end)
        segment, within = at - at % 4096, at % 4096
        overwrite(files, f"{ROOT}/commitlog/{segment:020d}", within, chance.randbytes(min(4, 4096 - within)))


def take_queues_of(before: SimulatedFiles, files: SimulatedFiles) -> None:
    """The queues as they were some time ago, as if nothing had been written since."""
    files.remove_folder(f"{ROOT}/consumequeue")
    for path, data in queue_files(before).items():
        files.make_folders(path.rpartition("/")[0])
        files.open(path, create=True).pwrite(data, 0)


def opened(files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch) -> Found:
    """What recovery says, and the files of the queues as it leaves them."""
    found: list[tuple[Any, ...]] = []

    def noted(*given: Any, **more: Any) -> Recovered:
        result = recover(*given, **more)
        found.append((*result[:5], {(each.topic, each.queue_id): at for each, at in result.changed.items()}))
        return result

    with monkeypatch.context() as patched:
        patched.setattr("kourou.store.store.recover", noted)
        store_on(files)
    return found, queue_files(files)


def queue_files(files: SimulatedFiles) -> dict[str, bytes]:
    root = f"{ROOT}/consumequeue"
    return {
        path: files.read(path)
        for topic in files.list(root)
        for queue_id in files.list(f"{root}/{topic}")
        for name in files.list(f"{root}/{topic}/{queue_id}")
        for path in [f"{root}/{topic}/{queue_id}/{name}"]
    }
