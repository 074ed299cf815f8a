"""A broker's part in its replica set: which role it has, and what follows from it.

                 appends    HA port    follows    delays, timers, transactions    brokerId
    master       taken      serves     nobody     run                             0
    slave        refused    refuses    its master stand still                     its own
    idle         refused    refuses    nobody     stand still                     its own

A role changes at run time, one change after the other. The new term is on disk before anything else happens;
name servers hear of it at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.registration import Registration
from kourou.broker.replica_metadata import ReplicaMetadata
from kourou.broker.role import SLAVE, SYNC_MASTER, BrokerRole
from kourou.broker.topics import READ_WRITE, Topics
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import reached
from kourou.doors.files import Files
from kourou.doors.network import Network
from kourou.errors import Busy, ConfigError, MQError, StoreError
from kourou.remoting.address import format_address
from kourou.remoting.client import Client
from kourou.replication.metadata import MetadataSync
from kourou.replication.primary import Primary
from kourou.replication.replica import Replica, Self
from kourou.replication.status import HaStatus
from kourou.store.aside import set_aside
from kourou.store.replica_wait import ReplicaWait
from kourou.store.store import Store

ASK_AGAIN_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.01
HA_PORT_ABOVE: Final = 1

logger = logging.getLogger(__name__)


class Duties(NamedTuple):
    """What only a master does: deliver delayed messages and timers, end transactions."""

    load: Callable[[], None]
    start: Callable[[], None]
    stop: Callable[[], None]
    """Stand still; `load` and `start` may come again."""
    save: Callable[[], None]
    """Write down how far they are, as far as that is on the disk."""


class Replicating:
    """Master or slave, and everything that hangs on it."""

    def __init__(
        self,
        config: BrokerConfig,
        role: BrokerRole,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        offsets: CommittedOffsets,
        metadata: ReplicaMetadata,
        registration: Registration,
        client: Client,
        network: Network,
        files: Files,
        clock: Clock,
        chance: Chance,
        member: Callable[[], str],
        duties: Duties,
    ) -> None:
        self._config = config
        self._role = role
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._registration = registration
        self._network = network
        self._files = files
        self._clock = clock
        self._chance = chance
        self._member = member
        self._duties = duties
        self._changing = asyncio.Lock()
        self._is_started = False
        self._is_idle = False
        self._timer: Timer | None = None
        self._aside: asyncio.Task[None] | None = None
        self._unsure_until: int | None = None  # up to here the log may hold what the next master lacks
        self._inheritance: Timer | None = None  # looks whether all that was inherited is visible
        self.has_duties = False
        """Whether this broker delivers what is due and ends transactions: it knows all that was inherited."""
        self.duties_changed: Callable[[], None] = lambda: None
        """Called when they are taken up, and when they are not to be any more."""
        self.cannot_lead: Callable[[], None] = lambda: None
        """Called when this broker is the master and should not be: another may be able to."""
        self._master_address: str | None = None
        self._is_told_master = False  # who the master is has been said by whoever decides, not a name server
        self.primary = Primary(
            config.replication(),
            store,
            network=network,
            clock=clock,
            chance=chance,
            member=member,
        )
        self.metadata = MetadataSync(
            client, clock, metadata, lambda: store.dispatched, config.ha_metadata_interval_ms
        )
        self.replica = Replica(
            config.replication(),
            store,
            network=network,
            clock=clock,
            chance=chance,
            me=lambda: Self(member(), role.broker_id, role.term),
            adopt_term=self._adopt,
            set_aside=self._set_aside,
            met=self._met_master,
            tables_changed=self._is_following,
        )
        store.on_dispatch(lambda _: self.metadata.log_grew())
        topics.on_change(self.primary.tables_changed)
        groups.on_change(self.primary.tables_changed)
        registration.on_master(self._found_master)

    # ---------------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Find out the term; the store is open. Call it before anything is served."""
        self._role.load()
        self._offsets.begin_term(self._role.term, is_slave=not self._role.is_master)
        self._show_nothing_unsure()
        if self._role.is_master:
            self._duties.load()
            self.has_duties = True
        else:
            self._refuse_appends()

    async def listen(self, port: int) -> None:
        """Serve slaves, one port above `port` unless another is set. Raises ConfigError."""
        wanted = self._config.ha_port
        if not wanted and self._config.port:
            try:
                await self.primary.listen(port + HA_PORT_ABOVE)
                return
            except ConfigError as error:
                logger.warning("%s; slaves are served on a free port instead", error)
        await self.primary.listen(wanted)

    def start(self) -> None:
        """Do what the role asks for."""
        self._is_started = True
        if self._role.is_master:
            self._duties.start()
            self.primary.serve(self._role.name, self._role.term)
        elif self._config.election_members:
            self._is_idle = True  # until the replica set has elected somebody (`switching.py`)
        else:
            self._follow()

    def stop(self) -> None:
        """Follow nobody, deliver nothing more; slaves go on being served until `close`."""
        if self._is_started:
            self._is_started = False
            self._unfollow()
            self._end_duties()
            self.duties_changed()

    async def close(self) -> None:
        """Serve slaves no more; those that keep up get everything first, unless that takes too long."""
        deadline = self._clock.monotonic() + DRAIN_SECONDS
        while self.primary.is_behind and self._clock.monotonic() < deadline:
            await self._moment()
        self.primary.stop()

    async def _moment(self) -> None:
        woken = asyncio.Event()
        self._clock.later(LOOK_SECONDS, woken.set)
        await woken.wait()

    @property
    def ha_address(self) -> str:
        """Where slaves connect, as the name servers are told."""
        return format_address(self._config.ha_host or self._config.advertised_host, self.primary.port)

    @property
    def master_address(self) -> str | None:
        """Where clients reach the master this broker follows."""
        return self._master_address

    @property
    def is_slave(self) -> bool:
        return not self._role.is_master

    @property
    def has_master(self) -> bool:
        """Whether a slave's master is there."""
        return self.replica.is_following

    @property
    def has_slaves(self) -> bool:
        """Whether a master has a slave that keeps up."""
        return self.primary.has_in_sync

    def why_unreadable(self) -> str | None:
        """Why nobody may read here yet; None when all may."""
        unsure = self._unsure_until
        if unsure is None:
            return None
        if max(self.replica.shown, self.primary.visible if self._role.is_master else 0) >= unsure:
            self._unsure_until = None
            return None
        return (
            f"this member of {self._config.broker_name} has just started, and no master has confirmed the "
            "end of its log yet; read from another one, or try again soon"
        )

    def _show_nothing_unsure(self) -> None:
        """The log was opened, so all of it can be read; but in an elected set the next master may lack its
        end, and give the places of those messages to others."""
        if self._config.election_members and self._role.master_role == SYNC_MASTER:
            self._unsure_until = self._store.wrote

    def status(self) -> HaStatus:
        role, store = self._role, self._store
        return HaStatus(
            role=role.name,
            broker_id=role.broker_id,
            term=role.term,
            ha_address=self.ha_address,
            log_start=store.start,
            log_end=store.wrote,
            flushed=store.flushed,
            replicated=self.primary.replicated,
            links=self.primary.links,
            following=None if role.is_master else self.replica.status,
            counters={**self.primary.counters, **self.replica.counters},
        )

    # ------------------------------------------------------------------------------------------ changing

    async def become_master(self, term: int | None = None, role: str | None = None) -> None:
        """Take messages, in `term` (the next one when not given). Everything of the log is on the disk when
        this returns, and the name servers have been told. It is visible, too, unless others have yet to
        confirm it."""
        async with self._changing:
            if self._aside is not None:
                await self._aside  # it takes away the end of the log that is to be ours
            wanted = role or self._role.master_role
            if self._role.is_master and not self._is_idle and term in (None, self._role.term):
                if wanted != self._role.name:
                    self._role.change(wanted, self._role.term)
                    self.primary.serve(wanted, self._role.term)
                return
            was_master = self._role.is_master and not self._is_idle
            self._role.change(wanted, self._role.term + 1 if term is None else term)
            self._offsets.begin_term(self._role.term, is_slave=False)
            if self._config.election_members:  # first: other members may lack the end of what is ours now
                self.primary.serve(self._role.name, self._role.term)
            if not was_master:
                self._take_over()
            if not self._config.election_members:
                self.primary.serve(self._role.name, self._role.term)
            self._is_idle = False
            self._registration.register_now()
            logger.warning("this broker is the master (%s), term %d", self._role.name, self._role.term)

    def _take_over(self) -> None:
        self._unfollow()
        self._store.leave_log()
        self._know_own_topics()
        reached("before-promote-open")
        self._store.refuse_appends(None)
        reached("after-promote-open")
        self._inherit(self._store.wrote)

    def _inherit(self, end: int) -> None:
        """Begin with the duties once everything before `end` is sure to stay: what was decided, delivered or
        staged there is known to nobody but the log, and an elected master shows its end only when others
        have it. Until then messages are taken, and none that waits is delivered."""
        self._inheritance = None
        if self.primary.visible < end:
            self._inheritance = self._clock.later(LOOK_SECONDS, partial(self._inherit_later, end))
            return
        self._duties.load()
        self.has_duties = True
        self._duties.start()
        self.duties_changed()

    def _inherit_later(self, end: int) -> None:
        try:
            self._inherit(end)
        except (MQError, OSError) as error:
            logger.critical("what waits and what was decided here cannot be taken up: %s", error)
            self.cannot_lead()

    def _end_duties(self) -> None:
        if self._inheritance is not None:
            self._inheritance.cancel()
            self._inheritance = None
        if self.has_duties:
            self._duties.stop()

    def why_no_duties(self) -> str | None:
        """Why nothing can be said yet of what waits or is decided here; None when it can."""
        if self.has_duties or not self._role.is_master:
            return None
        return (
            f"this member of {self._config.broker_name} has just become the master, and others have not "
            "confirmed the end of its log yet: try again soon"
        )

    def _know_own_topics(self) -> None:
        """No message is out of reach because its topic was created just before the old master went."""
        for name, queue_ids in self._store.topics().items():
            if self._topics.get(name) is None:
                self._topics.ensure(name, max(queue_ids) + 1, READ_WRITE)

    async def become_slave(
        self, term: int | None = None, master_address: str | None = None, ha_address: str | None = None
    ) -> None:
        """Take no messages, and follow the master that is named; by default the one name servers know."""
        async with self._changing:
            self._step_down(term)
            self._is_idle = False
            self._is_told_master = ha_address is not None
            self._master_address = master_address
            self._registration.register_now()
            if ha_address is not None:
                self.replica.follow(ha_address, term)
                if master_address is not None:
                    self.metadata.follow(master_address)
            else:
                self._follow()
            logger.warning("this broker is a slave, term %d", self._role.term)

    async def become_idle(self, term: int | None = None) -> None:
        """Take no messages and follow nobody: there is no master that is known."""
        async with self._changing:
            self._step_down(term)
            self._unfollow()
            self._is_idle = True
            self._registration.register_now()

    def _step_down(self, term: int | None) -> None:
        was_master = self._role.is_master
        self._role.change(SLAVE, self._role.term if term is None else max(term, self._role.term))
        self._offsets.begin_term(self._role.term, is_slave=True)
        if was_master:
            self._refuse_appends()
            self.primary.refuse("it is a slave")
            self._end_duties()
            self._store.sync()  # what counts as delivered must be on the disk
            if self.has_duties:
                self.has_duties = False
                self._duties.save()
            self.duties_changed()

    def _refuse_appends(self) -> None:
        self._store.refuse_appends(
            f"this broker is a slave of {self._config.broker_name} (brokerId {self._role.broker_id}): it "
            "takes no messages; its master does"
        )
        self.primary.refuse("it is a slave")

    def _adopt(self, term: int) -> None:
        self._role.adopt(term)
        self._offsets.begin_term(term, is_slave=True)

    # ----------------------------------------------------------------------------------------- following

    def _is_following(self, then: Callable[[], None] | None) -> None:
        """The log is the master's now: where it ended when this broker last crashed means nothing any more,
        and no reader is to be sent back there when this broker leads one day."""
        self._offsets.forget_crash()
        self.metadata.now(then)

    def _follow(self) -> None:
        """Follow the configured master, or the one name servers tell us of."""
        if self._timer is None:
            self._timer = self._clock.every(ASK_AGAIN_SECONDS, self._ask_again)
        if self._config.ha_master_address:
            self.replica.follow(self._config.ha_master_address)

    def _unfollow(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.replica.stop()
        self.metadata.stop()

    def _ask_again(self) -> None:
        """While nobody is followed, ask the name servers who the master is."""
        is_lost = not self.replica.is_following or self._master_address is None
        if is_lost and not self._is_told_master and not self._role.is_master:
            self._registration.register_now()

    def _found_master(self, master_address: str | None, ha_address: str | None) -> None:
        """A name server says who the master is."""
        if self._role.is_master or self._is_idle or self._is_told_master or not self._is_started:
            return
        if master_address and master_address != self._member():
            self._master_address = master_address
            self.metadata.follow(master_address)
        ha_address = self._config.ha_master_address or ha_address
        if ha_address and ha_address != self.ha_address:
            try:
                self.replica.follow(ha_address)
            except ConfigError as error:
                logger.warning("the master's HA address is unusable: %s", error)

    def _met_master(self, address: str, role: str) -> None:
        """The master that is followed says where it serves its clients, and of what kind it is."""
        if not self._role.is_master:
            try:
                self._role.heard_of(role)
            except (Busy, StoreError) as error:
                logger.warning("after a restart it will not be known that the master is %s: %s", role, error)
            self._master_address = address
            self.metadata.follow(address)

    # -------------------------------------------------------------------------------------------- parting

    def _set_aside(self, place: int, why: str) -> None:
        self._aside = asyncio.get_running_loop().create_task(self._part(place, why))

    async def _part(self, place: int, why: str) -> None:
        """Take what nobody else has out of the log, unseen by readers, and follow from there."""
        store, end = self._store, self._store.wrote
        store.wait_for_replicas(ReplicaWait(self._clock, 0, lambda _: False, is_elected=True))
        store.close()
        while not store.is_released:
            await self._moment()
        try:
            folder, manifest = set_aside(store.config, self._files, place, end, why, self._clock.now_ms())
            logger.error("%d messages were set aside in %s", manifest.messages, folder)
        except (OSError, MQError) as error:
            logger.critical("the diverged end of the log cannot be set aside: %s", error)
        try:
            store.open()
            if not self._role.is_master:
                store.wait_for_replicas(None)
            self._show_nothing_unsure()
        except (OSError, MQError) as error:
            store.failed = f"the store cannot be opened again after its end was set aside: {error}"
            logger.critical("%s", store.failed)
            return
        self.replica.again()
