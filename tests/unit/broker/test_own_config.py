"""What a peer may change of a broker's settings, and what nobody may from afar."""

from __future__ import annotations

import pytest

from kourou.broker.config import KEYS
from kourou.broker.own_config import NEVER_REMOTE, UPDATE_BYTES_MAX
from kourou.protocol import java_properties
from kourou.protocol.bodies import PERM_WRITE
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from tests.unit.broker.broker_world import BrokerWorld, Peer

UPDATE, GET = RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG


@pytest.fixture
def peer(world: BrokerWorld) -> Peer:
    world.start()
    world.make_topic("orders", 2)
    return world.connect()


def update(peer: Peer, text: str) -> Command:
    return peer.ask(UPDATE, body=text.encode())


def settings(peer: Peer) -> dict[str, str]:
    return java_properties.parse(peer.ask(GET).body)


def test_every_setting_but_secrets_is_shown(peer: Peer) -> None:
    shown = settings(peer)
    expected_by_tools = {"filterServerNums"}
    ours = {key.name for key in KEYS.keys.values() if not key.secret} | KEYS.fixed.keys()
    assert shown.keys() == ours | expected_by_tools
    assert shown["brokerName"] == "broker-a"
    assert not {key.name for key in KEYS.keys.values() if key.secret} & shown.keys()


def test_a_change_acts_at_once(peer: Peer, world: BrokerWorld) -> None:
    assert peer.send(queue_id=0).code == 0
    assert update(peer, "brokerPermission=4").code == 0
    assert peer.send(queue_id=0).code == ResponseCode.NO_PERMISSION
    assert settings(peer)["brokerPermission"] == "4"
    assert update(peer, "brokerPermission=6").code == 0
    assert peer.send(queue_id=0).code == 0
    assert world.broker.config.permission & PERM_WRITE


def test_the_store_hears_of_its_share(peer: Peer, world: BrokerWorld) -> None:
    assert (
        update(peer, "fileReservedTime=5\nmaxTransferCountOnMessageInMemory=1024\ndeleteWhen=03;05").code == 0
    )
    config = world.broker.store.config
    assert (config.file_reserved_hours, config.pull_messages_in_memory_max) == (5, 1024)
    assert config.delete_hours == {3, 5}


def test_a_timer_runs_at_its_new_pace(world: BrokerWorld) -> None:
    world.start(transaction_check_interval_ms=60_000)
    checks: list[float] = []
    world.broker.transactions.check = lambda: checks.append(world.clock.monotonic())  # type: ignore[method-assign]
    world.broker.transactions.settings_changed()
    peer = world.connect()
    assert update(peer, "transactionCheckInterval=1000").code == 0
    world.pass_time(3.2)
    assert len(checks) == 3


def test_topics_may_be_made_by_sends_from_now_on(world: BrokerWorld) -> None:
    world.start(auto_create_topic=False)
    peer = world.connect()
    assert peer.send(topic="new", queue_id=0).code == ResponseCode.TOPIC_NOT_EXIST
    assert update(peer, "autoCreateTopicEnable=true").code == 0
    assert peer.send(topic="new", queue_id=0).code == 0


def test_the_data_version_counts_changes(peer: Peer) -> None:
    before = peer.ask(GET).fields["version"]
    assert '"counter":0' in before
    update(peer, "longPollingEnable=true")
    assert '"counter":1' in peer.ask(GET).fields["version"]


def test_a_key_of_the_original_without_effect_is_taken(peer: Peer) -> None:
    assert update(peer, "estimateAccumulation=true").code == 0


@pytest.mark.parametrize("name", sorted(NEVER_REMOTE))
def test_cve_2023_33246_what_once_led_to_a_shell_is_refused(peer: Peer, name: str) -> None:
    before = settings(peer)
    reply = update(peer, f"{name}=-c $@|sh . echo touch /tmp/pwned;\nfileReservedTime=1")
    assert reply.code == ResponseCode.NO_PERMISSION
    assert settings(peer) == before


@pytest.mark.parametrize(
    "name",
    [key.name for key in KEYS.keys.values() if not key.remote] + sorted(KEYS.fixed),
)
def test_nothing_off_the_list_can_be_set_from_afar(peer: Peer, name: str) -> None:
    before = settings(peer)
    reply = update(peer, f"longPollingEnable=false\n{name}=1")
    assert reply.code == ResponseCode.NO_PERMISSION, reply.remark
    assert name in (reply.remark or "")
    assert settings(peer) == before  # all of a request, or nothing of it


def test_the_list_of_what_a_peer_may_change_is_short_and_known() -> None:
    """No path, address, name, access or TLS setting; whoever adds one adds it here, and thinks about it."""
    names = """
        autoCreateSubscriptionGroup autoCreateTopicEnable autoCreatedTopicsMax brokerPermission
        consumerGroupsMax deleteWhen diskMaxUsedSpaceRatio enablePropertyFilter fileReservedTime
        filterSupportRetry longPollingEnable maxMsgsNumBatch maxTransferBytesOnMessageInDisk
        maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory
        notifyConsumerIdsChangedEnable recallMessageEnable refuseDifferentSubscriptions
        rejectTransactionMessage shortPollingTimeMills slaveReadEnable storeReplyMessageEnable
        timerMaxDelaySec transactionCheckInterval transactionCheckMax transactionTimeOut
        useServerSideResetOffset
    """
    assert {key.name for key in KEYS.keys.values() if key.remote} == set(names.split())


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("fileReservedTime=0", 1, "must be a whole number from 1"),
        ("fileReservedTime=-1", 1, "must be a whole number"),
        ("fileReservedTime=1000000000", 1, "must be a whole number"),
        ("maxTransferCountOnMessageInMemory=1e9", 1, "must be a whole number"),
        ("brokerPermission=0", 1, "can be set to 4 (read) or 6 (read, write)"),
        ("FILERESERVEDTIME=5", 1, "did you mean fileReservedTime?"),
        ("nonsense=1", 1, "no setting 'nonsense'"),
        ("fileReservedTime=\\u00zz", 1, ""),
        ("fileReservedTime=${HOME}", 1, "must be a whole number"),
        ("include=/etc/passwd", 1, "no setting 'include'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_value(peer: Peer, text: str, code: int, says: str) -> None:
    before = settings(peer)
    reply = update(peer, text)
    assert reply.code == code
    assert says in (reply.remark or "")
    assert settings(peer) == before


def test_a_change_beyond_all_measure_is_not_even_read(peer: Peer) -> None:
    reply = update(peer, "x" * (UPDATE_BYTES_MAX + 1))
    assert reply.code == 1
    assert "at most" in (reply.remark or "")


def test_after_a_restart_the_file_counts_again(world: BrokerWorld, peer: Peer) -> None:
    assert update(peer, "fileReservedTime=5").code == 0
    world.stop()
    world.start()
    assert settings(world.connect())["fileReservedTime"] == "72"
