"""A replica set in a small world from one integer: the real election, a model of the log, all kinds of days.

    plan        2 to 5 members, perhaps a witness; how slow, lossy and crooked the network and the clocks are
    trouble     kills, power cuts, pauses, cuts in the network (also one-way), masters told to hand over
    peace       everything heals; soon somebody leads, writes go through, and all logs are the same
    judgment    after every event:  no term has two masters
                                    no two members may acknowledge at the same moment
                                    whoever begins to lead has every message that was ever acknowledged
                at the end:         each of them is in every log, in its place

The election is `kourou.replication.election` as it is. The log is a list; what stands for the stream copies
entries from a master to whoever follows it in the same term, after both have found where their logs part.

    python -m tests.sim.replica_set --seeds 2000      many
    python -m tests.sim.replica_set --seed 17         one again, with what happened
    python -m tests.sim.replica_set --mutations       is each fault of our own seen?
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from kourou.doors.chance import Chance
from kourou.replication.ballots import Ask, Ballot, Message, Position, Propose, Voter
from kourou.replication.election import (
    Action,
    Election,
    Follow,
    Lead,
    Role,
    Save,
    Send,
    Timing,
)
from kourou.replication.keeping_up import Progress

TICK_SECONDS = 0.05
COPY_SECONDS = 0.04
TROUBLE_SECONDS = 12.0
LEADS_SECONDS = 12.0
"""After peace: until somebody leads and a write has gone through everywhere."""
ACKNOWLEDGED_MIN = 3
"""Fewer, and the run has proved nothing."""


class Entry(NamedTuple):
    """A message in a log: who wrote it in which term, and which it is."""

    term: int
    writer: str
    number: int


class Fetch(NamedTuple):
    """A follower to its master: this is my log."""

    term: int
    log: tuple[Entry, ...]


class Entries(NamedTuple):
    """A master to a follower: from this place on, yours is to be this."""

    term: int
    at: int
    entries: tuple[Entry, ...]


class Acked(NamedTuple):
    term: int
    end: int


@dataclass(frozen=True)
class Plan:
    members: int
    witnesses: int
    async_flush: bool
    latency: float
    loss: float
    drift: float
    faults: tuple[str, ...]
    fault_seconds: float
    in_sync_min: int
    copied_at_once: int


FAULTS = (
    "kill",
    "power_cut",
    "pause",
    "partition",
    "one_way",
    "hand_over",
    "flap",
    "deaf_and_kill",
    "about_a_lease",
)


def drawn_plan(chance: random.Random) -> Plan:
    members = chance.choice((2, 3, 3, 3, 4, 5))
    return Plan(
        members=members,
        witnesses=1 if members == 2 else chance.choice((0, 0, 1)),
        async_flush=chance.random() < 0.4,
        latency=chance.choice((0.001, 0.01, 0.05)),
        loss=chance.choice((0.0, 0.0, 0.02, 0.15)),
        drift=chance.choice((0.0, 0.03)),
        faults=tuple(fault for fault in FAULTS if chance.random() < 0.6) or ("kill",),
        fault_seconds=chance.choice((0.4, 1.0, 2.5)),
        in_sync_min=chance.choice((1, 2, 2)),
        copied_at_once=chance.choice((1, 2, 20)),
    )


@dataclass
class Member:
    """A broker: what it has on disk, and what it knows while it runs."""

    name: str
    clock_rate: float
    clock_start: float
    is_up: bool = True
    paused_until: float = 0.0
    life: int = 0
    ballot: Ballot = field(default_factory=Ballot)
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    is_doubtful: bool = False
    election: Election | None = None
    witness: Voter | None = None
    following: Follow | None = None
    acked: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[int, Entry]] = field(default_factory=list)
    confirmed: int = 0

    @property
    def is_member(self) -> bool:
        return self.name.startswith("m")


class World:
    """Everything of one run. Events are (when, order, who, life, what)."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.plan = drawn_plan(self.chance)
        self.now = 0.0
        self.found: list[str] = []
        self.leaders: dict[int, str] = {}
        self.acknowledged: dict[int, tuple[int, Entry]] = {}
        self.lost_terms = 0
        self.kills = 0
        self._tell = tell
        self._order = count()
        self._numbers = count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._cut: set[tuple[str, str]] = set()
        self._loss = self.plan.loss
        self._copied = self.plan.copied_at_once
        self.is_peace = False
        names = [f"m{number}" for number in range(self.plan.members)]
        names += [f"w{number}" for number in range(self.plan.witnesses)]
        self.members = frozenset(name for name in names if name.startswith("m"))
        self.nodes = {name: self._made(name) for name in names}
        for node in self.nodes.values():
            self._start(node)
            self._at(self.chance.uniform(0, TICK_SECONDS), partial(self._tick, node, node.life))
            if node.is_member:
                self._at(0.1, partial(self._copy, node, node.life))
        self._at(0.2, self._write)
        self._at(2.0, self._trouble)

    def _made(self, name: str) -> Member:
        drift = self.plan.drift
        return Member(name, 1 + self.chance.uniform(-drift, drift), self.chance.uniform(0, 1000))

    # -------------------------------------------------------------------------------------------------- time

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), what))

    def clock(self, node: Member) -> float:
        return node.clock_start + self.now * node.clock_rate

    def run(self) -> list[str]:
        self._until(2.0 + TROUBLE_SECONDS)
        self._make_peace()
        begun = self.now
        wanted = len(self.acknowledged) + 3
        while self.now < begun + LEADS_SECONDS and not self._is_settled(wanted):
            self._until(self.now + 0.5)
        if not self._is_settled(wanted) and not self._is_for_a_person():
            self._fault(f"no peace {LEADS_SECONDS} s after the last fault: {self._shown()}")
        self._judge_the_end()
        if len(self.acknowledged) < ACKNOWLEDGED_MIN:
            self._fault(f"only {len(self.acknowledged)} messages were acknowledged: nothing is proved")
        return self.found

    def _until(self, when: float) -> None:
        while self._events and self._events[0][0] <= when and not self.found:
            self.now, _, what = heapq.heappop(self._events)
            what()
            self._judge()
        self.now = max(self.now, when)

    # ----------------------------------------------------------------------------------------------- members

    def _start(self, node: Member) -> None:
        node.is_up = True
        node.life += 1
        now, timing = self.clock(node), Timing()
        node.following, node.acked, node.waiting = None, {}, []
        if node.is_member:
            node.election = Election(
                node.name,
                self.members,
                frozenset(self.nodes_named("w")),
                node.ballot,
                position=lambda: Position(node.log[-1].term if node.log else 0, len(node.log)),
                chance=Chance(self.chance.getrandbits(32)),
                now=now,
                timing=timing,
                doubtful=node.is_doubtful,
            )
        else:
            node.witness = Voter(node.ballot, timing.lease, now)

    def nodes_named(self, letter: str) -> list[str]:
        count_of = self.plan.members if letter == "m" else self.plan.witnesses
        return [f"{letter}{number}" for number in range(count_of)]

    def _tick(self, node: Member, life: int) -> None:
        if node.life == life and node.is_up:
            self._at(TICK_SECONDS, lambda: self._tick(node, life))
            if node.election is not None and self._is_awake(node):
                election, now = node.election, self.clock(node)
                self._perform(node, election.tick(now))
                if election.role is Role.MASTER:
                    progress = Progress(dict(node.acked), node.confirmed, len(node.log))
                    self._perform(node, election.replicated(now, progress))
                    self._acknowledge(node)

    def _is_awake(self, node: Member) -> bool:
        return node.is_up and self.now >= node.paused_until

    def _perform(self, node: Member, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Save):
                node.ballot = action.ballot
            elif isinstance(action, Send):
                self._send(node, action.to, action.message)
            elif isinstance(action, Lead):
                self._leads(node, action)
            else:
                node.following = action if action.master is not None else None
                node.acked, node.waiting = {}, []

    def _leads(self, node: Member, lead: Lead) -> None:
        term = lead.record.term
        self._say(f"{node.name} leads in term {term}, in sync {sorted(lead.record.in_sync)}")
        other = self.leaders.setdefault(term, node.name)
        if other != node.name:
            self._fault(f"term {term} has two masters: {other} and {node.name}")
        node.following, node.acked, node.waiting = None, {}, []
        node.confirmed = 0
        for place, entry in self.acknowledged.values():
            if place >= len(node.log) or node.log[place] != entry:
                self._fault(f"{node.name} leads in term {term} without {entry}, acknowledged at {place}")
                return

    # ----------------------------------------------------------------------------------------------- network

    def _send(self, sender: Member, to: str, message: Any) -> None:
        receiver = self.nodes[to]
        if (sender.name, to) in self._cut or self.chance.random() < self._loss:
            return
        life = receiver.life  # a connection ends with the process it leads to
        delay = self.chance.uniform(0, self.plan.latency)
        if self.chance.random() < 0.02:
            delay += self.chance.uniform(0, 2.0)
        self._at(delay, lambda: self._arrive(sender.name, receiver, life, message))

    def _arrive(self, sender: str, node: Member, life: int, message: Any) -> None:
        if node.life != life or not node.is_up:
            return
        if not self._is_awake(node):
            wait = node.paused_until - self.now
            self._at(wait, lambda: self._arrive(sender, node, life, message))
            return
        if isinstance(message, (Fetch, Entries, Acked)):
            self._data(sender, node, message)
        elif node.election is not None:
            self._perform(node, node.election.received(self.clock(node), sender, message))
        else:
            self._witness(sender, node, message)

    def _witness(self, sender: str, node: Member, message: Message) -> None:
        voter = node.witness
        assert voter is not None
        answer: Message
        if isinstance(message, Ask):
            answer = voter.asked(self.clock(node), message, None)
        elif isinstance(message, Propose):
            answer = voter.proposed(self.clock(node), message)
        else:
            return
        node.ballot = voter.ballot
        self._send(node, sender, answer)

    # -------------------------------------------------------------------------------------------------- data

    def _write(self) -> None:
        """Somebody sends to whoever calls itself master."""
        self._at(self.chance.uniform(0.02, 0.12), self._write)
        masters = [node for node in self.nodes.values() if self._may_acknowledge(node)]
        if masters:
            node = self.chance.choice(masters)
            assert node.election is not None
            entry = Entry(node.election.term, node.name, next(self._numbers))
            node.log.append(entry)
            if not self.plan.async_flush:
                node.synced = len(node.log)
            node.waiting.append((len(node.log) - 1, entry))

    def _may_acknowledge(self, node: Member) -> bool:
        return (
            node.election is not None
            and self._is_awake(node)
            and node.election.may_acknowledge(self.clock(node))
        )

    def _acknowledge(self, node: Member) -> None:
        """Answer what all that must have it have."""
        election = node.election
        assert election is not None
        required = election.required
        if not self._may_acknowledge(node) or len(required) + 1 < self.plan.in_sync_min:
            return
        have = min((node.acked.get(each, 0) for each in required), default=len(node.log))
        while node.waiting and node.waiting[0][0] < have:
            place, entry = node.waiting.pop(0)
            node.confirmed = place + 1
            self.acknowledged[entry.number] = (place, entry)

    def _copy(self, node: Member, life: int) -> None:
        """A follower asks for what it lacks."""
        if node.life != life or not node.is_up:
            return
        self._at(COPY_SECONDS, lambda: self._copy(node, life))
        if node.following is not None and self._is_awake(node):
            assert node.following.master is not None
            self._send(node, node.following.master, Fetch(node.following.term, tuple(node.log)))

    def _data(self, sender: str, node: Member, message: Fetch | Entries | Acked) -> None:
        election = node.election
        assert election is not None
        if isinstance(message, Entries):
            if node.following is not None and (node.following.term, node.following.master) == (
                message.term,
                sender,
            ):
                self._append(node, sender, message)
        elif election.role is Role.MASTER and election.term == message.term:
            if isinstance(message, Acked):
                node.acked[sender] = max(node.acked.get(sender, 0), message.end)
                self._acknowledge(node)
            else:
                at = _parting(node.log, message.log)
                self._send(
                    node,
                    sender,
                    Entries(message.term, at, tuple(node.log[at : at + self._copied])),
                )

    def _append(self, node: Member, sender: str, message: Entries) -> None:
        if message.at > len(node.log):
            return
        arrived = list(message.entries)
        if node.log[message.at : message.at + len(arrived)] != arrived:
            del node.log[message.at :]  # it goes aside: nobody was promised it
            node.log += arrived
        node.synced = min(node.synced, message.at)
        if not self.plan.async_flush:
            node.synced = len(node.log)
        self._send(node, sender, Acked(message.term, message.at + len(arrived)))

    # ----------------------------------------------------------------------------------------------- trouble

    def _trouble(self) -> None:
        if self.is_peace:
            return
        self._at(self.chance.uniform(0, 2 * self.plan.fault_seconds), self._trouble)
        getattr(self, f"_do_{self.chance.choice(self.plan.faults)}")()

    def _someone(self) -> Member:
        masters = [node for node in self.nodes.values() if self._may_acknowledge(node)]
        everybody = list(self.nodes.values())
        return self.chance.choice(masters if masters and self.chance.random() < 0.5 else everybody)

    def _do_kill(self) -> None:
        node = self._someone()
        if node.is_up:
            self._say(f"{node.name} is killed")
            self._stop(node)

    def _do_power_cut(self) -> None:
        node = self._someone()
        if not node.is_up or any(each.is_doubtful or not each.is_up for each in self.nodes.values()):
            return  # what one alone has lost, another still has
        self._say(f"{node.name} loses power")
        if self.plan.async_flush and node.is_member:
            del node.log[self.chance.randint(min(node.synced, len(node.log)), len(node.log)) :]
            node.synced = len(node.log)
            node.is_doubtful = True
        self._stop(node)

    def _stop(self, node: Member, seconds: float | None = None) -> None:
        self.kills += 1
        node.is_up = False
        node.life += 1
        node.election = node.witness = None
        self._at(seconds or self.chance.choice((0.05, 0.5, 1.0, 3.0)), lambda: self._restart(node))

    def _restart(self, node: Member) -> None:
        if node.is_up:
            return
        self._start(node)
        life = node.life
        self._tick(node, life)
        if node.is_member:
            self._copy(node, life)

    def _do_pause(self) -> None:
        node = self._someone()
        node.paused_until = self.now + self.chance.choice((0.3, 1.0, 2.0, 4.0))
        self._say(f"{node.name} is paused until {node.paused_until:.2f}")

    def _do_partition(self) -> None:
        aside = {name for name in self.nodes if self.chance.random() < 0.4}
        cut = {(a, b) for a in self.nodes for b in self.nodes if (a in aside) != (b in aside)}
        self._cut_for_a_while(cut)

    def _do_one_way(self) -> None:
        a, b = self.chance.sample(sorted(self.nodes), 2)
        self._cut_for_a_while({(a, b)})

    def _do_flap(self) -> None:
        name = self._someone().name
        for turn in range(4):
            self._at(turn * 0.3, lambda: self._cut_for_a_while({(name, b) for b in self.nodes}, 0.15))

    def _do_deaf_and_kill(self) -> None:
        """One does not hear the master, and then a voter that did starts anew and has forgotten it."""
        masters = [node for node in self.nodes.values() if self._may_acknowledge(node)]
        others = [node for node in self.nodes.values() if node not in masters]
        if masters and len(others) > 1:
            deaf, killed = self.chance.sample(others, 2)
            self._cut_for_a_while({(masters[0].name, deaf.name)}, 3.0)
            self._at(self.chance.uniform(1.2, 2.5), lambda: self._kill_shortly(killed))

    def _do_about_a_lease(self) -> None:
        """The master is not heard for about as long as its lease lasts: it comes back amid an election."""
        for node in self.nodes.values():
            if self._may_acknowledge(node):
                cut = {(node.name, other) for other in self.nodes}
                self._cut_for_a_while(cut, self.chance.uniform(1.1, 1.9))

    def _kill_shortly(self, node: Member) -> None:
        if node.is_up and not self.is_peace:
            self._say(f"{node.name} is killed, and back at once")
            self._stop(node, 0.02)

    def _cut_for_a_while(self, cut: set[tuple[str, str]], seconds: float | None = None) -> None:
        if self.is_peace:
            return
        self._cut |= cut
        self._say(f"cut: {sorted(cut)}")

        def heal() -> None:
            self._cut -= cut

        self._at(seconds or self.chance.choice((0.3, 1.0, 2.5, 5.0)), heal)

    def _do_hand_over(self) -> None:
        node = self._someone()
        if not self._may_acknowledge(node):
            return
        election = node.election
        assert election is not None
        have = [each for each in election.required if node.acked.get(each, 0) >= len(node.log)]
        if have:
            to = self.chance.choice(sorted(have))
            self._say(f"{node.name} hands over to {to}")
            self._perform(node, election.hand_over(self.clock(node), to))

    def _make_peace(self) -> None:
        self.is_peace = True
        self._loss = 0.0
        self._copied = 20
        self._cut.clear()
        for node in self.nodes.values():
            node.paused_until = 0.0
            if not node.is_up:
                self._restart(node)

    # ---------------------------------------------------------------------------------------------- judgment

    def _judge(self) -> None:
        able = [node.name for node in self.nodes.values() if self._may_acknowledge(node)]
        if len(able) > 1:
            self._fault(f"{able} may all acknowledge at {self.now:.3f}")
        for node in self.nodes.values():
            if node.election is not None and node.is_doubtful and not node.election._doubtful:
                node.is_doubtful = False

    def _is_settled(self, wanted: int) -> bool:
        lengths = [len(self.nodes[name].log) for name in self.members]
        logs = {tuple(self.nodes[name].log[: min(lengths)]) for name in self.members}
        masters = [node for node in self.nodes.values() if self._may_acknowledge(node)]
        if (
            len(masters) != 1
            or len(self.acknowledged) < wanted
            or len(logs) > 1
            or max(lengths) > min(lengths) + 40
        ):
            return False
        record = masters[0].election.record if masters[0].election is not None else None
        return record is not None and record.in_sync == self.members

    def _is_for_a_person(self) -> bool:
        """Whether the only ones that ever had everything have lost some of it with their power."""
        records = [node.ballot.record for node in self.nodes.values() if node.ballot.record is not None]
        newest = max(records, key=lambda record: record.rank)
        return all(self.nodes[name].is_doubtful for name in newest.in_sync)

    def _judge_the_end(self) -> None:
        for name in sorted(self.members):
            log = self.nodes[name].log
            for place, entry in self.acknowledged.values():
                has = place < len(log) and log[place] == entry
                if not has and place < len(log) - 40:
                    self._fault(f"{name} lacks {entry}, acknowledged at {place}")
                    break

    def _fault(self, what: str) -> None:
        self.found.append(what)
        self._say(f"FAULT: {what}")

    def _shown(self) -> str:
        return "; ".join(
            f"{node.name} {'up' if node.is_up else 'down'} "
            f"{node.election.role.value if node.election else 'witness'} "
            f"{node.ballot.promised} {len(node.log)}"
            f"{' doubtful' if node.is_doubtful else ''}"
            for node in self.nodes.values()
        )

    def _say(self, what: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.now:8.3f} {what}")


