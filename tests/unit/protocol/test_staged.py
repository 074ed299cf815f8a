"""A chunk of staged messages: what goes in comes out, and bytes that are no chunk are never taken for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.extensions import Decision, StageCount, decode_decision, encode_decision
from kourou.protocol.staged import Chunk, StagedMessage, encode_chunk

INT32 = st.integers(-(2**31), 2**31 - 1)
MESSAGES = st.lists(
    st.builds(
        StagedMessage,
        INT32,
        INT32,
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=30),
        st.binary(max_size=30),
    ),
    min_size=1,
    max_size=20,
)


@given(MESSAGES, st.data())
def test_what_goes_in_comes_out(messages: list[StagedMessage], data: st.DataObject) -> None:
    chunk = Chunk(encode_chunk(messages))
    assert chunk.count == len(messages)
    assert list(chunk.messages()) == messages
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    assert list(chunk.messages(start, stop)) == messages[start:stop]
    assert chunk.properties == b"".join(each.properties for each in messages)
    assert chunk.longest_properties == max(len(each.properties) for each in messages)


@given(st.binary(max_size=200))
def test_garbage_is_a_chunk_or_a_protocol_error_and_never_another_error(data: bytes) -> None:
    try:
        chunk = Chunk(data)
    except ProtocolError:
        return
    assert encode_chunk(list(chunk.messages())) == data


@given(MESSAGES, st.data())
def test_a_changed_byte_gives_other_messages_or_an_error(
    messages: list[StagedMessage], data: st.DataObject
) -> None:
    packed = bytearray(encode_chunk(messages))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        changed = Chunk(bytes(packed))
    except ProtocolError:
        return
    assert list(changed.messages()) != messages


def test_a_decision_is_readable_by_others() -> None:
    decision = Decision({"broker-a": [StageCount("0.1", 2, 30)]})
    assert encode_decision(decision) == b'{"brokers":{"broker-a":[["0.1",2,30]]}}'
    assert decode_decision(encode_decision(decision)) == decision
