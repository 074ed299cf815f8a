"""The bytes on the HA port, in the original's form and ours."""

from __future__ import annotations

import random
from struct import pack

import pytest

from kourou.errors import ProtocolError
from kourou.replication import stream


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """The same bytes in pieces of any size."""
    pieces = []
    while data:
        size = chance.randrange(1, 20)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_frames_do_not_depend_on_how_bytes_arrive(seed: int) -> None:
    chance = random.Random(seed)
    bodies = [chance.randbytes(chance.choice([0, 1, 30, 100])) for _ in range(10)]
    place, wire, expected = 4096, b"", []
    for body in bodies:
        wire += stream.FRAME.pack(place, len(body)) + body
        expected.append((place, len(body)))
        place += len(body)
    headers: list[tuple[int, ...]] = []
    reader = stream.FrameReader(stream.FRAME, lambda *header: headers.append(header))
    received = b"".join(chunk for piece in cut(wire, chance) for chunk in reader.feed(piece))
    assert received == b"".join(bodies)
    assert headers == expected


def test_a_frame_is_as_the_originals_bytes_say() -> None:
    """Recorded from a master of the original's, at 2,594,087 with files of 1 MiB, for an empty slave."""
    headers: list[tuple[int, ...]] = []
    reader = stream.FrameReader(stream.FRAME, lambda *header: headers.append(header))
    assert reader.feed(bytes.fromhex("000000000020000000008000") + b"x") == [b"x"]
    assert headers == [(2_097_152, 32_768)]


def test_our_frames_carry_the_term_and_what_readers_may_see() -> None:
    headers: list[tuple[int, ...]] = []
    reader = stream.FrameReader(stream.OUR_FRAME, lambda *header: headers.append(header))
    reader.feed(
        stream.OUR_FRAME.pack(100, 0, 7, 90) + stream.OUR_FRAME.pack(100, stream.METADATA_CHANGED, 7, 90)
    )
    assert headers == [(100, 0, 7, 90), (100, -1, 7, 90)]


@pytest.mark.parametrize("size", [-2, stream.FRAME_BYTES_MAX + 1, -(1 << 31)])
def test_an_impossible_size_is_refused(size: int) -> None:
    reader = stream.FrameReader(stream.FRAME, lambda *_: None)
    with pytest.raises(ProtocolError, match=str(size)):
        reader.feed(pack(">qi", 0, size))


def test_the_last_whole_report_counts() -> None:
    reader = stream.ReportReader(stream.REPORT)
    assert reader.feed(pack(">q", 5)[:3]) == []
    assert reader.feed(pack(">q", 5)[3:] + pack(">q", 9) + b"\0\0") == [(9,)]
    assert reader.feed(pack(">q", 12)[2:]) == [(12,)]


def test_of_places_and_of_changes_the_last_counts() -> None:
    reader = stream.ReportReader(stream.OUR_REPORT)
    reports = [(7, 100), (7, -3), (7, 200), (7, -4), (7, 300)]
    assert sorted(reader.feed(b"".join(pack(">qq", *each) for each in reports))) == [(7, -4), (7, 300)]


def test_words_come_out_whole_and_what_follows_is_kept() -> None:
    wire = stream.words(b"{}") + stream.words(b'"two"') + b"rest"
    reader = stream.WordsReader()
    found: list[bytes] = []
    for at in range(len(wire)):
        reader.feed(wire[at : at + 1])
        if len(found) < 2 and (text := reader.next()) is not None:
            found.append(text)
    assert found == [b"{}", b'"two"']
    assert reader.rest() == b"rest"


@pytest.mark.parametrize("data", [pack(">qi", 0, 5), pack(">qi", -1, 0), pack(">qi", -1, 1 << 30)])
def test_anything_but_words_is_refused_during_a_handshake(data: bytes) -> None:
    reader = stream.WordsReader()
    reader.feed(data)
    with pytest.raises(ProtocolError):
        reader.next()
