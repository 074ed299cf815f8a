"""A master and its slaves, with real stores on simulated disks and a simulated network."""

from __future__ import annotations

import asyncio
import errno
from struct import pack

import msgspec
import pytest

from kourou.broker.broker import Broker
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import EndTransaction, OffsetReply, PullReply, QueryOffset, UpdateOffset
from kourou.protocol.record import decode_all, encode, pack_host
from kourou.replication import stream
from kourou.store.aside import Manifest
from tests.unit.broker.broker_world import Misfortune, Peer, pull, send
from tests.unit.replication.replica_world import ReplicaWorld

SECRET = "a secret that is long enough"


def topic(world: ReplicaWorld, broker: Broker, name: str = "orders") -> None:
    world.broker = broker
    world.make_topic(name)
    world.broker = None  # type: ignore[assignment]


def test_a_slave_has_the_same_bytes_over_several_files(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    for number in range(20):  # before there is a slave: it gets these, too
        sender.send(body=b"%d " % number * 500, queue_id=number % 4)
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address)
    replicas.until(lambda: slave.replicating.replica.is_following)
    for number in range(150):
        assert sender.send(body=b"%d " % number * 400, queue_id=number % 4).code == ResponseCode.SUCCESS
    replicas.until_same(master, slave)
    assert replicas.log_of("slave") == replicas.log_of("master")
    assert len(replicas.disks["slave"].list("store/commitlog")) > 2
    for queue_id in range(4):
        assert slave.store.max_offset("orders", queue_id) == master.store.max_offset("orders", queue_id) > 0


