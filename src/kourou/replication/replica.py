"""A slave's side of replication: follows one master, and has the same bytes.

    connecting ──▶ greeting ──┬── no answer: the original's ────────────────────────▶ following
                              └── one of ours ──▶ comparing ──▶ "begin" ──▶ following
                                                      │
                                                      └── the logs part: the tail is set aside, then again

Whatever goes wrong ends the connection; `state` and `reason` say what it was, and it is tried again. Bytes
are acknowledged when they are written, or, where the slave flushes synchronously, when they are on its disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

import msgspec

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import ARMED, reached
from kourou.doors.network import Network
from kourou.errors import ConfigError, Corrupt, MQError, ProtocolError
from kourou.remoting.address import parse_address
from kourou.remoting.complaints import Complaints
from kourou.remoting.failures import in_words
from kourou.remoting.tls import client_context
from kourou.replication import handshake, stream
from kourou.replication.config import ReplicationConfig
from kourou.replication.divergence import Search, common_end
from kourou.replication.handshake import NONCE_BYTES, MasterHello, SlaveHello
from kourou.replication.status import FollowingStatus
from kourou.store.following import Follower
from kourou.store.store import Store

CONNECT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.3
REFUSED_RETRY_SECONDS: Final = 2.0
GREETING_SECONDS: Final = 1.0
OUR_REPORT_SECONDS: Final = 1.0
PART_REPORT_SECONDS: Final = 0.005
OUR_SILENCE_SECONDS_MAX: Final = 6.0
LOOK_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class Self(NamedTuple):
    """What a slave says of itself."""

    member: str
    broker_id: int
    term: int


class Replica:
    """Follows whoever it is told to."""

    def __init__(
        self,
        config: ReplicationConfig,
        store: Store,
        *,
        network: Network,
        clock: Clock,
        chance: Chance,
        me: Callable[[], Self],
        adopt_term: Callable[[int], None],
        set_aside: Callable[[int, str], None],
        met: Callable[[str, str], None],
        tables_changed: Callable[[Callable[[], None] | None], None],
    ) -> None:
        """`adopt_term(term)` keeps a newer term, on disk before it returns. `set_aside(place, why)` takes
        what the store has from `place` on out of its log, then calls `again`. `met(address, role)`: this is
        where the master serves its clients, and what it is. `tables_changed(then)`: it is worth asking it for
        topics and offsets; `then()` when those asked for after this are kept."""
        self._config = config
        self._store = store
        self._network = network
        self._clock = clock
        self._chance = chance
        self._me = me
        self._adopt_term = adopt_term
        self._set_aside = set_aside
        self._met = met
        self._tables_changed = tables_changed
        self._tls = None if config.client_tls is None else client_context(config.client_tls)
        self._follower: Follower | None = None
        self._line: Line | None = None
        self._connecting: asyncio.Task[asyncio.BaseTransport] | None = None
        self._timer: Timer | None = None
        self._complaints = Complaints(logger, clock)
        self.address: str | None = None
        """The HA address of the master that is followed."""
        self._only_term: int | None = None
        self.last_known_end = 0
        """What the master had when it was last heard of."""
        self.shown = 0
        """A master said that readers may see what ends before this."""
        self.state = "idle"
        self.reason = ""
        self.received_bytes = 0
        self.counters: Counter[str] = Counter()
        store.on_durable(self._durable)

    # ---------------------------------------------------------------------------------------------- life

    def follow(self, address: str, term: int | None = None) -> None:
        """Follow the master that serves its slaves at `address`, if it is of `term` (when given). Raises
        ConfigError when that is no address."""
        parse_address(address)
        is_same = (address, term) == (self.address, self._only_term)
        if is_same and (self._line is not None or self._connecting is not None):
            return
        self.stop()
        self.address, self._only_term = address, term
        self.again()

    def stop(self) -> None:
        """Follow nobody."""
        self.address = self._only_term = None
        self._drop("idle", "")
        self._cancel()
        self._follower = None

    def again(self) -> None:
        """Connect now, whatever was planned."""
        self._cancel()
        if self.address is not None:
            self._connect(self.address)

    @property
    def is_following(self) -> bool:
        return self._line is not None and self._line.is_following

    @property
    def lag(self) -> int | None:
        """How many bytes the master is known to have that this slave has not; None: unknown."""
        line = self._line
        if line is None or not line.is_following:
            return None
        return max(0, line.master_end - self._store.wrote)

    @property
    def status(self) -> FollowingStatus:
        is_ours = self._line is not None and self._line.hello is not None
        return FollowingStatus(
            address=self.address or "",
            state=self.state,
            reason=self.reason,
            lag=self.lag,
            received_bytes=self.received_bytes,
            dialect="kourou" if is_ours else "rocketmq",
        )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None

    # ------------------------------------------------------------------------------------------ connecting

    def _connect(self, address: str) -> None:
        self.state = "connecting"
        host, port = parse_address(address)
        line = Line(self, self._config, self._clock)
        connecting = asyncio.get_running_loop().create_task(
            self._network.connect(host, port, line, tls=self._tls)
        )
        self._connecting = connecting
        self._timer = self._clock.later(CONNECT_SECONDS, lambda: _give_up(connecting))
        connecting.add_done_callback(lambda task: self._connected(task, line))

    def _connected(self, task: asyncio.Task[asyncio.BaseTransport], line: Line) -> None:
        if self._connecting is not task:
            line.close()
            return
        self._cancel_timer()
        self._connecting = None
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            why = _in_words(error)
            self._failed(
                "connecting",
                f"the master at {self.address} cannot be reached: {why}; see that it runs, and that this is "
                "its HA port (haListenPort, one above listenPort)",
            )
        elif line.is_lost:
            self._failed("connecting", f"the master at {self.address} hung up at once")
        else:
            self._line = line
            self.state = "greeting"
            line.greet()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _failed(self, state: str, reason: str, seconds: float = RETRY_SECONDS) -> None:
        """It did not work: say so once a while, and try again soon."""
        self._drop(state, reason)
        self._complaints.warn(state, f"not following: {reason}")
        self._cancel_timer()
        if self.address is not None:
            self._timer = self._clock.later(seconds, self.again)

    def _drop(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason
        line, self._line = self._line, None
        if line is not None:
            self.last_known_end = max(self.last_known_end, line.master_end)
            line.close()

    # ------------------------------------------------------------------------- what a line tells and asks

    def lost(self, line: Line, reason: str) -> None:
        if line is self._line:
            self._failed("connecting", reason)

    def refused(self, line: Line, reason: str) -> None:
        """The two do not fit together; somebody has to see to it."""
        if line is self._line:
            self.counters["refused"] += 1
            self._failed("refused", reason, REFUSED_RETRY_SECONDS)

    def hello(self, nonce_of: MasterHello) -> SlaveHello:
        """Our answer to a master's greeting. Raises ConfigError when it is not to be followed."""
        config, me = self._config, self._me()
        if (nonce_of.cluster_name, nonce_of.broker_name) != (config.cluster_name, config.broker_name):
            raise ConfigError(
                f"the master at {self.address} is {nonce_of.broker_name} of {nonce_of.cluster_name}, this is "
                f"{config.broker_name} of {config.cluster_name}: brokerName and brokerClusterName of a pair "
                "must be the same; check haMasterAddress"
            )
        if nonce_of.segment_bytes != config.segment_bytes:
            raise ConfigError(
                f"the master's log files have {nonce_of.segment_bytes} bytes, ours {config.segment_bytes}: "
                "set mappedFileSizeCommitLog of both to the same value"
            )
        if nonce_of.term < me.term:
            raise ConfigError(
                f"the master at {self.address} is of term {nonce_of.term}, and term {me.term} has begun: an "
                "older master is not followed"
            )
        if self._only_term not in (None, nonce_of.term):
            raise ConfigError(
                f"the master at {self.address} is of term {nonce_of.term}, and term {self._only_term} is due"
            )
        if nonce_of.wants_proof and not config.secret:
            raise ConfigError(f"the master at {self.address} asks for a secret: set haSecret to its value")
        said = SlaveHello(
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            member=me.member,
            broker_id=me.broker_id,
            term=me.term,
            start=self._store.start,
            end=self._store.wrote,
            segment_bytes=config.segment_bytes,
            nonce=self._chance.secret_bytes(NONCE_BYTES).hex(),
        )
        proof = handshake.proof(config.secret, "slave", nonce_of, said)
        return msgspec.structs.replace(said, proof=proof)

    def search(self, master: MasterHello) -> Search | None:
        """How to find where the two logs part; None: this one is empty. Raises ConfigError when what it lacks
        is gone."""
        self.state = "comparing"
        store, follower = self._store, self.follower()
        if not store.file_places:
            return None
        if store.wrote < master.start:
            raise ConfigError(
                f"this log ends at {store.wrote}, and the master's begins at {master.start}: what lies "
                "between is gone there. Stop this slave, move its store folder away and start it again: it "
                "then copies what the master has"
            )
        newest = store.last_start if store.dispatched == follower.whole else self._newest(follower.whole)
        return common_end(store, newest, follower.whole, master.start)

    def _newest(self, whole: int) -> int:
        """Where the last whole record begins; not all are visible yet."""
        places = self._store.places_of(max(self._store.last_start, self._store.start), whole)
        return places[-1][0] if places else -1

    def found(self, line: Line, place: int | None, master: MasterHello) -> None:
        """The logs are the same up to `place`, or have nothing in common."""
        store = self._store
        term = self._me().term
        if place is None and not (0 < term < master.term):
            raise ConfigError(
                f"this log, {store.start} to {store.wrote}, has nothing in common with the master's, "
                f"{master.start} to {master.end}: it is another one's, or the master lost its own. Nothing "
                "was changed. Move this store folder away to copy the master's, or promote this broker"
            )
        if place is None:  # all it ever had was written in a term that is over
            place = store.start
        if place < master.start:
            raise ConfigError(
                f"the logs part at {place}, before the master's begins at {master.start}: move this store "
                "folder away and start this slave again"
            )
        if place < store.wrote:
            self._diverged(place, master)
        else:
            self._begin(line, place, master)

    def _diverged(self, place: int, master: MasterHello) -> None:
        is_ahead = place == master.end
        why = (
            f"{'ahead of' if is_ahead else 'other than'} the log of the master {master.member} "
            f"(term {master.term}, {master.start} to {master.end}) from {place} on"
        )
        self.counters["tails set aside"] += 1
        self.counters["bytes set aside"] += self._store.wrote - place
        logger.error("this log is %s: %d bytes are set aside", why, self._store.wrote - place)
        self._drop("comparing", f"this log is {why}: what it has beyond is set aside")
        self._follower = None
        self._set_aside(place, why)

    def begin_empty(self, line: Line, master: MasterHello) -> None:
        self._begin(line, master.start, master)

    def _begin(self, line: Line, place: int, master: MasterHello) -> None:
        if master.term > self._me().term:
            self._adopt_term(master.term)
        line.begin(place)
        self._met(master.member, master.role)
        self._now_following()

    def begin_classic(self, line: Line) -> None:
        """The master is one of the original's: no questions asked."""
        self.follower()
        self._store.show_up_to(None)
        self._now_following()

    def _now_following(self) -> None:
        self.state, self.reason = "following", ""
        logger.info("following the master at %s from %d on", self.address, self._store.wrote)
        self._tables_changed(None)

    def follower(self) -> Follower:
        if self._follower is None:
            self._follower = self._store.follow()
        return self._follower

    # -------------------------------------------------------------------------------------------- following

    def take(self, data: bytes) -> None:
        """Bytes of the master's log. Raises MQError when they cannot be taken."""
        if ARMED:
            reached("before-ha-apply")
        self._store.take_raw(data)
        self.received_bytes += len(data)
        if ARMED:
            reached("after-ha-apply")

    @property
    def acknowledged(self) -> int:
        """What the master may be told this slave has."""
        return min(self._store.durable, self.follower().had)

    def show(self, place: int) -> None:
        self.shown = place
        self._store.show_up_to(place)

    def tables_changed(self, then: Callable[[], None]) -> None:
        self._tables_changed(then)

    def _durable(self) -> None:
        if self._line is not None and self._line.is_following and self._follower is not None:
            self._line.report()


