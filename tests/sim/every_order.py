"""Every order in which things can happen to a small replica set, tried one by one, on the real election.

The seeded worlds of `replica_set.py` live long and at random. Here nothing is drawn: from a set of three
voters all events that can come next are tried, then all that can come after each, until no new state is
found. What is bounded is how often something happens (terms, writes, crashes, …), never in which order. So
within its bounds a search that finds nothing has proved it; one that finds something has found a shortest way
there.

    messages    what was sent may arrive at any time, in any order, never, and again and again
    crashes     at any moment, also between what is done before a ballot is saved and the saving itself;
                the ballot and the log are kept, all else is forgotten
    power       may take the end of a log with it; that member then doubts its log
    clocks      "any clocks": each member's runs as it likes, so that no lease protects anybody
                "one clock": it is the same for all, moves in steps, and leases must keep masters apart
    advice      a master takes a replica out of the in-sync set, or one in, whenever it may: who is fit is
                not judged by `keeping_up.py` but by whim, and it must be safe all the same

    judgment    no term has two masters
                whoever begins to lead has every acknowledged message of its term and those before
                an old master is fenced: what it acknowledges, the master of a later term began with
                "one clock": no two members may acknowledge at the same moment

The election is `kourou.replication.election` as it is, and the voters' rules are those of `ballots.py`. What
is simpler here: a log is a tuple and travels whole; the question on trial, which changes nobody, is answered
at once or not at all; chance draws 0; refusals are lost on their way (whoever waits may give up anyway).

    python -m tests.sim.every_order               all searches, with short bounds
    python -m tests.sim.every_order --long        with wider ones (minutes)
    python -m tests.sim.every_order --mutations   is each fault of our own found, and how?
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final, NamedTuple
from unittest import mock

from msgspec import structs

from kourou.doors.chance import Chance
from kourou.replication.ballots import Ask, Ballot, Message, Position, Propose, Record, Taken, Vote, Voter
from kourou.replication.election import Action, Election, Follow, Lead, Role, Save, Send, Timing
from kourou.replication.keeping_up import Advice, Progress
from tests.sim import replica_set_mutations as mutations

LONG_AGO: Final = 1000.0
STATES_MAX: Final = 300_000
"""Two minutes or so, and some hundred MiB."""
TIMING: Final = Timing(lease=2.0, heartbeat=1.0, answer=1.0, jitter=0.0, clock_drift=0.0)
NOW: Final = 0.0
"""Always: when time passes, everything that was planned comes nearer."""


class Bounds(NamedTuple):
    """What is searched: how often each thing may happen in one story, all taken together."""

    name: str
    members: str = "abc"
    witnesses: str = ""
    is_new: bool = False
    """The set has never had a master. Else `a` leads in term 1."""
    is_complete: bool = True
    """All are in sync at the beginning; else the last one is not."""
    any_clocks: bool = True
    terms: int = 2
    """The highest one."""
    rounds: int = 1
    """Of a master's heartbeats in one term, beyond those that carry a new record."""
    writes: int = 0
    crashes: int = 0
    power_cuts: int = 0
    changes: int = 0
    """Of the in-sync set, by a master."""
    hand_overs: int = 0


class Entry(NamedTuple):
    """A message, by the term it was written in and its place."""

    term: int
    place: int


Log = tuple[Entry, ...]


class Copy(NamedTuple):
    """A master's log on its way to a replica."""

    term: int
    log: Log


class Copied(NamedTuple):
    """A replica has the master's log up to here."""

    term: int
    end: int


class Packet(NamedTuple):
    sender: str
    to: str
    message: Message | Copy | Copied


class _NoChance(Chance):
    def uniform(self, a: float, b: float) -> float:
        return a


class _Whim:
    """In the place of `KeepingUp`: the advice that is to be tried."""

    def __init__(self, stay: frozenset[str], near: frozenset[str]) -> None:
        self._advice = Advice(stay, near)

    def advice(self, now: float, progress: Progress, in_sync: frozenset[str]) -> Advice:
        return self._advice


_NO_WHIM: Final = _Whim(frozenset(), frozenset())
_NO_CHANCE: Final = _NoChance(0)


