"""A broker with ten thousand pending timers is killed: each of them is delivered, and none early (T19).

It is killed while all of them wait, and then twice in the middle of delivering them, just before and just
after copies of some are stored: what was delivered then may be so again, and nothing else; and nothing at all
once how far things are has been written down (`flushDelayOffsetInterval`). Its clock is the test's
(`KOUROU_CLOCK`), so they wait for an hour and nobody else does. `TIMERS=1000000` has more of them.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kourou.doors import failpoints
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import decode, request
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import OffsetReply, QueueNamed
from kourou.remoting.blocking import BlockingClient
from tests.chaos.clients import everything, make_topics
from tests.chaos.clocks import HOUR_MS, WallClock
from tests.chaos.oracle import History, Queue, Sent, faults
from tests.kourou_process import Serving, serving_broker
from tests.unit.broker.broker_world import send

TIMERS = int(os.environ.get("TIMERS", "10000"))
TOPIC, QUEUES, WINDOW = "later", 4, 500
EVERY_QUEUE: list[Queue] = [(TOPIC, number) for number in range(QUEUES)]
WAITING: Queue = ("rmq_sys_wheel_timer", 0)
SPREAD_MS = 4_000
SECONDS_MAX = 60.0 + TIMERS / 1_000
QUIET_SECONDS = 1.5
SETTINGS = "listenPort=0\nflushDelayOffsetInterval=200\n"
ENDINGS = ("before-timer-fire:20:kill", "after-timer-fire:10:kill")


@pytest.mark.slow
@pytest.mark.timeout(300 + TIMERS / 50)
def test_no_timer_is_lost_or_comes_twice_without_cause_when_its_broker_is_killed(tmp_path: Path) -> None:
    clock, history = WallClock(tmp_path / "clock"), History(keeps_operations=False)
    with _broker(tmp_path, clock) as server:
        address = server.address("listens on")
        make_topics(address, [TOPIC], QUEUES)
        due_ms = send_timed(address, history)
        assert end_of(address, [WAITING]) == TIMERS
        assert end_of(address, EVERY_QUEUE) == 0, "some were delivered before anybody was killed"
        server.kill()
    ahead_ms = min(due_ms.values()) - _now_ms()
    for ending in ENDINGS:
        clock.set(ahead_ms)  # the first is due, and most are not yet
        with _broker(tmp_path, clock, ending) as server:
            assert server.wait() < 0, server.log  # it kills itself
        note_repeats(tmp_path, clock, history)
    clock.set(ahead_ms)
    with _broker(tmp_path, clock) as server:
        address = server.address("listens on")
        await_all(server, tmp_path)
        stored = everything(address, EVERY_QUEUE)
        server.kill()
    found = faults(history, stored, {})
    found += [
        f"I10: {each.id} was delivered {due_ms[each.id] - each.store_ms} ms early"
        for each in stored
        if each.store_ms < due_ms[each.id]
    ]
    assert not found, f"{len(found)} faults, the first: {found[:3]}"
    with _broker(tmp_path, clock) as server:
        time.sleep(QUIET_SECONDS)
        again = end_of(server.address("listens on"), EVERY_QUEUE) - len(stored)
        assert again == 0, f"{again} came once more, though it was written down that they were delivered"
        assert server.stop() == 0, server.log


def _broker(folder: Path, clock: WallClock, ending: str = "") -> AbstractContextManager[Serving]:
    environment = {**clock.environment, **({failpoints.VARIABLE: ending} if ending else {})}
    return serving_broker(folder, settings=SETTINGS, environment=environment)


def note_repeats(folder: Path, clock: WallClock, history: History) -> None:
    """What was delivered just before a kill may be so once more; looked at while nothing is due."""
    clock.set(0)
    with _broker(folder, clock) as server:
        stored = everything(server.address("listens on"), EVERY_QUEUE)
        server.kill()
    there = Counter(message.id for message in stored)
    assert 0 < len(there) < TIMERS, (
        f"{len(there)} of {TIMERS} were delivered: it was killed too early or late"
    )
    history.repeats.clear()
    history.repeats.update(there)


def send_timed(address: str, history: History) -> dict[str, int]:
    """So many timers, due within some seconds in an hour; when each is, by its id."""
    begin_ms = _now_ms() + HOUR_MS
    due_ms: dict[str, int] = {}
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as peer:
        reader = FrameReader()
        for first in range(0, TIMERS, WINDOW):
            messages = [_message(number) for number in range(first, min(first + WINDOW, TIMERS))]
            for message in messages:
                history.sends(message)
                due_ms[message.id] = begin_ms + message.number * 7919 % SPREAD_MS
            peer.sendall(b"".join(_timed(message, due_ms[message.id]) for message in messages))
            _await_replies(peer, reader, len(messages))
            for message in messages:
                history.was_promised(message, "I10")
    return due_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _message(number: int) -> Sent:
    properties = {"KEYS": f"k{number}", "TAGS": f"tag{number % 3}"}
    return Sent("t", number, EVERY_QUEUE[number % QUEUES], f"t/{number}/body".encode(), properties)


def _timed(message: Sent, due_ms: int) -> bytes:
    properties = {**message.properties, "TIMER_DELIVER_MS": f"{due_ms}"}
    return send(TOPIC, message.body, queue_id=message.queue[1], properties=properties).encode()


def _await_replies(peer: socket.socket, reader: FrameReader, count: int) -> None:
    while count:
        data = peer.recv(1 << 20)
        assert data, "the broker hung up"
        for frame in reader.feed(data):
            reply = decode(frame)
            assert reply.code == ResponseCode.SUCCESS, reply.remark
            count -= 1


def await_all(server: Serving, folder: Path) -> None:
    """Until the broker has written down that nothing waits any more."""
    deadline = time.monotonic() + SECONDS_MAX
    path = folder / "store" / "timers" / "progress.json"
    while json.loads(path.read_bytes())["deliveredBeforeMs"] < 1 << 60:
        assert time.monotonic() < deadline, f"some still wait: {path.read_text()}, {server.log[-800:]}"
        time.sleep(0.05)


def end_of(address: str, queues: list[Queue]) -> int:
    """How many messages there are in these queues."""
    ends = 0
    with BlockingClient() as client:
        for topic, queue_id in queues:
            asked = request(RequestCode.GET_MAX_OFFSET, QueueNamed(topic=topic, queue_id=queue_id))
            ends += client.call(address, asked, SECONDS_MAX).parse(OffsetReply).offset
    return ends