def _parting(ours: list[Entry], theirs: tuple[Entry, ...]) -> int:
    """The first place where two logs differ."""
    together = min(len(ours), len(theirs))
    low, high = 0, together  # a common entry means a common beginning: halve
    while low < high:
        middle = (low + high + 1) // 2
        if ours[middle - 1] == theirs[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class Outcome(NamedTuple):
    seed: int
    found: list[str]
    acknowledged: int
    terms: int
    kills: int

    @property
    def replay(self) -> str:
        return f"python -m tests.sim.replica_set --seed {self.seed}"


def simulate(seed: int, mutation: str | None = None, tell: Callable[[str], None] | None = None) -> Outcome:
    """The world of this seed; the same seed is the same story."""
    from tests.sim.replica_set_mutations import mutated

    with mutated(mutation):
        world = World(seed, tell)
        found = world.run()
    return Outcome(seed, found, len(world.acknowledged), len(world.leaders), world.kills)


def main() -> int:
    from tests.sim.replica_set_mutations import MUTATIONS

    parser = argparse.ArgumentParser(prog="python -m tests.sim.replica_set")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutation", choices=MUTATIONS)
    parser.add_argument("--mutations", action="store_true")
    options = parser.parse_args()
    if options.seed is not None:
        print(World(options.seed).plan)
        outcome = simulate(options.seed, options.mutation, print)
        print(outcome)
        return 1 if outcome.found else 0
    if options.mutations:
        return _mutations(options.seeds)
    began = time.perf_counter()
    outcomes = [simulate(seed) for seed in range(options.first, options.first + options.seeds)]
    failed = [outcome for outcome in outcomes if outcome.found]
    for outcome in failed[:20]:
        print(f"seed {outcome.seed} FAILED: {outcome.found[0]}\n    again: {outcome.replay}")
    seconds = time.perf_counter() - began
    print(
        f"{len(outcomes)} seeds from {options.first}: {len(failed)} failed; "
        f"{sum(each.acknowledged for each in outcomes)} messages acknowledged, "
        f"{sum(each.terms for each in outcomes)} terms with a master, {sum(each.kills for each in outcomes)} "
        f"kills and power cuts; {len(outcomes) / seconds:.0f} seeds a second"
    )
    return 1 if failed else 0


def _mutations(seeds: int) -> int:
    from tests.sim.replica_set_mutations import MUTATIONS

    missed = 0
    print(f"{'mutation':28} {'seed':>5}  what it does, and how it shows")
    for name, mutation in MUTATIONS.items():
        caught = next((each for each in (simulate(seed, name) for seed in range(seeds)) if each.found), None)
        missed += caught is None
        shown = "NOT CAUGHT" if caught is None else caught.found[0]
        print(f"{name:28} {caught.seed if caught else '-':>5}  {mutation.__doc__}: {shown}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