class Node:
    """One voter: what it has on disk, and what it knows while it runs. Never changed: `copied` is."""

    def __init__(
        self, name: str, bounds: Bounds, ballot: Ballot, log: Log, *, doubtful: bool = False
    ) -> None:
        self.name = name
        self.ballot = ballot
        self.log = log
        self.following: Follow | None = None
        self.acked: dict[str, int] = {}
        self.unacknowledged: Log = ()
        self.confirmed = 0
        self.election: Election | None = None
        self.witness: Voter | None = None
        if name in bounds.witnesses:
            self.witness = Voter(ballot, TIMING.lease, NOW)
            return
        self.election = Election(
            name,
            frozenset(bounds.members),
            frozenset(bounds.witnesses),
            ballot,
            position=self._position,
            chance=_NO_CHANCE,
            now=NOW,
            timing=TIMING,
            doubtful=doubtful,
        )

    def _position(self) -> Position:
        return Position(self.log[-1].term if self.log else 0, len(self.log))

    def copied(self) -> Node:
        other = copy.copy(self)
        other.acked = dict(self.acked)
        other.witness = copy.copy(self.witness)
        if self.election is not None:
            other.election = election = copy.copy(self.election)
            for name, value in vars(election).items():
                if isinstance(value, dict):
                    setattr(election, name, dict(value))
            election._position = other._position
            election._voter = copy.copy(election._voter)
        return other

    @property
    def key(self) -> tuple[Any, ...]:
        """All that makes a difference; a field that is added to the election one day counts, too."""
        inner: tuple[Any, ...] = ()
        if self.election is not None:
            inner = tuple(_frozen(value) for name, value in vars(self.election).items() if name not in _APART)
        return (
            self.name,
            self.ballot,
            self.log,
            self.following,
            _frozen(self.acked),
            self.unacknowledged,
            self.confirmed,
            inner,
            _frozen(self.witness),
        )

    @property
    def voter(self) -> Voter:
        voter = self.witness if self.election is None else self.election._voter
        assert voter is not None
        return voter

    @property
    def may_acknowledge(self) -> bool:
        return self.election is not None and self.election.may_acknowledge(NOW)

    @property
    def leads(self) -> bool:
        return self.election is not None and self.election.role is Role.MASTER

    @property
    def has_lease(self) -> bool:
        """Whether its clock makes a difference: for a master that it may acknowledge, or will."""
        return self.election is not None and self.election.role in (Role.TAKING, Role.MASTER)

    def pass_time(self, seconds: float) -> None:
        """What was planned comes nearer; what is due stays due."""
        voter = self.voter
        voter.lease_until = max(NOW, voter.lease_until - seconds)
        if self.election is None:
            return
        election = self.election
        election._lease_until = max(NOW, election._lease_until - seconds)
        for number, at in election._sent_at.items():
            election._sent_at[number] = max(-TIMING.lease, at - seconds)

    def forget_what_is_over(self) -> None:
        """So that two ways to the same state are seen to be the same."""
        election = self.election
        if election is None:
            return
        if election._keeping_up is not None:
            election._keeping_up = _NO_WHIM  # type: ignore[assignment]
        election._try_at = election._deadline = election._next_round = NOW  # patience is anybody's own
        if election.role not in (Role.TAKING, Role.MASTER):
            election._number = 0
            election._sent_at = {}
        if election.role not in (Role.TRIAL, Role.ASKING):
            election._votes = {}


_APART: Final = {"me", "members", "voters", "timing", "_position", "_ha_address", "_chance"}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    if isinstance(value, Voter):
        return tuple(vars(value).values())
    return value


class Done(NamedTuple):
    """What one event has made of a voter, and what comes out of it."""

    node: int
    sent: tuple[int, ...] = ()
    sent_unsaved: tuple[int, ...] = ()
    """What left before the ballot was on disk: it is out also when the saving is cut short."""
    lead: Record | None = None
    acknowledged: Log = ()


