"""Masters change, by election and by hand, and topics, offsets and delayed messages are still there."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import kourou as library
from kourou.admin import Connection, switching
from kourou.admin import cluster as clusters
from kourou.cli.broker_switching import NotPromoted, promote
from kourou.local.machine_cluster import MachineCluster
from tests.kourou_process import kourou
from tests.machine_clusters import machine_cluster, wait_until_registered

SECONDS_MAX = 20.0


def await_that(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class World:
    """A cluster and a look at it."""

    def __init__(self, machine: MachineCluster, connection: Connection) -> None:
        self.machine = machine
        self.connection = connection
        self.by_address = {server.address: server.name for server in machine.servers()}

    @property
    def name_server(self) -> str:
        return self.machine.name_servers

    def states(self) -> list[switching.State]:
        try:
            return switching.states(self.connection)
        except library.MQError:
            return []

    def master(self) -> clusters.Node | None:
        return next((each.node for each in self.states() if each.node.is_master and not each.error), None)

    def in_sync(self) -> int:
        """How many may lead, as the master says it."""
        for each in self.states():
            if each.node.is_master and each.detail is not None and each.detail.may_acknowledge:
                return len(each.detail.in_sync)
        return 0

    def run(self, *arguments: str, code: int = 0) -> str:
        done = kourou(*arguments, "-n", self.name_server, folder=Path(self.machine.folder), seconds=60)
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def elected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        machine_cluster(tmp_path_factory.mktemp("elected") / "c", "3n-auto") as machine,
        Connection(machine.name_servers, timeout=1.0) as connection,
    ):
        world = World(machine, connection)
        await_that(lambda: world.in_sync() == 3, "not all in sync")
        yield world


@pytest.mark.timeout(600)
def test_after_a_kill_topics_offsets_and_delayed_messages_are_still_there(elected: World) -> None:
    before = elected.master()
    assert before is not None
    with library.Producer("shop", elected.name_server) as producer:
        for number in range(20):
            producer.send(library.Message("orders", b"%d" % number))
        due = time.time() + 6
        producer.send(library.Message("orders", b"later"), delay=6)
        with library.PullConsumer("billing", "orders", elected.name_server) as consumer:
            read: list[bytes] = []
            while len(read) < 10:
                read += [message.body for message in consumer.receive(10 - len(read), timeout=5)]
            consumer.commit()
        time.sleep(1.0)  # offsets are copied a moment after they were committed, not with them
        elected.machine.tell(elected.by_address[before.address], signal.SIGKILL)
        began = time.monotonic()
        producer.send(library.Message("orders", b"after"))
        took = time.monotonic() - began
    after = elected.master()
    assert after is not None
    assert after.address != before.address
    assert took < 10, took
    with library.PullConsumer("billing", "orders", elected.name_server) as consumer:
        rest: list[bytes] = []
        deadline = time.monotonic() + 20
        while b"later" not in rest and time.monotonic() < deadline:
            rest += [message.body for message in consumer.receive(100, timeout=1)]
        consumer.commit()
    expected = {b"%d" % number for number in range(20)} | {b"after", b"later"}
    assert set(read) | set(rest) == expected
    assert not set(read) & set(rest), "the group went on where it was"
    assert time.time() >= due - 0.5
    elected.machine.start(elected.by_address[before.address])
    await_that(lambda: elected.in_sync() == 3, "the old master did not come back as a replica")


@pytest.mark.timeout(600)
def test_the_lead_is_handed_over_by_hand_and_the_routes_follow_within_a_second(elected: World) -> None:
    await_that(lambda: elected.in_sync() == 3, "not all in sync")
    before = elected.master()
    assert before is not None
    heir = next(each.node for each in elected.states() if not each.node.is_master)
    looked = elected.run("broker", "promote", heir.address, "--dry-run")
    assert f"the master is {before.address}" in looked
    now = elected.master()
    assert now is not None
    assert now.address == before.address
    told = elected.run("broker", "promote", heir.address, "--yes")
    assert f"{heir.address} is the master of broker-a" in told
    with library.Producer("shop", elected.name_server) as producer:
        assert producer.send(library.Message("orders", b"handed over")).status is library.SendStatus.SEND_OK
    already = elected.run("broker", "promote", heir.address, "--yes", code=2)
    assert "is the master of broker-a already" in already
    shown = elected.run("broker", "replicas", "broker-a")
    assert shown.count("SLAVE") == 2
    await_that(lambda: elected.in_sync() == 3, "not all in sync again")


@pytest.mark.timeout(600)
def test_a_master_that_is_stopped_in_order_hands_over_at_once(elected: World) -> None:
    await_that(lambda: elected.in_sync() == 3, "not all in sync")
    before = elected.master()
    assert before is not None
    with library.Producer("shop", elected.name_server) as producer:
        producer.send(library.Message("orders", b"before"))
        name = elected.by_address[before.address]
        elected.machine.tell(name, signal.SIGTERM)
        producer.send(library.Message("orders", b"after"))
    after = elected.master()
    assert after is not None
    assert after.address != before.address
    elected.machine.start(name)
    await_that(lambda: elected.in_sync() == 3, "it did not come back")


@pytest.mark.timeout(600)
def test_a_paused_master_is_fenced_and_comes_back_as_a_replica(elected: World) -> None:
    await_that(lambda: elected.in_sync() == 3, "not all in sync")
    before = elected.master()
    assert before is not None
    name = elected.by_address[before.address]
    elected.machine.tell(name, signal.SIGSTOP)
    try:
        await_that(
            lambda: (now := elected.master()) is not None and now.address != before.address,
            "nobody took over",
        )
    finally:
        elected.machine.tell(name, signal.SIGCONT)
    await_that(lambda: elected.in_sync() == 3, "it did not come back")

    def is_a_replica() -> bool:
        return any(
            each.node.address == before.address and each.detail is not None and each.role == "SLAVE"
            for each in elected.states()
        )

    await_that(is_a_replica, "it is no replica")
    now = elected.master()
    assert now is not None
    assert now.address != before.address


@pytest.mark.timeout(600)
def test_a_replica_that_is_forced_to_lead_and_has_no_majority_is_told_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "SECONDS_MAX", 2.0)
    with machine_cluster(tmp_path / "c", "3n-auto") as machine:
        for name in ("broker-a-1", "broker-a-2"):
            machine.tell(name, signal.SIGKILL)
        with Connection(machine.name_servers) as connection:
            await_that(lambda: len(clusters.nodes(connection)) == 1, "two are not missed")
            await_that(lambda: not clusters.nodes(connection)[0].is_master, "it leads without a majority")
            address = clusters.nodes(connection)[0].address
        done = CliRunner().invoke(promote, [address, "--force", "--yes", "-n", machine.name_servers])
    assert isinstance(done.exception, NotPromoted)
    assert done.exception.exit_code == 6
    assert f"{address} does not lead broker-a after 2 s: more than half of those who vote" in str(
        done.exception
    )


def test_a_sync_pair_is_one_also_after_its_slave_was_promoted(tmp_path: Path) -> None:
    """What SEND_OK stands for does not change with who leads; `--role` says otherwise."""
    with (
        machine_cluster(tmp_path / "c", "2m-2s-sync") as machine,
        Connection(machine.name_servers, timeout=1.0) as connection,
    ):
        world = World(machine, connection)

        def roles() -> set[str]:
            return {each.role for each in switching.states(connection, "broker-a")}

        world.run("topic", "create", "orders", "--cluster", "DefaultCluster")
        with library.Producer("shop", machine.name_servers) as producer:
            queue = library.MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)

            def is_on_both() -> bool:
                try:
                    sent = producer.send(library.Message("orders", b"x"), queue=queue)
                except library.MQError:  # it has not heard yet who leads
                    return False
                return sent.status is library.SendStatus.SEND_OK

            await_that(is_on_both, "the slave does not follow")
            world.run("broker", "promote", "broker-a", "--yes")
            assert roles() == {"SYNC_MASTER", "SLAVE"}
            await_that(is_on_both, "the old master does not follow")
        world.run("broker", "promote", "broker-a", "--yes", "--role", "ASYNC_MASTER")
        assert roles() == {"ASYNC_MASTER", "SLAVE"}


def test_a_classic_pair_changes_places_by_hand(tmp_path: Path) -> None:
    with (
        machine_cluster(tmp_path / "c", "2m-2s-async") as machine,
        Connection(machine.name_servers, timeout=1.0) as connection,
    ):
        world = World(machine, connection)
        nodes = {(each.broker, each.broker_id): each for each in clusters.nodes(connection)}
        heir, old = nodes["broker-a", 1], nodes["broker-a", 0]
        with library.Producer("shop", machine.name_servers) as producer:
            for number in range(50):
                producer.send(library.Message("orders", b"%d" % number))
            await_that(
                lambda: any(
                    each.node.address == heir.address and each.behind == 0
                    for each in switching.states(connection, "broker-a")
                ),
                "the slave has caught up",
            )
            world.run("broker", "promote", heir.address, "--yes")
            roles = {each.node.address: each.role for each in switching.states(connection, "broker-a")}
            assert roles == {heir.address: "ASYNC_MASTER", old.address: "SLAVE"}
            for number in range(50, 100):
                producer.send(library.Message("orders", b"%d" % number))
        with library.PullConsumer("billing", "orders", machine.name_servers) as consumer:
            read: set[bytes] = set()
            while received := consumer.receive(100, timeout=2):
                read |= {message.body for message in received}
        assert read == {b"%d" % number for number in range(100)}

        # The new master dies; what the other one lacks is not known, so it must be asked for.
        machine.tell(world.by_address[heir.address], signal.SIGKILL)
        await_that(
            lambda: all(
                not each.is_master or each.broker != "broker-a" for each in clusters.nodes(connection)
            ),
            "",
        )
        unknown = world.run("broker", "promote", "127.0.0.1:1", "--yes", code=3)
        assert "no replica '127.0.0.1:1'" in unknown
        world.run("broker", "promote", old.address, "--yes", "--force")
        wait_until_registered(machine, without=(world.by_address[heir.address],))


def test_a_broker_its_set_does_not_know_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("electionMembers=127.0.0.1:1;127.0.0.1:2;127.0.0.1:3\n")
    options = ("-c", "broker.conf", "--port", "0", "--data", "store")
    done = kourou("broker", *options, folder=tmp_path)
    assert done.returncode == 2
    assert "does not name this broker, which clients reach at 127.0.0.1:" in done.stderr
