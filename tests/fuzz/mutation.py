"""Inputs made from others: what a careless or hostile peer would send instead.

Seeded, so the same for everybody. Bytes are flipped, cut out, repeated and put elsewhere; numbers of any
width become those at the edges; words of the format turn up where they do not belong; two inputs are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from struct import pack

EDGES = (0, 1, -1, 2, 127, 128, 255, 256, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1)
TEXTS = (
    *(str(edge).encode() for edge in (*EDGES, 2**63, 10**30)),
    *(b'"', b"'", b"\\", b"\\u", b"\\ud800", b"\x00", b"\x01", b"\x02", b"\xff", b"\xc3", b"\xed\xa0\x80"),
    *(b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b'{"$ref":"$"}', b"1e999", b"NaN", b"-", b"."),
    *(b" ", b"\r\n", b"=", b"|", b"||", b"*", b"%", b"..", b"/", "中".encode(), "٣".encode()),
)
BYTES_MAX = 8 * 1024


def mutated(chance: Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Another input, between almost the same as a seed and nothing like it."""
    data = bytearray(chance.choice(seeds)[:BYTES_MAX])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 10))):
        _change(chance, data, seeds, words)
    return bytes(data[:BYTES_MAX])


def _change(chance: Random, data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    size = min(len(data) - at, chance.choice((1, 1, 2, 4, 8, 32, 200)))
    match chance.randrange(9):
        case 0 if size:
            data[at] ^= 1 << chance.randrange(8)
        case 1 if size:
            data[at] = chance.randrange(256)
        case 2:
            del data[at : at + size]
        case 3:
            data[at:at] = data[at : at + size] * chance.choice((1, 1, 3, 50))
        case 4:
            width = chance.choice("bhiq")
            bits = 8 * len(pack(width, 0))
            edge = chance.choice(EDGES) & (1 << bits) - 1
            data[at : at + bits // 8] = edge.to_bytes(bits // 8, "big")
        case 5:
            other = chance.choice(seeds)
            begin = chance.randrange(len(other) + 1)
            data[at : at + size] = other[begin : begin + chance.randrange(200)]
        case 6:
            del data[at:]
        case _:
            data[at : at + chance.choice((0, 0, size))] = chance.choice((*words, *TEXTS))


def swollen(word: bytes, size: int) -> bytes:
    """As much of one thing as fits: what is deep, long or many at once."""
    return (word * (size // max(1, len(word)) + 1))[:size]
