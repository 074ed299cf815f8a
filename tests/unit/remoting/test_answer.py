from __future__ import annotations

import pytest

from kourou.errors import Denied, NotFound, ProtocolError
from kourou.protocol.bodies import HeartbeatData
from kourou.protocol.command import Command
from kourou.remoting.answer import (
    REMARK_CHARACTERS_MAX,
    Answer,
    encode_reply,
    not_supported,
    one_way,
    refusal,
)


class Line:
    """Where answers go."""

    def __init__(self) -> None:
        self.is_open = True
        self.settled: list[int] = []
        self.parked: list[int] = []
        self.sent: list[bytes] = []

    def settle(self, size: int) -> None:
        self.settled.append(size)

    def park(self, size: int) -> None:
        self.parked.append(size)

    def unpark(self, size: int) -> None:
        self.parked.remove(size)

    def send_frame(self, frame: bytes) -> None:
        self.sent.append(frame)


REQUEST = Command(105, opaque=9)


def test_an_answer_is_sent_once_and_settles_its_request_once() -> None:
    line = Line()
    answer = Answer(line, 100, 0)  # type: ignore[arg-type]
    answer(b"frame")
    answer(b"again")
    answer.park()
    assert (line.sent, line.settled) == ([b"frame"], [100])


def test_a_parked_request_counts_as_parked_until_it_is_answered() -> None:
    line = Line()
    answer = Answer(line, 100, 0)  # type: ignore[arg-type]
    answer.park()
    answer.park()
    assert answer.is_open
    assert (line.sent, line.settled, line.parked) == ([], [], [100])
    answer(b"frame")
    answer(b"again")
    assert (line.sent, line.settled, line.parked) == ([b"frame"], [], [])
    assert not answer.is_open


def test_a_request_that_counts_nowhere_can_be_parked_and_answered() -> None:
    line = Line()
    answer = Answer(line, 0, 0)  # type: ignore[arg-type]
    answer.park()
    answer(b"frame")
    assert (line.sent, line.settled, line.parked) == ([b"frame"], [], [])


def test_a_one_way_request_is_settled_and_not_answered() -> None:
    line = Line()
    Answer(line, 100, 2)(REQUEST.reply())  # type: ignore[arg-type]
    assert (line.sent, line.settled) == ([], [100])


def test_an_answer_to_a_lost_connection_goes_nowhere() -> None:
    line = Line()
    answer = Answer(line, 100, 0)  # type: ignore[arg-type]
    line.is_open = False
    answer.park()
    answer(b"frame")
    assert (line.sent, line.settled) == ([], [])


def test_a_refusal_keeps_code_and_remark_and_bounds_its_length() -> None:
    said = refusal(REQUEST, NotFound(17, "no topic 'orders' here"))
    assert (said.code, said.remark, said.opaque, said.is_reply) == (17, "no topic 'orders' here", 9, True)
    assert len(str(refusal(REQUEST, Denied(16, "x" * 99_999)).remark)) == REMARK_CHARACTERS_MAX


def test_an_unforeseen_error_tells_the_peer_no_more_than_its_name() -> None:
    said = refusal(REQUEST, KeyError("/etc/secret"))
    assert said.code == 1
    assert (
        said.remark == "GET_ROUTEINFO_BY_TOPIC (105) failed inside the server (KeyError); its log says more"
    )


def test_a_request_that_cannot_be_read_is_refused_by_its_name() -> None:
    with pytest.raises(ProtocolError) as raised:
        HeartbeatData.decode_request(b'{"clientID":"a"')
    said = refusal(Command(34), raised.value)
    assert said.code == 1
    assert said.remark == "request HEART_BEAT (34) cannot be read: body: JSON breaks off"


def test_an_unknown_code_is_refused_in_the_words_of_the_original() -> None:
    said = not_supported(Command(777, opaque=3))
    assert (said.code, said.remark, said.opaque) == (3, " request type 777 not supported", 3)


def test_a_reply_that_cannot_be_a_frame_becomes_an_error() -> None:
    too_big = REQUEST.reply(body=bytes(1 << 24))
    with pytest.raises(ProtocolError):
        too_big.encode()
    assert b"frame of 16777" in encode_reply(too_big)


def test_a_one_way_request_says_so() -> None:
    assert b'"flag":2' in one_way(Command(40), 5)
