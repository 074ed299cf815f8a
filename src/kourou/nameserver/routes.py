"""Who serves which topic: five tables, and the rules by which brokers fill them.

    topics          topic -> broker name -> queues            what a route is made of
    brokers         broker name -> id -> address              a name is one master (0) and its slaves
    clusters        cluster -> broker names
    live            (cluster, address) -> last sign of life   and the connection and data version it came with
    filter servers  (cluster, address) -> addresses           (and `mappings.py`: static topics)

Everything here is plain data: `now` is given, a connection is a token that is only compared, and whom to
notify is returned, not done. `topic_changed` is called with every topic whose route may look different from
now on; that is all a cache of encoded routes needs to know.

Registrations add and replace, they do not delete: a topic leaves with its last broker, or when told to.
Only a master's topics count, or those of the slave with the lowest id when a 5.x group has no master; with
acting master enabled that slave's queues lose the write permission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET

from kourou.errors import Refused
from kourou.nameserver.mappings import QueueMapping, QueueMappings
from kourou.protocol.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from kourou.protocol.codes import ResponseCode

MASTER_ID: Final = 0
EXPIRY_MS: Final = 120_000
"""How long a broker may be silent, unless it named a time of its own."""

BROKERS_MAX: Final = 10_000
"""Of addresses, and of names: each broker has both."""

TOPICS_OF_BROKER_MAX: Final = 200_000

NAMES_OF_ADDRESS_MAX: Final = 64
"""A broker has one name; a few old ones may stay known after it was renamed."""

FLAG_UNIT: Final = 1
FLAG_UNIT_SUBSCRIBED: Final = 2

MEMBER_GROUP_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers of one name find each other: no acting master is shown there."""