def test_a_sync_master_answers_when_a_slave_has_it_and_not_before(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    replicas.part("master", "slave")
    sender, reader = replicas.peer(master), replicas.peer(master)
    sending = sender.begin(send(body=b"precious"))
    reading = reader.begin(pull(wait_ms=15_000))
    replicas.pass_time(1.0)
    assert not sending.is_answered
    assert not reading.is_answered, "a reader saw what only the master had"
    replicas.join("master", "slave")
    replicas.until(lambda: sending.is_answered)
    assert sending.reply.code == ResponseCode.SUCCESS
    assert reading.reply.code == ResponseCode.SUCCESS


def test_without_a_slave_a_sync_master_says_so_at_once(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    topic(replicas, master)
    peer = replicas.peer(master)
    reply = peer.send(body=b"alone")
    assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert "slaves" in (reply.remark or "")
    assert peer.bodies() == [b"alone"], "readers go on, as with the original"


def test_a_slave_that_does_not_answer_in_time_makes_it_a_timeout(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="SYNC_MASTER", slave_timeout_ms=2_000)
    topic(replicas, master)
    replicas.part("master", "slave")
    sender = replicas.peer(master)
    sending = sender.begin(send(body=b"slow"))
    replicas.pass_time(1.9, 0.1)
    assert not sending.is_answered
    replicas.pass_time(0.3, 0.1)
    assert sending.reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    # The slave is stuck: nobody else waits for it, until it answers again.
    assert sender.send(body=b"next").code == ResponseCode.SLAVE_NOT_AVAILABLE
    replicas.join("master", "slave")
    replicas.pass_time(2.0)
    assert sender.send(body=b"again").code == ResponseCode.SUCCESS


def test_batches_and_half_messages_wait_for_the_slave_too(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    half = sender.send(body=b"half", properties={"TRAN_MSG": "true", "PGROUP": "g", "UNIQ_KEY": "A" * 32})
    assert half.code == ResponseCode.SLAVE_NOT_AVAILABLE
    nobody_waits = sender.send(body=b"now", properties={"WAIT": "false"})
    assert nobody_waits.code == ResponseCode.SUCCESS


def test_a_slave_that_flushes_synchronously_acknowledges_only_what_is_on_its_disk(
    replicas: ReplicaWorld,
) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER", slave={"flush_disk_type": "SYNC_FLUSH"})
    topic(replicas, master)
    replicas.threads["slave"].hold()
    sender = replicas.peer(master)
    sending = sender.begin(send(body=b"to the disk"))
    replicas.pass_time(1.0)
    assert slave.store.wrote == master.store.wrote
    assert not sending.is_answered
    replicas.threads["slave"].release()
    replicas.until(lambda: sending.is_answered)
    assert sending.reply.code == ResponseCode.SUCCESS


def test_two_slaves_can_be_asked_for(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="SYNC_MASTER", in_sync_replicas=3)
    topic(replicas, master)
    sender = replicas.peer(master)
    assert sender.send().code == ResponseCode.SLAVE_NOT_AVAILABLE
    second = replicas.add("second", broker_role="SLAVE", broker_id=2, ha_master_address=master.ha_address)
    replicas.until(lambda: second.replicating.replica.is_following)
    assert sender.send().code == ResponseCode.SUCCESS
    replicas.part("master", "second")
    sending = sender.begin(send())
    replicas.pass_time(1.0)
    assert not sending.is_answered, "one slave was enough where two were asked for"


def test_readers_may_be_made_to_wait_for_the_slave_however_long(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER", ha_hide_unreplicated=True)
    topic(replicas, master)
    peer = replicas.peer(master)
    assert peer.send(body=b"hidden").code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert peer.bodies() == []
    replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address)
    replicas.until(lambda: peer.bodies() == [b"hidden"])


# ------------------------------------------------------------------------------------------ a slave's clients


def test_a_slave_serves_readers_and_refuses_writers(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair()
    topic(replicas, master)
    replicas.peer(master).send(body=b"for all")
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    peer = replicas.peer(slave)
    assert peer.bodies() == [b"for all"]
    refused = peer.send(body=b"not here")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "slave" in (refused.remark or "")
    created = peer.create_topic("elsewhere")
    assert created.code == ResponseCode.SYSTEM_ERROR
    assert "master" in (created.remark or "")


def test_a_reader_is_sent_to_another_broker_only_where_there_is_one(replicas: ReplicaWorld) -> None:
    def suggested(broker: Broker) -> int:
        return replicas.peer(broker).pull(group="readers").parse(PullReply).suggest_which_broker_id

    def prefers_replica(broker: Broker) -> None:
        broker.groups.save(SubscriptionGroupConfig(group_name="readers", broker_id=3))

    master, slave = replicas.pair()
    topic(replicas, master)
    prefers_replica(master)
    replicas.peer(master).send(body=b"one")
    replicas.until_same(master, slave)
    assert suggested(master) == 3
    replicas.kill("slave")
    replicas.until(lambda: not master.replicating.has_slaves)
    assert suggested(master) == 0


def test_a_slave_corrects_nobodys_offset_while_its_master_is_there(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair()
    topic(replicas, master)
    replicas.peer(master).send(body=b"one")
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    reply = replicas.peer(slave).pull(queue_offset=7)
    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert reply.parse(PullReply).next_begin_offset == 7
    assert reply.parse(PullReply).suggest_which_broker_id == 0


def test_a_slave_that_may_not_be_read_sends_readers_to_the_master(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(slave={"slave_read": False})
    topic(replicas, master)
    replicas.peer(master).send(body=b"one")
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    reply = replicas.peer(slave).pull()
    assert (reply.code, reply.body) == (ResponseCode.PULL_RETRY_IMMEDIATELY, b"")


def test_offsets_committed_at_a_slave_reach_its_master_when_that_returns(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(port=10911)
    topic(replicas, master)
    sender = replicas.peer(master)
    for _ in range(9):
        sender.send()
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    commit(sender, 3)
    replicas.until(lambda: committed(replicas.peer(slave)) == 3)
    replicas.end("master")
    commit(replicas.peer(slave), 8)
    master = replicas.add("master")
    replicas.until(lambda: committed(replicas.peer(master)) == 8)
    assert committed(replicas.peer(slave)) == 8


def commit(peer: Peer, queue_offset: int) -> None:
    header = UpdateOffset("readers", "orders", 0, queue_offset)
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS


def committed(peer: Peer) -> int | None:
    reply = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryOffset("readers", "orders", 0))
    return reply.parse(OffsetReply).offset if reply.code == ResponseCode.SUCCESS else None


# ------------------------------------------------------------------------------------------------ changing


def test_a_slave_takes_over_with_everything_and_the_old_master_follows_it(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    for number in range(10):
        sender.send(body=b"%d" % number)
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.run(slave.become_master())
    assert (slave.role.term, slave.role.name) == (1, "SYNC_MASTER"), "it promises what the old one did"
    assert replicas.peer(slave).send(body=b"new master").code == ResponseCode.SLAVE_NOT_AVAILABLE
    replicas.run(master.become_slave(1, slave.address, slave.ha_address))
    replicas.until_same(slave, master)
    assert replicas.log_of("slave") == replicas.log_of("master")
    assert replicas.peer(master).bodies() == [*(b"%d" % number for number in range(10)), b"new master"]
    assert sender.send().code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_topic_made_just_before_its_master_died_is_found_by_its_messages(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    slave.replicating.metadata.stop()
    topic(replicas, master, "brand-new")
    assert replicas.peer(master).send("brand-new", queue_id=2).code == ResponseCode.SUCCESS
    replicas.kill("master")
    assert slave.topics.get("brand-new") is None
    replicas.run(slave.become_master())
    assert replicas.peer(slave).bodies("brand-new", 2) == [b"hello"]
    assert replicas.peer(slave).send("brand-new", queue_id=1).code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_sync_master_without_a_slave_can_be_made_an_async_one(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER", ha_hide_unreplicated=True)
    topic(replicas, master)
    peer = replicas.peer(master)
    assert peer.send(body=b"hidden").code == ResponseCode.SLAVE_NOT_AVAILABLE
    replicas.run(master.become_master(role="ASYNC_MASTER"))
    assert peer.send(body=b"plain").code == ResponseCode.SUCCESS
    assert peer.bodies() == [b"hidden", b"plain"]
    assert master.role.term == 0, "it leads on in the same term"


def test_transactions_are_ended_at_the_new_master(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    half = {"TRAN_MSG": "true", "PGROUP": "senders", "UNIQ_KEY": "A" * 32}
    sent = replicas.peer(master).send(body=b"half", properties=half)
    assert sent.code == ResponseCode.SUCCESS
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    offset_id = sent.fields["msgId"]
    replicas.kill("master")
    replicas.run(slave.become_master())
    peer = replicas.peer(slave)
    assert peer.bodies() == []
    end = EndTransaction(
        producer_group="senders",
        half_queue_offset=0,
        physical_offset=int(offset_id[-16:], 16),
        outcome=8,
        from_check=False,
        unique_id="A" * 32,
        transaction_id="A" * 32,
    )
    assert peer.ask(RequestCode.END_TRANSACTION, end).code == ResponseCode.SUCCESS
    replicas.settle()
    assert peer.bodies() == [b"half"]


def test_delayed_messages_wait_on_and_come_out_at_the_new_master(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    sender.send(body=b"level", properties={"DELAY": "2"})
    due_ms = replicas.clock.now_ms() + 6_000
    sender.send(body=b"timer", properties={"TIMER_DELIVER_MS": str(due_ms)})
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    replicas.kill("master")
    replicas.run(slave.become_master())
    reader = replicas.peer(slave)
    assert reader.bodies() == []
    replicas.until(lambda: sorted(reader.bodies()) == [b"level", b"timer"])


def test_what_was_delivered_before_a_change_is_not_delivered_again(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    sender.send(body=b"level", properties={"DELAY": "1"})
    sender.send(body=b"timer", properties={"TIMER_DELAY_MS": "1500"})
    replicas.until(lambda: len(sender.bodies()) == 2)
    replicas.pass_time(15)  # flushed, saved, copied
    replicas.kill("master")
    replicas.run(slave.become_master())
    replicas.pass_time(5)
    assert sorted(replicas.peer(slave).bodies()) == [b"level", b"timer"]


def test_an_old_masters_unsent_end_is_set_aside_and_counted(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="ASYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    for number in range(5):
        sender.send(body=b"both %d" % number)
    replicas.until(lambda: slave.topics.get("orders") is not None)
    replicas.until_same(master, slave)
    common = master.store.wrote
    slave.replicating.replica.stop()
    for number in range(3):
        sender.send(body=b"only here %d" % number)
    replicas.kill("master")
    replicas.run(slave.become_master())
    new = replicas.peer(slave)
    for number in range(4):
        new.send(body=b"new %d" % number)
    old = replicas.add("master", broker_role="SLAVE", broker_id=2, ha_master_address=slave.ha_address)
    replicas.until_same(slave, old)
    assert replicas.log_of("master") == replicas.log_of("slave")
    expected = [*(b"both %d" % number for number in range(5)), *(b"new %d" % number for number in range(4))]
    assert replicas.peer(old).bodies() == expected
    assert old.ha_status().counters["tails set aside"] == 1
    files = replicas.disks["master"]
    (name,) = files.list("store/diverged")
    manifest = msgspec.json.decode(files.read(f"store/diverged/{name}/manifest.json"), type=Manifest)
    assert (manifest.start, manifest.messages, manifest.queues) == (common, 3, {"orders/0": (5, 7)})
    kept = decode_all(files.read(f"store/diverged/{name}/tail"))
    assert [record.body for record in kept] == [b"only here %d" % number for number in range(3)]


def test_a_slave_that_is_ahead_of_its_master_sets_its_lead_aside(replicas: ReplicaWorld) -> None:
    """The master's machine lost power and with it what it had not flushed; the slave has it."""
    master, slave = replicas.pair(flush_thorough_interval_ms=60_000)
    topic(replicas, master)
    sender = replicas.peer(master)
    for number in range(200):
        sender.send(body=b"flushed %d" % number)
    replicas.pass_time(65)
    end = master.store.flushed
    sender.send(body=b"in memory")
    assert slave.store.wrote == master.store.wrote > end
    files = replicas.disks["master"].power_cut(Misfortune())
    replicas.kill("master")
    replicas.disks["master"] = files
    master = replicas.add("master")
    assert master.store.wrote == end
    replicas.until(lambda: slave.replicating.replica.is_following and slave.store.wrote == end)
    assert slave.ha_status().counters["tails set aside"] == 1
    assert replicas.peer(master).send(body=b"on").code == ResponseCode.SUCCESS
    replicas.until_same(master, slave)
    assert replicas.log_of("master") == replicas.log_of("slave")


def test_an_older_master_is_not_followed(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair()
    replicas.run(slave.become_master())
    replicas.run(slave.become_slave(None, master.address, master.ha_address))
    replicas.pass_time(3)
    status = slave.ha_status().following
    assert status is not None
    assert status.state == "refused"
    assert "term 0" in status.reason


def test_a_slave_with_an_unrelated_log_is_refused_and_keeps_it(replicas: ReplicaWorld) -> None:
    other = replicas.add("slave")
    topic(replicas, other)
    for _ in range(5):
        replicas.peer(other).send(body=b"mine")
    replicas.end("slave")
    before = replicas.log_of("slave")
    master = replicas.add("master")
    topic(replicas, master)
    for _ in range(9):
        replicas.peer(master).send(body=b"another's")
    settings = {"broker_role": "SLAVE", "broker_id": 1, "ha_master_address": master.ha_address}
    slave = replicas.add("slave", **settings)
    replicas.pass_time(3)
    status = slave.ha_status().following
    assert status is not None
    assert "nothing in common" in status.reason
    assert replicas.log_of("slave") == before


def test_a_slave_whose_place_is_gone_is_told_so(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(segment_bytes=4096, slave={"segment_bytes": 4096})
    topic(replicas, master)
    sender = replicas.peer(master)
    sender.send(body=b"early")
    replicas.until_same(master, slave)
    replicas.end("slave")
    for _ in range(20):
        sender.send(body=b"x" * 1000)
    replicas.pass_time(12)
    files = replicas.disks["master"]
    replicas.end("master")
    for name in files.list("store/commitlog")[:2]:
        files.remove(f"store/commitlog/{name}")
    master = replicas.add("master")
    slave = replicas.add(
        "slave", broker_role="SLAVE", broker_id=1, segment_bytes=4096, ha_master_address=master.ha_address
    )
    replicas.pass_time(3)
    status = slave.ha_status().following
    assert status is not None
    assert "is gone there" in status.reason
    assert "move its store folder away" in status.reason


# -------------------------------------------------------------------------------------------------- strangers


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (pack(">q", 1 << 40), "protocol"),
        (pack(">q", -5), "protocol"),
        (b"GET / HT", "protocol"),
        (b"\xff" * 8 + b"\xff" * 8 + b"\x00\x00\x00\x02{}", "protocol"),
        (b"\xff" * 8 + pack(">qi", 5, 5), "protocol"),
    ],
)
def test_bytes_that_make_no_sense_end_the_connection_and_confirm_nothing(
    replicas: ReplicaWorld, said: bytes, counted: str
) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    topic(replicas, master)
    stranger = Stranger()
    connect(replicas, master, stranger)
    stranger.transport.write(said)
    replicas.settle()
    assert stranger.is_lost
    assert master.ha_status().counters[f"refused: {counted}"] == 1
    assert replicas.peer(master).send().code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_an_acknowledgement_of_what_was_never_sent_is_refused(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    topic(replicas, master)
    peer = replicas.peer(master)
    peer.send()
    stranger = Stranger()
    connect(replicas, master, stranger)
    stranger.transport.write(pack(">q", 0))
    replicas.settle()
    place, size = stream.FRAME.unpack_from(stranger.received)
    assert (place, size) == (0, master.store.wrote)
    stranger.transport.write(pack(">q", master.store.wrote + 1_000_000))
    replicas.settle()
    assert stranger.is_lost
    assert master.ha_status().counters["refused: ack beyond the end"] == 1
    assert peer.send().code == ResponseCode.SLAVE_NOT_AVAILABLE, "sends still wait for a slave"


def test_with_a_secret_only_those_who_know_it_follow(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(ha_secret=SECRET, slave={"ha_secret": SECRET})
    assert slave.replicating.replica.is_following
    other = replicas.add(
        "other", broker_role="SLAVE", broker_id=2, ha_master_address=master.ha_address, ha_secret=SECRET[::-1]
    )
    none = replicas.add("none", broker_role="SLAVE", broker_id=3, ha_master_address=master.ha_address)
    apache = Stranger()
    connect(replicas, master, apache)
    apache.transport.write(pack(">q", 0))
    replicas.pass_time(3)
    assert apache.is_lost
    assert apache.received == b""
    assert [each.replicating.replica.is_following for each in (other, none)] == [False, False]
    assert "haSecret" in other.replicating.replica.reason
    assert "haSecret" in none.replicating.replica.reason
    assert other.store.wrote == none.store.wrote == 0


def test_a_slave_with_a_secret_follows_no_master_without_it(replicas: ReplicaWorld) -> None:
    master = replicas.add("master")
    slave = replicas.add(
        "slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address, ha_secret=SECRET
    )
    replicas.pass_time(3)
    assert not slave.replicating.replica.is_following
    assert "haSecret" in slave.replicating.replica.reason


def test_where_access_is_controlled_nobody_follows_without_showing_who_he_is(replicas: ReplicaWorld) -> None:
    user = '{"username":"root","password":"a password of some length"}'
    master = replicas.add("master", authentication_enabled=True, first_user=user)
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address)
    apache = Stranger()
    connect(replicas, master, apache)
    apache.transport.write(pack(">q", 0))
    replicas.pass_time(3)
    assert apache.is_lost
    assert apache.received == b""
    assert "set haSecret" in slave.replicating.replica.reason


def test_what_a_slave_is_sent_can_be_bounded(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", ha_flow_control=True, ha_bytes_a_second_max=10_000)
    topic(replicas, master)
    sender = replicas.peer(master)
    for _ in range(60):
        sender.send(body=b"x" * 1000)
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address)
    replicas.until(lambda: slave.replicating.replica.is_following)
    before = slave.store.wrote
    replicas.pass_time(2.0, 0.05)
    assert 10_000 <= slave.store.wrote - before <= 25_000
    replicas.until_same(master, slave)
    assert replicas.log_of("slave") == replicas.log_of("master")


def test_peers_that_are_not_allowed_are_turned_away(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", ha_allowed_peers=("127.0.0.99",))
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address)
    replicas.pass_time(3)
    assert not slave.replicating.replica.is_following
    assert master.ha_status().counters["refused: peer not allowed"] > 0


def test_connections_are_bounded(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", ha_links_max=2)
    strangers = [Stranger() for _ in range(5)]
    for stranger in strangers:
        connect(replicas, master, stranger)
    replicas.settle()
    assert [stranger.is_lost for stranger in strangers] == [False, False, True, True, True]
    replicas.pass_time(12)
    assert all(stranger.is_lost for stranger in strangers), "whoever says nothing is hung up on"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"broker_name": "other"}, "brokerName and brokerClusterName of a pair"),
        ({"segment_bytes": 128 * 1024}, "mappedFileSizeCommitLog"),
        ({"broker_id": 1}, "brokerId 1 is taken by"),
    ],
)
def test_a_slave_that_does_not_fit_is_told_why(
    replicas: ReplicaWorld, settings: dict[str, object], reason: str
) -> None:
    master, _ = replicas.pair()
    usual = {"broker_role": "SLAVE", "broker_id": 2, "ha_master_address": master.ha_address}
    misfit = replicas.add("misfit", **{**usual, **settings})
    replicas.pass_time(3)
    assert not misfit.replicating.replica.is_following
    assert reason in misfit.replicating.replica.reason


def test_a_silent_slave_is_missed_within_15_seconds_and_a_silent_master_too(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair()
    replicas.part("master", "slave")
    replicas.pass_time(15)
    assert master.ha_status().links == []
    assert not slave.replicating.replica.is_following


def test_a_full_disk_on_the_slave_stops_it_and_it_goes_on_by_itself(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic(replicas, master)
    sender = replicas.peer(master)
    sender.send(body=b"before")
    replicas.disks["slave"].fail("pwrite", error=errno.ENOSPC)
    sending = sender.begin(send(body=b"while full"))
    replicas.until(lambda: sending.is_answered)
    replicas.until(lambda: slave.replicating.replica.is_following)
    assert sender.send(body=b"after").code == ResponseCode.SUCCESS
    replicas.until_same(master, slave)
    assert replicas.log_of("master") == replicas.log_of("slave")


def test_a_frame_is_acknowledged_at_its_end_and_what_there_is_of_it_soon(replicas: ReplicaWorld) -> None:
    master = Stranger()
    replicas.run(
        replicas.network.listen("127.0.0.8", 7, lambda *_: master, backlog=1, exhausted=lambda: None)
    )
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1, ha_master_address="127.0.0.8:7")
    replicas.until(lambda: slave.replicating.replica.is_following)
    host = pack_host("127.0.0.1", 1)
    log = encode(b"orders", 0, 0, 0, 0, 0, 1, host, 1, host, 0, 0, bytes(1000), b"", True)

    def reports_after(data: bytes, seconds: float = 0.0) -> list[int]:
        master.received = b""
        master.transport.write(data)
        replicas.settle()
        if seconds:
            replicas.pass_time(seconds, seconds)
        return [place for (place,) in stream.REPORT.iter_unpack(master.received)]

    assert reports_after(stream.FRAME.pack(0, len(log)) + log[:100]) == []
    assert reports_after(log[100:300]) == []
    assert reports_after(log[300:500], 0.005) == [500]
    assert reports_after(log[500:600]) == []
    assert reports_after(log[600:]) == [len(log)]
    assert reports_after(b"", 0.1) == [], "there is nothing new to tell"
    assert slave.store.max_offset("orders", 0) == 1


class Stranger(asyncio.Protocol):
    """Somebody at the HA port who is no slave."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False
        self.transport: asyncio.Transport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def connect(world: ReplicaWorld, master: Broker, stranger: Stranger) -> None:
    host, _, port = master.ha_address.rpartition(":")
    world.run(world.network.connect(host, int(port), stranger))


def test_an_address_that_is_no_masters_is_named_with_the_way_out(replicas: ReplicaWorld) -> None:
    other = replicas.add("other", broker_name="other", broker_role="ASYNC_MASTER")
    settings = {"broker_role": "SLAVE", "broker_id": 1}
    nobody = replicas.add("nobody's", **settings, ha_master_address="127.0.0.77:10912")
    clients = replicas.add("clients'", **settings, ha_master_address=other.address)
    replicas.pass_time(12)
    unreachable, stranger = (each.ha_status().following for each in (nobody, clients))
    assert unreachable is not None
    assert "127.0.0.77:10912 cannot be reached" in unreachable.reason
    assert "haListenPort" in unreachable.reason
    assert stranger is not None
    assert other.address in stranger.reason
    assert "Check haMasterAddress" in stranger.reason
