from __future__ import annotations

from typing import Any

import pytest

from kourou.client.gate import Gate
from kourou.client.steps import Operation, Wait
from kourou.doors.clock import SimulatedClock
from kourou.errors import Busy, ConfigError
from tests.unit.client.conversation import play


def never(step: Any) -> Any:
    raise AssertionError(f"nothing to wait for: {step}")


def test_so_many_may_pass_and_no_more() -> None:
    gate = Gate(2, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)
    play(gate.enter(1, 3.0), never)
    with pytest.raises(Busy, match="2 messages with 2 bytes are on their way"):
        play(gate.enter(1, 3.0), lambda step: None)
    gate.leave(1)
    play(gate.enter(1, 3.0), never)


def test_so_many_bytes_may_pass_and_no_more() -> None:
    gate = Gate(100, 10, SimulatedClock())
    play(gate.enter(6, 3.0), never)
    with pytest.raises(Busy):
        play(gate.enter(5, 3.0), lambda step: None)
    play(gate.enter(4, 3.0), never)


def test_what_is_larger_than_all_passes_alone() -> None:
    gate = Gate(100, 10, SimulatedClock())
    play(gate.enter(50, 3.0), never)
    with pytest.raises(Busy):
        play(gate.enter(1, 3.0), lambda step: None)


def test_those_who_wait_pass_in_their_order() -> None:
    gate = Gate(1, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)
    waiting = [gate.enter(1, 3.0), gate.enter(1, 3.0)]
    waits = [_waiting(operation) for operation in waiting]
    gate.leave(1)
    assert [wait.arrival.value for wait in waits] == [True, None]
    gate.leave(1)
    assert [wait.arrival.value for wait in waits] == [True, True]


def test_who_gave_up_waiting_is_not_counted() -> None:
    gate = Gate(1, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)
    with pytest.raises(Busy):
        play(gate.enter(1, 3.0), lambda step: None)
    gate.leave(1)
    play(gate.enter(1, 3.0), never)


def test_who_is_let_through_at_the_last_moment_passes() -> None:
    gate = Gate(1, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)

    def too_late(step: Wait) -> None:
        gate.leave(1)  # between the end of the wait and the look at it

    play(gate.enter(1, 3.0), too_late)


def test_who_is_cancelled_while_waiting_takes_nobody_s_place() -> None:
    gate = Gate(1, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)
    cancelled, admitted = gate.enter(1, 3.0), gate.enter(1, 3.0)
    _waiting(cancelled)
    cancelled.close()
    _waiting(admitted)
    gate.leave(1)  # and so `admitted` is let through
    admitted.close()  # cancelled before it has heard of it
    play(gate.enter(1, 3.0), never)


def _waiting(operation: Operation[None]) -> Wait:
    step = next(operation)
    assert isinstance(step, Wait)
    return step


def test_one_may_wait_until_nothing_is_on_its_way() -> None:
    gate = Gate(10, 1000, SimulatedClock())
    play(gate.empty(3.0), never)
    play(gate.enter(1, 3.0), never)
    play(gate.enter(1, 3.0), never)
    wait = _waiting(gate.empty(3.0))
    gate.leave(1)
    assert wait.arrival.value is None
    gate.leave(1)
    assert wait.arrival.value is True


def test_it_is_not_empty_while_somebody_waits_to_go_through() -> None:
    gate = Gate(1, 1000, SimulatedClock())
    play(gate.enter(1, 3.0), never)
    entering = gate.enter(1, 3.0)  # kept: one that is dropped waits no longer
    second = _waiting(entering)
    gate.shut()
    with pytest.raises(ConfigError, match="closed"):
        play(gate.enter(1, 3.0), never)
    wait = _waiting(gate.empty(3.0))
    gate.leave(1)
    assert (second.arrival.value, wait.arrival.value) == (True, None)
    gate.leave(1)
    assert wait.arrival.value is True