class Registration(NamedTuple):
    """What a broker says about itself. `acting_master` is None when it comes from a 4.x broker."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str | None = None
    version: DataVersion = DataVersion()
    topics: Mapping[str, TopicConfig] = {}
    mappings: Mapping[str, QueueMapping] = {}
    filter_servers: Sequence[str] = ()
    acting_master: bool | None = None
    zone: str | None = None
    expiry_ms: int | None = None


class Departure(NamedTuple):
    """A broker to be taken out of the tables."""

    cluster: str
    name: str
    id: int
    address: str


class MinIdChange(NamedTuple):
    """The lowest id of a broker name is another now; `recipients` should hear of it."""

    broker_name: str
    id: int
    address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]


class Registered(NamedTuple):
    """How a registration ended. `ignored`: another address holds the id with a newer state."""

    master_address: str | None = None
    ha_address: str | None = None
    ignored: bool = False
    is_new: bool = False
    min_id_change: MinIdChange | None = None


class Live:
    """The last sign of life from one address; `names` are the broker names it registered under."""

    __slots__ = ("connection", "expiry_ms", "ha_address", "interval", "last_seen", "names", "version")

    def __init__(
        self,
        last_seen: float,
        expiry_ms: int,
        version: DataVersion | None,
        connection: object,
        ha_address: str | None,
        names: set[str],
    ) -> None:
        self.last_seen = last_seen
        self.expiry_ms = expiry_ms
        self.version = version  # None: it has not told us all its topics yet
        self.connection = connection
        self.ha_address = ha_address
        self.names = names
        self.interval = 0.0
        """Between the last two signs of life."""

    def heard(self, now: float) -> None:
        self.interval = now - self.last_seen
        self.last_seen = now


class Life(NamedTuple):
    """One broker, and how lately it was heard of."""

    cluster: str
    name: str
    address: str
    silent_seconds: float
    interval_seconds: float
    expiry_seconds: float


class Broker:
    """The machines of one broker name, and the topics they serve."""

    __slots__ = ("acting_master", "addresses", "cluster", "name", "topics", "zone")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.addresses: dict[int, str] = {}
        self.acting_master = False
        self.zone: str | None = None
        self.topics: set[str] = set()

    @property
    def id_min(self) -> int | None:
        return min(self.addresses, default=None)

    @property
    def appearance(self) -> tuple[object, ...]:
        """All of it that shows in a route."""
        return tuple(self.addresses.items()), self.acting_master, self.zone

    def data(self) -> BrokerData:
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=dict(self.addresses),
            enable_acting_master=self.acting_master,
            zone_name=self.zone or UNSET,
        )


def _nobody_cares(topic: str) -> None:
    pass


class Routes:
    """The tables. Not thread-safe: one event loop owns them."""

    def __init__(self, topic_changed: Callable[[str], None] = _nobody_cares) -> None:
        self._topic_changed = topic_changed
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[tuple[str, str], Live] = {}
        self._filter_servers: dict[tuple[str, str], tuple[str, ...]] = {}
        self._mappings = QueueMappings()

    # ------------------------------------------------------------------------------ brokers come and go

    def register(
        self, said: Registration, connection: object, now: float, *, delete_missing: bool = False
    ) -> Registered:
        """Take in what a broker says of itself.

        With `delete_missing` a topic it no longer lists is no longer its. Raises Refused when there is no
        room for it, and then nothing has changed.
        """
        self._check_room(said)
        broker = self._brokers.get(said.name)
        if broker is None:
            broker = self._brokers[said.name] = Broker(said.cluster, said.name)
        self._clusters.setdefault(said.cluster, set()).add(said.name)
        before, id_min_before = broker.appearance, broker.id_min

        self._forget_other_ids(broker, said)
        if self._is_stale(broker, said):
            self._forget_life(said.cluster, said.address, said.name)
            self._show(broker, before)
            return Registered(ignored=True)

        is_first = said.id not in broker.addresses
        broker.acting_master = bool(said.acting_master)
        broker.zone = said.zone
        broker.addresses[said.id] = said.address
        if self._speaks_for_the_name(broker, said):
            self._take_topics(broker, said, is_first, delete_missing)
        is_new = self._note_life(said, connection, now)
        self._note_filter_servers(broker, said)
        self._show(broker, before)

        change = None
        if id_min_before is not None and said.id < id_min_before:
            change = _min_id_change(broker, offline_address=None, ha_address=said.ha_address)
        master_address, ha_address = self._master_of(broker, said)
        return Registered(master_address, ha_address, is_new=is_new, min_id_change=change)

    def _check_room(self, said: Registration) -> None:
        live = self._live.get((said.cluster, said.address))
        names = set() if live is None else live.names
        fault = self._mappings.room_fault(said.name, said.mappings)
        if live is None and len(self._live) >= BROKERS_MAX:
            fault = f"{BROKERS_MAX} brokers are here, which is the most"
        elif said.name not in self._brokers and len(self._brokers) >= BROKERS_MAX:
            fault = f"{BROKERS_MAX} broker names are here, which is the most"
        elif said.name not in names and len(names) >= NAMES_OF_ADDRESS_MAX:
            fault = f"{said.address} has {len(names)} broker names already, which is the most of one address"
        else:
            fault = fault or self._topics_fault(said)
        if fault is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"register broker '{said.name}' failed: {fault}")

    def _topics_fault(self, said: Registration) -> str | None:
        """Topics a broker no longer names stay with it, so that it could name others for ever."""
        broker = self._brokers.get(said.name)
        known: set[str] = set() if broker is None else broker.topics
        if len(known) + len(said.topics) <= TOPICS_OF_BROKER_MAX:
            return None
        if len(known | said.topics.keys()) <= TOPICS_OF_BROKER_MAX:
            return None
        return f"it would have more than {TOPICS_OF_BROKER_MAX} topics, those it named before among them"

    def _forget_other_ids(self, broker: Broker, said: Registration) -> None:
        """A slave that became master: one address has one id."""
        for each, address in list(broker.addresses.items()):
            if address == said.address and each != said.id:
                del broker.addresses[each]

    def _is_stale(self, broker: Broker, said: Registration) -> bool:
        holder = broker.addresses.get(said.id)
        if holder is None or holder == said.address:
            return False
        live = self._live.get((said.cluster, holder))
        if live is None or live.version is None:
            return False
        return live.version.state_version > said.version.state_version

    @staticmethod
    def _speaks_for_the_name(broker: Broker, said: Registration) -> bool:
        if said.id == MASTER_ID:
            return True
        return said.acting_master is not None and said.id == broker.id_min

    def _take_topics(self, broker: Broker, said: Registration, is_first: bool, delete_missing: bool) -> None:
        if delete_missing and not said.mappings:
            for topic in broker.topics - said.topics.keys():
                self._drop_queues(topic, broker)
        live = self._live.get((said.cluster, said.address))
        is_changed = is_first or live is None or live.version != said.version
        keep = ~PERM_WRITE if said.id != MASTER_ID and broker.acting_master else ~0
        served = broker.topics
        for topic, config in said.topics.items():
            if is_changed or topic not in served:
                self._put_queues(topic, broker, _queues(broker.name, config, keep))
        if is_changed:
            for topic, mapping in said.mappings.items():
                if self._mappings.put(broker.name, topic, mapping):
                    self._topic_changed(topic)

    def _put_queues(self, topic: str, broker: Broker, queues: QueueData) -> None:
        by_broker = self._topics.get(topic)
        if by_broker is None:
            by_broker = self._topics[topic] = {}
        if by_broker.get(broker.name) != queues:
            by_broker[broker.name] = queues
            broker.topics.add(topic)
            self._topic_changed(topic)

    def _drop_queues(self, topic: str, broker: Broker) -> None:
        broker.topics.discard(topic)
        by_broker = self._topics.get(topic)
        if by_broker is not None and by_broker.pop(broker.name, None) is not None:
            if not by_broker:
                del self._topics[topic]
            self._topic_changed(topic)
        if self._mappings.drop(broker.name, topic):
            self._topic_changed(topic)

    def _note_life(self, said: Registration, connection: object, now: float) -> bool:
        key = (said.cluster, said.address)
        live = self._live.get(key)
        known = live is not None and live.version is not None
        # One topic is how a broker tells of a new one. Right after our own start that is not all it has:
        # were its version noted, it would take the other topics for known (the 5.x original refuses this
        # registration; taken like this, the topic is served at once and the rest still comes).
        version = said.version if known or len(said.topics) != 1 else None
        expiry_ms = EXPIRY_MS if said.expiry_ms is None else said.expiry_ms
        names = {said.name} if live is None else live.names | {said.name}
        noted = self._live[key] = Live(now, expiry_ms, version, connection, said.ha_address, names)
        if live is not None:
            noted.interval = now - live.last_seen
        return live is None

    def _forget_life(self, cluster: str, address: str, name: str) -> None:
        """`address` no longer stands for `name`; when that was its last one, it is not alive."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.names.discard(name)
            if not live.names:
                del self._live[cluster, address]
                self._filter_servers.pop((cluster, address), None)

    def _note_filter_servers(self, broker: Broker, said: Registration) -> None:
        key = (said.cluster, said.address)
        if self._filter_servers.get(key, ()) == tuple(said.filter_servers):
            return
        if said.filter_servers:
            self._filter_servers[key] = tuple(said.filter_servers)
        else:
            del self._filter_servers[key]
        self._all_changed(broker)

    def _master_of(self, broker: Broker, said: Registration) -> tuple[str | None, str | None]:
        if said.id == MASTER_ID:
            return None, None
        address = broker.addresses.get(MASTER_ID)
        live = None if address is None else self._live.get((said.cluster, address))
        return (None, None) if live is None else (address, live.ha_address)

    def _show(self, broker: Broker, before: tuple[object, ...]) -> None:
        if broker.appearance != before:
            self._all_changed(broker)

    def _all_changed(self, broker: Broker) -> None:
        for topic in broker.topics:
            self._topic_changed(topic)

    def unregister(self, departures: Iterable[Departure]) -> list[MinIdChange]:
        """Take brokers out, all at once; returns who should hear of a new lowest id."""
        changes: dict[str, MinIdChange] = {}
        for gone in departures:
            self._forget_life(gone.cluster, gone.address, gone.name)
            broker = self._brokers.get(gone.name)
            if broker is None:
                continue
            before, id_min_before = broker.appearance, broker.id_min
            for each, address in list(broker.addresses.items()):
                if address == gone.address:
                    del broker.addresses[each]
            if not broker.addresses:
                changes.pop(gone.name, None)
                self._remove_broker(broker)
                continue
            if broker.acting_master:
                if MASTER_ID not in broker.addresses:
                    self._change_permissions(broker, lambda perm: perm & ~PERM_WRITE)
                if gone.id == id_min_before:
                    changes[gone.name] = _min_id_change(broker, gone.address, ha_address=None)
            self._show(broker, before)
        return list(changes.values())

    def _remove_broker(self, broker: Broker) -> None:
        del self._brokers[broker.name]
        for topic in broker.topics.union(self._mappings.topics_of(broker.name)):
            self._drop_queues(topic, broker)
        for cluster, names in list(self._clusters.items()):
            names.discard(broker.name)
            if not names:
                del self._clusters[cluster]

    # ------------------------------------------------------------------------------------------ liveness

    def seen(self, cluster: str, address: str, now: float) -> None:
        """A sign of life. One from a broker that never registered changes nothing."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.heard(now)

    def lives(self, now: float) -> list[Life]:
        """Every broker, under each of its names."""
        return [
            Life(cluster, name, address, now - live.last_seen, live.interval, live.expiry_ms / 1000)
            for (cluster, address), live in self._live.items()
            for name in sorted(live.names)
        ]

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The data version a broker last registered with, when we know all it had then."""
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def expired(self, now: float) -> list[tuple[Departure, object]]:
        """Brokers silent for too long, each with its connection."""
        return [
            (departure, live.connection)
            for (cluster, address), live in self._live.items()
            if live.last_seen + live.expiry_ms / 1000 < now
            for departure in self._departures(cluster, address, live)
        ]

    def connected_by(self, connection: object) -> list[Departure]:
        """Brokers whose last registration came over `connection`."""
        return [
            departure
            for (cluster, address), live in self._live.items()
            if live.connection is connection
            for departure in self._departures(cluster, address, live)
        ]

    def _departures(self, cluster: str, address: str, live: Live) -> list[Departure]:
        return [Departure(cluster, name, self._id_of(name, address), address) for name in sorted(live.names)]

    def _id_of(self, name: str, address: str) -> int:
        """The id under which `address` serves `name`; -1 when another address has taken its place."""
        broker = self._brokers.get(name)
        held = {} if broker is None else broker.addresses
        return next((each for each, holder in held.items() if holder == address), -1)

    def is_alive(self, cluster: str, address: str) -> bool:
        return (cluster, address) in self._live

    @property
    def broker_count(self) -> int:
        """How many machines are alive."""
        return len(self._live)

    # -------------------------------------------------------------------------------------------- topics

    def set_queues(self, topic: str, queues: Iterable[QueueData]) -> str | None:
        """Put single queues in place; returns the broker name nobody registered, and then does nothing."""
        wanted = list(queues)
        for each in wanted:
            if each.broker_name not in self._brokers:
                return each.broker_name
            topics = self._brokers[each.broker_name].topics
            if topic not in topics and len(topics) >= TOPICS_OF_BROKER_MAX:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"broker {each.broker_name} has {len(topics)} topics, which is the most",
                )
        for each in wanted:
            self._put_queues(topic, self._brokers[each.broker_name], each)
        return None

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Take the topic away, from one cluster or from all; returns from how many broker names."""
        names = {*self._topics.get(topic, ()), *(self._mappings.of_topic(topic) or ())}
        if cluster:
            names &= self._clusters.get(cluster, set())
        for name in names:
            broker = self._brokers.get(name)
            if broker is not None:
                self._drop_queues(topic, broker)
        return len(names)

    def wipe_write_permission(self, name: str) -> int:
        """No more writing to this broker, until its next changed registration; returns how many topics."""
        return self._change_permissions(self._brokers.get(name), lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, name: str) -> int:
        """The opposite: its queues may be read and written."""
        return self._change_permissions(self._brokers.get(name), lambda _: PERM_READ | PERM_WRITE)

    def _change_permissions(self, broker: Broker | None, change: Callable[[int], int]) -> int:
        if broker is None:
            return 0
        for topic in broker.topics:
            old = self._topics[topic][broker.name]
            perm = change(old.perm)
            if perm != old.perm:
                self._topics[topic][broker.name] = QueueData(
                    broker_name=old.broker_name,
                    read_queue_nums=old.read_queue_nums,
                    write_queue_nums=old.write_queue_nums,
                    perm=perm,
                    topic_sys_flag=old.topic_sys_flag,
                )
                self._topic_changed(topic)
        return len(broker.topics)

    # ------------------------------------------------------------------------------------------- answers

    def route(self, topic: str, *, acting_master: bool = False) -> TopicRouteData | None:
        """Where `topic` is served, or None.

        With `acting_master` a group that has no master, and whose queues are read-only, shows its first
        slave as one: consumers go on.
        """
        by_broker = self._topics.get(topic)
        if by_broker is None:
            return None
        brokers = [self._brokers[name].data() for name in by_broker]
        if acting_master and not topic.startswith(MEMBER_GROUP_TOPIC_PREFIX):
            brokers = [_with_acting_master(each, by_broker[each.broker_name]) for each in brokers]
        return TopicRouteData(
            broker_datas=brokers,
            queue_datas=list(by_broker.values()),
            filter_server_table=self._filter_servers_of(by_broker) if self._filter_servers else {},
            topic_queue_mapping_by_broker=self._mappings.of_topic(topic) or UNSET,
        )

    def _filter_servers_of(self, names: Iterable[str]) -> dict[str, list[str]]:
        found = {}
        for broker in map(self._brokers.__getitem__, names):
            for address in broker.addresses.values():
                servers = self._filter_servers.get((broker.cluster, address))
                if servers:
                    found[address] = list(servers)
        return found

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: broker.data() for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def members(self, name: str) -> dict[int, str]:
        """Addresses of one broker name by id; empty when nobody has it."""
        broker = self._brokers.get(name)
        return {} if broker is None else dict(broker.addresses)

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        found: dict[str, None] = {}
        for name in sorted(self._clusters.get(cluster, ())):
            broker = self._brokers.get(name)
            if broker is not None:
                found.update(dict.fromkeys(sorted(broker.topics)))
        return list(found)

    def system_topics(self) -> tuple[list[str], str | None]:
        """Cluster and broker names (each is a topic of its brokers), and the address of any one broker."""
        found: dict[str, None] = {}
        for cluster, names in self._clusters.items():
            found[cluster] = None
            found.update(dict.fromkeys(sorted(names)))
        for broker in self._brokers.values():
            for address in broker.addresses.values():
                return list(found), address
        return list(found), None

    def unit_topics(self) -> list[str]:
        return self._flagged(FLAG_UNIT, FLAG_UNIT)

    def unit_subscribed_topics(self) -> list[str]:
        return self._flagged(FLAG_UNIT_SUBSCRIBED, FLAG_UNIT_SUBSCRIBED)

    def unit_subscribed_plain_topics(self) -> list[str]:
        """Subscribed to by units, but not units' topics themselves."""
        return self._flagged(FLAG_UNIT | FLAG_UNIT_SUBSCRIBED, FLAG_UNIT_SUBSCRIBED)

    def _flagged(self, mask: int, wanted: int) -> list[str]:
        return [
            topic
            for topic, by_broker in self._topics.items()
            if next(iter(by_broker.values())).topic_sys_flag & mask == wanted
        ]


def _queues(name: str, config: TopicConfig, keep: int) -> QueueData:
    return QueueData(
        broker_name=name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & keep,
        topic_sys_flag=config.topic_sys_flag,
    )


def _with_acting_master(broker: BrokerData, queues: QueueData) -> BrokerData:
    addresses = broker.broker_addrs
    if not broker.enable_acting_master or MASTER_ID in addresses or queues.perm & PERM_WRITE:
        return broker
    acting = min(addresses)
    return BrokerData(
        cluster=broker.cluster,
        broker_name=broker.broker_name,
        broker_addrs={
            MASTER_ID: addresses[acting],
            **{each: address for each, address in addresses.items() if each != acting},
        },
        enable_acting_master=True,
        zone_name=broker.zone_name,
    )


def _min_id_change(broker: Broker, offline_address: str | None, ha_address: str | None) -> MinIdChange:
    """After somebody left all others hear of it; after somebody came, those who were there before."""
    id_min = min(broker.addresses)
    recipients = tuple(
        address
        for each, address in broker.addresses.items()
        if offline_address is not None or len(broker.addresses) == 1 or each != id_min
    )
    return MinIdChange(broker.name, id_min, broker.addresses[id_min], offline_address, ha_address, recipients)
