from __future__ import annotations

import logging

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.remoting.complaints import KINDS_MAX, Complaints, printable


def test_each_kind_gets_one_line_a_minute_and_the_next_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimulatedClock()
    complaints = Complaints(logging.getLogger("test"), clock)
    for _ in range(1000):
        complaints.warn("a", "first kind")
        complaints.warn("b", "second kind")
    clock.advance(60)
    complaints.warn("a", "first kind")
    assert [record.getMessage() for record in caplog.records] == [
        "first kind",
        "second kind",
        "first kind (999 more like this since the last line)",
    ]


def test_what_a_peer_sent_cannot_break_a_line_or_colour_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    Complaints(logging.getLogger("test"), SimulatedClock()).warn(
        "a", "evil\r\n\x1b[31mred\u202e\ud800" + "x" * 999
    )
    message = caplog.records[0].getMessage()
    assert message.startswith(r"evil\r\n\x1b[31mred\u202e\ud800xxx")
    assert len(message) < 600
    assert message.isprintable()
    assert printable("näme") == "näme"


def test_the_memory_of_kinds_is_bounded() -> None:
    complaints = Complaints(logging.getLogger("test"), SimulatedClock())
    for number in range(3 * KINDS_MAX):
        complaints.warn(str(number), "x")
    assert len(complaints._said) <= KINDS_MAX
