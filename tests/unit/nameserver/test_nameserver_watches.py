"""Clients that said so hear that a route has changed; nobody else hears anything."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kourou.access.credentials import Credentials
from kourou.errors import MQError
from kourou.nameserver import watches as watches_module
from kourou.protocol.bodies import QueueData, TopicList, TopicRouteData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, decode, request
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import (
    BrokerIdentity,
    BrokerNamed,
    DeleteTopicFromNameServer,
    GetRoute,
    PutKv,
    TopicNamed,
)
from kourou.remoting.answer import Answer
from tests.guarded_cluster import SHOP
from tests.unit.remoting.test_access import World as Guarded

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def look(desk: Any, peer: Any, *topics: str, watch: bool | None = True) -> None:
    for topic in topics:
        header = GetRoute(topic, accept_standard_json_only=True, kourou_watch=watch)
        desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, peer=peer)
    peer.replies.clear()


def heard(desk: Any, peer: Any) -> list[list[str]]:
    """What came within a second, one list for each message; takes it away."""
    desk.clock.advance(1.0)
    assert all(each.code == RequestCode.KOUROU_ROUTE_CHANGED for each in peer.replies)
    assert all(each.flag & FLAG_ONE_WAY for each in peer.replies)
    topics = [sorted(TopicList.decode(each.body).topic_list) for each in peer.replies]
    peer.replies.clear()
    return topics


def _another_broker(desk: Any) -> None:
    desk.register("t", "u", name="broker-b", address=B)


def _slave(desk: Any) -> None:
    desk.register(id=1, address=B)


def _other_address(desk: Any) -> None:
    desk.register("t", "u", address="10.0.0.9:10911")


def _unregistered(desk: Any) -> None:
    gone = BrokerIdentity(
        broker_name="broker-a", broker_id=0, broker_address=A, cluster_name="DefaultCluster"
    )
    desk.ask(RequestCode.UNREGISTER_BROKER, gone)


def _silent(desk: Any) -> None:
    desk.clock.advance(121.0)
    desk.brokers.scan()


def _wiped(desk: Any) -> None:
    desk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNamed(broker_name="broker-a"))


def _deleted(desk: Any) -> None:
    desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNameServer(topic="t"))


def _more_queues(desk: Any) -> None:
    queues = QueueData(broker_name="broker-a", read_queue_nums=9, write_queue_nums=9, perm=6)
    body = TopicRouteData(queue_datas=[queues]).encode()
    desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicNamed("t"), body)


def _ordered(desk: Any) -> None:
    header = PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4")
    desk.ask(RequestCode.PUT_KV_CONFIG, header)


CHANGES = [
    *(_another_broker, _slave, _other_address, _unregistered, _silent),
    *(_wiped, _deleted, _more_queues, _ordered),
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_shows_in_a_route_is_told_to_who_watches_it(desk: Any, make_peer: Any, change: Any) -> None:
    desk.register("t", "u")
    watcher, stranger = make_peer(), make_peer()
    look(desk, watcher, "t")
    look(desk, stranger, "t", watch=None)
    change(desk)
    assert heard(desk, watcher) == [["t"]]
    assert heard(desk, stranger) == [], "it never asked to be told"


def test_a_broker_whose_connection_is_gone_is_told_of(desk: Any, make_peer: Any) -> None:
    broker, watcher = make_peer(), make_peer()
    desk.register("t", "u", peer=broker)
    look(desk, watcher, "t")
    broker.close("peer")
    assert heard(desk, watcher) == [["t"]]


def test_a_topic_that_appears_is_told_of(desk: Any, make_peer: Any) -> None:
    watcher = make_peer()
    look(desk, watcher, "t")
    desk.register("t", "u")
    assert heard(desk, watcher) == [["t"]]


def test_a_registration_that_changes_nothing_is_told_to_nobody(desk: Any, make_peer: Any) -> None:
    desk.register("t", "u")
    watcher = make_peer()
    look(desk, watcher, "t")
    desk.register("t", "u", counter=2)
    desk.register("v", "w", name="broker-b", address=B)
    assert heard(desk, watcher) == []


def test_one_is_told_once_and_again_after_asking_again(desk: Any, make_peer: Any) -> None:
    desk.register("t", "u")
    watcher = make_peer()
    look(desk, watcher, "t")
    look(desk, watcher, "t")
    desk.register("t", "u", name="broker-b", address=B)
    assert heard(desk, watcher) == [["t"]]
    desk.register("t", "u", name="broker-c", address="10.0.0.3:10911")
    assert heard(desk, watcher) == []
    look(desk, watcher, "t")
    _wiped(desk)
    assert heard(desk, watcher) == [["t"]]


def test_changes_of_a_moment_come_in_one_message(desk: Any, make_peer: Any) -> None:
    topics = [f"t{number:03}" for number in range(900)]
    watcher = make_peer()
    look(desk, watcher, *topics)
    desk.register(*topics)
    desk.register(*topics, name="broker-b", address=B)
    assert watcher.replies == [], "not while the broker waits for its answer"
    assert heard(desk, watcher) == [topics]


def test_many_watchers_are_told_some_at_a_time(desk: Any, make_peer: Any) -> None:
    peers = [make_peer() for _ in range(450)]
    for peer in peers:
        look(desk, peer, "t")
    desk.register("t", "u")
    desk.clock.advance(watches_module.GATHER_SECONDS)
    counts = []
    for _ in range(4):
        counts.append(sum(bool(peer.replies) for peer in peers))
        desk.clock.advance(watches_module.TURN_SECONDS)
    assert counts == [200, 400, 450, 450]


def test_who_has_hung_up_is_forgotten(desk: Any, make_peer: Any) -> None:
    watchers = [make_peer(), make_peer(), make_peer()]
    for watcher in watchers:
        look(desk, watcher, "t", "u")
    assert desk.watches.count == 6
    watchers[0].close("peer")
    desk.register("t", "u")
    watchers[1].close("peer")
    assert heard(desk, watchers[2]) == [["t", "u"]]
    assert [watcher.replies for watcher in watchers[:2]] == [[], []]
    watchers[2].close("peer")
    desk.watches.add("t", watchers[2])  # what it asked while it went
    assert desk.watches.count == 0
    assert not desk.watches._by_topic
    assert not desk.watches._by_connection
    assert not desk.watches._news


def test_who_does_not_read_is_not_sent_more(desk: Any, make_peer: Any) -> None:
    watcher = make_peer()
    look(desk, watcher, "t")
    watcher.is_writable = False
    desk.register("t", "u")
    assert heard(desk, watcher) == []
    assert desk.watches.told == 0


def test_nobody_can_watch_without_end(desk: Any, make_peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "TOPICS_OF_CONNECTION_MAX", 3)
    monkeypatch.setattr(watches_module, "WATCHES_MAX", 5)
    greedy, second, late = make_peer(), make_peer(), make_peer()
    look(desk, greedy, *(f"t{number}" for number in range(9)), "t0")
    assert desk.watches.count == 3
    look(desk, second, "t0", "no name: " + "x" * 300, "t" * 300, "t7", "t8")
    assert desk.watches.count == 5
    look(desk, late, "t0")
    assert desk.watches.count == 5
    desk.register("t0", "t7", "t8")
    assert (heard(desk, greedy), heard(desk, second), heard(desk, late)) == ([["t0"]], [["t0", "t7"]], [])
    look(desk, late, "t0")
    assert desk.watches.count == 3, "there is room again"


def test_other_settings_may_show_in_every_route(desk: Any, make_peer: Any) -> None:
    desk.register("t", "u")
    watcher = make_peer()
    look(desk, watcher, "t", "u")
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true")
    assert heard(desk, watcher) == [["t", "u"]]


def test_only_who_may_look_up_a_route_may_watch_it(desk: Any, make_peer: Any) -> None:
    guarded = Guarded()
    guarded.access.load()
    desk.handlers = guarded.access.handlers(desk.handlers)
    liar = Credentials(SHOP.access_key, "a guessed secret")
    for by, count in ((None, 0), (liar, 0), (SHOP, 1)):
        command = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRoute("Orders", kourou_watch=True),
        )
        if by is not None:
            by.sign(command)
        (frame,) = FrameReader().feed(command.encode())
        with contextlib.suppress(MQError):
            desk.handlers[command.code](decode(frame), Answer(make_peer(), 1, 0))
        assert desk.watches.count == count, by
