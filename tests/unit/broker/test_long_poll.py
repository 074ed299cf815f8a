"""Readers that wait for a message."""

from __future__ import annotations

from kourou.broker.long_poll import HOLD_SECONDS, SWEEP_SECONDS, LongPoll, Waiting
from kourou.doors.clock import SimulatedClock


class Reader:
    """Wants to be answered when `ready`, and remembers how it was asked."""

    def __init__(self, *, ready: bool = False) -> None:
        self.ready = ready
        self.gone = False
        self.has_room = True
        self.asked: list[bool] = []

    def retry(self, last: bool) -> bool:
        self.asked.append(last)
        return last or self.ready

    def waiting(self, deadline: float) -> Waiting:
        return Waiting(deadline, self.retry, lambda: self.gone, lambda: self.has_room)


def test_a_reader_is_asked_again_when_its_queue_gets_a_message() -> None:
    poll = LongPoll(SimulatedClock())
    reader = Reader(ready=True)
    poll.park("orders", 3, reader.waiting(15))
    poll.wake("orders", 2)
    poll.wake("others", 3)
    assert reader.asked == []
    poll.wake("orders", 3)
    assert reader.asked == [False]
    assert len(poll) == 0


def test_a_reader_that_does_not_want_the_message_keeps_waiting() -> None:
    poll = LongPoll(SimulatedClock())
    reader = Reader()
    poll.park("orders", 0, reader.waiting(15))
    poll.wake("orders", 0)
    poll.wake("orders", 0)
    assert reader.asked == [False, False]
    assert len(poll) == 1


def test_a_reader_is_answered_with_nothing_when_its_time_is_up_and_not_before() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    poll.start()
    reader = Reader()
    poll.park("orders", 0, reader.waiting(15))
    clock.advance(15 - SWEEP_SECONDS)
    assert reader.asked == []
    clock.advance(2 * SWEEP_SECONDS)
    assert reader.asked == [True]
    assert len(poll) == 0


def test_a_reader_whose_connection_is_gone_is_forgotten_without_being_asked() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    poll.start()
    swept, woken = Reader(), Reader()
    poll.park("orders", 0, swept.waiting(1000))
    poll.park("orders", 1, woken.waiting(1000))
    swept.gone = woken.gone = True
    poll.wake("orders", 1)
    clock.advance(2 * SWEEP_SECONDS)
    assert swept.asked == woken.asked == []
    assert len(poll) == 0


def test_no_more_readers_wait_than_there_is_room_for() -> None:
    poll = LongPoll(SimulatedClock(), parked_max=2)
    assert poll.park("orders", 0, Reader().waiting(15))
    assert poll.park("orders", 1, Reader().waiting(15))
    assert not poll.park("orders", 2, Reader().waiting(15))


def test_stopping_answers_everybody_who_still_waits() -> None:
    poll = LongPoll(SimulatedClock())
    poll.start()
    readers = [Reader(), Reader()]
    for queue_id, reader in enumerate(readers):
        poll.park("orders", queue_id, reader.waiting(15))
    poll.stop()
    assert [reader.asked for reader in readers] == [[True], [True]]
    assert len(poll) == 0


def test_a_reader_without_room_for_an_answer_is_asked_once_it_has_some() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    slow, quick = Reader(ready=True), Reader(ready=True)
    slow.has_room = False
    poll.park("orders", 0, slow.waiting(15))
    poll.park("orders", 0, quick.waiting(15))
    poll.wake("orders", 0)
    assert (slow.asked, quick.asked) == ([], [False])
    clock.advance(3 * HOLD_SECONDS)
    assert slow.asked == []
    slow.has_room = True
    clock.advance(HOLD_SECONDS)
    assert slow.asked == [False]
    assert len(poll) == 0
    slow.has_room = False
    clock.advance(1)
    assert slow.asked == [False]


def test_a_reader_whose_time_is_up_is_answered_when_there_is_room() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    poll.start()
    reader = Reader()
    reader.has_room = False
    poll.park("orders", 0, reader.waiting(1))
    clock.advance(5)
    assert reader.asked == []
    reader.has_room = True
    clock.advance(SWEEP_SECONDS)
    assert reader.asked == [True]


def test_nobody_is_asked_any_more_by_a_poll_that_was_stopped() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    reader = Reader(ready=True)
    reader.has_room = False
    poll.park("orders", 0, reader.waiting(15))
    poll.wake("orders", 0)
    poll.stop()
    assert reader.asked == [True]
    clock.advance(1)
    assert reader.asked == [True]


def test_nobody_is_answered_while_what_is_here_may_not_be_read() -> None:
    clock = SimulatedClock()
    poll = LongPoll(clock)
    poll.start()
    poll.why_not = lambda: "no master has confirmed the end of this log"
    reader = Reader(ready=True)
    poll.park("orders", 0, reader.waiting(1.0))
    poll.wake("orders", 0)
    clock.advance(1.0 + SWEEP_SECONDS)
    assert reader.asked == []
    poll.why_not = lambda: None
    clock.advance(HOLD_SECONDS)
    assert reader.asked == [False]


def test_a_broker_that_stops_tells_nobody_what_may_not_be_read() -> None:
    poll = LongPoll(SimulatedClock())
    poll.why_not = lambda: "no master has confirmed the end of this log"
    reader = Reader(ready=True)
    poll.park("orders", 0, reader.waiting(1.0))
    poll.stop()
    assert reader.asked == []
