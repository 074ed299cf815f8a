"""The end of `make demo`: three brokers, one of them leads and is killed, and sending goes on."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import kourou
from kourou.admin import Connection, switching
from kourou.doors.files import RealFiles
from kourou.local.machine_cluster import MachineCluster
from tools.demo_kinds import DemoFailed

TOPIC = "macchiato"
FOLDER = Path("kourou-data/demo-cluster")
BEFORE, AFTER = 200, 200
READY_SECONDS_MAX = 20.0

Step = Callable[[str, str], None]


def fail_over(step: Step) -> None:
    """Tell it step by step; what was acknowledged must be there in the end."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    cluster = MachineCluster(str(FOLDER), RealFiles())
    began = time.monotonic()
    try:
        cluster.up("3n-auto")
        with Connection(cluster.name_servers, timeout=1.0) as connection:
            master = await_master(connection)
            names = {server.address: server.name for server in cluster.servers()}
            step(
                "kourou cluster up",
                f"three brokers; {names[master]} was elected after {time.monotonic() - began:.1f} s",
            )
            acknowledged, seconds = send_through_a_kill(cluster, names[master])
            heir = await_master(connection, other_than=master)
            step(
                "kill -9 of the master",
                f"{names[heir]} leads now; the next send was acknowledged after {seconds:.1f} s, by itself",
            )
        found = read_all(cluster.name_servers, len(acknowledged))
        if acknowledged - found:
            raise DemoFailed(
                f"{len(acknowledged - found)} acknowledged messages are gone after the fail-over"
            )
        step("nothing is lost", f"all {len(acknowledged)} acknowledged messages are at the new master")
    finally:
        cluster.down()


def await_master(connection: Connection, other_than: str | None = None) -> str:
    """The address of the broker that leads, once it has a replica."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            found = switching.states(connection)
        except kourou.MQError:
            found = []
        for each in found:
            detail = each.detail
            if detail is None or not each.node.is_master or each.node.address == other_than:
                continue
            if detail.may_acknowledge and len(detail.in_sync) > 1:
                return each.node.address
        time.sleep(0.05)
    raise DemoFailed(f"no broker led within {READY_SECONDS_MAX:g} s")


def send_through_a_kill(cluster: MachineCluster, master: str) -> tuple[set[bytes], float]:
    """What was acknowledged before and after, and how long the first send after the kill took."""
    acknowledged: set[bytes] = set()
    with kourou.Producer("demo", cluster.name_servers) as producer:

        def send(number: int) -> None:
            body = b"%d" % number
            if producer.send(kourou.Message(TOPIC, body), timeout=10.0).status is kourou.SendStatus.SEND_OK:
                acknowledged.add(body)

        for number in range(BEFORE):
            send(number)
        began = time.monotonic()
        cluster.tell(master, signal.SIGKILL)
        send(BEFORE)
        seconds = time.monotonic() - began
        for number in range(BEFORE + 1, BEFORE + AFTER):
            send(number)
    return acknowledged, seconds


def read_all(name_server: str, expected: int) -> set[bytes]:
    found: set[bytes] = set()
    with kourou.PullConsumer("demo", TOPIC, name_server) as consumer:
        while len(found) < expected and (received := consumer.receive(256, timeout=3.0)):
            found |= {message.body for message in received}
    return found
