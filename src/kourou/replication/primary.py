"""A master's side of replication: who follows, how far enough of them are, and who hears of it.

    store wrote ──▶ every link pushes
    a slave acknowledges ──▶ enough have it up to here ──▶ `ReplicaWait` tells those who wait

Every broker listens on its HA port; one that is no master tells its peers so and hangs up. The rule of the
original: enough is any `inSyncReplicas` - 1 slaves, at least one. With `require` it is certain members, all
of them: whoever decides who leads (`election.py`) says which. Topics and groups have the same rule, and are
counted by their changes (`table_wait.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Listener, Network
from kourou.errors import AddressTaken, ConfigError
from kourou.remoting.address import format_address, plain_host
from kourou.remoting.complaints import Complaints
from kourou.remoting.secured import Secured
from kourou.remoting.tls import Certificates
from kourou.replication.config import SYNC_MASTER, ReplicationConfig
from kourou.replication.handshake import NONCE_BYTES, MasterHello, SlaveHello
from kourou.replication.link import Link, State
from kourou.replication.status import LinkStatus
from kourou.replication.table_wait import TableWait
from kourou.store.flush import Then
from kourou.store.replica_wait import ReplicaWait
from kourou.store.store import Store

LOOK_SECONDS = 1.0
SHOW_SECONDS = 0.05
BACKLOG = 16

logger = logging.getLogger(__name__)


class Primary:
    """The HA port of a broker."""

    def __init__(
        self,
        config: ReplicationConfig,
        store: Store,
        *,
        network: Network,
        clock: Clock,
        chance: Chance,
        member: Callable[[], str],
    ) -> None:
        """`member()`: where clients reach this broker, which is how members of a set know each other."""
        self._config = config
        self._store = store
        self._network = network
        self._clock = clock
        self._chance = chance
        self._member = member
        self._certificates: Certificates | None = None
        self._listener: Listener | None = None
        self._links: list[Link] = []
        self._timer: Timer | None = None
        self._role = ""
        self._term = 0
        self._no_master: str | None = "this broker is only starting"
        self._wait: ReplicaWait | None = None
        self._tables = TableWait(
            clock, config.slave_timeout_ms, have=self._enough_copied, is_available=self._can_copy
        )
        self._required: frozenset[str] | None = None
        self._is_alone = False  # nobody else is required
        self._is_showing = False
        self._complaints = Complaints(logger, clock)
        self.counters: Counter[str] = Counter()
        """What was refused, by kind; and slaves that came and went."""
        store.on_write(self._wrote)

    # ---------------------------------------------------------------------------------------------- life

    async def listen(self, port: int) -> None:
        """Listen on `port`, 0: on any that is free. Raises ConfigError."""
        config = self._config
        if config.tls is not None and config.tls.mode != "disabled":
            self._certificates = Certificates(config.tls)
        try:
            self._listener = await self._network.listen(
                config.host, port, self._accept, backlog=BACKLOG, exhausted=lambda: None
            )
        except OSError as error:
            address = format_address(config.host, port)
            kind = AddressTaken if error.errno == errno.EADDRINUSE else ConfigError
            raise kind(
                f"slaves cannot be served on {address}: {error.strerror or error}; stop what holds that "
                "address, or choose another one (haListenPort)"
            ) from None
        self._timer = self._clock.every(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self.refuse("this broker is stopping")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @property
    def port(self) -> int:
        return 0 if self._listener is None else self._listener.addresses[0][1]

    def serve(self, role: str, term: int) -> None:
        """Be the master others follow, in this term."""
        self._hang_up()
        self._role, self._term = role, term
        self._no_master = None
        is_sync = role == SYNC_MASTER
        self._wait = (
            ReplicaWait(
                self._clock,
                self._config.slave_timeout_ms,
                self._is_available,
                is_strict=self._config.is_strict,
                is_elected=self._config.is_elected,
            )
            if is_sync
            else None
        )
        self._store.wait_for_replicas(self._wait)
        self._tables.release()
        self._tables.begin_term()

    def refuse(self, why: str) -> None:
        """Be no master; whoever waits for replicas is told that it does not know."""
        self._no_master = why
        self._hang_up()
        if self._config.is_elected and self._wait is not None:
            self._store.show_up_to(self._store.dispatched)  # the next master may lack the rest
        self._wait = None
        self._store.wait_for_replicas(None)
        self._tables.release()

    def _hang_up(self) -> None:
        links, self._links = self._links, []
        for link in links:
            link.close()

    # ------------------------------------------------------------------------------------------- looking

    @property
    def end(self) -> int:
        """Where this log ends."""
        return self._store.wrote

    @property
    def has_in_sync(self) -> bool:
        """Whether there is a slave that keeps up."""
        end = self._store.wrote
        return any(link.is_in_sync(end) for link in self._links)

    @property
    def is_behind(self) -> bool:
        """Whether a slave that keeps up has not got everything yet."""
        end = self._store.wrote
        return any(link.acked < end and link.is_in_sync(end) for link in self._links)

    @property
    def replicated(self) -> int:
        """Enough replicas have everything before this; 0 when nobody waits for them."""
        return 0 if self._wait is None else self._wait.replicated

    @property
    def shown(self) -> int:
        """Everything before this was confirmed as replicated, or may have been seen by readers."""
        return 0 if self._wait is None else max(self._wait.replicated, self._wait.passed)

    @property
    def visible(self) -> int:
        """Readers of this broker, and of its slaves, may see what ends before this."""
        dispatched = self._store.dispatched
        if self._wait is None or not self._config.is_elected:
            return dispatched
        return min(dispatched, self._wait.passed)

    @property
    def acked(self) -> Mapping[str, int]:
        """How far each member is that follows."""
        return {link.member: link.acked for link in self._streaming}

    @property
    def links(self) -> list[LinkStatus]:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        return [
            LinkStatus(
                member=link.member,
                peer=link.peer,
                broker_id=link.broker_id,
                acked=link.acked,
                sent=link.next,
                lag=link.lag,
                is_in_sync=link.is_in_sync(self._store.wrote),
                dialect="kourou" if link.is_ours else "rocketmq",
                since_ms=now_ms - round((now - link.since) * 1000),
            )
            for link in self._streaming
        ]

    @property
    def _streaming(self) -> list[Link]:
        return [link for link in self._links if link.state is State.STREAMING]

    # ------------------------------------------------------------------------------------ topics and groups

    def tables_changed(self) -> None:
        """Topics or groups are others now: our own slaves ask for them at once."""
        change = self._tables.changed()
        for link in self._streaming:
            link.tables_changed(change)

    def when_copied(self, then: Then) -> None:
        """Call `then` when enough replicas have the topics and groups as they are now: with OK, with
        SLAVE_NOT_AVAILABLE when there are too few of them, or FLUSH_SLAVE_TIMEOUT."""
        self._tables.when_copied(then)

    @property
    def lacking(self) -> frozenset[str]:
        """Our own slaves that do not have a topic or group yet that somebody was told is there."""
        told = self._tables.told
        return frozenset(link.member for link in self._streaming if link.is_ours and link.copied < told)

    def _enough_copied(self, change: int) -> bool:
        if self._required is not None:
            having = {link.member for link in self._streaming if link.copied >= change}
            return self._can_copy() and self._required - {self._member()} <= having
        if self._wait is None:
            return True
        # One of the original's asks when it likes and never says: it is not waited for.
        having_it = [link for link in self._streaming if link.copied >= change or not link.is_ours]
        return len(having_it) >= max(1, self._config.in_sync_replicas - 1)

    def _can_copy(self) -> bool:
        return self._is_available(self._store.wrote)

    # ----------------------------------------------------------------------------------------- accepting

    def _accept(self, host: str, port: int) -> asyncio.BaseProtocol | None:
        host = plain_host(host)
        peer = format_address(host, port)
        if not self._config.allows(host):
            self._turn_away("peer not allowed", f"slave at {peer}: not among haAllowedPeers")
            return None
        if len(self._links) >= self._config.links_max:
            self._turn_away(
                "too many links", f"slave at {peer}: haConnectionsMax is {self._config.links_max}"
            )
            return None
        link = Link(peer, self._config, self._store, self._clock, self)
        self._links.append(link)
        if self._certificates is None:
            return link
        return Secured(link, self._certificates.context, lambda why: link.refuse("tls", why))

    def _turn_away(self, kind: str, text: str) -> None:
        self.counters[f"refused: {kind}"] += 1
        self._complaints.warn(kind, text)

    # What a link asks and tells (`link.Listener`).

    def hello(self) -> MasterHello:
        config = self._config
        return MasterHello(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            member=self._member(),
            term=self._term,
            start=self._store.start,
            end=self._store.wrote,
            segment_bytes=config.segment_bytes,
            nonce=self._chance.secret_bytes(NONCE_BYTES).hex(),
            wants_proof=bool(config.secret),
            role=self._role,
        )

    def why_not(self, link: Link, hello: SlaveHello | None) -> str | None:
        if self._no_master is not None:
            return f"no master: {self._no_master}"
        if self._config.is_closed:
            return "access control is on here, and slaves are not asked who they are: set haSecret on both"
        if hello is None:
            return "it shows no haSecret, which this master asks for" if self._config.secret else None
        config = self._config
        if (hello.cluster_name, hello.broker_name) != (config.cluster_name, config.broker_name):
            return (
                f"it is {hello.broker_name} of {hello.cluster_name}, this is {config.broker_name} of "
                f"{config.cluster_name}: brokerName and brokerClusterName of a pair must be the same"
            )
        if hello.segment_bytes != config.segment_bytes:
            return (
                f"its log files have {hello.segment_bytes} bytes, this master's {config.segment_bytes}: "
                "set mappedFileSizeCommitLog of both to the same value"
            )
        if hello.broker_id == 0:
            return "brokerId 0 is the master's: give each slave a brokerId of its own, from 1 on"
        if hello.term > self._term:
            return f"it knows of term {hello.term}, this master is of term {self._term}: an older one"
        if hello.member == self._member():
            return f"it is this broker itself, {hello.member}: check haMasterAddress"
        return self._twin(link, hello)

    def _twin(self, link: Link, hello: SlaveHello) -> str | None:
        for other in [each for each in self._streaming if each is not link]:
            if other.member == hello.member:  # the same one, come back before its old connection was missed
                self._links.remove(other)
                other.close()
            elif other.broker_id == hello.broker_id:
                return (
                    f"brokerId {hello.broker_id} is taken by {other.member}: "
                    "give each slave a brokerId of its own"
                )
        return None

    def streaming(self, link: Link) -> None:
        self.counters["slaves came"] += 1
        logger.info("slave %s (%s) follows from %d on", link.member, link.peer, link.next)
        self.acknowledged(link)
        link.tables_changed(self._tables.newest)

    def acknowledged(self, link: Link) -> None:
        if self._wait is not None:
            self._wait.reached(self._enough_have())
            self._look_what_is_safe()
            self._show_later()

    def copied(self, link: Link) -> None:
        self._tables.look()

    def refused(self, link: Link, kind: str, reason: str) -> None:
        self._turn_away(kind, f"slave {link.member} at {link.peer}: {reason}")

    def closed(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            if link.next:
                self.counters["slaves went"] += 1
                logger.warning("slave %s (%s) is gone, at %d", link.member, link.peer, link.acked)
        self._look_again()

    # --------------------------------------------------------------------------------------- enough have it

    def require(self, members: frozenset[str] | None) -> None:
        """Wait for all of these members; None: for any `inSyncReplicas` - 1 slaves."""
        self._required = members
        self._is_alone = members is not None and members <= {self._member()}
        self._look_again()

    def _look_again(self) -> None:
        if self._wait is not None:
            self._wait.reached(self._enough_have())
            self._look_what_is_safe()
            self._wait.look_again()
        self._tables.look()

    def _look_what_is_safe(self) -> None:
        """Of a set that elects its master: what all have that may lead next, readers may see."""
        if self._wait is not None and self._required is not None and not self._config.is_strict:
            before = self._wait.passed
            self._wait.safe(self._all_have(self._required))
            if self._wait.passed > before:
                self._show_later()

    def _all_have(self, members: frozenset[str]) -> int:
        """Up to where all of these have the log; all of it when it is only us."""
        by_member = self.acked
        others = members - {self._member()}
        return min((by_member.get(member, 0) for member in others), default=self._store.wrote)

    def _enough_have(self) -> int:
        """Up to where enough replicas have the log."""
        if self._required is None:
            needed = max(1, self._config.in_sync_replicas - 1)
            acked = sorted((link.acked for link in self._streaming), reverse=True)
            return acked[needed - 1] if len(acked) >= needed else 0
        if len(self._required | {self._member()}) < self._config.in_sync_replicas:
            return 0
        return self._all_have(self._required)

    def _is_available(self, end: int) -> bool:
        """Whether enough replicas are there to wait for."""
        in_sync = {link.member for link in self._streaming if link.is_in_sync(end)}
        if self._required is None:
            return len(in_sync) >= max(1, self._config.in_sync_replicas - 1)
        # Whoever is away comes back or is taken out of the set, and soon: that is worth waiting for.
        return len(self._required | {self._member()}) >= self._config.in_sync_replicas

    # -------------------------------------------------------------------------------------------- pushing

    def _wrote(self) -> None:
        if self._is_alone:
            self._look_what_is_safe()
        for link in self._links:
            link.push()

    def _show_later(self) -> None:
        if not self._is_showing:
            self._is_showing = True
            self._clock.later(SHOW_SECONDS, self._show)

    def _show(self) -> None:
        self._is_showing = False
        for link in self._links:
            link.show()

    def _look(self) -> None:
        for link in list(self._links):
            link.look()
            link.push()
        self._look_again()
