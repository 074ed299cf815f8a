"""Compressed bodies: three kinds, one bound."""

from __future__ import annotations

import sys
import tracemalloc
import zlib

import pytest

from kourou.errors import DecompressionLimit, MissingExtra, ProtocolError
from kourou.protocol.compression import (
    ALWAYS_INFLATED_BYTES,
    INFLATED_BYTES_MAX,
    Compression,
    compress,
    compression_of,
    decompress,
)

every_kind = pytest.mark.parametrize("kind", list(Compression), ids=lambda kind: kind.name)
PLAIN = b"".join(b"line %d of a body\n" % number for number in range(500))


def test_the_system_flag_says_how_a_body_is_compressed() -> None:
    assert compression_of(0x700) is None
    assert compression_of(0x001) is Compression.ZLIB
    assert compression_of(0x101) is Compression.LZ4
    assert compression_of(0x201) is Compression.ZSTD
    assert compression_of(0x301) is Compression.ZLIB
    assert [kind.sys_flag for kind in Compression] == [0x101, 0x201, 0x301]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="type 4 is unknown"):
        decompress(0x401, b"")


def test_a_plain_body_is_handed_through() -> None:
    assert decompress(0, PLAIN) is PLAIN


@every_kind
def test_what_was_compressed_comes_back(kind: Compression) -> None:
    packed = compress(PLAIN, kind)
    assert len(packed) < len(PLAIN)
    assert decompress(kind.sys_flag, packed) == PLAIN
    assert decompress(kind.sys_flag, compress(b"", kind)) == b""


@every_kind
def test_every_truncation_is_refused(kind: Compression) -> None:
    packed = compress(PLAIN[:200], kind)
    for end in range(len(packed)):
        with pytest.raises(ProtocolError):
            decompress(kind.sys_flag, packed[:end])


@every_kind
def test_nothing_may_follow_a_compressed_body(kind: Compression) -> None:
    packed = compress(PLAIN, kind)
    for trailing in (b"\0", packed):
        with pytest.raises(ProtocolError, match="follow the end"):
            decompress(kind.sys_flag, packed + trailing)


@every_kind
def test_a_bomb_costs_the_bound_and_no_more(kind: Compression) -> None:
    bomb = compress(bytes(4 * INFLATED_BYTES_MAX), kind)
    decompress(kind.sys_flag, compress(b"", kind))  # the library's own import is not to be counted
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit, match="inflates beyond"):
            decompress(kind.sys_flag, bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * INFLATED_BYTES_MAX  # the output and the one copy it grows by


@every_kind
def test_the_limit_is_exact(kind: Compression) -> None:
    packed = compress(PLAIN, kind)
    assert decompress(kind.sys_flag, packed, limit_bytes=len(PLAIN)) == PLAIN
    with pytest.raises(DecompressionLimit):
        decompress(kind.sys_flag, packed, limit_bytes=len(PLAIN) - 1)


def test_the_ratio_is_bounded_beyond_what_a_producer_may_send() -> None:
    zeros = zlib.compress(bytes(ALWAYS_INFLATED_BYTES))
    assert len(decompress(0x301, zeros)) == ALWAYS_INFLATED_BYTES  # a thousandfold, and legitimate
    with pytest.raises(DecompressionLimit):
        decompress(0x301, zlib.compress(bytes(ALWAYS_INFLATED_BYTES + 1)))
    assert len(decompress(0x301, zlib.compress(bytes(ALWAYS_INFLATED_BYTES + 1)), ratio_max=2000))


def test_a_window_of_gigabytes_is_not_allocated() -> None:
    descriptor, window_of_1_gib, last_block_empty = b"\x00", bytes([20 << 3]), b"\x01\x00\x00"
    with pytest.raises(ProtocolError, match="damaged"):
        decompress(0x201, b"\x28\xb5\x2f\xfd" + descriptor + window_of_1_gib + last_block_empty)


@pytest.mark.parametrize(
    ("module", "kind"), [("lz4.frame", Compression.LZ4), ("zstandard", Compression.ZSTD)]
)
def test_a_missing_library_is_named_with_its_extra(
    module: str, kind: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"kourou\[server\]"):
        decompress(kind.sys_flag, b"\x28\xb5\x2f\xfd")
