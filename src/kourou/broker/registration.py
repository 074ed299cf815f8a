"""Telling name servers that we exist, and what we have.

Every 30 seconds, and at once when a topic changes, all name servers are told side by side; one that does
not answer holds nobody up. Before a periodic registration a name server can be asked whether it knows our
data version already (`forceRegister=false`): then only its clock is set anew. At stop they are told goodbye.

    start ── register ──▶ every name server ◀── topic changed, or 30 s later
      │                        │
      │                        └─ its answer: which topics are ordered
      └─ address server, if the user named one: a new list every 2 minutes, the last good one kept
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from kourou.broker.config import BrokerConfig
from kourou.broker.role import BrokerRole
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import reached
from kourou.errors import MQError
from kourou.protocol.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicTable, register_crc
from kourou.protocol.codes import RequestCode, ResponseCode, response_name
from kourou.protocol.command import FLAG_ONE_WAY, VERSION, Command, request
from kourou.protocol.headers import BrokerIdentity, DataVersionReply, RegisterBroker, RegisterBrokerReply
from kourou.remoting.client import Client

FIRST_SECONDS: Final = 10.0
KNOCK_SECONDS: Final = 1.0
"""How often a name server is tried that is away: when it is back it knows us soon."""
ON_CHANGE_TIMEOUT_MS: Final = 2_000
"""Whoever made the change waits for it, and a client's patience is 3 seconds."""
KNOWN_SECONDS: Final = 1.0
"""How long whoever sends to a new topic waits for name servers that do not answer."""
GOODBYE_TIMEOUT_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)

Done = Callable[[list[str]], None]
"""Told who refused, and why. An unreachable name server has not refused: it will be told again; only when
none of them answers is that said, because then nobody knows."""


