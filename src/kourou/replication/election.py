"""Who leads one replica set: a state machine that is given messages and times, and says what to do.

             the lease has run out                a majority would           a majority has
    FOLLOWER ──────────────────────▶ on trial ──────────────────▶ asking ──────────────────▶ taking
        ▲                               │ not in sync, or too few   │                          │ a majority
        │◀──────────────────────────────┴───────────────────────────┴───────────────────┐      │ took it
        │                                                                               │      ▼
        └── a higher term was promised, the lease could not be renewed, handed over ────┴──── MASTER

Data flows from the master to the others; here it is only decided who is what. Four rules carry all:

1. A term has one master: nobody is voted for twice in a term, and every record needs a majority.
2. The master acknowledges a message when every member of `required` has it, and while its lease lasts.
   `required` is the in-sync set of the last record that a majority took, of the one on its way, and whoever
   is about to join: it joins when it has all that was acknowledged or shown before it was waited for.
3. Who wants to lead must be in the in-sync set of the newest record that a majority knows. So it has all that
   was ever acknowledged; what else it has, or the others, was promised to nobody.
4. A replica that promised a higher term takes no more bytes of the lower one (`Follow` with no master): what
   it has not got by then will never be acknowledged in that term.

The lease only keeps an old master from answering reads and asynchronous sends when there is a new one.
Nothing acknowledged in synchronous mode depends on clocks.

The name for this arrangement is PacificA: few and small decisions by a majority, data by primary and backups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from msgspec import structs

from kourou.doors.chance import Chance
from kourou.replication.ballots import (
    Ask,
    Ballot,
    HandOver,
    Message,
    Position,
    Propose,
    Record,
    Taken,
    Vote,
    Voter,
)
from kourou.replication.keeping_up import KeepingUp, Progress

ROUNDS_KEPT: Final = 64


class Timing(NamedTuple):
    """All in seconds. A killed master is followed by another one after about `lease` and one `jitter`."""

    lease: float = 1.2
    heartbeat: float = 0.2
    answer: float = 0.5
    """How long a candidate waits for votes."""
    jitter: float = 0.3
    clock_drift: float = 0.1
    """A master takes its lease for this part shorter than those who granted it."""


TIMING: Final = Timing()

PATIENCE_LEASES: Final = 3
"""So long a damaged replica lets the others try before it does: one that is whole needs less than two."""


class Save(NamedTuple):
    """Put this on disk before anything that comes after it in the list is done."""

    ballot: Ballot


class Send(NamedTuple):
    to: str
    message: Message


class Lead(NamedTuple):
    """You are the master of this term."""

    record: Record


class Follow(NamedTuple):
    """Copy from this master; None: from nobody. Bytes of any other term are not taken from this moment on."""

    term: int
    master: str | None
    ha_address: str = ""


Action: TypeAlias = Save | Send | Lead | Follow


class Role(Enum):
    FOLLOWER = "follower"
    TRIAL = "on trial"
    ASKING = "asking"
    TAKING = "taking"
    MASTER = "master"


class Election:
    """One member's part in it."""

    def __init__(
        self,
        me: str,
        members: frozenset[str],
        witnesses: frozenset[str],
        ballot: Ballot,
        *,
        position: Callable[[], Position],
        chance: Chance,
        now: float,
        timing: Timing = TIMING,
        doubtful: bool = False,
        is_damaged: Callable[[], bool] = lambda: False,
        ha_address: str = "",
    ) -> None:
        """`doubtful`: after a power cut, or with a log restored from elsewhere, what this replica once
        acknowledged may be gone; it leads only when a master has called it in sync again. `is_damaged`: it
        has everything, but not all of it can be read; others go before it."""
        assert me in members
        assert not members & witnesses
        self.me = me
        self.members = members
        self.voters = members | witnesses
        self.timing = timing
        self.role = Role.FOLLOWER
        self.master: str | None = None
        self._position = position
        self._ha_address = ha_address
        self._chance = chance
        self._voter = Voter(ballot, timing.lease, now)
        self._saved = ballot
        self._doubtful = doubtful
        self._is_damaged = is_damaged
        self._was_out = False
        self._forced = False
        self._highest_seen = ballot.promised
        self._try_at = now + self._delay(timing.jitter)
        self._deadline = 0.0
        self._released = -1
        self._gave_way = False
        self._votes: dict[str, Vote] = {}
        self._record: Record | None = None  # of our own term, as TAKING and as MASTER
        self._committed: Record | None = None
        self._taken: dict[str, Taken] = {}
        self._number = 0
        self._sent_at: dict[int, float] = {}
        self._lease_until = 0.0
        self._next_round = 0.0
        self._keeping_up: KeepingUp | None = None
        self._ousted: frozenset[str] = frozenset()
        self._joining: frozenset[str] = frozenset()
        self._inherited = 0

    # ---------------------------------------------------------------------------------------------- questions

    @property
    def term(self) -> int:
        """The highest one we know of."""
        return self._voter.ballot.promised

    @property
    def record(self) -> Record | None:
        """The newest one we took."""
        return self._voter.ballot.record

    @property
    def required(self) -> frozenset[str]:
        """Who must have a message before it is acknowledged, ourselves left out."""
        sets = [each.in_sync for each in (self._committed, self._record) if each is not None]
        return self._joining.union(*sets) - {self.me}

    def may_inherit(self, member: str) -> bool:
        """Whether a majority has written down that this member is in sync: then it may lead next."""
        return self._committed is not None and member in self._committed.in_sync

    def may_acknowledge(self, now: float) -> bool:
        """Whether we are the master, and nobody else can be."""
        return self.role is Role.MASTER and now < self._lease_until

    @property
    def lease_until(self) -> float:
        return self._lease_until if self.role is Role.MASTER else 0.0

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    # ------------------------------------------------------------------------------------------------- inputs

    def tick(self, now: float) -> list[Action]:
        """Time has passed. To be called several times in a heartbeat."""
        actions: list[Action] = []
        if self.role is Role.MASTER and now >= self._lease_until:
            self._step_down(now, actions)
        elif self.role in (Role.MASTER, Role.TAKING) and now >= self._next_round:
            self._send_round(now, actions)
        if self.role in (Role.TRIAL, Role.ASKING, Role.TAKING) and now >= self._deadline:
            self._give_up(now)
        if self.role is Role.FOLLOWER and now >= max(self._voter.lease_until, self._try_at) + self._patience:
            self._try(now, actions)
        return self._with_save(actions)

    @property
    def _patience(self) -> float:
        """How long we let others try first."""
        return PATIENCE_LEASES * self.timing.lease if self._is_damaged() else 0.0

    def received(self, now: float, sender: str, message: Message) -> list[Action]:
        """A message has come; whoever is no voter of this set is not listened to."""
        actions: list[Action] = []
        if sender not in self.voters:
            return actions
        if isinstance(message, Ask):
            self._asked(now, sender, message, actions)
        elif isinstance(message, Propose):
            self._proposed(now, sender, message, actions)
        elif isinstance(message, Vote):
            self._voted(now, sender, message, actions)
        elif isinstance(message, Taken):
            self._took(now, sender, message, actions)
        else:
            self._handed_over(now, sender, message, actions)
        return self._with_save(actions)

    def replicated(self, now: float, progress: Progress) -> list[Action]:
        """How far the replicas are: who falls behind leaves the in-sync set, who has caught up joins it."""
        actions: list[Action] = []
        settled = self._committed
        if self.role is Role.MASTER and settled is not None and settled == self._record:
            assert self._keeping_up is not None
            advice = self._keeping_up.advice(now, progress, settled.in_sync)
            waited_for, self._joining = self._joining, advice.near - self._ousted
            # What we began with was acknowledged in earlier terms; half a record at its end was taken back.
            needed = max(progress.confirmed, min(self._inherited, progress.end))
            ready = {
                each
                for each in (waited_for & self._joining) - progress.lacking
                if progress.acked[each] >= needed
            }
            wanted = (advice.stay - self._ousted) | ready
            self._ousted = frozenset()
            if wanted != settled.in_sync:
                self._record = Record(settled.term, settled.version + 1, self.me, wanted)
                self._send_round(now, actions)
        return self._with_save(actions)

    def hand_over(self, now: float, to: str) -> list[Action]:
        """Leave the lead to an in-sync replica that has all we have. Nothing is acknowledged from here on."""
        actions: list[Action] = []
        if self.role is Role.MASTER and self._committed is not None and self.may_inherit(to):
            term = self._committed.term
            self._step_down(now, actions)
            actions.append(Send(to, HandOver(term)))
        return self._with_save(actions)

    def step_aside(self, now: float) -> list[Action]:
        """We cannot lead after all; when the lease has run out another one may try."""
        actions: list[Action] = []
        if self.role is Role.MASTER:
            self._step_down(now, actions)
        return self._with_save(actions)

    def force(self, now: float) -> list[Action]:
        """Somebody who knows what is lost by it wants us to lead, in sync or not."""
        self._forced = True
        actions: list[Action] = []
        if self.role is Role.FOLLOWER and now >= self._voter.lease_until:
            self._try(now, actions)
        return self._with_save(actions)

    # -------------------------------------------------------------------------------------- being a candidate

    def _try(self, now: float, actions: list[Action]) -> None:
        """Would they? Nothing is promised yet, so that one who cannot win disturbs nobody."""
        self.role = Role.TRIAL
        self._released = -1
        self._deadline = now + self.timing.answer
        self._ask(now, self.term + 1, actions)

    def _ask(self, now: float, term: int, actions: list[Action]) -> None:
        ask = Ask(term, self.role is Role.TRIAL, self._position(), self._released, self.timing.lease)
        own = self._voter.asked(now, ask, ask.position)
        self._votes = {self.me: own}
        if not ask.trial:
            self._stop_following(actions)
        actions += [Send(voter, ask) for voter in sorted(self.voters - {self.me})]
        self._count_votes(now, actions)  # alone, we are a majority

    def _voted(self, now: float, sender: str, vote: Vote, actions: list[Action]) -> None:
        self._highest_seen = max(self._highest_seen, vote.ballot.promised)
        asked = self._votes.get(self.me)
        if self.role not in (Role.TRIAL, Role.ASKING) or asked is None:
            return
        if (vote.term, vote.trial) == (asked.term, asked.trial):
            self._votes[sender] = vote
            if not vote.granted:  # the others have a moment longer; then it is tried again
                soon = min(vote.free_in, self.timing.answer) + self._delay(self.timing.jitter) / 4
                self._deadline = min(self._deadline, now + soon)
            self._count_votes(now, actions)

    def _count_votes(self, now: float, actions: list[Action]) -> None:
        granted = {voter: vote for voter, vote in self._votes.items() if vote.granted}
        if not self._is_quorum(granted):
            return
        newest = _newest_record(granted.values())
        if not self._may_lead(newest, granted):
            if self.role is Role.ASKING:
                self._give_up(now)
            return
        if self.role is Role.TRIAL:
            if not self._gave_way and self._is_behind(newest, granted):
                self._gave_way = True  # once: the other one may not be able to
                self._give_up(now)
                return
            self.role = Role.ASKING
            self._deadline = now + self.timing.answer
            highest = max(vote.ballot.promised for vote in self._votes.values())
            self._ask(now, max(highest, self._highest_seen) + 1, actions)
        else:
            self._take(now, newest, granted, actions)

    def _is_quorum(self, granted: dict[str, Vote]) -> bool:
        """A majority. A voter without a record has lost its disk, unless the whole set is new: it counts only
        when every member is there."""
        if len(granted) < self.majority:
            return False
        seasoned = sum(vote.ballot.record is not None for vote in granted.values())
        return seasoned >= self.majority or self.members <= granted.keys()

    def _may_lead(self, newest: Record | None, granted: dict[str, Vote]) -> bool:
        if self._forced:
            return True
        if self._doubtful:
            return False
        if newest is not None:
            return self.me in newest.in_sync
        return not self._is_behind(None, granted)  # a new set: whoever brings the longest log

    def _is_behind(self, newest: Record | None, granted: dict[str, Vote]) -> bool:
        """Whether one who may lead has more than we have: what nobody was promised is worth keeping, too."""
        mine = self._position()
        able = self.members if newest is None else newest.in_sync
        return any(vote.position > mine for voter, vote in granted.items() if voter in able and vote.position)

    def _take(
        self, now: float, newest: Record | None, granted: dict[str, Vote], actions: list[Action]
    ) -> None:
        """We have the votes: the record of this term, for them to take."""
        term = self._votes[self.me].term
        if newest is None:
            mine = self._position()
            in_sync = frozenset(voter for voter, vote in granted.items() if vote.position == mine)
        elif self._forced and self.me not in newest.in_sync:
            in_sync = frozenset({self.me})  # theirs may differ from ours
        else:
            in_sync = newest.in_sync.intersection(granted)
        self.role = Role.TAKING
        self._deadline = now + self.timing.answer
        self._record = Record(term, 0, self.me, in_sync & self.members | {self.me})
        self._committed = None
        self._taken = {}
        self._sent_at = {}
        self._send_round(now, actions)

    def _give_up(self, now: float) -> None:
        self.role = Role.FOLLOWER
        self._record = None
        self._votes = {}
        self._try_at = now + self._delay(self.timing.jitter) / 2

    # --------------------------------------------------------------------------------------- being the master

    def _send_round(self, now: float, actions: list[Action]) -> None:
        """The record to all: news for some, for the others a renewal of the lease."""
        assert self._record is not None
        self._number += 1
        self._sent_at[self._number] = now
        self._sent_at.pop(self._number - ROUNDS_KEPT, None)
        self._next_round = now + self.timing.heartbeat
        propose = Propose(self._record, self._number, self.timing.lease, self._ha_address)
        own = self._voter.proposed(now, propose)
        if not own.granted:  # we have promised somebody a higher term since
            self._step_down(now, actions)
            return
        self._taken[self.me] = own
        actions += [Send(voter, propose) for voter in sorted(self.voters - {self.me})]
        self._count_taken(now, actions)

    def _took(self, now: float, sender: str, taken: Taken, actions: list[Action]) -> None:
        self._highest_seen = max(self._highest_seen, taken.promised)
        if self._record is None or self.role not in (Role.TAKING, Role.MASTER):
            return
        if taken.promised > self._record.term:
            self._step_down(now, actions)  # this voter is lost to our term, and wants a new one
            return
        before = self._taken.get(sender)
        if taken.term != self._record.term or not taken.granted:
            return
        if before is None or taken.number > before.number:
            self._taken[sender] = taken
            if taken.doubtful and taken.version == self._record.version and sender in self._record.in_sync:
                self._ousted |= {sender}
            self._count_taken(now, actions)

    def _count_taken(self, now: float, actions: list[Action]) -> None:
        assert self._record is not None
        numbers = sorted((taken.number for taken in self._taken.values()), reverse=True)
        if len(numbers) >= self.majority:
            sent_at = self._sent_at.get(numbers[self.majority - 1])
            if sent_at is not None:
                length = self.timing.lease * (1 - self.timing.clock_drift)
                self._lease_until = max(self._lease_until, sent_at + length)
        who = sum(taken.version >= self._record.version for taken in self._taken.values())
        if who < self.majority or self._committed == self._record:
            return
        if self.role is Role.MASTER:
            self._committed = self._record
        elif now < self._lease_until:  # answers that took so long may be of a term that is over
            self._committed = self._record
            self._become_master(now, actions)

    def _become_master(self, now: float, actions: list[Action]) -> None:
        assert self._record is not None
        self.role = Role.MASTER
        self.master = self.me
        self._forced = self._doubtful = self._gave_way = False
        self._keeping_up = KeepingUp(self.members - {self.me}, now)
        self._inherited = self._position().end
        actions.append(Lead(self._record))

    def _step_down(self, now: float, actions: list[Action]) -> None:
        self.role = Role.FOLLOWER
        self.master = None
        self._record = self._committed = None
        self._lease_until = 0.0
        self._keeping_up = None
        self._joining = frozenset()
        self._try_at = now + self.timing.lease + self._delay(self.timing.jitter)
        actions.append(Follow(self.term, None))

    # -------------------------------------------------------------------------------------- being one of many

    def _asked(self, now: float, sender: str, ask: Ask, actions: list[Action]) -> None:
        if sender not in self.members:
            return
        before = self.term
        vote = self._voter.asked(now, ask, self._position())
        if self.term > before:
            self._lose_to_higher_term(now, actions)
        actions.append(Send(sender, vote))

    def _proposed(self, now: float, sender: str, propose: Propose, actions: list[Action]) -> None:
        record = propose.record
        if sender != record.master or sender not in self.members:
            return
        before = self.term
        taken = self._voter.proposed(now, propose)
        if taken.granted:
            if self.role in (Role.MASTER, Role.TAKING):
                self._step_down(now, actions)
            elif self.role is not Role.FOLLOWER:
                self._give_up(now)
            self._note_our_place(record)
            if (self.term, self.master) != (before, sender):
                self.master = sender
                actions.append(Follow(record.term, sender, propose.ha_address))
            self._gave_way = self._forced = False
            self._try_at = self._voter.lease_until + self._delay(self.timing.jitter)
        actions.append(Send(sender, structs.replace(taken, doubtful=self._doubtful)))

    def _note_our_place(self, record: Record) -> None:
        """Out, and in again by a master's word: then our log has all it should have."""
        if self.me not in record.in_sync:
            self._was_out = True
        elif self._was_out:
            self._doubtful = False

    def _handed_over(self, now: float, sender: str, message: HandOver, actions: list[Action]) -> None:
        record = self.record
        if record is None or record.term != message.term or record.master != sender:
            return
        if self.role is Role.FOLLOWER and self.term == message.term:
            self.role = Role.ASKING
            self._released = message.term
            self._deadline = now + self.timing.answer
            self._ask(now, self.term + 1, actions)

    def _lose_to_higher_term(self, now: float, actions: list[Action]) -> None:
        if self.role in (Role.MASTER, Role.TAKING):
            self._step_down(now, actions)
        else:
            if self.role is not Role.FOLLOWER:
                self._give_up(now)
            self._stop_following(actions)

    def _stop_following(self, actions: list[Action]) -> None:
        self.master = None
        actions.append(Follow(self.term, None))

    # --------------------------------------------------------------------------------------------------------

    def _delay(self, seconds: float) -> float:
        return self._chance.uniform(0.0, seconds)

    def _with_save(self, actions: list[Action]) -> list[Action]:
        """What goes out rests on what we remember, so that comes first; before it, old bytes are let go."""
        if self._voter.ballot == self._saved:
            return actions
        self._saved = self._voter.ballot
        let_go = [each for each in actions if isinstance(each, Follow) and each.master is None]
        rest = [each for each in actions if not (isinstance(each, Follow) and each.master is None)]
        return [*let_go, Save(self._saved), *rest]


def _newest_record(votes: Iterable[Vote]) -> Record | None:
    records = [vote.ballot.record for vote in votes if vote.ballot.record is not None]
    return max(records, key=lambda record: record.rank, default=None)
