from __future__ import annotations

from kourou.doors.clock import SimulatedClock
from kourou.remoting.alarm import Alarm


class Waiting:
    """Who waits until when; a ring takes away those whose time has come."""

    def __init__(self, clock: SimulatedClock, deadlines: list[float]) -> None:
        self._clock = clock
        self.deadlines = deadlines
        self.rung: list[float] = []

    def ring(self) -> float | None:
        now = self._clock.monotonic()
        self.rung.append(now)
        self.deadlines = [each for each in self.deadlines if each > now]
        return min(self.deadlines, default=None)


def test_it_rings_for_the_earliest_deadline_and_then_for_the_next() -> None:
    clock = SimulatedClock()
    waiting = Waiting(clock, [5.0, 2.0, 9.0])
    alarm = Alarm(clock, waiting.ring)
    for each in tuple(waiting.deadlines):
        alarm.ring_by(each)
    clock.advance(20)
    assert waiting.rung == [2.0, 5.0, 9.0]


def test_one_timer_serves_many_deadlines() -> None:
    clock = SimulatedClock()
    alarm = Alarm(clock, lambda: None)
    for number in range(1000):
        alarm.ring_by(3.0 + number / 1000)
    assert len(clock._due) == 1


def test_deadlines_close_together_are_served_by_one_ring() -> None:
    clock = SimulatedClock()
    waiting = Waiting(clock, [1.0 + number / 10_000 for number in range(100)])
    alarm = Alarm(clock, waiting.ring)
    alarm.ring_by(1.0)
    clock.advance(2)
    assert not waiting.deadlines
    assert len(waiting.rung) == 2


def test_it_can_be_turned_off() -> None:
    clock = SimulatedClock()
    rung: list[int] = []
    alarm = Alarm(clock, lambda: rung.append(1))  # type: ignore[arg-type,func-returns-value]
    alarm.off()
    alarm.ring_by(1.0)
    alarm.off()
    clock.advance(5)
    assert rung == []
