"""Message bodies deflated and inflated, never beyond a bound.

A message says in its system flag whether its body is compressed, and how:

    bit 0        the body is compressed
    bits 8-10    1 LZ4 frame, 2 Zstandard frame, 3 zlib; 0 is zlib as older clients wrote it

Inflation is streamed and stops at the bound, so a hostile body of 64 KiB costs the bound and not the
gigabyte it holds. A stream that ends early, or is followed by anything, is refused.
LZ4 and Zstandard come with the extra `kourou[server]`.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any

from kourou.errors import DecompressionLimit, MissingExtra, ProtocolError

COMPRESSED = 0x1
KIND_SHIFT = 8
KIND_MASK = 0x700

INFLATED_BYTES_MAX = 16 * 1024 * 1024
INFLATION_RATIO_MAX = 200
ALWAYS_INFLATED_BYTES = 4 * 1024 * 1024
"""A stock producer may send this much, and if it is all zeros zlib shrinks it a thousandfold."""

_LEVEL = 5  # what RocketMQ's own producer uses
_ZSTD_WINDOW_BYTES_MAX = 16 * 1024 * 1024  # a frame may ask for gigabytes before its first byte of content


class Compression(IntEnum):
    """How a body is compressed; the values are RocketMQ's."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits a message with such a body carries."""
        return COMPRESSED | self << KIND_SHIFT


def compression_of(sys_flag: int) -> Compression | None:
    """How the body of a message with this flag is compressed; None when it is not."""
    if not sys_flag & COMPRESSED:
        return None
    kind = (sys_flag & KIND_MASK) >> KIND_SHIFT
    if kind == 0:
        return Compression.ZLIB
    try:
        return Compression(kind)
    except ValueError:
        raise ProtocolError(
            f"compression type {kind} is unknown: 0 and 3 are zlib, 1 is LZ4, 2 is Zstandard"
        ) from None


def compress(data: bytes, kind: Compression = Compression.ZLIB, level: int = _LEVEL) -> bytes:
    """`data` deflated; the message needs `kind.sys_flag` as well."""
    if kind is Compression.ZLIB:
        return zlib.compress(data, level)
    if kind is Compression.LZ4:
        return bytes(_lz4().compress(data, compression_level=level))
    return bytes(_zstandard().ZstdCompressor(level=level).compress(data))


def decompress(
    sys_flag: int,
    data: bytes,
    limit_bytes: int = INFLATED_BYTES_MAX,
    ratio_max: int = INFLATION_RATIO_MAX,
) -> bytes:
    """The plain body of a message with this flag: `data` itself when the flag says it is not compressed.

    Raises DecompressionLimit when the body would be larger than `limit_bytes`, or than `ratio_max` times
    `data` (which counts from 4 MiB on), and ProtocolError when it is damaged.
    """
    kind = compression_of(sys_flag)
    if kind is None:
        return data
    limit = min(limit_bytes, max(ratio_max * len(data), ALWAYS_INFLATED_BYTES))
    plain = _INFLATE[kind](data, limit)
    if len(plain) > limit:
        raise DecompressionLimit(
            f"a {kind.name} body of {len(data)} bytes inflates beyond {limit} bytes, and is not read further"
        )
    return plain


def inflate_zlib(data: bytes, limit: int) -> bytes:
    """At most `limit` + 1 bytes of what is in `data`, so that the caller can tell there would be more."""
    return _inflate_by_object(zlib.decompressobj(), zlib.error, data, limit)


def _inflate_lz4(data: bytes, limit: int) -> bytes:
    return _inflate_by_object(_lz4().LZ4FrameDecompressor(), (RuntimeError, ValueError), data, limit)


def _inflate_by_object(
    inflater: Any, errors: type[Exception] | tuple[type[Exception], ...], data: bytes, limit: int
) -> bytes:
    """One shape serves both: zlib's and lz4's objects have the same three members."""
    try:
        plain: bytes = inflater.decompress(data, limit + 1)
    except errors as error:
        raise ProtocolError(f"compressed body is damaged: {error}") from None
    if len(plain) <= limit:
        if not inflater.eof:
            raise ProtocolError(f"compressed body of {len(data)} bytes ends before its stream does")
        if inflater.unused_data:
            raise ProtocolError(f"{len(inflater.unused_data)} bytes follow the end of a compressed body")
    return plain


def _inflate_zstd(data: bytes, limit: int) -> bytes:
    zstandard = _zstandard()
    end = _zstd_frame_end(data)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the end of a compressed body")
    inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with inflater.stream_reader(data) as reader:
            plain: bytes = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise ProtocolError(f"compressed body is damaged: {error}") from None
    return plain


def _zstd_frame_end(data: bytes) -> int:
    """Where the Zstandard frame at the front of `data` ends, by its block headers (RFC 8878, 3.1.1).

    The library's reader takes a stream that breaks off for one that is over, so we look for ourselves.
    """
    if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 5:
        raise ProtocolError(f"not a Zstandard frame: it begins with {data[:4].hex()}")
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    at = 5 + (1 - single_segment) + dictionary_bytes + size_bytes
    last = False
    while not last:
        block = int.from_bytes(data[at : at + 3], "little")
        last = block & 1 == 1
        run_length = block >> 1 & 3 == 1
        at += 3 + (1 if run_length else block >> 3)
        if at > len(data):
            raise ProtocolError(f"compressed body of {len(data)} bytes ends before its stream does")
    at += 4 if descriptor & 4 else 0
    if at > len(data):
        raise ProtocolError(f"compressed body of {len(data)} bytes ends before its checksum")
    return at


def _lz4() -> Any:
    return _extra("lz4.frame", "LZ4")


def _zstandard() -> Any:
    return _extra("zstandard", "Zstandard")


def _extra(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(
            f"this body is compressed with {what}, which needs an extra: pip install 'kourou[server]'"
        ) from None


_INFLATE = {
    Compression.ZLIB: inflate_zlib,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
