"""GET_ROUTEINFO_BY_TOPIC: the one request a name server answers all day.

Clients ask for each of their topics every 30 s, so encoded routes are kept, one per topic and JSON form,
until something in the topic's route changes. An answer is then one look-up, and one frame around bytes that
are there already.

    quoted   {"0":"10.0.0.1:10911"}    for clients from 4.9.4 on, and whoever asks for standard JSON
    bare     {0:"10.0.0.1:10911"}      for older ones, as the original writes it to them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.doors.clock import Clock
from kourou.errors import Refused
from kourou.nameserver.kv import ORDER_TOPIC_CONFIG, KeyValues
from kourou.nameserver.own_config import OwnConfig
from kourou.nameserver.routes import MASTER_ID, Routes
from kourou.nameserver.watches import RouteWatches
from kourou.protocol.bodies import STANDARD_JSON_VERSION, TopicRouteData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import JSON, Command, reply_frame, reply_template
from kourou.protocol.headers import GetRoute
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer

if TYPE_CHECKING:  # brings an HTTP client with it, which most name servers never need
    from kourou.nameserver.production import Production

_HEADER = reply_template(b"{}")


class EncodedRoutes:
    """Bodies of route answers, by topic; forgets a topic when told that it changed."""

    def __init__(self) -> None:
        self.quoted: dict[str, bytes] = {}
        self.bare: dict[str, bytes] = {}

    def forget(self, topic: str) -> None:
        self.quoted.pop(topic, None)
        self.bare.pop(topic, None)

    def forget_all(self) -> None:
        self.quoted.clear()
        self.bare.clear()


class RouteHandler:
    """Answers from what is encoded already; encodes what is not; asks production for what is not here."""

    def __init__(
        self,
        routes: Routes,
        encoded: EncodedRoutes,
        kv: KeyValues,
        own: OwnConfig,
        clock: Clock,
        watches: RouteWatches,
        production: Production | None,
    ) -> None:
        self._routes = routes
        self._encoded = encoded
        self._kv = kv
        self._own = own
        self._clock = clock
        self._started_at = clock.monotonic()
        self.watches = watches
        self._production = production
        self.asked = self.missed = 0  # since the start
        # The order configuration or acting masters may show now, or not.
        own.on_change(encoded.forget_all)
        own.on_change(watches.all_changed)

    def __call__(self, request: Command, answer: Answer) -> None:
        self.asked += 1
        header = request.parse(GetRoute)
        if self._own.now.need_wait_for_service:
            self._check_ready()
        topic = header.topic
        if header.kourou_watch:
            self.watches.add(topic, answer.connection)
        is_quoted = request.version >= STANDARD_JSON_VERSION or bool(header.accept_standard_json_only)
        if header.zone_mode and header.zone_name:
            body = self._in_zone(topic, header.zone_name, is_quoted)
        else:
            encoded = self._encoded
            body = (encoded.quoted if is_quoted else encoded.bare).get(topic) or self._encode(
                topic, is_quoted
            )
        if body is not None:
            if request.serialization == JSON:
                answer(reply_frame(_HEADER % request.opaque, body))
            else:
                answer(request.reply(body=body))
        elif self._production is not None:
            self._production.ask(topic, _answer_from(request, answer))
        else:
            self.missed += 1
            answer(_unknown(request, topic))

    def _check_ready(self) -> None:
        config = self._own.now
        if self._clock.monotonic() - self._started_at < config.wait_seconds_for_service:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"name server not ready: brokers get {config.wait_seconds_for_service} s to register first",
            )

    def _encode(self, topic: str, is_quoted: bool) -> bytes | None:
        route = self._route(topic)
        if route is None:
            return None
        if is_quoted:
            body = self._encoded.quoted[topic] = route.encode()
        else:
            body = self._encoded.bare[topic] = route.encode_fastjson()
        return body

    def _in_zone(self, topic: str, zone: str, is_quoted: bool) -> bytes | None:
        route = self._route(topic)
        if route is None:
            return None
        near = only_zone(route, zone)
        return near.encode() if is_quoted else near.encode_fastjson()

    def _route(self, topic: str) -> TopicRouteData | None:
        config = self._own.now
        route = self._routes.route(topic, acting_master=config.support_acting_master)
        if route is not None and (config.order_message_enable or config.cluster_test):
            order = self._kv.get(ORDER_TOPIC_CONFIG, topic)
            if order is not None:
                route.order_topic_conf = order
        return route


def only_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The part of a route that lies in `zone`. A group without a master stays: better far than nowhere."""
    far = {
        broker.broker_name: broker
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs and (broker.zone_name or "").lower() != zone.lower()
    }
    far_addresses = {address for broker in far.values() for address in broker.broker_addrs.values()}
    return TopicRouteData(
        broker_datas=[each for each in route.broker_datas if each.broker_name not in far],
        queue_datas=[each for each in route.queue_datas if each.broker_name not in far],
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address not in far_addresses
        },
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def _answer_from(request: Command, answer: Answer) -> Callable[[bytes | None], None]:
    """Pass on what production said: a route, or that there is none there either."""

    def told(body: bytes | None) -> None:
        if body is None:
            answer(_unknown(request, request.parse(GetRoute).topic))
        else:
            answer(request.reply(body=body))

    return told


def _unknown(request: Command, topic: str) -> Command:
    return request.reply(
        code=ResponseCode.TOPIC_NOT_EXIST,
        remark=f"No topic route info in name server for the topic: {printable(topic, 255)}; "
        "create the topic, or let a broker create it (autoCreateTopicEnable)",
    )
