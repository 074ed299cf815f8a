"""A broker: builds every part, owns the table of all that is served, starts and stops in order.

    start   open the store ─▶ read topics, groups, offsets ─▶ listen ─▶ register
    stop    unregister ─▶ answer who waits ─▶ drain ─▶ save offsets ─▶ close the store

Everything runs on one event loop; only fdatasync has a thread of its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping
from typing import Final

from kourou.broker.address_list import AddressList, list_url
from kourou.broker.advertised import Advertised
from kourou.broker.background import BackgroundThread
from kourou.broker.config import BrokerConfig
from kourou.broker.delays import Delays
from kourou.broker.expansion import Expander
from kourou.broker.exporter_names import ExporterNames
from kourou.broker.groups import Groups
from kourou.broker.handlers.admin_clients import (
    AllProducersHandler,
    ConsumerStatusHandler,
    DirectConsumptionHandler,
    RunningInfoHandler,
)
from kourou.broker.handlers.admin_config import GetConfigHandler, UpdateConfigHandler
from kourou.broker.handlers.admin_groups import (
    AllRequestModesHandler,
    BrokerConsumeStatsHandler,
    CloneOffsetsHandler,
    CorrectionHandler,
    GroupForbiddenHandler,
    RequestModeHandler,
    SaveGroupsHandler,
    SubscriptionHandler,
    TimeSpanHandler,
    TopicsOfGroupHandler,
)
from kourou.broker.handlers.admin_replicas import HaStatusHandler
from kourou.broker.handlers.admin_stats import BrokerStatsHandler
from kourou.broker.handlers.admin_topics import CreateTopicsHandler, SystemTopicsHandler
from kourou.broker.handlers.bulk_pull import BulkPullHandler
from kourou.broker.handlers.cleaning import (
    CleanLogHandler,
    CleanQueuesHandler,
    CleanTopicsHandler,
    DeleteTopicHandler,
)
from kourou.broker.handlers.clients import HeartbeatHandler, MemberListHandler, UnregisterHandler
from kourou.broker.handlers.figures import (
    AllTopicsHandler,
    ConsumeStatsHandler,
    GetTopicHandler,
    RuntimeInfoHandler,
    TopicStatsHandler,
)
from kourou.broker.handlers.filters import CheckClientHandler
from kourou.broker.handlers.groups import (
    AllGroupsHandler,
    AllOffsetsHandler,
    ConsumerConnectionsHandler,
    DeleteGroupHandler,
    GetGroupHandler,
    GroupsOfTopicHandler,
    ProducerConnectionsHandler,
    ResetOffsetHandler,
    SaveGroupHandler,
)
from kourou.broker.handlers.later import DelayOffsetsHandler, TimerCheckpointHandler, TimerMetricsHandler
from kourou.broker.handlers.locks import LockHandler, UnlockHandler
from kourou.broker.handlers.made import Made
from kourou.broker.handlers.masters_only import masters_only
from kourou.broker.handlers.offsets import (
    EarliestTimeHandler,
    MaxOffsetHandler,
    MinOffsetHandler,
    QueryOffsetHandler,
    SearchOffsetHandler,
    UpdateOffsetHandler,
)
from kourou.broker.handlers.pull import PullHandler
from kourou.broker.handlers.pull_run import PULL_RUN_KEY, PullRunHandler
from kourou.broker.handlers.query import QueryConsumeQueueHandler, QueryMessageHandler, ViewMessageHandler
from kourou.broker.handlers.recall import RecallHandler
from kourou.broker.handlers.reply import ReplyHandler
from kourou.broker.handlers.send import SendHandler
from kourou.broker.handlers.send_back import SendBackHandler
from kourou.broker.handlers.send_run import RUN_KEY, SendRunHandler
from kourou.broker.handlers.staging import (
    AbortStagedHandler,
    CapabilitiesHandler,
    CommitStagedHandler,
    StagedStateHandler,
    StageHandler,
)
from kourou.broker.handlers.switching import (
    ReplicaSetHandler,
    ReplicaSetStateHandler,
    StopHandler,
    SwitchHandler,
)
from kourou.broker.handlers.topics import CreateTopicHandler
from kourou.broker.handlers.transactions import EndTransactionHandler, ResumeCheckHandler
from kourou.broker.handlers.when_sure import DECIDES, READS, SureRuns, UntilSure, when_sure
from kourou.broker.lag import Lags
from kourou.broker.later import Later
from kourou.broker.locks import QueueLocks
from kourou.broker.long_poll import LongPoll
from kourou.broker.members import Members
from kourou.broker.metrics import BrokerMetrics
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.own_config import OwnConfig
from kourou.broker.rates import Rates
from kourou.broker.registration import Registration
from kourou.broker.replica_metadata import ReplicaMetadata
from kourou.broker.replicating import Duties, Replicating
from kourou.broker.retries import Retries
from kourou.broker.role import BrokerRole
from kourou.broker.sequences import Sequences
from kourou.broker.spans import Spans
from kourou.broker.state_file import StateFile
from kourou.broker.stats import Stats
from kourou.broker.switching import Roles, Switching
from kourou.broker.timers import Timers
from kourou.broker.topics import Topics
from kourou.broker.transactions import Transactions
from kourou.broker.twins import refuse_a_twin
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files, make_lasting_folder
from kourou.doors.network import Network
from kourou.errors import Busy, ConfigError, DiskFault, StoreError
from kourou.protocol.codes import RequestCode
from kourou.protocol.message_id import UniqueIds
from kourou.remoting.access import Access
from kourou.remoting.access_handlers import access_handlers
from kourou.remoting.answer import Handler, RunHandler
from kourou.remoting.client import Client
from kourou.remoting.latency import Latencies
from kourou.remoting.metrics_pages import MetricsPages
from kourou.remoting.server import Server
from kourou.remoting.tick import Tick
from kourou.replication.status import HaStatus
from kourou.store.flush import Background
from kourou.store.store import Store

FAST_PORT_BELOW: Final = 2
FREE_PORT_TRIES: Final = 50
ELECTION_RETRY_SECONDS_MAX: Final = 0.3
RETRY_SECONDS_MAX: Final = 2.0
"""Until a name server is tried again that could not be reached."""
READERS_BACK_SECONDS: Final = 120.0
"""Whoever was reading when the broker crashed reads again by then, or is no longer there."""
FORGET_SECONDS: Final = 60.0
"""How often counts are let go of whose topic or group is no more."""

logger = logging.getLogger(__name__)


class Broker:
    """One broker. Make it on a running event loop; `start` it, `stop` it, in that order and once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        network: Network,
        clock: Clock,
        files: Files,
        chance: Chance,
        process_id: int,
        tick: Tick | None = None,
        background: Background | None = None,
        access: Access | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self._network = network
        self._clock = clock
        self._tick = tick or Tick(loop)
        self._thread: BackgroundThread | None = None
        if background is None:
            self._thread = BackgroundThread(loop)
            background = self._thread.run
        self._background = background
        self._advertised = Advertised(config.advertised_host, config.port)
        self._servers: list[Server] = []
        self._timers: list[Timer] = []
        self._is_loaded = False

        self._files = files
        self._config_folder = folder = f"{config.store_path}/config"
        self.access = access or Access(config, folder=folder, files=files, clock=clock, chance=chance)
        self.store = Store(
            config.store(),
            files=files,
            clock=clock,
            defer=self._tick.at_end,
            afterwards=self._tick.after_writes,
            background=background,
        )
        at_end = self._tick.at_end
        self.topics = Topics(config, StateFile(files, f"{folder}/topics.json"), clock, at_end)
        self.groups = Groups(config, StateFile(files, f"{folder}/subscriptionGroup.json"), clock, at_end)
        self.offsets = CommittedOffsets(StateFile(files, f"{folder}/consumerOffset.json"))
        self.members = Members(
            clock,
            notify=config.notify_members_changed,
            refuse_different=config.refuse_different_subscriptions,
        )
        self.locks = QueueLocks(clock)
        self.long_poll = LongPoll(clock)
        self.stats = Stats()
        self.rates = Rates(self.stats, clock)
        self.spans = Spans(self.stats, clock, config.cluster_name)
        self.own_config = OwnConfig(config, self.store.config, clock)
        self.own_config.on_change(self._settings_changed)
        self.delays = Delays(
            config.delay_levels_ms,
            store=self.store,
            topics=self.topics,
            stats=self.stats,
            file=StateFile(files, f"{folder}/delayOffset.json"),
            clock=clock,
        )
        self.timers = Timers(
            config,
            store=self.store,
            topics=self.topics,
            stats=self.stats,
            files=files,
            clock=clock,
            background=background,
        )
        self.later = Later(self.delays, self.timers)
        self.retries = Retries(self.topics, self.groups, chance, self.locks.is_ordered)
        self.transactions = Transactions(
            config,
            store=self.store,
            topics=self.topics,
            members=self.members,
            offsets=self.offsets,
            stats=self.stats,
            advertised=self._advertised,
            clock=clock,
            placed=self.later.redirect,
        )
        self._client = Client(
            network=network,
            clock=clock,
            tls=config.client_tls(),
            chance=chance,
            sign=self.access.sign,
            retry_seconds_max=RETRY_SECONDS_MAX,
        )
        self.role = BrokerRole(
            config.broker_role,
            config.broker_id,
            StateFile(files, f"{folder}/term.json"),
            is_elected=bool(config.election_members),
        )
        self.registration = Registration(
            config,
            self.topics,
            self._client,
            clock,
            lambda: self._advertised.address,
            role=self.role,
            ha_address=lambda: self.replicating.ha_address,
        )
        self.replicating = Replicating(
            config,
            self.role,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            metadata=ReplicaMetadata(
                self.role,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                delays=self.delays,
                timers=self.timers,
                store=self.store,
            ),
            registration=self.registration,
            client=self._client,
            network=network,
            files=files,
            clock=clock,
            chance=chance,
            member=lambda: self._advertised.address,
            duties=Duties(self._load_duties, self._start_duties, self._stop_duties, self._save_duties),
        )
        self.switching = self._make_switching(chance)
        if self.switching is not None:
            self.replicating.cannot_lead = self.switching.step_aside
        self._made = Made(self.registration, self.replicating.primary.when_copied, self.members.topic_changed)
        self.is_asked_to_stop = False
        """Somebody wants this process to end; whoever runs it looks."""
        self._address_list = self._make_address_list()
        unique_ids = UniqueIds(self._advertised.packed[:-4], process_id, chance.getrandbits(32))
        send = SendHandler(
            config,
            self.topics,
            self.store,
            self.stats,
            advertised=self._advertised,
            unique_ids=unique_ids,
            clock=clock,
            chance=chance,
            later=self.later,
            retries=self.retries,
            when_known=self.registration.when_known,
        )
        self.sequences = Sequences(
            config,
            store=self.store,
            topics=self.topics,
            advertised=self._advertised,
            clock=clock,
            expander=Expander(
                store=self.store,
                stats=self.stats,
                clock=clock,
                stored_properties=send.stored_properties,
                placed=self.later.redirect,
            ),
        )
        send_run = SendRunHandler(send, self.topics, self.store, self.stats, self._advertised)
        pull = PullHandler(
            config,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            offsets=self.offsets,
            store=self.store,
            long_poll=self.long_poll,
            stats=self.stats,
            clock=clock,
            standing=self.replicating,
        )
        self.lags = Lags(
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            offsets=self.offsets,
            store=self.store,
            clock=clock,
        )
        self._latencies = Latencies(clock)
        self.metrics = BrokerMetrics(
            config,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            store=self.store,
            stats=self.stats,
            timers=self.timers,
            transactions=self.transactions,
            lags=self.lags,
            access=self.access,
            servers=lambda: self._servers,
            latencies=self._latencies,
            clock=clock,
        )
        self.metrics.links = lambda: self.replicating.status().links
        self.metrics.knows_what_waits = self._knows_what_waits
        self.pages = MetricsPages(
            config,
            figures=self.metrics,
            exporter_figures=ExporterNames(self.metrics, self.rates, self.topics, self.store),
            unhealthy=lambda: self.store.failed,
            not_ready=lambda: None if self._servers else "it does not listen",
            network=network,
            clock=clock,
        )
        pulls = PullRunHandler(pull, self.offsets, self.store, self.stats)
        self._handlers = masters_only(self._table(send, pull), self.role, config.broker_name)
        self._handlers = when_sure(self._handlers, DECIDES, self.replicating.why_no_duties)
        self._put_off_ends()
        self._run_handlers: dict[bytes, RunHandler] = {PULL_RUN_KEY: pulls, RUN_KEY: send_run}
        if config.election_members:
            why_unreadable = self.replicating.why_unreadable
            self._handlers = when_sure(self._handlers, READS, why_unreadable)
            self._run_handlers[PULL_RUN_KEY] = SureRuns(pulls, why_unreadable)
            self.long_poll.why_not = why_unreadable

    def _put_off_ends(self) -> None:
        """Ends of transactions wait for a new master's duties."""
        code = RequestCode.END_TRANSACTION
        ends = UntilSure(self._handlers[code], self.replicating.why_no_duties, self._clock)
        self.replicating.duties_changed = ends.look
        self._handlers[code] = ends

    def _table(self, send: SendHandler, pull: PullHandler) -> Mapping[int, Handler]:
        """All we serve."""
        reply = ReplyHandler(
            self.config,
            send,
            members=self.members,
            store=self.store,
            stats=self.stats,
            advertised=self._advertised,
            clock=self._clock,
        )
        return {
            RequestCode.SEND_MESSAGE: send,
            RequestCode.SEND_MESSAGE_V2: send,
            RequestCode.SEND_BATCH_MESSAGE: send,
            RequestCode.PULL_MESSAGE: pull,
            RequestCode.LITE_PULL_MESSAGE: pull,
            RequestCode.QUERY_CONSUMER_OFFSET: QueryOffsetHandler(self.offsets, self.store),
            RequestCode.UPDATE_CONSUMER_OFFSET: UpdateOffsetHandler(
                self.offsets, self.topics, self.groups, self.store
            ),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetHandler(self.store),
            RequestCode.GET_MAX_OFFSET: MaxOffsetHandler(self.store),
            RequestCode.GET_MIN_OFFSET: MinOffsetHandler(self.store),
            RequestCode.GET_EARLIEST_MSG_STORETIME: EarliestTimeHandler(self.store),
            RequestCode.QUERY_MESSAGE: QueryMessageHandler(self.store),
            RequestCode.VIEW_MESSAGE_BY_ID: ViewMessageHandler(self.store, self.access.require),
            RequestCode.QUERY_CONSUME_QUEUE: QueryConsumeQueueHandler(self.store, self.members),
            RequestCode.CHECK_CLIENT_CONFIG: CheckClientHandler(self.config),
            RequestCode.HEART_BEAT: HeartbeatHandler(self.members, self.groups, self.topics, self._clock),
            RequestCode.UNREGISTER_CLIENT: UnregisterHandler(self.members),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: MemberListHandler(self.members),
            RequestCode.UPDATE_AND_CREATE_TOPIC: CreateTopicHandler(self.topics, self._made),
            RequestCode.CONSUMER_SEND_MSG_BACK: SendBackHandler(
                self.config,
                groups=self.groups,
                retries=self.retries,
                later=self.later,
                store=self.store,
                stats=self.stats,
                advertised=self._advertised,
                require=self.access.require,
            ),
            RequestCode.RECALL_MESSAGE: RecallHandler(
                self.config,
                topics=self.topics,
                later=self.later,
                store=self.store,
                stats=self.stats,
                advertised=self._advertised,
                clock=self._clock,
            ),
            RequestCode.END_TRANSACTION: EndTransactionHandler(self.transactions),
            RequestCode.SEND_REPLY_MESSAGE: reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: reply,
            RequestCode.LOCK_BATCH_MQ: LockHandler(self.locks, self.members, self.topics),
            RequestCode.UNLOCK_BATCH_MQ: UnlockHandler(self.locks, self.members),
            **self._of_our_own(pull),
            **self._for_operators(),
            **access_handlers(
                self.access,
                name=self.config.broker_name,
                cluster=self.config.cluster_name,
                address=lambda: self._advertised.address,
            ),
        }

    def _of_our_own(self, pull: PullHandler) -> Mapping[int, Handler]:
        """What Apache's brokers do not know."""
        return {
            RequestCode.KOUROU_CAPABILITIES: CapabilitiesHandler(self.config),
            RequestCode.KOUROU_BULK_PULL: BulkPullHandler(pull, self.store, self.stats),
            RequestCode.KOUROU_STAGE: StageHandler(self.sequences),
            RequestCode.KOUROU_COMMIT_STAGED: CommitStagedHandler(self.sequences),
            RequestCode.KOUROU_ABORT_STAGED: AbortStagedHandler(self.sequences),
            RequestCode.KOUROU_STAGED_STATE: StagedStateHandler(self.sequences),
            RequestCode.KOUROU_REPLICA_SET: ReplicaSetHandler(self.switching),
            RequestCode.KOUROU_REPLICA_SET_STATE: ReplicaSetStateHandler(self.switching, self.replicating),
            RequestCode.KOUROU_SWITCH: SwitchHandler(
                self.switching,
                replicating=self.replicating,
                role=self.role,
                store=self.store,
                clock=self._clock,
            ),
            RequestCode.KOUROU_STOP: StopHandler(self._asked_to_stop),
        }

    def _for_operators(self) -> Mapping[int, Handler]:
        """What admin tools ask for."""
        return {
            RequestCode.DELETE_TOPIC_IN_BROKER: DeleteTopicHandler(
                self.topics, self.store, self.offsets, self.registration, self._clock
            ),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: CleanQueuesHandler(self.store, self.offsets),
            RequestCode.CLEAN_UNUSED_TOPIC: CleanTopicsHandler(self.store, self.topics),
            RequestCode.DELETE_EXPIRED_COMMITLOG: CleanLogHandler(self.store),
            RequestCode.GET_ALL_TOPIC_CONFIG: AllTopicsHandler(self.topics),
            RequestCode.GET_TOPIC_CONFIG: GetTopicHandler(self.topics),
            RequestCode.GET_TOPIC_STATS_INFO: TopicStatsHandler(
                self.config, self.topics, self.store, self.rates
            ),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SaveGroupHandler(self.groups, self._made),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: AllGroupsHandler(self.groups),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: GetGroupHandler(self.groups),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: DeleteGroupHandler(self.groups, self.offsets),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnectionsHandler(self.members),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: ProducerConnectionsHandler(self.members),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupsOfTopicHandler(self.members, self.offsets),
            RequestCode.GET_ALL_CONSUMER_OFFSET: AllOffsetsHandler(self.offsets),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetHandler(
                self.config,
                topics=self.topics,
                groups=self.groups,
                members=self.members,
                offsets=self.offsets,
                store=self.store,
                long_poll=self.long_poll,
            ),
            RequestCode.GET_CONSUME_STATS: ConsumeStatsHandler(
                self.config,
                topics=self.topics,
                members=self.members,
                offsets=self.offsets,
                store=self.store,
                rates=self.rates,
            ),
            RequestCode.GET_BROKER_CONFIG: GetConfigHandler(self.own_config),
            RequestCode.UPDATE_BROKER_CONFIG: UpdateConfigHandler(self.own_config),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: CreateTopicsHandler(self.topics, self._made),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: SystemTopicsHandler(self.topics),
            RequestCode.VIEW_BROKER_STATS_DATA: BrokerStatsHandler(self.spans),
            RequestCode.GET_BROKER_HA_STATUS: HaStatusHandler(
                self.replicating.status, lambda: self.role.is_master
            ),
            RequestCode.GET_CONSUMER_RUNNING_INFO: RunningInfoHandler(self.members),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: DirectConsumptionHandler(
                self.config,
                members=self.members,
                topics=self.topics,
                groups=self.groups,
                store=self.store,
            ),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ConsumerStatusHandler(self.members),
            RequestCode.GET_ALL_PRODUCER_INFO: AllProducersHandler(self.members, self._clock),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: SaveGroupsHandler(self.groups, self._made),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: TopicsOfGroupHandler(self.offsets),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: SubscriptionHandler(self.members),
            RequestCode.QUERY_CONSUME_TIME_SPAN: TimeSpanHandler(
                self.config, self.topics, self.offsets, self.store, self._clock
            ),
            RequestCode.QUERY_CORRECTION_OFFSET: CorrectionHandler(self.offsets, self.store),
            RequestCode.CLONE_GROUP_OFFSET: CloneOffsetsHandler(
                self.topics, self.groups, self.members, self.offsets
            ),
            RequestCode.GET_BROKER_CONSUME_STATS: BrokerConsumeStatsHandler(
                self.config,
                topics=self.topics,
                groups=self.groups,
                members=self.members,
                offsets=self.offsets,
                store=self.store,
                rates=self.rates,
                advertised=self._advertised,
            ),
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: GroupForbiddenHandler(self.groups),
            RequestCode.SET_MESSAGE_REQUEST_MODE: RequestModeHandler(self.groups),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: AllRequestModesHandler(),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: ResumeCheckHandler(self.transactions),
            RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetsHandler(self.delays),
            RequestCode.GET_TIMER_CHECK_POINT: TimerCheckpointHandler(self.config, self.timers),
            RequestCode.GET_TIMER_METRICS: TimerMetricsHandler(
                self.config,
                timers=self.timers,
                store=self.store,
                clock=self._clock,
                knows_what_waits=self._knows_what_waits,
            ),
            RequestCode.GET_BROKER_RUNTIME_INFO: RuntimeInfoHandler(
                self.config,
                store=self.store,
                members=self.members,
                delays=self.delays,
                timers=self.timers,
                transactions=self.transactions,
                knows_what_waits=self._knows_what_waits,
                stats=self.stats,
                rates=self.rates,
                files=self._files,
                clock=self._clock,
            ),
        }

    def _knows_what_waits(self) -> bool:
        return self.replicating.has_duties

    def _settings_changed(self) -> None:
        """An operator changed some: whoever made something of them makes it anew."""
        config = self.config
        self.topics.settings_changed()
        self.transactions.settings_changed()
        self.members.settings_changed(
            notify=config.notify_members_changed, refuse_different=config.refuse_different_subscriptions
        )

    @property
    def address(self) -> str:
        """Where clients reach it, as the name servers are told."""
        return self._advertised.address

    @property
    def fault(self) -> DiskFault | None:
        """Why it cannot go on; whoever runs it should stop it and end with this."""
        return None if self.store.failed is None else DiskFault(self.store.failed)

    @property
    def handled_codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    async def start(self) -> None:
        """Serve. Whatever fails is undone before the error flies."""
        try:
            self.store.open()
            make_lasting_folder(self._files, self._config_folder)
            self.access.load()
            self.topics.load()
            self.groups.load()
            self.offsets.load()
            if self.store.was_unclean or self.store.has_lost_its_end:
                self.offsets.after_crash(self.store.max_offset)
            self.replicating.load()
            self._is_loaded = True
            self.store.on_dispatch(lambda new: self.long_poll.wake(new.topic, new.queue_id))
            if self.switching is not None:
                self.switching.load()
            await self._listen()
            await self.pages.start()
            await self.replicating.listen(self._servers[0].port)
            if not self.config.election_members:
                await refuse_a_twin(
                    self._client,
                    self.registration.name_servers,
                    self.config.broker_name,
                    self.role.broker_id,
                    self.address,
                )
            if self.switching is not None:
                self.role.slave_id = self.switching.own_id(self.address)
                self.store.gate = self.switching.why_not
        except BaseException as error:
            await self._close()
            if isinstance(error, OSError):
                raise _unusable(self.config.store_path, error) from None
            raise
        self.access.start()
        self.long_poll.start()
        self.members.start()
        self.rates.start()
        self.spans.start()
        self.replicating.start()
        self._timers = [
            self._clock.every(self.config.offsets_save_interval_ms / 1000, self._save_offsets_later),
            self._clock.every(self.config.delay_offsets_save_interval_ms / 1000, self._save_deliveries_now),
            self._clock.later(READERS_BACK_SECONDS, self.offsets.forget_crash),
            self._clock.every(FORGET_SECONDS, self._forget_counts),
        ]
        if self._address_list is not None:
            self._address_list.start()
        await self.registration.start()
        if self.switching is not None:
            self.switching.start(self.address, self.ha_address)

    # One log on several machines (`replicating.py`).

    @property
    def ha_address(self) -> str:
        """Where slaves connect, as the name servers are told."""
        return self.replicating.ha_address

    def ha_status(self) -> HaStatus:
        """How replication stands."""
        return self.replicating.status()

    async def become_master(self, term: int | None = None, role: str | None = None) -> None:
        """Take messages, in `term` (the next one when not given)."""
        await self.replicating.become_master(term, role)

    async def become_slave(
        self, term: int | None = None, master_address: str | None = None, ha_address: str | None = None
    ) -> None:
        """Follow the master that is named; by default the one name servers know."""
        await self.replicating.become_slave(term, master_address, ha_address)

    async def become_idle(self, term: int | None = None) -> None:
        """Take no messages and follow nobody."""
        await self.replicating.become_idle(term)

    async def stop(self) -> None:
        """Stop serving; when it returns, everything acknowledged is on disk."""
        if self._address_list is not None:
            self._address_list.stop()
        if self.switching is not None:
            await self.switching.stop()
        await self.registration.stop()
        for timer in self._timers:
            timer.cancel()
        self.replicating.stop()
        self.rates.stop()
        self.spans.stop()
        self.members.stop()
        self.access.stop()
        self.long_poll.stop()
        await self._close()

    # What only a master does.

    def _load_duties(self) -> None:
        self.delays.load()
        self.timers.load()
        self.transactions.load()
        self.sequences.load()

    def _start_duties(self) -> None:
        self.transactions.start()
        self.sequences.start()
        self.delays.start()
        self.timers.start()

    def _stop_duties(self) -> None:
        self.transactions.stop()
        self.sequences.stop()
        self.delays.stop()
        self.timers.stop()

    def _save_duties(self) -> None:
        self._save_deliveries()
        self._save_pending()

    async def _close(self) -> None:
        await self.pages.stop()
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop() for server in servers))
        await self._client.close()
        if self._is_loaded:
            self._save_offsets()
            self.store.sync()  # what counts as delivered must be on the disk
            if self.replicating.has_duties:
                self._save_duties()
        await self.replicating.close()
        self.store.close()
        if self.switching is not None and self._is_loaded:
            self.switching.stopped_cleanly()
        if self._thread is not None:
            self._thread.close()

    async def _listen(self) -> None:
        """The main port and, two below it, the fast one; any free pair when port 0 is asked for."""
        if self.config.port:
            await self._listen_on(self.config.port)
        else:
            for _ in range(FREE_PORT_TRIES):
                if await self._listen_anywhere():
                    break
            else:
                raise ConfigError(
                    f"no two free ports {FAST_PORT_BELOW} apart were found; name one in listenPort"
                )
        self._advertised.listens_on(self._servers[0].port)

    async def _listen_on(self, port: int) -> None:
        await self._serve(port, "broker")
        if self.config.fast_port_enabled:
            await self._serve(port - FAST_PORT_BELOW, "broker, fast port")

    async def _listen_anywhere(self) -> bool:
        await self._serve(0, "broker")
        try:
            if self.config.fast_port_enabled:
                await self._serve(self._servers[0].port - FAST_PORT_BELOW, "broker, fast port")
        except ConfigError:
            await self._servers.pop().stop(0)
            return False
        return True

    async def _serve(self, port: int, name: str) -> None:
        server = Server(
            self.access.handlers(self._watched(self._handlers)),
            self.config.server(port),
            network=self._network,
            clock=self._clock,
            tick=self._tick,
            name=name,
            run_handlers=self.access.run_handlers(self._watched_runs(self._run_handlers)),
        )
        await server.start()
        self._servers.append(server)

    def _watched(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """With a watch on them, where somebody looks at it."""
        return self._latencies.handlers(handlers) if self.config.is_metered else handlers

    def _watched_runs(self, run_handlers: Mapping[bytes, RunHandler]) -> Mapping[bytes, RunHandler]:
        return self._latencies.run_handlers(run_handlers) if self.config.is_metered else run_handlers

    def _forget_counts(self) -> None:
        """Topics come and go for as long as a broker runs."""
        self.stats.keep_only(self.topics.all, self.groups.all)
        self.transactions.keep_counts_of(self.topics.all)

    def _save_offsets_later(self) -> None:
        self.offsets.save_later(self._clock.now_ms(), self._background, self._offsets_not_saved)

    def _save_offsets(self) -> None:
        try:
            self.offsets.save(self._clock.now_ms())
        except (Busy, StoreError) as error:
            self._offsets_not_saved(error)

    def _offsets_not_saved(self, error: BaseException) -> None:
        logger.error("consumer offsets are not saved: %s; trying again soon", error)

    def _save_deliveries_now(self) -> None:
        if self.replicating.has_duties:
            self._save_deliveries()

    def _save_deliveries(self) -> None:
        try:
            self.delays.save()
            self.timers.save()
        except (Busy, StoreError) as error:
            logger.error("the progress of delayed messages is not saved: %s; trying again soon", error)

    def _save_pending(self) -> None:
        try:
            self.timers.save_pending()
        except OSError as error:
            logger.error("the list of timed messages is not saved: %s; the next start takes longer", error)

    def _asked_to_stop(self) -> None:
        self.is_asked_to_stop = True

    def _make_switching(self, chance: Chance) -> Switching | None:
        """Our part in electing the master, where the replica set does."""
        config = self.config
        if not config.election_members:
            return None
        replicating = self.replicating
        client = Client(
            network=self._network,
            clock=self._clock,
            tls=config.client_tls(),
            chance=chance,
            sign=self.access.sign,
            retry_seconds_max=ELECTION_RETRY_SECONDS_MAX,
        )
        return Switching(
            config,
            replica_set=f"{config.cluster_name}/{config.broker_name}",
            secret=config.ha_secret,
            flushes_at_once=config.flush_disk_type == "SYNC_FLUSH",
            is_damaged=lambda: bool(self.store.damage or self.store.rot.lost),
            has_lost_its_end=lambda: self.store.has_lost_its_end,
            roles=Roles(
                replicating.become_master,
                replicating.become_slave,
                replicating.become_idle,
                self.store.refuse_appends,
            ),
            primary=replicating.primary,
            replica=replicating.replica,
            client=client,
            files=self._files,
            folder=self._config_folder,
            clock=self._clock,
            chance=chance,
        )

    def _make_address_list(self) -> AddressList | None:
        config = self.config
        if not config.ask_address_server or config.name_servers:
            return None
        url = list_url(config.address_server, config.address_server_path)
        return AddressList(url, self.registration.use, network=self._network, clock=self._clock)


def _unusable(folder: str, error: OSError) -> DiskFault | ConfigError:
    what = f"the data folder {folder} cannot be used: {error.filename or folder}: {error.strerror}"
    if error.errno == errno.EIO:
        return DiskFault(f"{what}; see to the disk")
    return ConfigError(f"{what}; make it writable, or choose another one (storePathRootDir, --data)")
