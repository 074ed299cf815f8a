"""Every request the name server answers, as one table from code to handler.

Handlers translate: a header into an operation on the tables, a result into a reply. They hold no state of
their own. Whom brokers must be told about goes out through `notify`, one-way, to the address of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from msgspec import UNSET

from kourou.doors.clock import Clock
from kourou.doors.failpoints import reached
from kourou.errors import NotFound, Refused
from kourou.nameserver.kv import ORDER_TOPIC_CONFIG, KeyValues
from kourou.nameserver.own_config import OwnConfig
from kourou.nameserver.registration import check_name, check_queues, read_registration
from kourou.nameserver.route_answers import RouteHandler
from kourou.nameserver.routes import Departure, MinIdChange, Routes
from kourou.protocol.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupReply,
    DataVersion,
    KVTable,
    TopicList,
    TopicRouteData,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import FLAG_ONE_WAY, Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import (
    AddedReply,
    BrokerGroup,
    BrokerHeartbeat,
    BrokerIdentity,
    BrokerNamed,
    ClusterNamed,
    DataVersionReply,
    DeleteTopicFromNameServer,
    KvKey,
    KvNamespace,
    KvValue,
    MinBrokerIdChanged,
    PutKv,
    RegisterBrokerReply,
    TopicNamed,
    WipedReply,
)
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer, Handler
from kourou.remoting.connection import Connection

Notify = Callable[[str, Command], None]
"""Send a one-way request to an address."""

logger = logging.getLogger(__name__)


def handler_table(
    route: RouteHandler,
    brokers: BrokerHandlers,
    topics: TopicHandlers,
    entries: KvHandlers,
    settings: ConfigHandlers,
) -> Mapping[int, Handler]:
    """The list of all we serve."""
    code = RequestCode
    return {
        code.PUT_KV_CONFIG: entries.put,
        code.GET_KV_CONFIG: entries.get,
        code.DELETE_KV_CONFIG: entries.delete,
        code.GET_KVLIST_BY_NAMESPACE: entries.list_namespace,
        code.REGISTER_BROKER: brokers.register,
        code.UNREGISTER_BROKER: brokers.unregister,
        code.QUERY_DATA_VERSION: brokers.query_data_version,
        code.BROKER_HEARTBEAT: brokers.heartbeat,
        code.GET_BROKER_MEMBER_GROUP: brokers.member_group,
        code.GET_BROKER_CLUSTER_INFO: brokers.cluster_info,
        code.WIPE_WRITE_PERM_OF_BROKER: brokers.wipe_write_permission,
        code.ADD_WRITE_PERM_OF_BROKER: brokers.add_write_permission,
        code.GET_ROUTEINFO_BY_TOPIC: route,
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.all,
        code.DELETE_TOPIC_IN_NAMESRV: topics.delete,
        code.REGISTER_TOPIC_IN_NAMESRV: topics.register,
        code.GET_TOPICS_BY_CLUSTER: topics.of_cluster,
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS: topics.system,
        code.GET_UNIT_TOPIC_LIST: topics.of_units,
        code.GET_HAS_UNIT_SUB_TOPIC_LIST: topics.subscribed_by_units,
        code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: topics.plain_subscribed_by_units,
        code.UPDATE_NAMESRV_CONFIG: settings.update,
        code.GET_NAMESRV_CONFIG: settings.get,
    }


class BrokerHandlers:
    """Brokers come, show that they live, and go."""

    def __init__(self, routes: Routes, kv: KeyValues, own: OwnConfig, clock: Clock, notify: Notify) -> None:
        self._routes = routes
        self._kv = kv
        self._own = own
        self._clock = clock
        self._notify = notify
        self._watched: set[Connection] = set()
        self.expired = self.lost = 0  # since the start

    def register(self, request: Command, answer: Answer) -> None:
        said = read_registration(request)
        config = self._own.now
        connection = answer.connection
        done = self._routes.register(
            said,
            connection,
            self._clock.monotonic(),
            delete_missing=config.delete_topic_with_broker_registration,
        )
        if done.ignored:
            logger.warning(
                "%s %s id %d at %s is ignored: another address holds that id with a newer state",
                *(said.cluster, said.name, said.id, said.address),
            )
        else:
            self._watch(connection)
        if done.is_new:
            logger.info(
                "new broker: cluster %s, name %s, id %d, address %s, %d topics",
                *(said.cluster, said.name, said.id, said.address, len(said.topics)),
            )
        if done.min_id_change is not None:
            self._tell_members([done.min_id_change])
        reply = RegisterBrokerReply(ha_server_address=done.ha_address, master_address=done.master_address)
        answer(request.reply(reply, self._order_config()))

    def _order_config(self) -> bytes:
        if not self._own.now.return_order_topic_config_to_broker:
            return b""
        table = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return b"" if table is None else KVTable(table=table).encode()

    def _watch(self, connection: Connection) -> None:
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._lost)

    def _lost(self, connection: Connection) -> None:
        self._watched.discard(connection)
        departures = self._routes.connected_by(connection)
        if departures:
            self.lost += len(departures)
            self._remove(departures, "its connection is gone")

    def scan(self) -> None:
        """Take out brokers that have been silent for too long."""
        reached("before-namesrv-expire")
        expired = self._routes.expired(self._clock.monotonic())
        if expired:
            self.expired += len(expired)
            self._remove([departure for departure, _ in expired], "it has been silent for too long")
            for _, connection in expired:
                cast(Connection, connection).close("broker expired")
        reached("after-namesrv-expire")

    def unregister(self, request: Command, answer: Answer) -> None:
        header = request.parse(BrokerIdentity)
        gone = Departure(header.cluster_name, header.broker_name, header.broker_id, header.broker_address)
        self._remove([gone], "it unregistered")
        answer(request.reply())

    def _remove(self, departures: list[Departure], why: str) -> None:
        changes = self._routes.unregister(departures)
        for gone in departures:
            logger.info(
                "broker removed, for %s: cluster %s, name %s, id %d, address %s",
                *(why, printable(gone.cluster), printable(gone.name), gone.id, printable(gone.address)),
            )
        self._tell_members(changes)

    def _tell_members(self, changes: Iterable[MinIdChange]) -> None:
        if not self._own.now.notify_min_broker_id_changed:
            return
        for change in changes:
            header = MinBrokerIdChanged(
                min_broker_id=change.id,
                min_broker_address=change.address,
                broker_name=change.broker_name,
                offline_broker_address=change.offline_address,
                ha_broker_address=change.ha_address,
            )
            for address in change.recipients:
                news = make_request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, flag=FLAG_ONE_WAY)
                self._notify(address, news)

    def query_data_version(self, request: Command, answer: Answer) -> None:
        header = request.parse(BrokerIdentity)
        theirs = DataVersion.decode_request(request.body) if request.body else None
        ours = self._routes.version_of(header.cluster_name, header.broker_address)
        self._routes.seen(header.cluster_name, header.broker_address, self._clock.monotonic())
        changed = ours is None or ours != theirs
        answer(request.reply(DataVersionReply(changed=changed), b"" if ours is None else ours.encode()))

    def heartbeat(self, request: Command, answer: Answer) -> None:
        header = request.parse(BrokerHeartbeat)
        self._routes.seen(header.cluster_name, header.broker_address, self._clock.monotonic())
        answer(request.reply())

    def member_group(self, request: Command, answer: Answer) -> None:
        header = request.parse(BrokerGroup)
        group = BrokerMemberGroup(
            broker_addrs=self._routes.members(header.broker_name),
            broker_name=header.broker_name,
            cluster=header.cluster_name,
        )
        answer(request.reply(body=BrokerMemberGroupReply(broker_member_group=group).encode_fastjson()))

    def cluster_info(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=self._routes.cluster_info().encode_fastjson()))

    def wipe_write_permission(self, request: Command, answer: Answer) -> None:
        name = request.parse(BrokerNamed).broker_name
        count = self._routes.wipe_write_permission(name)
        logger.info("%s: no more writing to broker %s, %d topics", _peer(answer), printable(name), count)
        answer(request.reply(WipedReply(wipe_topic_count=count)))

    def add_write_permission(self, request: Command, answer: Answer) -> None:
        name = request.parse(BrokerNamed).broker_name
        count = self._routes.add_write_permission(name)
        logger.info("%s: broker %s may be written to, %d topics", _peer(answer), printable(name), count)
        answer(request.reply(AddedReply(add_topic_count=count)))


class TopicHandlers:
    """Topics listed, put in place, taken away."""

    def __init__(self, routes: Routes, own: OwnConfig) -> None:
        self._routes = routes
        self._own = own

    def all(self, request: Command, answer: Answer) -> None:
        if not self._own.now.enable_all_topic_list:
            raise _disabled("enableAllTopicList")
        answer(_topics(request, self._routes.topics()))

    def of_cluster(self, request: Command, answer: Answer) -> None:
        self._check_enabled()
        answer(_topics(request, self._routes.topics_of_cluster(request.parse(ClusterNamed).cluster)))

    def system(self, request: Command, answer: Answer) -> None:
        topics, address = self._routes.system_topics()
        answer(_topics(request, topics, address))

    def of_units(self, request: Command, answer: Answer) -> None:
        self._check_enabled()
        answer(_topics(request, self._routes.unit_topics()))

    def subscribed_by_units(self, request: Command, answer: Answer) -> None:
        self._check_enabled()
        answer(_topics(request, self._routes.unit_subscribed_topics()))

    def plain_subscribed_by_units(self, request: Command, answer: Answer) -> None:
        self._check_enabled()
        answer(_topics(request, self._routes.unit_subscribed_plain_topics()))

    def register(self, request: Command, answer: Answer) -> None:
        topic = request.parse(TopicNamed).topic
        check_name("topic", topic)
        queues = TopicRouteData.decode_request(request.body).queue_datas if request.body else []
        for each in queues:
            check_queues(topic, each.read_queue_nums, each.write_queue_nums, each.perm)
        stranger = self._routes.set_queues(topic, queues)
        if stranger is not None:  # as the original: said to the log, not to the broker
            logger.warning("topic %s is not put on broker %s: never registered", topic, printable(stranger))
        answer(request.reply())

    def delete(self, request: Command, answer: Answer) -> None:
        header = request.parse(DeleteTopicFromNameServer)
        count = self._routes.delete_topic(header.topic, header.cluster_name)
        logger.info("%s: topic %s taken from %d brokers", _peer(answer), printable(header.topic), count)
        answer(request.reply())

    def _check_enabled(self) -> None:
        if not self._own.now.enable_topic_list:
            raise _disabled("enableTopicList")


class KvHandlers:
    """The key-value configuration."""

    def __init__(self, kv: KeyValues, route_changed: Callable[[str], None]) -> None:
        """`route_changed` is told each topic whose order configuration is another now."""
        self._kv = kv
        self._route_changed = route_changed

    def put(self, request: Command, answer: Answer) -> None:
        header = request.parse(PutKv)
        self._kv.put(header.namespace, header.key, header.value)
        self._changed(answer, header.namespace, header.key, "put")
        answer(request.reply())

    def get(self, request: Command, answer: Answer) -> None:
        header = request.parse(KvKey)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            what = f"Namespace: {printable(header.namespace)} Key: {printable(header.key)}"
            raise NotFound(ResponseCode.QUERY_NOT_FOUND, f"No config item, {what}")
        answer(request.reply(KvValue(value=value)))

    def delete(self, request: Command, answer: Answer) -> None:
        header = request.parse(KvKey)
        self._kv.delete(header.namespace, header.key)
        self._changed(answer, header.namespace, header.key, "deleted")
        answer(request.reply())

    def list_namespace(self, request: Command, answer: Answer) -> None:
        namespace = request.parse(KvNamespace).namespace
        table = self._kv.namespace(namespace)
        if table is None:
            what = f"No config item, Namespace: {printable(namespace)}"
            raise NotFound(ResponseCode.QUERY_NOT_FOUND, what)
        answer(request.reply(body=KVTable(table=table).encode()))

    def _changed(self, answer: Answer, namespace: str, key: str, what: str) -> None:
        if namespace == ORDER_TOPIC_CONFIG:
            self._route_changed(key)
        logger.info("%s: configuration %s %s %s", _peer(answer), printable(namespace), printable(key), what)


class ConfigHandlers:
    """The name server's own settings."""

    def __init__(self, own: OwnConfig) -> None:
        self._own = own

    def get(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=self._own.as_properties().encode()))

    def update(self, request: Command, answer: Answer) -> None:
        self._own.update(request.body, _peer(answer))
        answer(request.reply())


def _topics(request: Command, topics: list[str], address: str | None = None) -> Command:
    return request.reply(body=TopicList(topic_list=topics, broker_addr=address or UNSET).encode())


def _disabled(key: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"disable: topic lists are off here ({key}=false)")


def _peer(answer: Answer) -> str:
    return answer.connection.peer
