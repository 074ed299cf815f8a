"""Sessions recorded between Apache brokers and Apache name servers, asked again of ours: the same answers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kourou.protocol import fastjson
from kourou.protocol.bodies import KVTable, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, decode
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import GetRoute
from kourou.remoting.answer import Answer, refusal

RECORDED = Path(__file__).parents[2] / "wire" / "recorded"
SESSIONS = [
    f"{story}-{version}"
    for story in ("broker-registers", "broker-registers-compressed", "broker-heartbeats")
    for version in ("4.9.7", "5.3.3")
]
LOOK_UP = RequestCode.GET_ROUTEINFO_BY_TOPIC


class Exchange(NamedTuple):
    connection: int
    request: Command
    reply: Command | None


def session(name: str) -> list[Exchange]:
    """What was asked of the name server, in order, each with Apache's answer."""
    requests: dict[tuple[int, int], Exchange] = {}
    exchanges = []
    for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()[1:]:
        entry = json.loads(line)
        if entry["peer"] != "nameserver":
            continue
        (frame,) = FrameReader().feed(base64.b64decode(entry["frame"]))
        command = decode(frame)
        key = (entry["connection"], command.opaque)
        if entry["way"] == ">":
            requests[key] = Exchange(entry["connection"], command, None)
            exchanges.append(key)
        else:
            requests[key] = requests[key]._replace(reply=command)
    return [requests[key] for key in exchanges]


def ask(desk: Any, peer: Any, request: Command) -> Command | None:
    before = len(peer.replies)
    answer = Answer(peer, 1, int(request.is_one_way))
    try:
        desk.handlers[request.code](request, answer)
    except Exception as error:
        answer(refusal(request, error))
    return peer.replies[-1] if len(peer.replies) > before else None


def content(reply: Command) -> Any:
    """The body as a document; 4.9 does not know the state version, which is 0 then."""
    document = fastjson.loads(reply.body)
    if isinstance(document, dict) and document.get("stateVersion") == 0:
        del document["stateVersion"]
    return document


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_broker_gets_the_answers_it_got_from_apache(desk: Any, make_peer: Any, name: str) -> None:
    peers: dict[int, Any] = {}
    exchanges = session(name)
    assert exchanges
    for connection, request, theirs in exchanges:
        if request.code == RequestCode.REGISTER_BROKER and theirs is not None and theirs.body:
            for key, value in KVTable.decode(theirs.body).table.items():  # put there by an operator meanwhile
                desk.kv.put("ORDER_TOPIC_CONFIG", key, value)
        ours = ask(desk, peers.setdefault(connection, make_peer()), request)
        if theirs is None:
            assert request.is_one_way == (ours is None)
            continue
        assert ours is not None
        if name == "broker-registers-compressed-5.3.3":
            assert theirs.code == ResponseCode.SYSTEM_ERROR  # Apache's own name server fails on this body
            assert ours.code == ResponseCode.SUCCESS
            continue
        assert (ours.code, dict(ours.fields)) == (theirs.code, dict(theirs.fields))
        assert content(ours) == content(theirs)


@pytest.mark.parametrize("version", [400, 409])
@pytest.mark.parametrize("name", SESSIONS)
def test_the_topics_of_a_recorded_broker_have_routes(
    desk: Any, make_peer: Any, name: str, version: int
) -> None:
    first = next(each.request for each in session(name) if each.request.code == RequestCode.REGISTER_BROKER)
    ask(desk, make_peer(), first)
    assert {"TBW102", "SELF_TEST_TOPIC"} <= set(desk.routes.topics())
    for topic in desk.routes.topics():
        reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic), version=version)
        (broker,) = TopicRouteData.decode(reply.body).broker_datas
        assert broker.broker_addrs == {0: first.fields["brokerAddr"]}


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_stock_clients_hear_of_no_changed_route(path: Path, desk: Any, make_peer: Any) -> None:
    """C++ and Java, each as it asked: they are sent replies, and nothing else."""
    asked = [each.request for each in session(path.stem) if each.request.code == LOOK_UP]
    topics = {each.parse(GetRoute).topic for each in asked}
    peer = make_peer()
    for request in asked:
        ask(desk, peer, request)
    desk.register(*topics, "another")
    desk.register(*topics, "another", name="broker-b", address="10.0.0.2:10911")
    desk.clock.advance(60.0)
    assert len(peer.replies) == len(asked)
    assert desk.watches.count == 0


def test_the_recorded_clients_look_up_routes() -> None:
    asked = [
        path.stem
        for path in RECORDED.glob("*.jsonl")
        for each in session(path.stem)
        if each.request.code == LOOK_UP
    ]
    assert {"cpp-push-5.3.3", "cpp-produce-4.9.7", "consume-5.3.3", "send-sync-4.9.7"} <= set(asked)
