"""A broker's part in electing the master of its replica set: the election's messages, memory and decisions.

    timer, messages ──▶ Election (replication/election.py, plain) ──▶ actions, carried out here in order
                                                                        Save     config/election.json, synced
                                                                        Send     to members and witnesses
                                                                        Lead     become the master
                                                                        Follow   copy from another, or nobody

Roles change one after the other, and always towards the newest decision; messages do not wait for that. When
what was promised cannot be put on disk this broker takes no further part, since it might promise it twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from kourou.broker.state_file import StateFile
from kourou.broker.switching_settings import SwitchingSettings
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files
from kourou.errors import Busy, ConfigError, Corrupt, MQError, Refused, StoreError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.names import printable
from kourou.remoting.client import Client
from kourou.replication.ballots import (
    Ballot,
    Envelope,
    Message,
    Position,
    Record,
    decoded,
    encoded,
    is_signed,
    signed,
)
from kourou.replication.election import Action, Election, Follow, Lead, Role, Save, Send, Timing
from kourou.replication.keeping_up import Progress
from kourou.replication.primary import Primary
from kourou.replication.replica import Replica

TICKS_A_LEASE: Final = 24
HEARTBEATS_A_LEASE: Final = 6
HAND_OVER_SECONDS_MAX: Final = 2.0
LOOK_SECONDS: Final = 0.01
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

logger = logging.getLogger(__name__)


class Roles(NamedTuple):
    """How a broker changes what it is."""

    become_master: Callable[[int], Awaitable[None]]
    """In this term."""
    become_slave: Callable[[int, str, str], Awaitable[None]]
    """Of this term, of the master at this address, whose log is to be had at that one."""
    become_idle: Callable[[int], Awaitable[None]]
    refuse_appends: Callable[[str | None], None]
    """Take nothing from senders, because of this; None: again."""


class _Kept(msgspec.Struct, rename="camel"):
    """The file."""

    promised: int = 0
    record: Record | None = None
    boot_id: str = ""
    is_clean: bool = False
    """It was stopped in order: nothing was lost, whatever happened to the machine since."""


class State(msgspec.Struct, frozen=True, rename="camel"):
    """What one member knows, for whoever asks (KOUROU_REPLICA_SET_STATE)."""

    member: str
    role: str
    term: int
    master: str | None
    members: tuple[str, ...]
    witnesses: tuple[str, ...]
    in_sync: tuple[str, ...]
    log_end: int
    may_acknowledge: bool


class Switching:
    """Takes part in the election from `start` to `stop`."""

    def __init__(
        self,
        settings: SwitchingSettings,
        *,
        replica_set: str,
        secret: str,
        flushes_at_once: bool,
        is_damaged: Callable[[], bool],
        has_lost_its_end: Callable[[], bool],
        roles: Roles,
        primary: Primary,
        replica: Replica,
        client: Client,
        files: Files,
        folder: str,
        clock: Clock,
        chance: Chance,
    ) -> None:
        """`client` is for this alone: it must try again soon whom it could not reach."""
        self._settings = settings
        self._replica_set = replica_set
        self._secret = secret
        self._flushes_at_once = flushes_at_once
        self._is_damaged = is_damaged
        self._has_lost_its_end = has_lost_its_end
        self._roles = roles
        self._primary = primary
        self._replica = replica
        self._client = client
        self._files = files
        self._file = StateFile(files, f"{folder}/election.json")
        self._clock = clock
        self._chance = chance
        self._kept: _Kept | None = None
        self._boot_id: str | None = None  # until it has begun
        self._election: Election | None = None
        self._timer: Timer | None = None
        self._wanted: Lead | Follow | None = None
        self._changing: asyncio.Task[None] | None = None
        self._is_broken = False

    # ------------------------------------------------------------------------------------------------- life

    def own_id(self, me: str) -> int:
        """The brokerId of the member at `me` while it follows: its place in the list, from 1 on.

        Raises ConfigError when the set does not know that address.
        """
        members = self._settings.election_members
        if me not in members:
            raise ConfigError(
                f"electionMembers {';'.join(members)} does not name this broker, which clients reach at "
                f"{me}: add it, or set brokerIP1 and listenPort to what is there"
            )
        return 1 + members.index(me)

    def load(self) -> None:
        """Find out what was promised. Raises Corrupt when that is not known any more."""
        try:
            self._kept = self._file.load_newest(_Kept) or _Kept()
        except Corrupt as damage:
            raise Corrupt(
                f"{damage}: what this broker promised the others of its set is not known any more, so it may "
                "not vote; move its data folder away and start it with an empty one: it copies everything"
            ) from None

    def start(self, me: str, ha_address: str) -> None:
        """Begin, as the member at `me`."""
        settings = self._settings
        if settings.survives_nobody:
            logger.warning(
                "electionMembers has two brokers and there is no witness: when one is gone the other has no "
                "majority; name a third broker, or a name server in electionWitnesses"
            )
        if self._kept is None:
            self.load()
        kept = self._kept or _Kept()
        self._boot_id = self._read_boot_id()
        is_doubtful = self._is_doubtful(kept)
        if is_doubtful:
            logger.warning(
                "%s: it does not lead before it has caught up with a master",
                "this broker's log has lost its end"
                if self._has_lost_its_end()
                else "the machine was started anew while this broker ran with ASYNC_FLUSH",
            )
        elif self._is_damaged():
            logger.warning("this broker's log is damaged: it leads only when no other member does")
        lease = settings.election_lease_ms / 1000
        self._election = Election(
            me,
            frozenset(settings.election_members),
            frozenset(settings.election_witnesses),
            Ballot(kept.promised, kept.record),
            position=lambda: Position(0, self._primary.end),
            chance=self._chance,
            now=self._clock.monotonic(),
            timing=Timing(lease, lease / HEARTBEATS_A_LEASE, answer=lease, jitter=lease / 4),
            doubtful=is_doubtful,
            is_damaged=self._is_damaged,
            ha_address=ha_address,
        )
        self._save(Ballot(kept.promised, kept.record))
        self._timer = self._clock.every(lease / TICKS_A_LEASE, self._tick)

    def _read_boot_id(self) -> str:
        try:
            return self._files.read(BOOT_ID).decode(errors="replace").strip()
        except OSError:
            return ""

    def _is_doubtful(self, kept: _Kept) -> bool:
        """Whether bytes that were acknowledged may be gone: with a killed process they are not."""
        if self._has_lost_its_end():
            return True
        if self._flushes_at_once or kept.is_clean or kept.record is None:
            return False
        return not self._boot_id or kept.boot_id != self._boot_id

    async def stop(self) -> None:
        """Leave, and leave the lead to another if there is one that has everything."""
        election = self._election
        if election is None:
            return
        heirs = election.required if election.role is Role.MASTER else frozenset()
        for heir in sorted(heirs, key=lambda each: -self._primary.acked.get(each, 0)):
            if await self._hand_over_to(heir):
                break
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._changing is not None:
            await asyncio.wait([self._changing], timeout=HAND_OVER_SECONDS_MAX)
        self._election = None
        self._wanted = None
        await self._client.close()

    def stopped_cleanly(self) -> None:
        """Everything is on the disk: a start after whatever happens to the machine need not doubt it."""
        if self._is_broken or self._boot_id is None:
            return
        try:
            kept = self._file.load(_Kept)
            if kept is not None:
                self._file.save(msgspec.structs.replace(kept, is_clean=True))
        except (Busy, StoreError) as error:
            logger.warning("after a power cut this broker will doubt its log: %s", error)

    # ----------------------------------------------------------------------------------------------- asking

    def why_not(self) -> str | None:
        """Why nothing may be written or acknowledged now; None when it may."""
        election = self._election
        if election is None:
            return "this broker is starting or stopping, and takes no part in its replica set"
        if election.may_acknowledge(self._clock.monotonic()):
            return None
        if election.master is not None and election.master != election.me:
            return f"not the master of term {election.term}: that is {election.master}; look it up again"
        return f"no master of the replica set is known in term {election.term}; try again soon"

    @property
    def state(self) -> State:
        election = self._running()
        record = election.record
        return State(
            member=election.me,
            role=election.role.value,
            term=election.term,
            master=election.master,
            members=tuple(sorted(election.members)),
            witnesses=tuple(sorted(election.voters - election.members)),
            in_sync=tuple(sorted(record.in_sync)) if record is not None else (),
            log_end=self._primary.end,
            may_acknowledge=self.why_not() is None,
        )

    def _running(self) -> Election:
        if self._election is None:
            raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker takes no part in its replica set now")
        return self._election

    # -------------------------------------------------------------------------------------- switching by hand

    async def hand_over(self, heir: str) -> None:
        """Let `heir` lead. Raises Refused when it cannot, and then nothing has changed."""
        election = self._running()
        if election.role is not Role.MASTER:
            known = election.master or "unknown"
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{election.me} does not lead: it cannot hand over; master: {known}",
            )
        if heir not in election.members:
            members = ", ".join(sorted(election.members))
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"{heir} is no member of this replica set; those are {members}"
            )
        deadline = self._clock.monotonic() + HAND_OVER_SECONDS_MAX
        while heir not in election.required and self._clock.monotonic() < deadline:
            await self._moment()  # it may just have started; we go on meanwhile
        if heir not in election.required:
            lag = self._primary.end - self._primary.acked.get(heir, 0)
            what = f"{lag} bytes behind" if heir in self._primary.acked else "not connected"
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{heir} is not in sync ({what}): wait until it has caught up, or stop this master and use "
                "--force, which loses what it lacks",
            )
        if not await self._hand_over_to(heir):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{heir} did not catch up within {HAND_OVER_SECONDS_MAX:g} s; {election.me} goes on leading",
            )

    async def _hand_over_to(self, heir: str) -> bool:
        """Accept nothing more, wait until it has everything, then let go."""
        election = self._running()
        self._roles.refuse_appends(f"this master hands over to {heir}: look up the route again")
        deadline = self._clock.monotonic() + HAND_OVER_SECONDS_MAX
        while not self._has_everything(heir, election):
            if election.role is not Role.MASTER:
                return False
            if self._clock.monotonic() > deadline:
                self._roles.refuse_appends(None)
                return False
            await self._moment()
        self._perform(election.hand_over(self._clock.monotonic(), heir))
        return election.role is not Role.MASTER

    def _has_everything(self, heir: str, election: Election) -> bool:
        primary = self._primary
        has_log = primary.acked.get(heir, -1) >= primary.end
        return has_log and heir not in primary.lacking and election.may_inherit(heir)

    async def _moment(self) -> None:
        passed = asyncio.Event()
        self._clock.later(LOOK_SECONDS, passed.set)
        await passed.wait()

    def force(self) -> None:
        """Lead although others may have more; a majority must agree all the same."""
        election = self._running()
        logger.warning("an operator wants this broker to lead, in sync or not")
        self._perform(election.force(self._clock.monotonic()))

    # --------------------------------------------------------------------------------------------- messages

    def handle(self, data: bytes) -> bytes:
        """A message of another member; the answer to it, or nothing. Raises ProtocolError, Refused."""
        envelope = decoded(data)
        election = self._running()
        if envelope.replica_set != self._replica_set:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this is a broker of {self._replica_set}, not of {printable(envelope.replica_set)}: "
                "check electionMembers",
            )
        if not is_signed(envelope, self._secret):
            raise Refused(
                ResponseCode.NO_PERMISSION, "the proof does not fit: set haSecret to the same value"
            )
        answer: list[Message] = []
        now = self._clock.monotonic()
        self._perform(election.received(now, envelope.sender, envelope.message), envelope.sender, answer)
        return self._sealed(answer[0]) if answer else b""

    def _sealed(self, message: Message) -> bytes:
        assert self._election is not None
        return encoded(signed(Envelope(self._replica_set, self._election.me, message), self._secret))

    def _send(self, to: str, message: Message) -> None:
        command = request(RequestCode.KOUROU_REPLICA_SET, body=self._sealed(message))
        timeout = self._settings.election_lease_ms / 1000

        def answered(reply: Command | Exception) -> None:
            if isinstance(reply, Command) and reply.code == ResponseCode.SUCCESS and reply.body:
                self._answered(to, reply.body)
            elif isinstance(reply, Command) and reply.code != ResponseCode.SUCCESS:
                logger.debug("member %s: %s", to, reply.remark)

        self._client.call_soon(to, command, timeout, answered)

    def _answered(self, sender: str, data: bytes) -> None:
        """Who was asked is who answers, whatever it calls itself: a witness does not know its own address."""
        election = self._election
        if election is None:
            return
        try:
            envelope = decoded(data)
        except MQError as error:
            logger.warning("member %s: %s", sender, error)
            return
        if sender in election.members and not is_signed(envelope, self._secret):
            logger.warning("member %s: its proof does not fit, check haSecret", sender)
            return
        self._perform(election.received(self._clock.monotonic(), sender, envelope.message))

    def _tick(self) -> None:
        election = self._election
        if election is None:
            return
        now = self._clock.monotonic()
        self._perform(election.tick(now))
        if election.role is Role.MASTER:
            primary = self._primary
            progress = Progress(primary.acked, primary.shown, primary.end, primary.lacking)
            self._perform(election.replicated(now, progress))

    # ---------------------------------------------------------------------------------------------- actions

    def _perform(
        self, actions: list[Action], asker: str | None = None, answer: list[Message] | None = None
    ) -> None:
        for action in actions:
            if self._is_broken:
                return
            if isinstance(action, Save):
                self._save(action.ballot)
            elif isinstance(action, Send):
                if answer is not None and action.to == asker and not answer:
                    answer.append(action.message)
                else:
                    self._send(action.to, action.message)
            else:
                self._change(action)
        if self._election is not None and self._election.role is Role.MASTER:
            self._primary.require(self._election.required)

    def _save(self, ballot: Ballot) -> None:
        try:
            self._file.save(_Kept(ballot.promised, ballot.record, self._boot_id or "", False))
        except (Busy, StoreError) as error:
            logger.error(
                "this broker takes no further part in its replica set until it is started anew: %s", error
            )
            self._is_broken = True
            term = 0 if self._election is None else self._election.term
            self._election = None
            self._change(Follow(term, None))

    def _change(self, decision: Lead | Follow) -> None:
        if isinstance(decision, Lead):
            record = decision.record
            logger.warning("leads in term %d; in sync: %s", record.term, ", ".join(sorted(record.in_sync)))
        elif decision.master is None:
            self._replica.stop()  # at once: no byte of an older term is taken any more
            logger.info("term %d: no master is known yet", decision.term)
        else:
            logger.info("term %d: follows %s", decision.term, decision.master)
        self._wanted = decision
        if self._changing is None:
            self._changing = asyncio.get_running_loop().create_task(self._change_roles())

    async def _change_roles(self) -> None:
        """Towards the newest decision, until it is reached."""
        done: Lead | Follow | None = None
        try:
            while self._wanted is not None and done is not self._wanted:
                done = self._wanted
                try:
                    await self._become(done)
                except (MQError, OSError) as error:
                    logger.error("the role could not be changed: %s", error)
                    if isinstance(done, Lead):
                        self.step_aside()
        finally:
            self._changing = None

    def step_aside(self) -> None:
        """Lead no more, for a reason of our own: another member may be able to."""
        if self._election is not None:
            self._perform(self._election.step_aside(self._clock.monotonic()))

    async def _become(self, decision: Lead | Follow) -> None:
        if isinstance(decision, Lead):
            self._primary.require(decision.record.in_sync)
            await self._roles.become_master(decision.record.term)
        elif decision.master is None:
            await self._roles.become_idle(decision.term)
        else:
            await self._roles.become_slave(decision.term, decision.master, decision.ha_address)