class Registration:
    """This broker's entry at every name server."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        client: Client,
        clock: Clock,
        address: Callable[[], str],
        *,
        role: BrokerRole | None = None,
        ha_address: Callable[[], str] = lambda: "",
    ) -> None:
        """`role` says which broker of its set this is, and `ha_address()` where slaves connect."""
        self._config = config
        self._topics = topics
        self._client = client
        self._clock = clock
        self._address = address
        self._role = role
        self._ha_address = ha_address
        self._told_master: Callable[[str | None, str | None], None] = lambda *_: None
        self._name_servers = config.name_servers
        self._silent: set[str] = set()
        self._timer: Timer | None = None
        self._knocking: Timer | None = None
        self._is_leaving = False
        self._known = _Countdown(0, None)
        self._whispers: set[asyncio.Task[None]] = set()

    def on_master(self, told: Callable[[str | None, str | None], None]) -> None:
        """Call `told` with what name servers say to a slave: where its master, and its HA port, is."""
        self._told_master = told

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._name_servers

    async def start(self) -> None:
        """Register now, again in 10 seconds, and then every 30.

        Returns when every name server has answered, or 2 seconds later: who starts a broker and then a
        client finds the one with the other.
        """
        self._topics.on_change(self._topics_changed)
        self._timer = self._clock.every(
            self._config.register_interval_ms / 1000, self.register_again, first=FIRST_SECONDS
        )
        self._knocking = self._clock.every(KNOCK_SECONDS, self._knock)
        told = asyncio.Event()
        self.register_now(lambda _: told.set())
        await told.wait()

    async def stop(self) -> None:
        """Say goodbye; a name server that does not answer is not waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._knocking is not None:
            self._knocking.cancel()
        self._is_leaving = True
        await asyncio.gather(*map(self._say_goodbye, self._name_servers))

    async def _say_goodbye(self, name_server: str) -> None:
        goodbye = request(RequestCode.UNREGISTER_BROKER, self._identity())
        try:
            await self._client.call(name_server, goodbye, GOODBYE_TIMEOUT_SECONDS)
        except MQError as error:
            logger.debug("no goodbye to name server %s: %s", name_server, error)

    def use(self, name_servers: tuple[str, ...]) -> None:
        """From now on these are the name servers; all of them are told at once."""
        if name_servers and name_servers != self._name_servers and not self._is_leaving:
            logger.info("name servers are now %s", ";".join(name_servers))
            self._name_servers = name_servers
            self.register_now()

    def register_now(self, then: Done | None = None) -> None:
        """Tell all name servers; `then` is called when each has answered or run out of time, with the words
        of those who refused.

        After the goodbye nobody is told any more: it would bring back what is about to end.
        """
        servers = () if self._is_leaving else self._name_servers
        done = _Countdown(len(servers), then)
        if not servers:
            return
        self._known = known = _Countdown(len(set(servers) - self._silent), None)
        command = self._command()
        reached("before-namesrv-register")
        timeout = self._config.register_timeout_ms if then is None else ON_CHANGE_TIMEOUT_MS
        for name_server in servers:
            waiting = (done,) if name_server in self._silent else (done, known)
            self._tell(name_server, command(), timeout / 1000, *waiting)
        reached("after-namesrv-register")

    def when_known(self, then: Callable[[], None]) -> None:
        """Call `then` when every name server that is there has answered what it was told last, or a second
        later; should they answer after that, it is called again."""
        if self._known.is_over:
            then()
            return
        patience = self._clock.later(KNOWN_SECONDS, then)

        def known() -> None:
            patience.cancel()
            then()

        self._known.also.append(known)

    def register_again(self) -> None:
        """The periodic turn: everybody, or only those who do not know our data version."""
        if self._config.register_always:
            self.register_now()
            return
        for name_server in self._name_servers:
            self._ask(name_server)

    def _knock(self) -> None:
        """Whoever was away has forgotten us when it is back, and shall not wait for the next turn."""
        for name_server in self._name_servers:
            if not self._client.is_connected(name_server):
                self._ask(name_server, KNOCK_SECONDS)

    def _ask(self, name_server: str, seconds: float | None = None) -> None:
        question = request(RequestCode.QUERY_DATA_VERSION, self._identity(), self._version().encode())

        def answered(reply: Command | Exception) -> None:
            if isinstance(reply, Exception) and seconds is not None:
                return
            if isinstance(reply, Command) and _knows_us(reply):
                return
            timeout = self._config.register_timeout_ms / 1000
            self._tell(name_server, self._command()(), timeout)

        timeout = self._config.register_timeout_ms / 1000 if seconds is None else seconds
        self._client.call_soon(name_server, question, timeout, answered)

    def _tell(self, name_server: str, command: Command, timeout: float, *waiting: _Countdown) -> None:
        def answered(reply: Command | Exception) -> None:
            self._note(name_server, reply)
            problem = _problem(reply)
            told = None if problem is None else f"name server {name_server}: {problem}"
            for each in waiting:
                each.one_more(told, is_silent=isinstance(reply, Exception))

        if command.is_one_way:
            task = asyncio.get_running_loop().create_task(self._whisper(name_server, command))
            self._whispers.add(task)  # a task nobody holds may vanish
            task.add_done_callback(self._whispers.discard)
            for each in waiting:
                each.one_more()
        else:
            self._client.call_soon(name_server, command, timeout, answered)

    async def _whisper(self, name_server: str, command: Command) -> None:
        try:
            await self._client.send_one_way(name_server, command)
        except MQError as error:
            self._note(name_server, error)

    def _note(self, name_server: str, reply: Command | Exception) -> None:
        """Log the first failure and the recovery, not every turn in between."""
        problem = _problem(reply)
        if problem is not None:
            level = logging.DEBUG if name_server in self._silent else logging.WARNING
            logger.log(level, "not registered at name server %s: %s", name_server, problem)
            self._silent.add(name_server)
            return
        if name_server in self._silent:
            self._silent.discard(name_server)
            logger.info("registered at name server %s again", name_server)
        assert isinstance(reply, Command)
        if self._broker_id:
            said = reply.parse(RegisterBrokerReply)
            self._told_master(said.master_address, said.ha_server_address)
        try:
            if reply.body:
                self._topics.set_ordered(KVTable.decode(reply.body).table)
        except MQError as error:
            logger.warning("name server %s: its word on ordered topics is unusable: %s", name_server, error)

    def _topics_changed(self) -> None:
        self.register_now()

    def _command(self) -> Callable[[], Command]:
        """The registration, encoded once for all name servers; each sends a copy under its own number."""
        config = self._config
        table = TopicTable(topic_config_table=dict(self._topics.all), data_version=self._version())
        body = RegisterBrokerBody(topic_table=table)
        data = body.encode_compressed(VERSION) if config.register_compressed else body.encode()
        header = RegisterBroker(
            broker_name=config.broker_name,
            broker_address=self._address(),
            cluster_name=config.cluster_name,
            broker_id=self._broker_id,
            ha_server_address=self._ha_address(),
            body_crc32=register_crc(data),
            compressed=config.register_compressed,
        )
        flag = FLAG_ONE_WAY if config.register_one_way else 0
        return lambda: request(RequestCode.REGISTER_BROKER, header, data, flag=flag)

    def _identity(self) -> BrokerIdentity:
        return BrokerIdentity(
            broker_name=self._config.broker_name,
            broker_address=self._address(),
            cluster_name=self._config.cluster_name,
            broker_id=self._broker_id,
        )

    @property
    def _broker_id(self) -> int:
        return self._config.broker_id if self._role is None else self._role.broker_id

    def _version(self) -> DataVersion:
        """The term is its state version: of two masters name servers believe that of the later term."""
        term = 0 if self._role is None else self._role.term
        version = self._topics.data_version
        return msgspec.structs.replace(version, state_version=term) if term else version


class _Countdown:
    """Calls `then` after so many turns, with what was refused; at once when there are none to wait for."""

    def __init__(self, turns: int, then: Done | None) -> None:
        self._left = self._turns = turns
        self._then = then
        self.also: list[Callable[[], None]] = []
        self._refusals: list[str] = []
        self._silent: list[str] = []
        if turns == 0:
            self._finish()

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def one_more(self, refusal: str | None = None, *, is_silent: bool = False) -> None:
        if refusal is not None:
            (self._silent if is_silent else self._refusals).append(refusal)
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        for also in self.also:
            also()
        if self._then is None:
            return
        nobody_answered = self._turns > 0 and len(self._silent) == self._turns
        self._then(["no name server answered", *self._silent] if nobody_answered else self._refusals)


def _knows_us(reply: Command) -> bool:
    """Whether a name server has our newest table; when in doubt it gets it again."""
    try:
        return reply.code == ResponseCode.SUCCESS and not reply.parse(DataVersionReply).changed
    except MQError:
        return False


def _problem(reply: Command | Exception) -> str | None:
    if isinstance(reply, Exception):
        return str(reply)
    if reply.code != ResponseCode.SUCCESS:
        return f"{response_name(reply.code)}: {reply.remark or 'no reason given'}"
    return None