def _give_up(connecting: asyncio.Task[asyncio.BaseTransport]) -> None:
    connecting.cancel()


def _in_words(error: BaseException | None) -> str:
    if error is None:
        return "no answer"
    return in_words(error) if isinstance(error, OSError) else str(error)


class Line(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, replica: Replica, config: ReplicationConfig, clock: Clock) -> None:
        self._replica = replica
        self._config = config
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._timers: list[Timer] = []
        self._report_timer: Timer | None = None
        self._words = stream.WordsReader()
        self._frames: stream.FrameReader | None = None
        self._said: SlaveHello | None = None
        self._search: Search | None = None
        self._is_accepted = False
        self._expected = 0  # the place of the next byte
        self._reported = -1
        self._reported_at = self._heard_at = clock.monotonic()
        self._visible = -1
        self.hello: MasterHello | None = None
        """Who the master is, when it is one of ours."""
        self.master_end = 0
        """What the master is known to have."""
        self.is_lost = False

    @property
    def is_following(self) -> bool:
        return self._frames is not None and not self.is_lost

    # ---------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        was_lost, self.is_lost = self.is_lost, True
        self._cancel()
        if not was_lost:
            why = "it hung up" if exc is None else _in_words(exc)
            if self._frames is None and self.hello is None:
                why += " before a word of its log: is this the HA port of a broker? Check haMasterAddress"
            self._replica.lost(
                self, f"the connection to the master at {self._replica.address} is lost: {why}"
            )

    def close(self) -> None:
        self.is_lost = True
        self._cancel()
        if self._transport is not None:
            self._transport.abort()

    def _cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None

    def greet(self) -> None:
        """Ask whether the master is one of ours."""
        assert self._transport is not None
        reached("before-ha-handshake")
        self._heard_at = self._clock.monotonic()
        self._transport.write(stream.GREETING)
        self._timers = [
            self._clock.later(GREETING_SECONDS, self._no_greeting),
            self._clock.every(LOOK_SECONDS, self._look),
        ]

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._clock.monotonic()
        try:
            if self._frames is None:
                self._talk(data)
            else:
                self._take(data)
        except (ConfigError, Corrupt) as error:
            self._replica.refused(self, str(error))
        except MQError as error:
            self._replica.lost(self, str(error))

    def _look(self) -> None:
        now = self._clock.monotonic()
        silence_max = self._config.silence_ms_max / 1000
        if self.hello is not None:
            silence_max = min(silence_max, OUR_SILENCE_SECONDS_MAX)
        if now - self._heard_at > silence_max:
            self._replica.lost(self, f"the master at {self._replica.address} is silent")
            return
        interval = OUR_REPORT_SECONDS if self.hello is not None else self._config.heartbeat_ms / 1000
        if self.is_following and now - self._reported_at >= interval:
            self.report(anyway=True)

    # --------------------------------------------------------------------------------------- greeting

    def _no_greeting(self) -> None:
        if self.hello is not None or self.is_lost:
            return
        if self._config.secret:
            self._replica.refused(
                self,
                f"the master at {self._replica.address} does not know our handshake, and haSecret is set: "
                "a master of the original's cannot prove who it is; take haSecret out to follow it",
            )
            return
        self._frames = stream.FrameReader(stream.FRAME, self._began)
        try:
            self._replica.begin_classic(self)
        except MQError as error:
            self._replica.refused(self, str(error))
            return
        self._expected = self._replica.follower().end
        self.report(anyway=True)

    def _talk(self, data: bytes) -> None:
        self._words.feed(data)
        while self._frames is None and not self.is_lost and (text := self._words.next()) is not None:
            self._answer(handshake.decode(text))
        if self._frames is not None:
            rest = self._words.rest()
            if rest:
                self._take(rest)

    def _answer(self, said: handshake.Words) -> None:
        if isinstance(said, handshake.Refusal):
            raise ConfigError(f"the master at {self._replica.address} refuses this slave: {said.reason}")
        if isinstance(said, MasterHello) and self.hello is None:
            self.hello = said
            self._said = self._replica.hello(said)
            self._say(self._said)
        elif isinstance(said, handshake.Accepted) and self._said is not None and not self._is_accepted:
            self._accepted(said)
        elif isinstance(said, handshake.Compared) and self._search is not None:
            self._go_on(said.equal)
        else:
            raise ProtocolError(f"{type(said).__name__} is not what is due")

    def _accepted(self, said: handshake.Accepted) -> None:
        assert self.hello is not None
        assert self._said is not None
        expected = handshake.proof(self._config.secret, "master", self.hello, self._said)
        if not handshake.is_proof(said.proof, expected):
            raise ConfigError(f"the master at {self._replica.address} does not know our haSecret")
        self._is_accepted = True
        self.master_end = self.hello.end
        self._search = self._replica.search(self.hello)
        if self._search is None:
            self._replica.begin_empty(self, self.hello)
        else:
            self._ask(next(self._search))

    def _go_on(self, equal: list[bool]) -> None:
        assert self._search is not None
        assert self.hello is not None
        try:
            samples = self._search.send(equal)
        except StopIteration as found:
            self._search = None
            self._replica.found(self, found.value, self.hello)
            return
        except (IndexError, ValueError):
            raise ProtocolError("it compared another number of records than it was asked to") from None
        self._ask(samples)

    def _ask(self, samples: list[tuple[int, int, int]]) -> None:
        if samples:
            self._say(handshake.Compare(samples))
        else:
            self._go_on([])

    def begin(self, place: int) -> None:
        """Have the master send everything from `place` on."""
        follower = self._replica.follower()
        if follower.end != place:
            follower.begin_at(place)
        self._expected = place
        self._frames = stream.FrameReader(stream.OUR_FRAME, self._began)
        self._say(handshake.Begin(place))
        reached("after-ha-handshake")
        self.report(anyway=True)

    def _say(self, said: handshake.Words) -> None:
        if self._transport is not None:
            self._transport.write(stream.words(handshake.encode(said)))

    # --------------------------------------------------------------------------------------- following

    def _take(self, data: bytes) -> None:
        assert self._frames is not None
        chunks = self._frames.feed(data)
        if chunks:
            self._replica.take(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._visible >= 0:
            self._replica.show(self._visible)
        if chunks and not self._frames.is_in_a_frame:
            self.report()
        elif chunks and self._report_timer is None and not self.is_lost:
            # A frame of a megabyte comes in many pieces: a report of each costs as much as to write it.
            self._report_timer = self._clock.later(PART_REPORT_SECONDS, self._report_part)

    def _began(self, place: int, size: int, term: int = 0, visible: int = -1) -> None:
        if self.hello is not None:
            if term != self.hello.term:
                raise ProtocolError(f"a frame of term {term} from a master of term {self.hello.term}")
            self._visible = visible
            self.master_end = max(self.master_end, visible)
            if size == stream.METADATA_CHANGED:
                self._replica.tables_changed(partial(self._copied, place))
                return
        if place != self._expected:
            self._begin_elsewhere(place)
        segment_bytes = self._config.segment_bytes
        if place % segment_bytes + size > segment_bytes:
            raise ConfigError(
                f"the master sends {size} bytes at {place}, across the end of a log file of {segment_bytes}: "
                "its files are of another size; set mappedFileSizeCommitLog to its value"
            )
        self._expected = place + size
        self.master_end = max(self.master_end, self._expected)

    def _copied(self, change: int) -> None:
        """Topics and groups are here as they were after this change, or later."""
        if self.hello is not None and self._transport is not None and not self.is_lost:
            self._transport.write(stream.OUR_REPORT.pack(self.hello.term, -change))

    def _begin_elsewhere(self, place: int) -> None:
        """An empty slave of the original's master gets its newest file only."""
        follower = self._replica.follower()
        if follower.end or place % self._config.segment_bytes:
            raise ConfigError(
                f"the master at {self._replica.address} goes on at {place}, and this log ends at "
                f"{self._expected}: they are not the same; move this store folder away to copy the master's"
            )
        follower.begin_at(place)
        self._expected = place

    def _report_part(self) -> None:
        self._report_timer = None
        self.report()

    def report(self, *, anyway: bool = False) -> None:
        """Tell the master how far this log reaches, if that is news."""
        place = self._replica.acknowledged
        if (place == self._reported and not anyway) or self._transport is None or self.is_lost:
            return
        if ARMED:
            reached("before-ha-ack")
        self._reported = place
        self._reported_at = self._clock.monotonic()
        if self.hello is None:
            self._transport.write(stream.REPORT.pack(place))
        else:
            self._transport.write(stream.OUR_REPORT.pack(self.hello.term, place))
        if ARMED:
            reached("after-ha-ack")
