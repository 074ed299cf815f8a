"""The rules of the election, one at a time; how they hold together shows in tests/sim/replica_set.py."""

from __future__ import annotations

import pytest

from kourou.doors.chance import Chance
from kourou.errors import ProtocolError
from kourou.replication.ballots import (
    Ask,
    Ballot,
    Envelope,
    HandOver,
    Message,
    Position,
    Propose,
    Record,
    Voter,
    decoded,
    encoded,
    is_signed,
    signed,
)
from kourou.replication.election import Action, Election, Follow, Lead, Role, Save, Send, Timing
from kourou.replication.keeping_up import Progress

MEMBERS = frozenset({"a", "b", "c"})
LEASE = Timing().lease


def record(term: int, master: str = "a", in_sync: str = "abc", version: int = 0) -> Record:
    return Record(term, version, master, frozenset(in_sync))


def member(
    name: str,
    ballot: Ballot | None = None,
    *,
    end: int = 0,
    now: float = 0.0,
    doubtful: bool = False,
    damaged: bool = False,
    members: frozenset[str] = MEMBERS,
    witnesses: frozenset[str] = frozenset(),
) -> Election:
    return Election(
        name,
        members,
        witnesses,
        ballot or Ballot(),
        position=lambda: Position(0, end),
        chance=Chance(1),
        now=now,
        doubtful=doubtful,
        is_damaged=lambda: damaged,
    )