class State(NamedTuple):
    """All there is: the voters, what is under way, and for the judge what has been."""

    nodes: tuple[int, ...]
    packets: frozenset[int]
    masters: tuple[tuple[int, str], ...] = ()
    """Of each term."""
    begun: tuple[int, Log] = (0, ())
    """The newest term with a master, and the log it began with."""
    acknowledged: Log = ()
    writes: int = 0
    crashes: int = 0
    power_cuts: int = 0
    changes: int = 0
    hand_overs: int = 0


class Found(NamedTuple):
    """The outcome of a search."""

    name: str
    states: int
    steps: int
    fault: str = ""
    story: tuple[str, ...] = ()
    is_cut: bool = False
    """There are more states than were looked at."""

    @property
    def shown(self) -> str:
        counted = f"{self.name}: {self.states} states{' and more' * self.is_cut}, {self.steps} steps"
        if not self.fault:
            return f"{counted}, nothing wrong"
        return "\n    ".join((f"{counted}, FAULT: {self.fault}, after", *self.story))


Told = str | Packet
"""An event, for people; a packet that arrives."""


class Fault(Exception):
    """Something is wrong."""


class Search:
    """Through all that can happen within these bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.names = bounds.members + bounds.witnesses
        self._nodes: list[Node] = []
        self._number_of_node: dict[tuple[Any, ...], int] = {}
        self._number_of_voice: dict[tuple[Any, ...], int] = {}
        self._like: list[int] = []  # by node: the first one that answers the same to whoever asks on trial
        self._packets: list[Packet] = []
        self._number_of_packet: dict[Packet, int] = {}
        self._done: dict[tuple[int, Any], Done] = {}
        self._steps = 0

    def run(self) -> Found:
        """Breadth first."""
        name = self.bounds.name
        first = self._first()
        came_from: dict[State, tuple[State, Told] | None] = {first: None}
        level = [first]
        while level:
            following = []
            for state in level:
                try:
                    for event, after in self._after(state):
                        self._steps += 1
                        if after not in came_from:
                            came_from[after] = (state, event)
                            following.append(after)
                except Fault as fault:
                    return Found(name, len(came_from), self._steps, str(fault), _story(state, came_from))
                if len(came_from) > STATES_MAX:
                    return Found(name, len(came_from), self._steps, is_cut=True)
            level = following
        return Found(name, len(came_from), self._steps)

    # ------------------------------------------------------------------------------------------------- states

    def _first(self) -> State:
        if self.bounds.is_new:
            nodes = [Node(name, self.bounds, Ballot(), ()) for name in self.names]
            return State(tuple(map(self._numbered, nodes)), frozenset())
        return self._settled()

    def _settled(self) -> State:
        """`a` leads, and all follow it: brought about by the election itself, nothing being lost."""
        record = Record(1, 0, "a", frozenset(self.bounds.members))
        nodes = [Node(name, self.bounds, Ballot(0, record), ()) for name in self.names]
        state = State(tuple(map(self._numbered, nodes)), frozenset())
        for name in self.names:
            state = self._act(state, name, ("time",))
        ((_, state),) = self._try(state, "a", tuple(self.names[1:]))
        state = self._all_arrived(state)
        everybody = frozenset(self.bounds.members)
        state = self._act(state, "a", ("has copies", everybody - {"a"}))
        begun = self._node(state, "a").ballot.record
        assert begun is not None
        for _ in range(2 * self.bounds.is_complete):  # it is waited for, then it is in
            state = self._act(state, "a", ("advice", begun.in_sync, everybody - begun.in_sync))
        state = self._all_arrived(state)
        return state._replace(packets=frozenset())

    def _all_arrived(self, state: State) -> State:
        while after := next((each for _, each in self._arrivals(state) if each != state), None):
            state = after
        return state

    def _numbered(self, node: Node) -> int:
        node.forget_what_is_over()
        if self.bounds.any_clocks and not node.has_lease:
            node.pass_time(LONG_AGO)
        key = node.key
        number = self._number_of_node.get(key)
        if number is None:
            number = self._number_of_node[key] = len(self._nodes)
            self._nodes.append(node)
            voice = node.name, _frozen(node.voter), node.log
            self._like.append(self._number_of_voice.setdefault(voice, number))
        return number

    def _node(self, state: State, name: str) -> Node:
        return self._nodes[state.nodes[self.names.index(name)]]

    # ---------------------------------------------------------------------------------------- what can happen

    def _after(self, state: State) -> Iterator[tuple[Told, State]]:
        """All events that can come next, and what each leads to. Raises Fault."""
        yield from self._arrivals(state)
        if not self.bounds.any_clocks:
            yield from self._time(state)
        for name in self.names:
            yield from self._crashes(state, name)
            if name in self.bounds.members:
                yield from self._timers(state, name)
                yield from self._masters_doings(state, name)

    def _arrivals(self, state: State) -> Iterator[tuple[Told, State]]:
        for number in sorted(state.packets):
            packet = self._packets[number]
            yield from self._outcomes(state, packet.to, ("packet", number), packet)

    def _time(self, state: State) -> Iterator[tuple[Told, State]]:
        after = state
        for name in self.names:
            after = self._act(after, name, ("step",))
        yield "time passes", after

    def _timers(self, state: State, name: str) -> Iterator[tuple[Told, State]]:
        election = self._node(state, name).election
        assert election is not None
        if election.role is Role.FOLLOWER:
            others = [each for each in self.names if each != name]
            for count in range(1, len(others) + 1):
                for who in combinations(others, count):
                    yield from self._try(state, name, who)
        elif self.bounds.any_clocks or election.role is not Role.MASTER:
            yield from self._outcomes(state, name, ("give up",), f"time has run out for {name}")
        elif not election.may_acknowledge(NOW) or election._number <= self.bounds.rounds:
            yield from self._outcomes(state, name, ("tick",), f"the timer of {name} fires")

    def _try(self, state: State, name: str, who: tuple[str, ...]) -> Iterator[tuple[Told, State]]:
        """`name` asks on trial, and these answer, in this order."""
        event = ("try", *((each, self._like[state.nodes[self.names.index(each)]]) for each in who))
        before = self._node(state, name)
        after = self._act(state, name, event)
        election = self._node(after, name).election
        assert election is not None
        if election.role is not Role.TRIAL and after != state and election.term <= self.bounds.terms:
            yield (
                f"{name} asks on trial ({''.join(who)} answer), {before.ballot.promised} was promised",
                after,
            )

    def _masters_doings(self, state: State, name: str) -> Iterator[tuple[Told, State]]:
        node, bounds = self._node(state, name), self.bounds
        if not node.leads:
            return
        assert node.election is not None
        if state.writes < bounds.writes and node.may_acknowledge:
            after = self._act(state, name, ("write",))
            yield f"{name} writes", after._replace(writes=state.writes + 1)
        if state.changes < bounds.changes:
            yield from self._advised(state, name, node.election)
        if state.hand_overs < bounds.hand_overs:
            for heir in sorted(node.election.required):
                if node.acked.get(heir, 0) >= len(node.log) and node.election.may_inherit(heir):
                    after = self._act(state, name, ("hand over", heir))
                    yield f"{name} hands over to {heir}", after._replace(hand_overs=state.hand_overs + 1)

    def _advised(self, state: State, name: str, election: Election) -> Iterator[tuple[Told, State]]:
        committed = election._committed
        if committed is None or committed != election._record:
            return
        for other in sorted(election.members - {name}):
            stay, near = committed.in_sync - {other}, frozenset[str]()
            if other not in committed.in_sync:
                stay, near = committed.in_sync, frozenset({other})
            after = self._act(state, name, ("advice", stay, near))
            if after != state:
                changes = state.changes + (self._node(after, name).election._record != committed)  # type: ignore[union-attr]
                what = "in" if near else "out"
                yield f"{name} is advised to take {other} {what}", after._replace(changes=changes)

    def _crashes(self, state: State, name: str) -> Iterator[tuple[Told, State]]:
        if state.crashes < self.bounds.crashes:
            after = self._act(state, name, ("crash",))
            yield f"{name} crashes and starts", after._replace(crashes=state.crashes + 1)
        node = self._node(state, name)
        if state.power_cuts < self.bounds.power_cuts and node.log and name in self.bounds.members:
            after = self._act(state, name, ("power cut",))
            yield (
                f"{name} loses power, and its last message",
                after._replace(power_cuts=state.power_cuts + 1),
            )

    # ---------------------------------------------------------------------------------------------- one event

    def _outcomes(self, state: State, name: str, event: Any, told: Told) -> Iterator[tuple[Told, State]]:
        """As it should be, and cut short by a crash when something leaves before the saving."""
        index = self.names.index(name)
        done = self._performed(state.nodes[index], event)
        if done.node != state.nodes[index] or not state.packets.issuperset(done.sent):
            try:
                after = self._judged(state, index, done)
            except Fault as fault:
                raise Fault(f"{fault}, when {shown(told)}") from None
            yield told, after
        if done.sent_unsaved and state.crashes < self.bounds.crashes:
            crashed = self._performed(state.nodes[index], ("crash",))
            after = self._judged(state, index, crashed._replace(sent=done.sent_unsaved))
            yield f"{shown(told)}, and crashes before it saves", after._replace(crashes=state.crashes + 1)

    def _act(self, state: State, name: str, event: Any) -> State:
        index = self.names.index(name)
        return self._judged(state, index, self._performed(state.nodes[index], event))

    def _performed(self, number: int, event: Any) -> Done:
        """What an event does to a voter depends on that voter alone, so it is found out once."""
        done = self._done.get((number, event))
        if done is None:
            done = self._done[number, event] = _Doing(self, self._nodes[number].copied()).do(event)
        return done

    def packet(self, number: int) -> Packet:
        return self._packets[number]

    def sealed(self, packet: Packet) -> int:
        number = self._number_of_packet.get(packet)
        if number is None:
            number = self._number_of_packet[packet] = len(self._packets)
            self._packets.append(packet)
        return number

    def done(self, node: Node, **named: Any) -> Done:
        return Done(self._numbered(node), **named)

    def trial_vote(self, number: int, ask: Ask) -> Vote:
        """What this voter would say; being asked on trial changes nothing for it."""
        node = self._nodes[number]
        position = None if node.election is None else node._position()
        return _timeless(copy.copy(node.voter).asked(NOW, ask, position))

    # ----------------------------------------------------------------------------------------------- judgment

    def _judged(self, state: State, index: int, done: Done) -> State:
        nodes = (*state.nodes[:index], done.node, *state.nodes[index + 1 :])
        packets = state.packets.union(done.sent) if done.sent else state.packets
        if done.sent or self._promised(done.node) != self._promised(state.nodes[index]):
            packets = self._alive(nodes, packets)
        after = state._replace(nodes=nodes, packets=packets)
        if done.lead is not None:
            after = self._begun(after, self.names[index], done.lead, self._nodes[done.node].log)
        for entry in done.acknowledged:
            after = self._acknowledged(after, entry, self._nodes[done.node])
        if not self.bounds.any_clocks:
            able = [name for name in self.names if self._node(after, name).may_acknowledge]
            if len(able) > 1:
                raise Fault(f"{' and '.join(able)} may both acknowledge")
        return after

    def _alive(self, nodes: tuple[int, ...], packets: frozenset[int]) -> frozenset[int]:
        """Without messages of terms that their receiver has left behind, when nothing comes of them."""
        node_of = dict(zip(self.names, nodes, strict=True))
        promised = {name: self._promised(node) for name, node in node_of.items()}
        known = self._packets
        dead = [
            each
            for each in packets
            if known[each].message.term < promised[known[each].to]
            and self._is_nothing(node_of[known[each].to], ("packet", each))
        ]
        return packets.difference(dead) if dead else packets

    def _is_nothing(self, node: int, event: Any) -> bool:
        done = self._performed(node, event)
        return done.node == node and not done.sent

    def _promised(self, node: int) -> int:
        return self._nodes[node].ballot.promised

    @staticmethod
    def _begun(state: State, name: str, record: Record, log: Log) -> State:
        masters = dict(state.masters)
        if masters.setdefault(record.term, name) != name:
            raise Fault(f"term {record.term} has two masters, {masters[record.term]} and {name}")
        for entry in state.acknowledged:
            if entry.term <= record.term and entry not in log:  # a late master of an old term is fenced
                raise Fault(f"{name} leads in term {record.term} without {entry}, which was acknowledged")
        begun = max(state.begun, (record.term, log))
        return state._replace(masters=tuple(sorted(masters.items())), begun=begun)

    @staticmethod
    def _acknowledged(state: State, entry: Entry, node: Node) -> State:
        term, log = state.begun
        assert node.election is not None
        if node.election.term < term and entry not in log:
            raise Fault(
                f"{node.name} acknowledges {entry} in term {node.election.term}, and term {term} has begun "
                "without it"
            )
        return state._replace(acknowledged=tuple(sorted({*state.acknowledged, entry})))


class _Doing:
    """One event at one voter."""

    def __init__(self, search: Search, node: Node) -> None:
        self._search = search
        self._node = node
        self._sent: list[int] = []
        self._unsaved: list[int] = []
        self._lead: Record | None = None

    def do(self, event: Any) -> Done:
        kind, *given = event
        getattr(self, f"_{kind.replace(' ', '_')}")(*given)
        acknowledged = self._acknowledge()
        return self._search.done(
            self._node,
            sent=tuple(self._sent),
            sent_unsaved=tuple(self._unsaved),
            lead=self._lead,
            acknowledged=acknowledged,
        )

    def _time(self) -> None:
        self._node.pass_time(LONG_AGO)

    def _give_up(self) -> None:
        """Its lease, or its patience, has run out. (What it would try next is another event.)"""
        election = self._node.election
        assert election is not None
        if self._search.bounds.any_clocks:
            self._node.pass_time(LONG_AGO)
        lease_until, election._voter.lease_until = election._voter.lease_until, LONG_AGO
        election._next_round = LONG_AGO
        self._perform(election.tick(NOW))
        election._voter.lease_until = lease_until

    def _step(self) -> None:
        self._node.pass_time(TIMING.heartbeat)

    def _tick(self) -> None:
        assert self._node.election is not None
        self._perform(self._node.election.tick(NOW))

    def _try(self, *answering: tuple[str, int]) -> None:
        election = self._node.election
        assert election is not None
        actions = election.tick(NOW)
        asks = [each.message for each in actions if isinstance(each, Send) and isinstance(each.message, Ask)]
        self._perform([each for each in actions if not isinstance(each, Send)])
        for voter, number in answering if asks else ():
            if election.role is Role.TRIAL:
                vote = self._search.trial_vote(number, asks[0])
                self._perform(election.received(NOW, voter, vote))

    def _write(self) -> None:
        node = self._node
        assert node.election is not None
        entry = Entry(node.election.term, len(node.log))
        node.log += (entry,)
        node.unacknowledged += (entry,)
        self._publish()

    def _has_copies(self, members: frozenset[str]) -> None:
        self._node.acked = dict.fromkeys(members, 0)

    def _advice(self, stay: frozenset[str], near: frozenset[str]) -> None:
        node = self._node
        election = node.election
        assert election is not None
        election._keeping_up = _Whim(stay, near.intersection(node.acked))  # type: ignore[assignment]
        self._perform(election.replicated(NOW, Progress(dict(node.acked), node.confirmed, len(node.log))))

    def _hand_over(self, heir: str) -> None:
        assert self._node.election is not None
        self._perform(self._node.election.hand_over(NOW, heir))

    def _crash(self) -> None:
        doubtful = self._node.election is not None and self._node.election._doubtful
        self._restart(self._node.log, doubtful=doubtful)

    def _power_cut(self) -> None:
        self._restart(self._node.log[:-1], doubtful=True)

    def _restart(self, log: Log, *, doubtful: bool) -> None:
        node = self._node
        self._node = Node(node.name, self._search.bounds, node.ballot, log, doubtful=doubtful)

    # ------------------------------------------------------------------------------------------------ packets

    def _packet(self, number: int) -> None:
        packet = self._search.packet(number)
        node, message = self._node, packet.message
        if isinstance(message, Copy):
            self._copy(packet.sender, message)
        elif isinstance(message, Copied):
            if node.leads and node.voter.ballot.promised == message.term:
                node.acked[packet.sender] = max(node.acked.get(packet.sender, 0), message.end)
        elif node.election is not None:
            self._perform(node.election.received(NOW, packet.sender, message))
        else:
            self._ask_witness(packet.sender, message)

    def _ask_witness(self, sender: str, message: Message) -> None:
        voter = self._node.voter
        if isinstance(message, Ask):
            self._send(sender, voter.asked(NOW, message, None))
        elif isinstance(message, Propose):
            self._send(sender, voter.proposed(NOW, message))
        self._node.ballot = voter.ballot

    def _copy(self, sender: str, message: Copy) -> None:
        """A replica's log becomes its master's, unless it is further on in the same term already."""
        node = self._node
        follow = node.following
        if follow is None or (follow.term, follow.master) != (message.term, sender):
            return
        is_further = node.log[: len(message.log)] == message.log and node.log[len(message.log) :]
        if not (is_further and node.log[-1].term == message.term):
            node.log = message.log
        self._send(sender, Copied(message.term, len(message.log)))

    # ------------------------------------------------------------------------------------------------ actions

    def _perform(self, actions: list[Action]) -> None:
        node = self._node
        saves = [at for at, action in enumerate(actions) if isinstance(action, Save)]
        for at, action in enumerate(actions):
            if isinstance(action, Save):
                node.ballot = action.ballot
            elif isinstance(action, Send):
                self._send(action.to, action.message)
                if saves and at < saves[-1]:
                    self._unsaved += self._sent[-1:]
            elif isinstance(action, Lead):
                self._begin(action.record)
            else:
                node.following = action if action.master is not None else None
                node.acked, node.unacknowledged = {}, ()

    def _begin(self, record: Record) -> None:
        node = self._node
        self._lead = record
        node.following, node.acked, node.unacknowledged, node.confirmed = None, {}, (), 0
        self._publish()

    def _publish(self) -> None:
        node = self._node
        assert node.election is not None
        if self._search.bounds.writes or self._search.bounds.changes:
            for other in sorted(node.election.members - {node.name}):
                self._send(other, Copy(node.election.term, node.log))

    def _send(self, to: str, message: Message | Copy | Copied) -> None:
        if isinstance(message, (Vote, Taken)) and not message.granted:
            return
        if isinstance(message, Vote):
            message = _timeless(message)
        self._sent.append(self._search.sealed(Packet(self._node.name, to, message)))

    def _acknowledge(self) -> Log:
        """What all have that must have it."""
        node = self._node
        if not node.unacknowledged or not node.may_acknowledge:
            return ()
        assert node.election is not None
        have = min((node.acked.get(each, 0) for each in node.election.required), default=len(node.log))
        told = tuple(entry for entry in node.unacknowledged if entry.place < have)
        node.unacknowledged = node.unacknowledged[len(told) :]
        if told:
            node.confirmed = told[-1].place + 1
        return told


def _timeless(vote: Vote) -> Vote:
    """When it is free again only says when to ask again, and here that is at any time."""
    return structs.replace(vote, free_in=0.0)


def shown(event: Told) -> str:
    return event if isinstance(event, str) else f"{event.to} gets {event.message} of {event.sender}"


def _story(state: State, came_from: dict[State, tuple[State, Told] | None]) -> tuple[str, ...]:
    story = []
    step = came_from[state]
    while step is not None:
        state, event = step
        story.append(shown(event))
        step = came_from[state]
    return tuple(reversed(story))


ONE_BEHIND: Final = Bounds("any clocks, one is behind", is_complete=False, terms=2, writes=1)

SHORT: Final = (
    ONE_BEHIND,
    Bounds("any clocks, and a crash", terms=2, crashes=1),
    Bounds("any clocks, with a witness", members="ab", witnesses="w", terms=2, writes=1, crashes=1),
    Bounds("a new set", is_new=True, terms=2),
    Bounds("one clock", any_clocks=False, terms=2, rounds=0),
)
"""Some seconds each."""

LONG: Final = (
    Bounds("any clocks, a message", terms=2, writes=1),
    Bounds("any clocks, a crash and a message", terms=2, writes=1, crashes=1),
    Bounds("any clocks, the in-sync set changes", terms=2, writes=1, changes=1),
    Bounds("any clocks, power is lost", terms=2, writes=1, power_cuts=1),
    Bounds("any clocks, a hand-over", terms=2, writes=1, hand_overs=1),
    Bounds("any clocks, three terms", terms=3),
    Bounds("a witness, three terms", members="ab", witnesses="w", terms=3, writes=1, changes=1),
    Bounds("one clock, heartbeats", any_clocks=False, terms=2, rounds=1),
    Bounds("one clock, and a crash", any_clocks=False, terms=2, rounds=0, crashes=1),
    Bounds("one clock, a hand-over", any_clocks=False, terms=2, rounds=0, hand_overs=1),
)
"""Some minutes each; one that does not come to its end says so."""


def saved_too_late() -> Any:
    """an answer leaves before what it rests on is on disk"""
    real = Election._with_save

    def with_save(self: Election, actions: list[Action]) -> list[Action]:
        done = real(self, actions)
        saves = [each for each in done if isinstance(each, Save)]
        return [each for each in done if not isinstance(each, Save)] + saves

    return mock.patch.object(Election, "_with_save", with_save)


def old_records_are_taken() -> Any:
    """a voter takes a record of a term below the one it promised"""

    def proposed(self: Voter, now: float, propose: Propose) -> Taken:
        promised, self.ballot = self.ballot.promised, Ballot(0, self.ballot.record)
        taken = real(self, now, propose)
        self.ballot = Ballot(max(promised, self.ballot.promised), self.ballot.record)
        return taken

    real = Voter.proposed
    return mock.patch.object(Voter, "proposed", proposed)


CAUGHT: Final[dict[str, tuple[Callable[[], Any], Bounds]]] = {
    mutation.__name__: (mutation, bounds)
    for mutation, bounds in (
        (mutations.not_in_sync_is_elected, ONE_BEHIND),
        (mutations.acknowledged_by_one, ONE_BEHIND),
        (mutations.votes_twice, Bounds("", terms=2)),
        (mutations.lease_for_ever, Bounds("", any_clocks=False, terms=2, rounds=0)),
        (mutations.shrinks_at_once, ONE_BEHIND._replace(changes=1)),
        (mutations.doubt_is_ignored, ONE_BEHIND._replace(power_cuts=1)),
        (mutations.oldest_record_counts, ONE_BEHIND._replace(changes=1)),
        (mutations.half_is_enough, Bounds("", terms=2)),
        (saved_too_late, Bounds("", terms=2, crashes=1)),
        (old_records_are_taken, ONE_BEHIND._replace(changes=1)),
    )
}
"""Faults put into the election on purpose, and the bounds within which each is found."""


def searched(bounds: Bounds) -> Found:
    return Search(bounds).run()


def searched_with(name: str) -> Found:
    """With this fault in the election."""
    mutation, bounds = CAUGHT[name]
    with mutation():
        return Search(bounds._replace(name=name)).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.every_order")
    parser.add_argument("--long", action="store_true", help="with wider bounds")
    parser.add_argument(
        "--mutations", action="store_true", help="with faults of our own, which must be found"
    )
    parser.add_argument("--mutation", choices=CAUGHT, help="with this one")
    options = parser.parse_args()
    if options.mutations or options.mutation:
        return _mutations([options.mutation] if options.mutation else list(CAUGHT))
    failed = 0
    for bounds in (*SHORT, *LONG) if options.long else SHORT:
        began = time.perf_counter()
        found = searched(bounds)
        failed += bool(found.fault)
        print(f"{found.shown}; {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if failed else 0


def _mutations(names: list[str]) -> int:
    missed = 0
    for name in names:
        found = searched_with(name)
        missed += not found.fault
        print(f"{CAUGHT[name][0].__doc__}: {found.shown if found.fault else 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