class Talk:
    """Members whose messages arrive at once, but for those to or from the deaf."""

    def __init__(self, *members: Election) -> None:
        self.members = {each.me: each for each in members}
        self.deaf: set[str] = set()
        self.leads: list[tuple[str, Record]] = []
        self.follows: list[tuple[str, Follow]] = []
        self.disk: dict[str, Ballot] = {}

    def do(self, now: float, who: str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.send(now, who, action.to, action.message)
            elif isinstance(action, Lead):
                self.leads.append((who, action.record))
            elif isinstance(action, Save):
                self.disk[who] = action.ballot
            else:
                self.follows.append((who, action))

    def send(self, now: float, sender: str, to: str, message: Message) -> None:
        if to in self.members and not self.deaf & {sender, to}:
            self.do(now, to, self.members[to].received(now, sender, message))

    def tick(self, now: float, *who: str) -> None:
        for name in who or self.members:
            self.do(now, name, self.members[name].tick(now))

    def run(self, begin: float, seconds: float, *who: str) -> float:
        now = begin
        while now < begin + seconds:
            self.tick(now, *who)
            now += 0.05
        return now


def new_set() -> tuple[Talk, float]:
    talk = Talk(member("a", end=10), member("b"), member("c"))
    return talk, talk.run(0.0, 2.0)


def test_in_a_new_set_the_one_with_the_longest_log_leads() -> None:
    talk, _ = new_set()
    assert [(who, taken.in_sync) for who, taken in talk.leads] == [("a", frozenset({"a"}))]
    assert {name: each.master for name, each in talk.members.items()} == {"a": "a", "b": "a", "c": "a"}


def test_a_new_set_waits_until_all_members_are_there() -> None:
    talk = Talk(member("a"), member("b"), member("c"))
    talk.deaf = {"c"}
    now = talk.run(0.0, 5.0)
    assert not talk.leads  # c may have a log that the others know nothing of
    talk.deaf = set()
    talk.run(now, 3.0)
    assert len(talk.leads) == 1


def test_when_the_master_is_silent_an_in_sync_replica_follows_it_after_the_lease() -> None:
    talk, now = new_set()
    master = talk.members["a"]
    talk.do(now, "a", master.replicated(now, Progress({"b": 10}, 10, 10)))
    talk.do(now, "a", master.replicated(now + 0.05, Progress({"b": 10}, 10, 10)))
    assert master.required == {"b"}
    talk.deaf = {"a"}
    until = master.lease_until
    now = talk.run(now, 4.0)
    assert [who for who, _ in talk.leads] == ["a", "b"]
    assert not master.may_acknowledge(until)
    assert master.role is not Role.MASTER
    assert talk.members["b"].may_acknowledge(now - 0.05)


def test_a_replica_that_is_not_in_sync_does_not_lead() -> None:
    talk, now = new_set()  # only a is in sync
    talk.deaf = {"a"}
    term = talk.members["b"].term
    talk.run(now, 6.0)
    assert [who for who, _ in talk.leads] == ["a"]
    assert talk.members["b"].term == term, "asking in vain must not disturb anybody"


def test_it_leads_when_a_person_forces_it() -> None:
    talk, now = new_set()
    talk.deaf = {"a"}
    now = talk.run(now, 3.0)
    talk.do(now, "c", talk.members["c"].force(now))
    talk.run(now, 2.0)
    assert [(who, taken.in_sync) for who, taken in talk.leads][1:] == [("c", frozenset({"c"}))]


def test_a_message_waits_for_a_replica_until_a_majority_knows_that_it_left() -> None:
    known = Ballot(1, record(1))
    talk = Talk(member("a", known), member("b", known), member("c", known))
    now = talk.run(LEASE, 2.0)
    leader = talk.leads[-1][0]
    master = talk.members[leader]
    (replica,) = master.required
    talk.deaf = set(MEMBERS - {leader})
    for step in range(60):  # it is connected no more
        talk.do(now, leader, master.replicated(now + step * 0.05, Progress({}, 0, 0)))
    assert master.required == {replica}
    talk.deaf = set()
    talk.run(now, 0.5, leader)
    assert master.required == frozenset()


def test_a_joining_replica_is_waited_for_before_the_record_is_taken() -> None:
    talk, now = new_set()
    master = talk.members["a"]
    talk.deaf = {"b", "c"}
    master.replicated(now, Progress({"b": 10}, 10, 10))
    master.replicated(now + 0.01, Progress({"b": 10}, 10, 10))
    assert master.required == {"b"}


def test_nobody_joins_who_lacks_what_was_acknowledged_or_shown() -> None:
    talk, now = new_set()
    master = talk.members["a"]
    for step in range(20):
        at = now + step * 0.02
        talk.do(at, "a", master.replicated(at, Progress({"b": 10}, confirmed=11, end=10)))
    assert master.required == {"b"}, "it is waited for"
    assert master.record is not None
    assert master.record.in_sync == {"a"}, "and is not in sync yet"
    talk.do(at, "a", master.replicated(at + 0.02, Progress({"b": 11}, confirmed=11, end=11)))
    assert master.record.in_sync == {"a", "b"}


def test_nobody_joins_who_lacks_a_topic_that_was_said_to_be_there() -> None:
    talk, now = new_set()
    master = talk.members["a"]
    for step in range(20):
        at = now + step * 0.02
        talk.do(at, "a", master.replicated(at, Progress({"b": 10}, 10, 10, lacking=frozenset({"b"}))))
    assert master.required == {"b"}, "it is waited for"
    assert master.record is not None
    assert master.record.in_sync == {"a"}, "and is not in sync yet"
    talk.do(at, "a", master.replicated(at + 0.02, Progress({"b": 10}, 10, 10)))
    assert master.record.in_sync == {"a", "b"}


def test_a_voter_promises_a_term_once_also_after_a_crash() -> None:
    voter = Voter(Ballot(3, record(3)), LEASE, 0.0)
    assert voter.asked(LEASE, Ask(4, False, Position()), None).granted
    assert voter.ballot.promised == 4
    again = Voter(voter.ballot, LEASE, 10.0)
    assert not again.asked(20.0, Ask(4, False, Position()), None).granted
    assert again.asked(20.0, Ask(5, False, Position()), None).granted


def test_a_ballot_is_saved_before_the_answer_that_rests_on_it() -> None:
    voter = member("b", Ballot(1, record(1)))
    actions = voter.received(LEASE, "c", Ask(2, False, Position()))
    assert [type(action) for action in actions] == [Follow, Save, Send]
    assert actions[0] == Follow(2, None), "bytes of the old term are let go first"
    taken = voter.received(LEASE, "c", Propose(record(2, "c", version=1), 1))
    assert [type(action) for action in taken] == [Save, Follow, Send]
    assert voter.record == record(2, "c", version=1)


def test_a_record_below_the_promised_term_is_not_taken() -> None:
    voter = Voter(Ballot(1, record(1)), LEASE, 0.0)
    voter.asked(LEASE, Ask(2, False, Position()), None)
    before = voter.lease_until
    taken = voter.proposed(LEASE, Propose(record(1, version=7), 9))
    assert (taken.granted, taken.promised) == (False, 2)
    assert voter.lease_until == before, "nor is its lease renewed"


def test_nobody_is_voted_for_while_a_lease_lasts() -> None:
    voter = Voter(Ballot(), LEASE, 0.0)
    voter.proposed(1.0, Propose(record(1), 1, LEASE))
    assert not voter.asked(1.0 + LEASE * 0.99, Ask(2, False, Position()), None).granted
    assert voter.asked(1.0 + LEASE, Ask(2, False, Position()), None).granted


def test_after_a_start_a_voter_waits_for_the_leases_it_may_have_granted() -> None:
    voter = Voter(Ballot(1, record(1)), LEASE, 100.0)
    assert not voter.asked(100.0 + LEASE * 0.9, Ask(2, False, Position()), None).granted
    assert voter.asked(100.0 + LEASE, Ask(2, False, Position()), None).granted


def test_a_master_that_hands_over_is_followed_at_once_and_acknowledges_nothing_more() -> None:
    known = Ballot(1, record(1))
    talk = Talk(member("a", known), member("b", known), member("c", known))
    now = talk.run(LEASE, 2.0)
    leader = talk.leads[-1][0]
    heir = min(MEMBERS - {leader})
    talk.do(now, leader, talk.members[leader].hand_over(now, heir))
    assert talk.leads[-1][0] == heir
    assert not talk.members[leader].may_acknowledge(now)
    assert talk.members[heir].may_acknowledge(now)


def test_a_master_that_cannot_lead_steps_aside_and_another_follows() -> None:
    known = Ballot(1, record(1))
    talk = Talk(member("a", known), member("b", known), member("c", known))
    now = talk.run(LEASE, 2.0)
    leader = talk.leads[-1][0]
    talk.do(now, leader, talk.members[leader].step_aside(now))
    assert not talk.members[leader].may_acknowledge(now)
    talk.run(now, 3.0)
    assert talk.leads[-1][0] != leader


def test_a_hand_over_by_somebody_else_is_not_believed() -> None:
    voter = member("b", Ballot(1, record(1)))
    assert voter.received(0.1, "c", HandOver(1)) == []


def test_who_lost_bytes_with_the_power_leads_only_when_called_in_sync_again() -> None:
    known = Ballot(1, record(1))
    talk = Talk(member("b", known, doubtful=True), member("c", known, doubtful=True))
    now = talk.run(LEASE, 4.0)
    assert not talk.leads
    returning = member("a", known, now=now)
    talk.members["a"] = returning
    now = talk.run(now, 3.0)
    assert [who for who, _ in talk.leads] == ["a"]
    for step in range(40):  # out first, then in again
        at = now + step * 0.05
        talk.do(at, "a", returning.replicated(at, Progress({"b": 5, "c": 5}, 5, 5)))
        talk.tick(at)
    assert returning.required == {"b", "c"}
    talk.deaf = {"a"}
    talk.run(now + 2.0, 4.0)
    assert talk.leads[-1][0] in {"b", "c"}


@pytest.mark.parametrize("damaged", ["b", "c"])
def test_whoever_has_a_damaged_log_lets_the_others_lead(damaged: str) -> None:
    known = Ballot(1, record(1))
    talk = Talk(*(member(name, known, damaged=name == damaged) for name in "bc"))
    talk.run(LEASE, 6.0)
    assert {who for who, _ in talk.leads} == {"b", "c"} - {damaged}


def test_whoever_has_a_damaged_log_leads_when_nobody_else_does() -> None:
    known = Ballot(1, record(1))
    talk = Talk(member("b", known, damaged=True), member("c", known, damaged=True))
    talk.run(LEASE, 8.0)
    assert talk.leads


def test_strangers_are_not_listened_to() -> None:
    election = member("a")
    assert election.received(0.0, "mallory", Ask(9, False, Position())) == []
    assert election.received(0.0, "b", Propose(record(9, "c"), 1)) == [], "b speaks for c"


def test_two_members_and_a_witness_survive_one_of_them() -> None:
    known = Ballot(1, record(1, in_sync="ab"))
    pair = frozenset({"a", "b"})
    kept = member("b", known, members=pair, witnesses=frozenset({"w"}))
    witness = Voter(known, LEASE, 0.0)
    now, leads = LEASE, 0
    while now < 4.0:
        pending = kept.tick(now)
        while pending:
            action = pending.pop(0)
            leads += isinstance(action, Lead)
            if isinstance(action, Send) and action.to == "w":
                if isinstance(action.message, Ask):
                    pending += kept.received(now, "w", witness.asked(now, action.message, None))
                elif isinstance(action.message, Propose):
                    pending += kept.received(now, "w", witness.proposed(now, action.message))
        now += 0.05
    assert leads == 1
    assert kept.required == frozenset()


def test_messages_survive_their_journey() -> None:
    election = member("a", Ballot(1, record(1)))
    for message in (
        Ask(2, True, Position(1, 5)),
        Voter(Ballot(1, record(1)), LEASE, 0.0).asked(9.0, Ask(2, False, Position()), None),
        Propose(record(1), 3),
        Voter(Ballot(), LEASE, 0.0).proposed(0.0, Propose(record(1), 3)),
        HandOver(4),
    ):
        envelope = Envelope("shop", election.me, message)
        assert decoded(encoded(envelope)) == envelope


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 5000,
        b'{"replica_set":"s","sender":"a","message":{"type":"hand-over","term":-1}}',
        b'{"replica_set":"s","sender":"","message":{"type":"hand-over","term":1}}',
        b'{"replica_set":"s","sender":"a","message":{"type":"conquer","term":1}}',
        b'{"replica_set":"s","sender":"a","message":{"type":"propose","number":1,'
        b'"record":[1,0,"a",["1","2","3","4","5","6"]]}}',
    ],
)
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decoded(data)


def test_a_proof_does_not_depend_on_the_order_of_a_set() -> None:
    names = [f"10.0.0.{number}:10911" for number in range(5)]
    one, other = (
        Envelope("shop", "a", Propose(Record(1, 0, names[0], frozenset(order)), 1))
        for order in (names, names[::-1])
    )
    again = decoded(encoded(signed(one, "sixteen characters")))
    assert is_signed(again, "sixteen characters")
    assert signed(one, "sixteen characters").proof == signed(other, "sixteen characters").proof
    assert not is_signed(again, "another secret of 16")
